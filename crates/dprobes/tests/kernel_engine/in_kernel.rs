//! Probes in the kernel. Where it has no kprobes, they are refused in one line.

use crate::support::{Scratch, dprobes, needs_kernel, run, start};
use bpf::Feature;

/// A program that counts system calls by their entry in the kernel.
const COUNTS: &str = "name = vmlinux\nmodtype = kernel\nlogmax = 0\nvars = 1\n\
    offset = __x64_sys_getpgid\nminor = 1\ninc lv, 0\nexit\n";

#[test]
fn without_kprobes_they_are_refused_in_one_line() {
    needs_kernel!("in the kernel");
    if Feature::Kprobe.is_available() {
        return testing::skipped("optional: no kprobes", "a kernel without kprobes");
    }
    let scratch = Scratch::new();
    let file = scratch.file("p.rpn", COUNTS);
    let (status, _, said) = run(dprobes().arg("attach").arg(&file));
    assert_eq!((status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("this kernel has no kprobes (CONFIG_KPROBES)"), "{said}");
}

#[test]
fn the_kernel_is_not_probed_for_one_process() {
    let scratch = Scratch::new();
    let file = scratch.file("p.rpn", COUNTS);
    let (status, _, said) = run(dprobes().args(["attach", "--engine", "kernel", "-p", "1"]).arg(&file));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the kernel is probed for all processes; leave -p out"), "{said}");
}

#[test]
fn calls_of_kernel_functions_are_counted() {
    needs_kernel!("in the kernel");
    if !Feature::Kprobe.is_available() {
        return testing::skipped("optional: kprobes", "a kernel with kprobes");
    }
    let at_return = "offset = __x64_sys_getpgid:return\nminor = 2\nexit\n";
    let mut session = start(&format!("{COUNTS}{at_return}"), &[]);
    session.armed();
    for _ in 0..1000 {
        // SAFETY: the call takes no pointers.
        unsafe { libc::getpgid(0) };
    }
    let outcome = session.stop().ended_with(0);
    // Other processes may call it, too.
    assert!(outcome.stats.hits(1) >= 1000, "{outcome:#?}");
    assert_eq!(outcome.stats.probes[0].hits, outcome.stats.locals[0] + outcome.stats.probes[0].missed);
    assert!(outcome.stats.hits(2) >= 1000, "{outcome:#?}");
}

#[test]
fn what_cannot_be_probed_in_the_kernel_is_refused_with_the_reason() {
    needs_kernel!("in the kernel");
    if !Feature::Kprobe.is_available() {
        return testing::skipped("optional: kprobes", "a kernel with kprobes");
    }
    let scratch = Scratch::new();
    let file =
        scratch.file("p.rpn", "name = vmlinux\nmodtype = kernel\noffset = no_such_function_at_all\nexit\n");
    let (status, _, said) = run(dprobes().arg("attach").arg(&file));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("/proc/kallsyms has no function `no_such_function_at_all`"), "{said}");
}
