//! The examples of the original's manual and paper, in `tests/seeds`: those for user programs run
//! on 32-bit programs, as their authors ran them; the others are refused by name.

use crate::core::{dumped, gdb, register, told_core};
use crate::i386::target_32;
use crate::support::{Run, Scratch, dprobes, file_offset, find_program, need, repository, run};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What an example is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum For {
    /// A user program: a test here runs it.
    User,
    /// The kernel or a module of it.
    Kernel,
}
use For::{Kernel, User};

/// Every example, in the order of the README.
const EXAMPLES: [(&str, For); 19] = [
    ("manual-log-str", User),
    ("manual-log-mrf", Kernel),
    ("manual-sample-1-registers", User),
    ("manual-sample-2-xchg", User),
    ("manual-sample-3-variables", User),
    ("manual-sample-4-arithmetic", User),
    ("manual-sample-5-cpuid", User),
    ("manual-sample-6-jumps-and-calls", User),
    ("manual-example-1-user", User),
    ("manual-example-2-fork", Kernel),
    ("manual-example-2-network", Kernel),
    ("manual-example-3-count", Kernel),
    ("manual-example-4-swap-out", Kernel),
    ("manual-example-5-control-registers", Kernel),
    ("manual-example-6-groups", Kernel),
    ("manual-example-7a-watch-kernel", Kernel),
    ("manual-example-7b-watch-user", Kernel),
    ("als-example-1-fork-and-kill", Kernel),
    ("als-example-2-malloc", User),
];

fn folder() -> PathBuf {
    repository().join("tests/seeds").canonicalize().expect("the examples are there")
}

fn example(name: &str) -> PathBuf {
    folder().join(format!("{name}.rpn"))
}

#[test]
fn each_example_is_known_here_and_compiles_for_ia32() {
    let entries = std::fs::read_dir(folder()).expect("it can be read");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension() == Some(OsStr::new("rpn")))
        .map(|path| path.file_stem().expect("it has a name").to_string_lossy().into_owned())
        .filter(|name| name != "test")
        .collect();
    names.sort();
    let mut known = EXAMPLES.map(|(name, _)| name);
    known.sort();
    assert_eq!(names, known);
    let readme = std::fs::read_to_string(folder().join("README.md")).expect("it is there");
    for name in known {
        assert!(readme.contains(&format!("`{name}.rpn`")), "{name}");
        let (status, said, wrong) = run(dprobes().args(["check", "--arch", "i386"]).arg(example(name)));
        assert!(status.success() && said.contains(" in "), "{name}: {wrong}");
        assert!(!wrong.contains("error"), "{name}: {wrong}");
    }
}

#[test]
fn those_for_the_kernel_are_refused_for_a_command_and_nothing_is_started() {
    let scratch = Scratch::new();
    for (name, _) in EXAMPLES.iter().filter(|(_, what)| *what == Kernel) {
        let file = example(name);
        let kind = if *name == "manual-example-2-network" { "kmod" } else { "kernel" };
        let expected = format!(
            "dprobes: error: {}: `modtype = {kind}`: only probes in user programs can be inserted in a process; `dprobes attach` \
             and `dprobes insert` without -p put probes into the kernel\n",
            file.display()
        );
        let marker = scratch.path().join("started");
        let mut command = dprobes();
        let (status, _, said) = run(command.arg("run").arg(&file).args(["--", "touch"]).arg(&marker));
        assert_eq!(status.code(), Some(125), "{name}: {said}");
        assert!(said.ends_with(&expected), "{name}: {said}");
        assert!(!marker.exists(), "{name}");
    }
}

/// The bytes that an example logs at its only hit in `main` of the application; `codes` are its
/// major and minor code.
#[track_caller]
fn logged(appln: &Path, name: &str, codes: (u32, u32)) -> Vec<u8> {
    let outcome = Run::file(&example(name)).on([appln]).ended_with(0);
    let minor = codes.1;
    assert_eq!((outcome.stats.hits(minor), outcome.stats.logged(minor)), (1, 1), "{outcome:#?}");
    let head = format!("DProbes({},{}) ", codes.0, codes.1);
    assert_eq!(outcome.headers().len(), 1, "{outcome:#?}");
    assert!(outcome.headers()[0].starts_with(&head), "{outcome:#?}");
    let rows = outcome.records.lines().filter_map(|line| line.split(" : ").nth(1));
    let digits: String = rows.flat_map(str::split_whitespace).collect();
    let byte = |place: usize| u8::from_str_radix(&digits[place * 2..place * 2 + 2], 16).expect("a byte");
    (0..digits.len() / 2).map(byte).collect()
}

/// Words of 4 bytes, as IA32 has them.
fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// `appln`, under the name that the examples use.
fn appln() -> Option<PathBuf> {
    static PLACED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let place = || {
        let built = target_32("appln", &[])?;
        let directory = built.parent().expect("it is in a directory").join("seeds");
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        let path = directory.join("appln");
        let _ = std::fs::remove_file(&path);
        std::fs::hard_link(&built, &path).expect("it can have a second name");
        Some(path)
    };
    PLACED.get_or_init(place).clone()
}

/// "The probe is hit and the log shows the values of cs and ds": a 32-bit program's on this kernel,
/// ds pushed last.
#[test]
fn example_1_logs_the_segment_registers() {
    let appln = need!("seeds", appln(), "gcc -m32");
    assert_eq!(logged(&appln, "manual-example-1-user", (1, 2)), words([0x2b, 0x23]));
}

/// "The logged string is prefixed by a token byte of 1 and a word indicating the length"; the NUL
/// is not logged.
#[test]
fn the_scenario_of_log_str_logs_the_string_at_ecx() {
    let appln = need!("seeds", appln(), "gcc -m32");
    assert_eq!(logged(&appln, "manual-log-str", (0, 0)), b"\x01\x0b\0hello world");
}

/// eax is pushed first: ebx is on top, and is logged first.
#[test]
fn sample_1_logs_ebx_and_eax() {
    let appln = need!("seeds", appln(), "gcc -m32");
    assert_eq!(logged(&appln, "manual-sample-1-registers", (0, 0)), words([0x5566_7788, 0x1122_3344]));
}

#[test]
fn sample_2_logs_what_was_pushed_first_first() {
    let appln = need!("seeds", appln(), "gcc -m32");
    assert_eq!(logged(&appln, "manual-sample-2-xchg", (0, 0)), words([0x02, 0xff]));
}

/// Incremented, the largest word is 0; decremented, it is what it was.
#[test]
fn sample_3_logs_the_variable() {
    let appln = need!("seeds", appln(), "gcc -m32");
    assert_eq!(logged(&appln, "manual-sample-3-variables", (0, 0)), words([0xffff_ffff]));
    let outcome = Run::file(&example("manual-sample-3-variables")).on([&appln]).ended_with(0);
    assert_eq!(outcome.stats.locals, [0xffff_ffff], "{outcome:#?}");
}

#[test]
fn sample_4_logs_the_sum() {
    let appln = need!("seeds", appln(), "gcc -m32");
    assert_eq!(logged(&appln, "manual-sample-4-arithmetic", (0, 0)), words([6]));
}

/// Leaf 0 is the highest leaf in eax, which is on top, and the vendor's name in ebx, edx, ecx; the
/// kernel tells both.
#[test]
fn sample_5_logs_the_processors_leaf_0() {
    let appln = need!("seeds", appln(), "gcc -m32");
    let bytes = logged(&appln, "manual-sample-5-cpuid", (0, 0));
    assert_eq!(bytes.len(), 16);
    let told = std::fs::read_to_string("/proc/cpuinfo").expect("it can be read");
    let value = |key: &str| {
        let line = told.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key));
        line.and_then(|line| line.split(": ").nth(1)).expect("the kernel tells it").to_owned()
    };
    let level: u32 = value("cpuid level").parse().expect("a number");
    assert_eq!(bytes[..4], level.to_le_bytes());
    let vendor = [&bytes[4..8], &bytes[12..16], &bytes[8..12]].concat();
    assert_eq!(String::from_utf8_lossy(&vendor), value("vendor_id"));
}

/// 0xff is not zero: the procedure is called, and logs 1.
#[test]
fn sample_6_jumps_and_calls() {
    let appln = need!("seeds", appln(), "gcc -m32");
    assert_eq!(logged(&appln, "manual-sample-6-jumps-and-calls", (0, 0)), words([1]));
}

/// The paper's second example: "when found we force a core dump", and the process goes on.
#[test]
fn malloc_of_0x20000000_forces_a_core_dump() {
    let program = need!("seeds", target_32("core", &[]), "gcc -m32");
    let debugger = need!("seeds", find_program("gdb"), "gdb");
    let readelf = need!("seeds", find_program("readelf"), "readelf");
    let gcc = need!("seeds", find_program("gcc"), "gcc");
    let (_, library, _) = run(Command::new(gcc).args(["-m32", "-print-file-name=libc.so.6"]));
    let library = Path::new(library.trim()).canonicalize().expect("the library is there");
    let place = file_offset(&library, "malloc").expect("it has malloc") as usize;
    let opcode = std::fs::read(&library).expect("it can be read")[place];

    let probes = std::fs::read_to_string(example("als-example-2-malloc")).expect("the example is there");
    let probes = format!("#define OPCODE {opcode:#04x}\n{probes}");
    let outcome = dumped(&probes, &[program.as_os_str(), "1".as_ref()]);
    assert_eq!(outcome.stdout, "asked 1\nwork 0\nsurprises 0\n", "{outcome:#?}");
    let core = told_core(&outcome);
    // Every call of malloc was looked at; one asked for as much.
    assert!(outcome.stats.hits(1) > 1, "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), outcome.stats.logged(1), "{outcome:#?}");

    // The dump is of the moment of that call: its argument is above the return address.
    let commands = ["info threads", "bt", "info registers eip esp", "output/x *(int (*)[2])$esp", "x/i $pc"];
    let said = gdb(&debugger, &program, core, &commands);
    let frame = |number: &str| said.lines().find(|line| line.starts_with(number)).unwrap_or_default();
    assert!(frame("#0").contains("malloc") && frame("#1").contains("core_asks"), "{said}");
    assert!(frame("#2").contains("asker"), "{said}");
    assert!(said.contains(", 0x20000000}"), "{said}");
    assert!(register(&said, "eip") > 0 && register(&said, "esp") > 0, "{said}");
    assert!(!said.contains("int3") && said.contains("=> "), "{said}");
    assert_eq!(
        said.lines().filter(|line| line.contains("(LWP ") && line.contains(" Thread ")).count(),
        5,
        "{said}"
    );

    let (status, header, complaints) = run(Command::new(&readelf).arg("-hlW").arg(core));
    assert!(status.success() && complaints.is_empty(), "{complaints}");
    for part in ["ELF32", "CORE (Core file)", "Intel 80386"] {
        assert!(header.contains(part), "{part}: {header}");
    }
    let (status, notes, complaints) = run(Command::new(&readelf).arg("-nW").arg(core));
    assert!(status.success() && complaints.is_empty(), "{complaints}");
    for note in
        ["NT_PRPSINFO", "NT_PRSTATUS", "NT_FPREGSET", "NT_PRXFPREG", "NT_386_TLS", "NT_AUXV", "NT_FILE"]
    {
        assert!(notes.contains(note), "{note}");
    }
    assert_eq!(notes.matches("NT_PRSTATUS").count(), 5);
}
