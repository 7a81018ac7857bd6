//! 32-bit programs under the 64-bit tracer: the promises of the other modules hold for them, too.

use crate::children::keeps_its_probes;
use crate::every_instruction::{Subject, probe_all_at_once, probe_each_in_turn, runs_what_it_holds};
use crate::signals::{number, under_a_timer};
use crate::sleepers::nobody_notices;
use crate::support::{Outcome, Run, Scratch, counting, find_program, need, run, target, variant};
use crate::threads::come_and_go;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Whether gcc makes 32-bit programs here, and they run.
fn has_m32() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Some(gcc) = find_program("gcc") else { return false };
        let scratch = Scratch::new();
        let source =
            scratch.file("empty.c", "#include <stdio.h>\nint main(void) { return puts(\"\") < 0; }\n");
        let program = scratch.path().join("empty");
        let built = Command::new(gcc).arg("-m32").arg("-o").arg(&program).arg(source).output();
        built.is_ok_and(|output| output.status.success())
            && Command::new(program).output().is_ok_and(|output| output.status.success())
    })
}

/// A program of tests/targets as a 32-bit one, under a name of its own.
pub(crate) fn target_32(name: &str, flags: &[&str]) -> Option<PathBuf> {
    has_m32().then_some(())?;
    let flags: Vec<&str> = std::iter::once("-m32").chain(flags.iter().copied()).collect();
    variant(name, &format!("{name}-m32{}", flags[1..].concat()), &flags)
}

/// The bytes of each record, in order: pairs of hexadecimal digits as words.
fn record_bytes(outcome: &Outcome) -> Vec<String> {
    let rows = outcome.records.lines().filter_map(|line| line.split(" : ").nth(1));
    rows.map(|row| row.split_whitespace().collect()).collect()
}

#[test]
fn hits_equal_calls_with_eight_threads() {
    for flags in [&[][..], &["-no-pie", "-fno-pie"], &["-static"], &["-static-pie"]] {
        let program = need!("i386", target_32("exact", flags), "gcc -m32");
        let points = counting(&program, ["exact_entry", "exact_mid", "exact_ret"]);
        // A trap takes about a hundred times as long as a jump.
        let calls = testing::rounds(1000, 5000);
        let all = 8 * calls as u64;
        for run in 1..=testing::rounds(1, 3) {
            let words = [program.as_os_str(), calls.to_string().as_ref()].map(ToOwned::to_owned);
            let outcome = Run::new(&points).on(words).ended_with(0);
            let says = outcome.stdout.starts_with(&format!("calls {all} "));
            assert!(says && outcome.stdout.ends_with(" ok\n"), "{outcome:#?}");
            for minor in 1..=3 {
                assert_eq!(outcome.stats.hits(minor), all, "{flags:?} run {run}: {outcome:#?}");
                assert_eq!(outcome.stats.runs(minor), all, "{flags:?} run {run}: {outcome:#?}");
            }
            assert_eq!(outcome.stats.locals, [all; 3], "{flags:?} run {run}: {outcome:#?}");
        }
    }
}

fn every_instruction() -> Option<Subject> {
    Subject::of(has_m32().then(|| target("every32"))??, &[".probed"], 600)
}

#[test]
fn every_instruction_in_turn() {
    probe_each_in_turn(&need!("i386", every_instruction(), "gcc -m32 and objdump"));
}

#[test]
fn every_instruction_at_once() {
    let subject = need!("i386", every_instruction(), "gcc -m32 and objdump");
    probe_all_at_once(&subject);
    runs_what_it_holds(&subject, 600);
}

/// A program cannot tell that it is probed: by faults of its instructions, its signals, or its own
/// traps.
fn same(target: &Path, words: &[&str], points: &[&str]) -> Outcome {
    let (status, stdout, _) = run(Command::new(target).args(words));
    let command = std::iter::once(target.as_os_str()).chain(words.iter().map(|word| word.as_ref()));
    let outcome = Run::new(&counting(target, points)).on(command);
    assert_eq!((outcome.status, &outcome.stdout), (status, &stdout), "{words:?}: {outcome:#?}");
    outcome
}

#[test]
fn faults_are_seen_where_they_happen() {
    let program = need!("i386", target_32("fault", &[]), "gcc -m32");
    for (mode, hits, logged) in [("none", 1, 1), ("retry", 2, 1), ("longjmp", 1, 0)] {
        let outcome = same(&program, &[mode], &["fault_load"]);
        assert_eq!((outcome.stats.hits(1), outcome.stats.logged(1)), (hits, logged), "{mode}: {outcome:#?}");
        assert!(
            mode == "none" || outcome.stdout.contains("faults 1 rip 1 address 1 stack 1"),
            "{outcome:#?}"
        );
    }
    let text = counting(&program, ["fault_load"]);
    let outcome = Run::new(&text).on([program.as_os_str(), "kill".as_ref()]);
    assert!(!outcome.status.success() && outcome.stats.hits(1) == 1, "{outcome:#?}");
}

#[test]
fn a_timers_handler_sees_only_the_programs_own_addresses() {
    let program = need!("i386", target_32("signals", &[]), "gcc -m32");
    // Every hit is a stop here, and a signal two more: at 5,000 per second a slow machine would do
    // nothing else.
    let calls = testing::rounds("3000", "8000");
    for stack in ["any", "alt"] {
        under_a_timer(&program, &[calls, stack, "1000"]);
    }
}

#[test]
fn a_program_keeps_its_own_traps() {
    let program = need!("i386", target_32("selfstep", &[]), "gcc -m32");
    for mode in ["int3", "raise", "step"] {
        let outcome = same(&program, &[mode], &["selfstep_work"]);
        assert_eq!(outcome.stats.hits(1), number(&outcome.stdout, "calls"), "{mode}: {outcome:#?}");
    }
}

#[test]
fn every_child_is_counted() {
    let program = need!("i386", target_32("forks", &[]), "gcc -m32");
    let outcome = Run::new(&counting(&program, ["forks_work"])).on([&program]).ended_with(0);
    assert_eq!(outcome.stats.hits(1), number(&outcome.stdout, "calls"), "{outcome:#?}");
}

#[test]
fn a_library_that_comes_and_goes_is_probed_from_its_first_instruction() {
    let program = need!("i386", target_32("dlopen", &[]), "gcc -m32");
    let library = need!("i386", target_32("plugin", &[]), "gcc -m32");
    let outcome = Run::new(&counting(&library, ["plugin_work"]))
        .on([program.as_os_str(), library.as_os_str()])
        .ended_with(0);
    assert_eq!(outcome.stdout, "calls 45\n", "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 45, "{outcome:#?}");
}

/// The dynamic linker that a program asks for.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let bytes = std::fs::read(program).ok()?;
    let start = bytes.windows(9).position(|bytes| bytes == b"/lib/ld-l")?;
    let path = bytes[start..].split(|byte| *byte == 0).next()?;
    Path::new(std::str::from_utf8(path).ok()?).canonicalize().ok()
}

#[test]
fn a_linker_whose_mapping_is_not_recognised_is_watched_where_it_tells_debuggers() {
    let plain = need!("i386", target_32("dlopen", &[]), "gcc -m32");
    let library = need!("i386", target_32("plugin", &[]), "gcc -m32");
    let mut linker =
        std::fs::read(interpreter(&plain).expect("it is dynamic")).expect("the linker can be read");
    // cmp $0xfffff000,%eax: with fewer error numbers it still suits the linker, but the tracer
    // does not recognise it.
    let mut changed = 0;
    for at in 0..linker.len() - 5 {
        if linker[at..at + 5] == [0x3d, 0x00, 0xf0, 0xff, 0xff] {
            linker[at + 1] = 0x02;
            changed += 1;
        }
    }
    assert!(changed > 0, "the linker compares results otherwise; this test proves nothing");
    let directory = plain.parent().expect("targets are in a directory").join("other-linker");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let path = directory.join("ld-linux.so.2");
    std::fs::write(&path, linker).expect("the linker can be written");
    // Another user's earlier run may have made it.
    if std::fs::metadata(&path).expect("it was written").permissions().mode() & 0o111 == 0 {
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
    }
    let flag = format!("-Wl,--dynamic-linker={}", path.display());
    let program = variant("dlopen", "dlopen-m32-other-linker", &["-m32", &flag]).expect("there is gcc");
    let outcome = Run::new(&counting(&library, ["plugin_work"]))
        .on([program.as_os_str(), library.as_os_str()])
        .ended_with(0);
    assert_eq!(outcome.stdout, "calls 45\n", "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 45, "{outcome:#?}");
}

#[test]
fn malloc_in_the_c_library() {
    let program = need!("i386", target_32("leaf", &[]), "gcc -m32");
    // The size is the first argument, above the return address.
    let text = "name = \"libc.so.6\"\nmodtype = user\nmajor = 1\nvars = 1\noffset = malloc\nminor = 1\n\
                inc lv, 0\npush r, esp\npush 4\nadd\npush mem, u32\nlog 1\nexit\n";
    let outcome = Run::new(text).on([program.as_os_str(), "500".as_ref()]).ended_with(7);
    assert_eq!(outcome.stdout, "calls 500 sum 376750\n", "{outcome:#?}");
    assert!(outcome.stats.hits(1) > 0, "{outcome:#?}");
    assert_eq!(outcome.stats.locals, [outcome.stats.hits(1)], "{outcome:#?}");
    let sizes = record_bytes(&outcome);
    assert_eq!(sizes.len() as u64, outcome.stats.logged(1), "{outcome:#?}");
    assert!(sizes.iter().all(|size| size.len() == 8), "a word has 4 bytes: {outcome:#?}");
    // The buffer of stdout, for the line that the program prints.
    assert!(sizes.iter().any(|size| size == "00040000" || size == "00100000"), "{outcome:#?}");
}

/// Attaching leaves no trace: until a signal, several times over, while threads sleep in every kind
/// of system call.
#[test]
fn attaching_and_leaving_is_seen_by_nobody() {
    nobody_notices(&need!("i386", target_32("syscalls", &[]), "gcc -m32"));
}

#[test]
fn attaching_to_threads_that_come_and_go() {
    come_and_go(&need!("i386", target_32("threads", &[]), "gcc -m32"), 3);
}

#[test]
fn a_64_bit_program_that_executes_a_32_bit_one_and_the_other_way_round() {
    let narrow = need!("i386", target_32("leaf", &[]), "gcc -m32");
    let wide = need!("i386", target("leaf"), "gcc");
    let shell = format!("{0} 20; {1} 30; {0} 5; exit 9", narrow.display(), wide.display());
    // A module given by its path determines what the program is compiled for.
    for (program, calls) in [(&narrow, 25), (&wide, 30)] {
        let outcome = Run::new(&counting(program, ["leaf_work"])).on(["/bin/sh", "-c", &shell]).ended_with(9);
        assert_eq!(outcome.stats.hits(1), calls, "{outcome:#?}");
    }
    // A module given by name is probed in both, each time by the version for that machine.
    let both = "name = \"libc.so.6\"\nmodtype = user\nvars = 1\noffset = exit\nminor = 1\ninc lv, 0\npush 1\nlog 1\nexit\n";
    let outcome = Run::new(both).on(["/bin/sh", "-c", &shell]).ended_with(9);
    let mut rows = record_bytes(&outcome);
    rows.sort_unstable();
    let (word, long) = ("01000000", "0100000000000000");
    assert_eq!(
        rows,
        [word, word, long],
        "two narrow programs and a wide one; the shell does not call it: {outcome:#?}"
    );
    assert_eq!(outcome.stats.locals, [3], "{outcome:#?}");
    // A program that compiles only for the command's machine is not inserted in processes of the
    // other, which is reported once.
    let wide_only = both.replace("push 1\n", "push r, r8\n");
    let outcome = Run::new(&wide_only).on(["/bin/sh", "-c", &shell]).ended_with(9);
    assert_eq!(outcome.stats.locals, [1], "{outcome:#?}");
    let told: Vec<_> =
        outcome.stderr.lines().filter(|line| line.contains("is 32-bit code and is not probed")).collect();
    assert!(told.len() == 1 && told[0].contains("program.rpn:7:") && told[0].contains("r8"), "{outcome:#?}");
    keeps_its_probes(&need!("i386", target_32("server", &[]), "gcc -m32"));
}

#[test]
fn registers_have_their_i386_names_and_32_bits() {
    let program = need!("i386", target_32("exact", &[]), "gcc -m32");
    let text = |handler: &str| {
        format!(
            "name = \"{}\"\nmodtype = user\noffset = exact_entry\nminor = 1\nmaxhits = 1\n{handler}\nexit\n",
            program.display()
        )
    };
    // At the entry, the return address is on top of the stack and the arguments above it.
    let handler =
        "push r, eip\nlog 1\npush r, esp\npush 8\nadd\npush mem, u32\nlog 1\npush 0\npush 1\nsub\nlog 1";
    let outcome = Run::new(&text(handler)).on([&program]).ended_with(0);
    let bytes = record_bytes(&outcome).concat();
    let bytes: Vec<&str> = (0..bytes.len() / 8).map(|word| &bytes[word * 8..word * 8 + 8]).collect();
    assert_eq!(bytes.len(), 3, "{outcome:#?}");
    let address = |text: &str| u32::from_str_radix(text, 16).map(u32::swap_bytes).expect("a word");
    let placed = outcome.stats.probes[0].address.clone().expect("it was armed");
    assert_eq!(format!("{:#x}", address(bytes[0])), placed, "{outcome:#?}");
    assert!(address(bytes[1]) < 8, "the second argument is the thread's number: {outcome:#?}");
    assert_eq!(address(bytes[2]), 1, "1 - 0: {outcome:#?}");
    // Features of 64-bit code are refused by name.
    let outcome = run(crate::support::dprobes()
        .arg("run")
        .arg(Scratch::new().file("program.rpn", &text("push r, rax\nlog 1")))
        .arg("--")
        .arg(&program));
    assert!(!outcome.0.success(), "{outcome:?}");
}
