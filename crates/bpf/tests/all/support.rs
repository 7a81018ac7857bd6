//! What the tests share: whether the kernel lets them, and how programs are loaded.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bpf::{
    Alu, Assembler, Atomic, Cond, Errno, Helper, Insn, Label, LoadError, Map, MapSpec, Program, ProgramKind,
    ProgramSpec, Reg, Shared, Size,
};

/// A child has this process's descriptors until it ends or executes another file, and a link stays
/// attached as long as anyone has it. So nobody creates a child while a test sees that dropping a
/// link detaches it.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// While this is held, no child has a descriptor of this process.
pub(crate) fn without_children() -> RwLockReadGuard<'static, ()> {
    DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Is held by who creates a child, until the child has ended.
pub(crate) fn with_a_child() -> RwLockWriteGuard<'static, ()> {
    DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process may load programs; if not, the test is skipped.
#[track_caller]
pub(crate) fn permitted(test: &str) -> bool {
    let refused = Map::create(&MapSpec::array("permitted", 8, 1)).err();
    let mut assembler = Assembler::new();
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.exit();
    let kind = ProgramKind::Uprobe { sleepable: false };
    let errno = try_load(kind, assembler, &[]).err().map(|error| error.errno);
    let allowed = refused.is_none() && !matches!(errno, Some(Errno::EPERM | Errno::ENOSYS));
    if !allowed {
        testing::skipped(&format!("bpf: {test}"), "the right to load programs into the kernel");
    }
    allowed
}

/// Loads a program.
pub(crate) fn try_load(kind: ProgramKind, assembler: Assembler, maps: &[&Map]) -> Result<Program, LoadError> {
    let code = assembler.finish().expect("the test's program is complete");
    Program::load(&ProgramSpec { kind, name: "dprobes_test", code: &code, maps })
}

/// Loads a program that the kernel accepts.
#[track_caller]
pub(crate) fn load(kind: ProgramKind, assembler: Assembler, maps: &[&Map]) -> Program {
    match try_load(kind, assembler, maps) {
        Ok(program) => program,
        Err(error) => panic!("{error}\n{}", error.log),
    }
}

/// The words of a mappable array of one value, for programs to count in: map 0 of their lists.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) map: Map,
    shared: Shared,
}

impl Words {
    pub(crate) fn new() -> Self {
        let map = Map::create(&MapSpec { mappable: true, ..MapSpec::array("words", 128, 1) });
        let map = map.expect("this process may create maps");
        let shared = map.share().expect("the map is mappable");
        Self { map, shared }
    }

    pub(crate) fn get(&self, number: usize) -> u64 {
        self.shared[number].load(Ordering::Relaxed)
    }

    /// The first words.
    pub(crate) fn first<const N: usize>(&self) -> [u64; N] {
        std::array::from_fn(|number| self.get(number))
    }
}

/// A program that adds 1 to the word of map 0 with the number of its cookie.
pub(crate) fn counter() -> Assembler {
    let mut assembler = Assembler::new();
    assembler.push(Insn::mov(Reg::R6, Reg::R1));
    count_by_cookie(&mut assembler);
    end(&mut assembler);
    assembler
}

/// Adds 1 to the word of map 0 with the number of the program's cookie. `R6` is the context.
pub(crate) fn count_by_cookie(assembler: &mut Assembler) {
    assembler.push(Insn::mov(Reg::R1, Reg::R6));
    assembler.call(Helper::GET_ATTACH_COOKIE);
    assembler.push(Insn::alu64(Alu::And, Reg::R0, 15));
    assembler.push(Insn::alu64(Alu::Lsh, Reg::R0, 3));
    assembler.load_map_value(Reg::R1, 0, 0);
    assembler.push(Insn::alu64(Alu::Add, Reg::R1, Reg::R0));
    assembler.push(Insn::mov(Reg::R2, 1));
    assembler.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R1, 0, Reg::R2));
}

/// Moves the context to `R6`, and jumps to the label unless the thread is the one that calls this.
pub(crate) fn only_this_thread(assembler: &mut Assembler) -> Label {
    let other = assembler.label();
    assembler.push(Insn::mov(Reg::R6, Reg::R1));
    assembler.call(Helper::GET_CURRENT_PID_TGID);
    assembler.jump_if32(Cond::Ne, Reg::R0, thread() as i32, other);
    other
}

/// This thread's number.
pub(crate) fn thread() -> u32 {
    // SAFETY: the call has no arguments, and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Returns 0.
pub(crate) fn end(assembler: &mut Assembler) {
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.exit();
}

/// The file of this test, and the offset in it of one of its functions.
pub(crate) fn place(function: extern "C" fn(u64) -> u64) -> (PathBuf, u64) {
    let address = function as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
    let number = |text: &str| u64::from_str_radix(text, 16).expect("the kernel writes numbers");
    let offset = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let offset = rest.split_whitespace().nth(1)?;
        let inside = (number(start)..number(end)).contains(&address);
        inside.then(|| address - number(start) + number(offset))
    });
    let executable = std::env::current_exe().expect("this program has a file");
    (executable, offset.expect("the function is in this program"))
}

/// This process's number.
pub(crate) fn process() -> Option<u32> {
    Some(std::process::id())
}
