//! `exit 3`: writes a core dump that debuggers can read, of a process that goes on undisturbed.

use crate::support::{Scratch, Stats, dprobes, find_program, need, repository, run, target};
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, read::Object, read::ObjectSymbol, read::elf::ElfFile64};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a run left behind. The core files are in its directory.
#[derive(Debug)]
pub(crate) struct Dumped {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) stats: Stats,
    pub(crate) cores: Vec<PathBuf>,
    /// Keeps the files.
    _scratch: ScratchGuard,
}

/// A scratch directory that can be shown.
pub(crate) struct ScratchGuard(Scratch);

impl std::fmt::Debug for ScratchGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.path().display())
    }
}

/// The only core file, which standard error has named.
#[track_caller]
pub(crate) fn told_core(outcome: &Dumped) -> &Path {
    let [core] = &outcome.cores[..] else { panic!("one core file: {outcome:#?}") };
    let name = core.file_name().expect("it has a name").to_string_lossy();
    let pid = name.strip_prefix("core.").expect("it is named so");
    let message = format!("dprobes: DProbes(1,1) core dump of process {pid} written to {name} (paused for ");
    assert!(outcome.stderr.contains(&message), "{outcome:#?}");
    core
}

/// Runs the target with a probe program; it ends as without.
#[track_caller]
pub(crate) fn dumped(probes: &str, words: &[&OsStr]) -> Dumped {
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", probes);
    let stats = scratch.path().join("stats");
    let mut command = dprobes();
    command.args(["run", "--max-dumps", "100"]).arg("--stats").arg(&stats).arg(file).arg("--").args(words);
    let (status, stdout, stderr) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(7), "{stdout}\n{stderr}");
    let entries = std::fs::read_dir(scratch.path()).expect("the directory is there");
    let mut cores: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"core.")))
        .collect();
    // Sorted by the numbers at the end: core.7, core.7.1, core.7.2.
    cores.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    let stats = Stats::read(&stats).unwrap_or_else(|| panic!("no stats: {stderr}"));
    Dumped { stdout, stderr, stats, cores, _scratch: ScratchGuard(scratch) }
}

/// The number behind a word.
#[track_caller]
fn number(text: &str, word: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {word} in {text:?}"))
}

/// What gdb says of a core file.
#[track_caller]
pub(crate) fn gdb(debugger: &Path, program: &Path, core: &Path, commands: &[&str]) -> String {
    let mut command = Command::new(debugger);
    command.args(["-nx", "-batch", "-iex", "set auto-load no", "-iex", "set debuginfod enabled off"]);
    command.args(["-iex", "set width 0"]);
    for each in commands {
        command.args(["-ex", each]);
    }
    let (status, stdout, stderr) = run(command.arg(program).arg(core));
    assert!(status.success(), "{stdout}\n{stderr}");
    stdout
}

/// The value of a register in gdb's list.
#[track_caller]
pub(crate) fn register(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    let word =
        line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_else(|| panic!("{name}: {text}"));
    u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("{name}: {text}"))
}

/// The bytes of a core file at an address; it must have them.
#[track_caller]
fn bytes(core: &Path, address: u64, length: usize) -> Vec<u8> {
    let data = std::fs::read(core).expect("the core file can be read");
    let header = FileHeader64::<LittleEndian>::parse(&*data).expect("it is an ELF file");
    let segments = header.program_headers(LittleEndian, &*data).expect("it has program headers");
    let found =
        segments.iter().filter(|segment| segment.p_type(LittleEndian) == PT_LOAD).find_map(|segment| {
            let place = address.checked_sub(segment.p_vaddr(LittleEndian))? as usize;
            segment.data(LittleEndian, &*data).ok()?.get(place..place + length)
        });
    found.unwrap_or_else(|| panic!("{address:#x} is not in {}", core.display())).to_vec()
}

/// The first bytes of a function in its file.
fn original(program: &Path, function: &str, length: usize) -> Vec<u8> {
    let data = std::fs::read(program).expect("the program can be read");
    let file = ElfFile64::<LittleEndian>::parse(&*data).expect("it is an ELF file");
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(function)).expect("it has the function");
    let (segments, address) = (file.elf_program_headers(), symbol.address());
    let found = segments.iter().find_map(|segment| {
        let place = address.checked_sub(segment.p_vaddr(LittleEndian))? as usize;
        segment.data(LittleEndian, &*data).ok()?.get(place..place + length)
    });
    found.expect("the function is in the file").to_vec()
}

#[test]
fn malloc_of_a_size_leaves_a_core_of_all_threads_and_the_program_goes_on() {
    let program = need!("core", target("core"), "gcc");
    let debugger = need!("core", find_program("gdb"), "gdb");
    let example = repository().join("examples/malloc_dump.rpn");
    let example = std::fs::read_to_string(example).expect("the example is there");
    let outcome = dumped(&example, &[program.as_os_str(), "1".as_ref()]);
    assert_eq!(outcome.stdout, "asked 1\nwork 0\nsurprises 0\n", "{outcome:#?}");
    let core = told_core(&outcome);

    let said = gdb(
        &debugger,
        &program,
        core,
        &["info threads", "bt", "info registers rip rdi", "x/4i $pc", "thread apply all -q bt"],
    );
    let is_thread = |line: &&str| {
        let number = line.trim_start_matches(['*', ' ']).split(' ').next().unwrap_or_default();
        number.parse::<u32>().is_ok() && line.contains("LWP ")
    };
    assert_eq!(said.lines().filter(is_thread).count(), 5, "{said}");
    let frame = |number: &str| said.lines().find(|line| line.starts_with(number)).unwrap_or_default();
    assert!(frame("#0").contains("malloc"), "{said}");
    assert!(frame("#1").contains("core_asks"), "{said}");
    assert!(frame("#2").contains("asker"), "{said}");
    assert_eq!(register(&said, "rdi"), 0x2000_0000, "{said}");
    let instructions: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("=> ")).take(4).collect();
    assert_eq!(instructions.len(), 4, "{said}");
    assert!(!said.contains("int3"), "{said}");
    for function in ["waiter", "reader", "sleeper", "main"] {
        assert!(said.contains(&format!(" {function} (")), "{function}: {said}");
    }
    // Not just from gdb's own breakpoint handling: the core file has no trap there.
    assert_ne!(bytes(core, register(&said, "rip"), 1), [0xcc]);

    let readelf = need!("core", find_program("readelf"), "readelf");
    let (status, notes, complaints) = run(Command::new(readelf).arg("-nW").arg(core));
    assert!(status.success() && complaints.is_empty(), "{complaints}");
    for note in ["NT_PRPSINFO", "NT_PRSTATUS", "NT_FPREGSET", "NT_X86_XSTATE", "NT_AUXV", "NT_FILE"] {
        assert!(notes.contains(note), "{note}");
    }
}

#[test]
fn dumps_of_a_busy_process_show_no_thread_in_a_slot_and_lose_no_hit() {
    let program = need!("core", target("core"), "gcc");
    let debugger = need!("core", find_program("gdb"), "gdb");
    let probes = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\nvars = 2\noffset = core_work\nminor = 1\ninc lv, 0\nexit\n\
         offset = core_asks\nminor = 2\ninc lv, 1\nexit 3\n",
        program.display()
    );
    let outcome = dumped(&probes, &[program.as_os_str(), "6".as_ref(), "busy".as_ref()]);
    assert_eq!(number(&outcome.stdout, "asked"), 21, "{outcome:#?}");
    assert_eq!(number(&outcome.stdout, "surprises"), 0, "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), number(&outcome.stdout, "work"), "{outcome:#?}");
    assert_eq!((outcome.stats.hits(2), outcome.cores.len()), (6, 6), "{outcome:#?}");
    let [work, asks] = ["core_work", "core_asks"].map(|function| original(&program, function, 16));
    for (number, core) in outcome.cores.iter().enumerate() {
        let said = gdb(
            &debugger,
            &program,
            core,
            &[
                "info registers rip rdi",
                "thread apply all -q x/i $pc",
                "p/x (long)core_work",
                "p/x (long)core_asks",
            ],
        );
        assert_eq!(register(&said, "rdi"), number as u64 + 1, "{said}");
        let places: Vec<&str> = said.lines().filter(|line| line.starts_with("=> ")).collect();
        assert!(places.len() >= 8, "{said}");
        for place in places {
            assert!(place.contains(" <") && !place.contains("int3"), "{place} in {said}");
        }
        let address = |number: &str| {
            let line =
                said.lines().find_map(|line| line.strip_prefix(number)).expect("gdb knows the function");
            u64::from_str_radix(line.trim(), 16).expect("gdb says an address")
        };
        assert_eq!(address("$2 = 0x"), register(&said, "rip"), "{said}");
        assert_eq!(bytes(core, address("$1 = 0x"), 16), work, "{}", core.display());
        assert_eq!(bytes(core, address("$2 = 0x"), 16), asks, "{}", core.display());
    }
}

#[test]
fn a_dump_has_the_registers_as_the_handler_left_them_and_the_memory_of_that_moment() {
    let program = need!("core", target("core"), "gcc");
    let debugger = need!("core", find_program("gdb"), "gdb");
    let probes = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = core_asks\nminor = 1\npush 70\npop r, rdi\nexit 3\n",
        program.display()
    );
    let outcome = dumped(&probes, &[program.as_os_str(), "2".as_ref()]);
    assert_eq!(outcome.stdout, "asked 140\nwork 0\nsurprises 0\n", "{outcome:#?}");
    let [first, second] = &outcome.cores[..] else { panic!("two core files: {outcome:#?}") };
    let second_name = second.file_name().expect("it has a name").to_string_lossy();
    assert!(second_name.ends_with(".1"), "{outcome:#?}");
    let look =
        |core| gdb(&debugger, &program, core, &["info registers rdi", "p/d (int)ready", "p memory != 0"]);
    let (first, second) = (look(first), look(second));
    assert_eq!((register(&first, "rdi"), register(&second, "rdi")), (70, 70), "{first}{second}");
    assert!(first.contains("$1 = 3") && first.contains("$2 = 0"), "{first}");
    assert!(second.contains("$2 = 1"), "{second}");
}

#[test]
fn a_thread_that_no_tracer_can_stop_is_left_out_and_named() {
    let program = need!("core", target("core"), "gcc");
    let readelf = need!("core", find_program("readelf"), "readelf");
    let probes = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = core_asks\nminor = 1\nexit 3\n",
        program.display()
    );
    let outcome = dumped(&probes, &[program.as_os_str(), "1".as_ref(), "vfork".as_ref()]);
    assert_eq!(outcome.stdout, "asked 1\nwork 0\nsurprises 0\n", "{outcome:#?}");
    let [core] = &outcome.cores[..] else { panic!("one core file: {outcome:#?}") };
    // Such a thread may hold the lock of its process's memory, so that is not copied.
    assert!(outcome.stderr.contains(" ms, while it was written: not all of its threads"), "{outcome:#?}");
    let left_out = outcome.stderr.split("; without thread ").nth(1).unwrap_or_default();
    assert!(left_out.split(',').next().is_some_and(|number| number.parse::<u32>().is_ok()), "{outcome:#?}");
    // gdb would show the thread in any case, from the libc's thread list.
    let (status, notes, _) = run(Command::new(readelf).arg("-nW").arg(core));
    assert!(status.success());
    assert_eq!(notes.matches("NT_PRSTATUS").count(), 5, "{outcome:#?}");
}

#[test]
fn a_dump_that_cannot_be_written_is_told_and_the_program_goes_on() {
    let program = need!("core", target("core"), "gcc");
    let probes = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = core_asks\nminor = 1\nexit 3\n",
        program.display()
    );
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", &probes);
    // Not even root can create a file there.
    let mut command = dprobes();
    command.arg("run").arg(&file).arg("--").arg(&program).arg("1").current_dir("/proc");
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!(status.code(), Some(7), "{stderr}");
    assert_eq!(stdout, "asked 1\nwork 0\nsurprises 0\n");
    let failed = stderr.lines().find(|line| line.starts_with("dprobes: DProbes(3,1) core dump of process "));
    assert!(failed.is_some_and(|line| line.contains(" failed: core.")), "{stderr}");

    // Room runs out in the middle.
    let mut command = Command::new("sh");
    let line = "ulimit -f 40; exec \"$0\" run \"$1\" -- \"$2\" 1";
    command.args(["-c", line]).arg(dprobes().get_program()).arg(&file).arg(&program);
    let (status, stdout, stderr) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(7), "{stderr}");
    assert_eq!(stdout, "asked 1\nwork 0\nsurprises 0\n");
    let failed = stderr.lines().find(|line| line.contains(" failed: File too large"));
    assert!(failed.is_some_and(|line| line.ends_with(" was removed")), "{stderr}");
    let files = std::fs::read_dir(scratch.path()).expect("the directory is there").count();
    assert_eq!(files, 1, "only the program is left");
}

#[test]
fn before_the_facilities_of_the_kernel_the_probe_is_removed() {
    let program = need!("core", target("core"), "gcc");
    let probes = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\nvars = 2\noffset = core_asks\nminor = 1\ninc lv, 0\nexit 1\n\
         inc lv, 1\noffset = waiter\nminor = 2\nexit 2\noffset = reader\nminor = 3\nexit 1\n",
        program.display()
    );
    let outcome = dumped(&probes, &[program.as_os_str(), "3".as_ref()]);
    assert_eq!(outcome.stats.locals, [1, 0], "{outcome:#?}");
    for minor in 1..=3 {
        let counts = (outcome.stats.hits(minor), outcome.stats.runs(minor), outcome.stats.logged(minor));
        assert_eq!(counts, (1, 1, 1), "the record is kept: {outcome:#?}");
        let probe = outcome.stats.probes.iter().find(|probe| probe.minor == minor);
        assert_eq!(probe.expect("it is told").state, "removed", "{outcome:#?}");
    }
    let told = |head: &str| outcome.stderr.lines().filter(|line| line.starts_with(head)).count();
    assert_eq!(told("dprobes: DProbes(3,1) exit 1: "), 1, "{outcome:#?}");
    assert_eq!(told("dprobes: DProbes(3,2) exit 2: "), 1, "{outcome:#?}");
    assert_eq!(told("dprobes: DProbes(3,3) exit 1: "), 1, "{outcome:#?}");
    assert!(outcome.cores.is_empty(), "{outcome:#?}");
}
