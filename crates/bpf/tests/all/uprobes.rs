//! Probes on functions of this test's own file.

use std::hint::black_box;

use bpf::{
    Assembler, AttachError, Errno, Feature, Helper, Insn, Link, ProgramKind, Reg, Size, Uprobe, UprobeMulti,
};

use crate::support::{Words, counter, end, load, permitted, place, process, with_a_child, without_children};

const PLAIN: ProgramKind = ProgramKind::Uprobe { sleepable: false };

/// Functions to probe: each test has its own, since tests run at the same time.
macro_rules! functions {
    ($($name:ident $number:literal)*) => {
        $(
            #[inline(never)]
            extern "C" fn $name(argument: u64) -> u64 {
                black_box(argument) * 2 + $number
            }
        )*
    };
}

functions! {
    counted_first 1
    counted_second 2
    returned 3
    several_first 4
    several_second 5
    paged 6
    everywhere 7
    twice 8
}

/// Attaches to a function of this process.
#[track_caller]
fn attach(program: &bpf::Program, function: extern "C" fn(u64) -> u64, cookie: u64, on_return: bool) -> Link {
    let (path, offset) = place(function);
    let probe = Uprobe { path: &path, offset, on_return, reference_counter: 0, process: process() };
    match probe.attach(program, cookie) {
        Ok(link) => link,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn hits_are_counted_by_cookie_until_the_link_is_dropped() {
    if !permitted("hits_are_counted_by_cookie_until_the_link_is_dropped") {
        return;
    }
    let _links_end = without_children();
    let words = Words::new();
    let program = load(PLAIN, counter(), &[&words.map]);
    let first = attach(&program, counted_first, 1, false);
    let _second = attach(&program, counted_second, 2, false);
    for number in 0..5 {
        counted_first(number);
    }
    counted_second(0);
    assert_eq!(words.first(), [0, 5, 1, 0]);
    drop(first);
    counted_first(0);
    counted_second(0);
    assert_eq!(words.first(), [0, 5, 2, 0]);
}

#[test]
fn two_programs_are_executed_at_one_place() {
    if !permitted("two_programs_are_executed_at_one_place") {
        return;
    }
    let words = Words::new();
    let program = load(PLAIN, counter(), &[&words.map]);
    let _links = [attach(&program, twice, 1, false), attach(&program, twice, 2, false)];
    twice(0);
    assert_eq!(words.first(), [0, 1, 1]);
}

#[test]
fn a_return_probe_sees_the_result() {
    if !permitted("a_return_probe_sees_the_result") {
        return;
    }
    let words = Words::new();
    let mut assembler = Assembler::new();
    // `rax` in `struct pt_regs`.
    assembler.push(Insn::load(Size::Double, Reg::R2, Reg::R1, 80));
    assembler.load_map_value(Reg::R1, 0, 8);
    assembler.push(Insn::store(Size::Double, Reg::R1, 0, Reg::R2));
    end(&mut assembler);
    let program = load(PLAIN, assembler, &[&words.map]);
    let _link = attach(&program, returned, 0, true);
    let result = returned(20);
    assert_eq!((result, words.get(1)), (43, 43));
}

#[test]
fn all_processes_that_execute_the_file_hit_a_probe_of_the_file() {
    if !permitted("all_processes_that_execute_the_file_hit_a_probe_of_the_file") {
        return;
    }
    let words = Words::new();
    let program = load(PLAIN, counter(), &[&words.map]);
    let (path, offset) = place(everywhere);
    let probe = Uprobe { path: &path, offset, on_return: false, reference_counter: 0, process: None };
    let _all = probe.attach(&program, 1).expect("the function can be probed");
    let _one = Uprobe { process: process(), ..probe }.attach(&program, 2).expect("so it can");
    let _child = with_a_child();
    // SAFETY: the child calls a function without locks or allocation and ends, without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        everywhere(0);
        // SAFETY: this ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the status is an int of this frame, and the child is this process's own.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    assert_eq!(words.first(), [0, 1, 0]);
    everywhere(0);
    assert_eq!(words.first(), [0, 2, 1]);
}

#[test]
fn one_link_has_several_places_each_with_its_cookie() {
    let test = "one_link_has_several_places_each_with_its_cookie";
    if !permitted(test) {
        return;
    }
    if !Feature::UprobeMulti.is_available() {
        return testing::skipped(&format!("optional: {test}"), "Linux 6.6");
    }
    let _links_end = without_children();
    let words = Words::new();
    let program = load(ProgramKind::UprobeMulti { sleepable: false }, counter(), &[&words.map]);
    let (path, first) = place(several_first);
    let (_, second) = place(several_second);
    let request = UprobeMulti {
        path: &path,
        offsets: &[first, second],
        cookies: &[3, 4],
        reference_counters: &[],
        on_return: false,
        process: process(),
    };
    let link = request.attach(&program).expect("both functions can be probed");
    // Another thread of the process counts, too, if the kernel limits links to processes.
    std::thread::spawn(|| several_first(0)).join().expect("the thread only calls a function");
    let expected = u64::from(Feature::UprobeMultiProcess.is_available());
    assert_eq!(words.first(), [0, 0, 0, expected, 0]);
    drop(link);
    let request = UprobeMulti { process: None, on_return: true, ..request };
    let link = request.attach(&program).expect("both functions can be probed");
    several_second(0);
    assert_eq!(words.first(), [0, 0, 0, expected, 1]);
    drop(link);
    several_second(0);
    assert_eq!(words.get(4), 1);
    let unequal = UprobeMulti { cookies: &[1], ..request }.attach(&program).err();
    assert_eq!(unequal, Some(AttachError::Lengths));
}

#[test]
fn only_a_sleepable_program_reads_memory_that_is_not_there_yet() {
    let test = "only_a_sleepable_program_reads_memory_that_is_not_there_yet";
    if !permitted(test) {
        return;
    }
    if !Feature::SleepableUprobe.is_available() {
        return testing::skipped(&format!("optional: {test}"), "Linux 6.0");
    }
    let _links_end = without_children();
    let words = Words::new();
    // Puts the helper's result into a word: reading 8 bytes at the function's argument.
    let reader = |helper, word: u32| {
        let mut assembler = Assembler::new();
        // `rdi` in `struct pt_regs`.
        assembler.push(Insn::load(Size::Double, Reg::R3, Reg::R1, 112));
        assembler.push(Insn::mov(Reg::R1, Reg::R10));
        assembler.push(Insn::alu64(bpf::Alu::Add, Reg::R1, -8));
        assembler.push(Insn::mov(Reg::R2, 8));
        assembler.call(helper);
        assembler.load_map_value(Reg::R1, 0, word * 8);
        assembler.push(Insn::store(Size::Double, Reg::R1, 0, Reg::R0));
        end(&mut assembler);
        assembler
    };
    let plain = load(PLAIN, reader(Helper::PROBE_READ_USER, 1), &[&words.map]);
    let kind = ProgramKind::Uprobe { sleepable: true };
    let sleepable = load(kind, reader(Helper::COPY_FROM_USER, 2), &[&words.map]);
    let fresh = FreshPage::new();
    let link = attach(&plain, paged, 0, false);
    paged(fresh.0 as u64);
    drop(link);
    let _link = attach(&sleepable, paged, 0, false);
    paged(fresh.0 as u64);
    let fault = (-(Errno::EFAULT as i64)) as u64;
    assert_eq!(words.first(), [0, fault, 0]);
    paged(8);
    assert_eq!(words.first(), [0, fault, fault]);
}

/// A page that was never accessed.
struct FreshPage(*mut libc::c_void);

impl FreshPage {
    fn new() -> Self {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses a free place.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        Self(page)
    }
}

impl Drop for FreshPage {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped this page, and nothing refers to it.
        unsafe { libc::munmap(self.0, 4096) };
    }
}

#[test]
fn what_cannot_be_probed_is_an_error_that_says_who_refuses() {
    if !permitted("what_cannot_be_probed_is_an_error_that_says_who_refuses") {
        return;
    }
    let words = Words::new();
    let program = load(PLAIN, counter(), &[&words.map]);
    let (path, _) = place(twice);
    let attach = |path: &std::path::Path, offset| {
        let probe = Uprobe { path, offset, on_return: false, reference_counter: 0, process: process() };
        probe.attach(&program, 0).err()
    };
    assert_eq!(attach(&path, 1 << 40), Some(AttachError::Event(Errno::EINVAL)));
    let missing = std::path::Path::new("/nonexistent/file");
    assert_eq!(attach(missing, 0), Some(AttachError::Event(Errno::ENOENT)));
    assert_eq!(attach(std::path::Path::new("a\0b"), 0), Some(AttachError::Name));
    let other = load(ProgramKind::RawTracepoint, counter_without_cookie(), &[]);
    let (path, offset) = place(twice);
    let probe = Uprobe { path: &path, offset, on_return: false, reference_counter: 0, process: process() };
    assert_eq!(probe.attach(&other, 0).err(), Some(AttachError::Link(Errno::EINVAL)));
}

fn counter_without_cookie() -> Assembler {
    let mut assembler = Assembler::new();
    end(&mut assembler);
    assembler
}
