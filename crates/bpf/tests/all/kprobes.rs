//! Probes on functions of the kernel: that of a system call which this test makes.

use bpf::{
    Assembler, AttachError, Feature, KernelPlace, Kprobe, KprobeMulti, Link, Program, ProgramKind,
    attach_tracing, kernel_function,
};

use crate::support::{Words, count_by_cookie, end, load, only_this_thread, permitted, without_children};

/// The function of getpgid(2).
const FUNCTION: &str = "__x64_sys_getpgid";

/// A program that adds 1 to the word of map 0 with the number of its cookie, for this thread.
fn counter(kind: ProgramKind, words: &Words) -> Program {
    let mut assembler = Assembler::new();
    let other = only_this_thread(&mut assembler);
    count_by_cookie(&mut assembler);
    assembler.bind(other);
    end(&mut assembler);
    load(kind, assembler, &[&words.map])
}

fn call() {
    // SAFETY: the call has a number as its argument, and touches no memory.
    unsafe { libc::getpgid(0) };
}

/// Counts two calls with the link, and one without.
#[track_caller]
fn counts_while_attached(words: &Words, cookie: usize, link: Result<Link, AttachError>) {
    let _links_end = without_children();
    let link = link.expect("the function can be probed");
    call();
    call();
    drop(link);
    call();
    assert_eq!(words.get(cookie), 2);
}

#[test]
fn a_kernel_function_is_probed_by_name() {
    let test = "a_kernel_function_is_probed_by_name";
    if !permitted(test) {
        return;
    }
    if !Feature::Kprobe.is_available() {
        return testing::skipped(&format!("optional: {test}"), "kprobes");
    }
    let words = Words::new();
    let program = counter(ProgramKind::Kprobe, &words);
    let place = KernelPlace::Symbol { name: FUNCTION, offset: 0 };
    let entry = Kprobe { place, on_return: false };
    counts_while_attached(&words, 1, entry.attach(&program, 1));
    let exit = Kprobe { place, on_return: true };
    counts_while_attached(&words, 2, exit.attach(&program, 2));
    let missing = KernelPlace::Symbol { name: "no_such_function", offset: 0 };
    let refused = Kprobe { place: missing, on_return: false }.attach(&program, 0).err();
    assert_eq!(refused, Some(AttachError::Event(bpf::Errno::ENOENT)));
}

#[test]
fn several_kernel_functions_are_probed_by_one_link() {
    let test = "several_kernel_functions_are_probed_by_one_link";
    if !permitted(test) {
        return;
    }
    let words = Words::new();
    let program = counter(ProgramKind::KprobeMulti, &words);
    let symbols = &["bpf_fentry_test1", FUNCTION];
    let entry = KprobeMulti { symbols, cookies: &[3, 4], on_return: false };
    let link = match entry.attach(&program) {
        Err(AttachError::Link(bpf::Errno::EOPNOTSUPP)) => {
            return testing::skipped(&format!("optional: {test}"), "kprobes by the function tracer");
        }
        link => link,
    };
    counts_while_attached(&words, 4, link);
    let exit = KprobeMulti { cookies: &[3, 5], on_return: true, ..entry };
    counts_while_attached(&words, 5, exit.attach(&program));
}

#[test]
fn a_kernel_function_is_traced_by_its_type() {
    let test = "a_kernel_function_is_traced_by_its_type";
    if !permitted(test) {
        return;
    }
    if !Feature::Fentry.is_available() {
        return testing::skipped(&format!("optional: {test}"), "programs at the entry of kernel functions");
    }
    let words = Words::new();
    let function = kernel_function(FUNCTION).expect("the kernel has types").expect("it has this function");
    for (on_return, cookie) in [(false, 6), (true, 7)] {
        let program = counter(ProgramKind::Tracing { function, on_return }, &words);
        counts_while_attached(&words, cookie as usize, attach_tracing(&program, cookie));
    }
}
