//! Small programs, stepped instruction by instruction under gdb: each of our stacks is gdb's.

use std::path::Path;

use crate::common::{compile, have_gdb, source};
use crate::samples::{Plan, samples};
use testing::{Scratch, rounds};

/// Steps through a program from its `main`, and returns how many stacks were compared whole.
fn step(name: &str, program: &Path, from: &str, steps: u64) -> usize {
    let plan = Plan { program, arguments: &[], from: (from, 0), steps, every: 1 };
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
    let whole = step(test, &program, from, steps);
    assert!(whole as u64 >= steps.min(rounds(300, 300)), "{test}: only {whole} stacks");
}

#[test]
fn without_frame_pointers() {
    check("unwind: without frame pointers", "gcc", "plain.c", &["-O2", "-fomit-frame-pointer"], "main", 6000);
}

#[test]
fn with_frame_pointers() {
    check("unwind: with frame pointers", "gcc", "plain.c", &["-O2", "-fno-omit-frame-pointer"], "main", 2000);
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
