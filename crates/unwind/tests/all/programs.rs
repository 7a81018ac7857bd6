//! Small programs, stepped instruction by instruction under gdb: each of our stacks is gdb's.

use std::path::Path;
use std::process::Command;

use crate::common::{compile, have_gdb, source};
use crate::samples::{Plan, samples};
use testing::{Scratch, output, rounds};

/// Steps through a program from its `main`, and returns how many stacks were compared whole.
fn step(name: &str, program: &Path, from: &str, steps: u64) -> usize {
    let plan = Plan { program, arguments: &[], start: "", from: (from, 0), steps, every: 1 };
    let (whole, others) = samples(&plan).compare(name);
    assert!(others * 20 <= whole, "{name}: gdb knows only {whole} stacks, not {others}");
    whole
}

/// Builds a program of one source and steps through it.
fn check(test: &str, compiler: &str, file: &str, options: &[&str], from: &str, steps: u64) {
    if !have_gdb(test, &[compiler]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compile(&scratch, compiler, &[source(file)], "program", options);
    let steps = rounds(steps.min(700), steps);
    let whole = step(test, &program, from, steps);
    assert!(whole as u64 >= steps.min(300), "{test}: only {whole} stacks");
}

#[test]
fn without_frame_pointers() {
    check("unwind: without frame pointers", "gcc", "plain.c", &["-O2", "-fomit-frame-pointer"], "main", 6000);
}

#[test]
fn with_frame_pointers() {
    check("unwind: with frame pointers", "gcc", "plain.c", &["-O2", "-fno-omit-frame-pointer"], "main", 2000);
}

/// By frame pointers alone: no function is left out but the caller of one that is setting up its
/// frame or leaving it.
#[test]
fn by_frame_pointers() {
    let test = "unwind: by frame pointers";
    if !have_gdb(test, &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-O2", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
    let program = compile(&scratch, "gcc", &[source("plain.c")], "program", &options);
    let plan = Plan { program: &program, arguments: &[], start: "", from: ("many", 0), steps: 900, every: 1 };
    let mut samples = samples(&plan);
    samples.list.retain(|sample| ["many ", "early "].iter().any(|name| sample.names.starts_with(name)));
    let mut right = 0;
    for sample in &samples.list {
        let found = sample.by_frame_pointers();
        // The C library has none, so that the stack ends at main's caller.
        let main = sample.names.split(' ').position(|name| name == "main").expect("all are called by main");
        let expected = &sample.expected[..main + 2];
        let without_caller = [&expected[..1], &expected[2..]].concat();
        assert!(
            found == expected || found == without_caller,
            "{}: {found:x?}, not {expected:x?}",
            sample.names
        );
        right += usize::from(found == expected);
    }
    let all = samples.list.len();
    assert!(all >= 300 && right * 10 >= all * 8 && right < all, "{right} of {all} are whole");
}

#[test]
fn not_optimised() {
    check("unwind: not optimised", "gcc", "plain.c", &["-O0"], "main", 2000);
}

#[test]
fn small_and_fixed() {
    let options = ["-Os", "-no-pie", "-fcf-protection=full", "-Wl,-z,ibtplt"];
    check("unwind: small and fixed", "gcc", "plain.c", &options, "main", 2000);
}

#[test]
fn frames_of_no_fixed_size() {
    check("unwind: frames of no fixed size", "gcc", "stack.c", &["-O2"], "arguments", 3000);
    check("unwind: frames of no fixed size", "gcc", "stack.c", &["-O0"], "arguments", 3000);
    check("unwind: frames of no fixed size", "gcc", "stack.c", &["-O2", "-mstackrealign"], "arguments", 3000);
}

#[test]
fn a_return_address_in_a_register() {
    check("unwind: a return address in a register", "gcc", "forks.c", &["-O2"], "start", 2000);
    check("unwind: a return address in a register", "gcc", "forks.c", &["-O2", "-static"], "start", 2000);
}

/// From the first handler on, both are entered and left, and the second runs amid the first.
/// From the first handler on, both are entered and left, and the second runs amid the first.
#[test]
fn handlers_of_signals() {
    let test = "unwind: handlers of signals";
    for from in ["outer", "work"] {
        check(test, "gcc", "signals.c", &["-O2"], from, 300);
        check(test, "gcc", "signals.c", &["-O2", "-DLIBRARY"], from, 3000);
        check(test, "gcc", "signals.c", &["-O2", "-DLIBRARY", "-static"], from, 3000);
    }
}

/// musl has no unwinding information and no frame pointers. So stacks are compared from `work`
/// upwards, through its trampoline, which gdb knows in a static program only.
#[test]
fn handlers_of_signals_with_musl() {
    let test = "unwind: handlers of signals with musl";
    if !have_gdb(test, &["musl-gcc", "nm"]) {
        return;
    }
    let scratch = Scratch::new();
    for kind in ["-static", "-no-pie"] {
        let program = compile(&scratch, "musl-gcc", &[source("signals.c")], "program", &["-O2", kind]);
        let plan =
            Plan { program: &program, arguments: &[], start: "", from: ("outer", 0), steps: 60, every: 1 };
        let mut samples = samples(&plan);
        samples.list.retain(|sample| sample.names.split(' ').any(|name| name == "outer"));
        assert!(samples.list.len() > 15, "{kind}: only {} stacks", samples.list.len());
        if kind == "-static" {
            let (whole, others) = samples.compare(test);
            assert!(whole > 15 && others == 0, "{whole} stacks, and {others}");
        }
        let [work, main] = ["work", "main"].map(|name| range_of(&program, name));
        for sample in &samples.list {
            let frames = samples.frames(sample);
            let interrupted = frames.iter().position(|frame| work.contains(frame));
            let caller = interrupted.and_then(|at| frames.get(at + 1));
            assert!(
                caller.is_some_and(|caller| main.contains(caller)),
                "{kind}: {}: {frames:x?}",
                sample.names
            );
        }
    }
}

/// The addresses of a function.
fn range_of(program: &Path, name: &str) -> std::ops::Range<u64> {
    let symbols = output(Command::new("nm").arg("-S").arg(program));
    let line =
        symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("the function has a symbol");
    let number = |at| u64::from_str_radix(line.split(' ').nth(at).expect("a column"), 16).expect("a number");
    number(0)..number(0) + number(1)
}

/// A return address may be the beginning of another function.
#[test]
fn calls_at_the_end_of_functions() {
    let test = "unwind: calls at the end of functions";
    let options = ["-Os", "-falign-functions=1", "-fno-toplevel-reorder"];
    check(test, "gcc", "ends.c", &options, "leave", 300);
}

/// The outermost frames of threads and of contexts.
#[test]
fn threads_and_contexts() {
    let test = "unwind: threads and contexts";
    check(test, "gcc", "threads.c", &["-O2", "-pthread"], "thread", 300);
    check(test, "gcc", "threads.c", &["-O2", "-pthread"], "other", 400);
}

/// Code that is in no file, with a frame pointer. gdb's stacks end in it, so ours must go on to
/// what gdb saw before that code was called.
#[test]
fn generated_code() {
    let test = "unwind: generated code";
    if !have_gdb(test, &["gcc", "nm"]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-O2", "-pthread", "-no-pie", "-Wl,-z,now"];
    let program = compile(&scratch, "gcc", &[source("threads.c")], "program", &options);
    let plan = Plan { program: &program, arguments: &[], start: "", from: ("work", 0), steps: 400, every: 1 };
    let samples = samples(&plan);
    let work = range_of(&program, "work");
    let callers = &samples.list[0].expected[1..];
    assert!(samples.list[0].is_whole && callers.len() >= 3);
    let mut count = 0;
    for sample in samples.list.iter().filter(|sample| sample.names.starts_with("called None")) {
        let frames = samples.frames(sample);
        assert!(work.contains(&frames[2]) && frames[3..] == *callers, "{frames:x?}, above {callers:x?}");
        count += 1;
    }
    assert!(count >= 8, "only {count} stacks");
}

#[test]
fn an_exception_passes() {
    let test = "unwind: an exception passes";
    check(test, "g++", "throws.cc", &["-O2"], "main", 3000);
    check(test, "g++", "throws.cc", &["-O2"], "_Unwind_RaiseException", 6000);
    check(test, "g++", "throws.cc", &["-O2", "-static"], "main", 3000);
}

/// The unwinding information of a part of the program is for debuggers only.
#[test]
fn information_for_debuggers_only() {
    let test = "unwind: information for debuggers only";
    if !have_gdb(test, &["gcc"]) {
        return;
    }
    let none = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for options in [&["-O2", "-g"][..], &["-O2", "-g", "-gz"]] {
        let scratch = Scratch::new();
        let options = [options, &none].concat();
        let program = compile(&scratch, "gcc", &[source("mixed.c"), source("bare.c")], "program", &options);
        assert!(step(test, &program, "main", 3000) > 150);
    }
}

/// A part of the program has no unwinding information, but frame pointers. gdb knows what is above
/// it by its own reading of the code.
#[test]
fn no_information_but_frame_pointers() {
    let test = "unwind: no information but frame pointers";
    if !have_gdb(test, &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-c", "-O0", "-fno-asynchronous-unwind-tables", "-fno-omit-frame-pointer"];
    let bare = compile(&scratch, "gcc", &[source("bare.c")], "bare.o", &options);
    let program = compile(&scratch, "gcc", &[source("mixed.c"), bare], "program", &["-O2"]);
    let plan =
        Plan { program: &program, arguments: &[], start: "", from: ("bare", 0), steps: 1500, every: 1 };
    let samples = samples(&plan);
    let (whole, _) = samples.compare(test);
    let deep = samples.list.iter().filter(|sample| sample.expected.len() >= 6).count();
    assert!(whole >= 1000 && deep >= 1000, "{whole} stacks, {deep} of them above what has no information");
}
