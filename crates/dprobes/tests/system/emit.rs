//! `dprobes check --emit bpf`: handlers as the kernel engine compiles them.

use std::process::Command;

use testing::output;

use crate::support::{Scratch, dprobes, find_program, need, run};

const PROGRAM: &str = "\
name = \"/bin/true\"
modtype = user
major = 1
vars = 1
offset = main
opcode = 0
push arg, 0
log 1
exit
offset = main + 4
opcode = 0
inc lv, 0
exit
";

fn written(scratch: &Scratch, text: &str) -> std::path::PathBuf {
    let file = scratch.path().join("two.rpn");
    std::fs::write(&file, text).expect("there is room");
    file
}

#[test]
fn handlers_are_listed_as_instructions() {
    let scratch = Scratch::new();
    let file = written(&scratch, PROGRAM);
    let (status, listed, said) = run(dprobes().args(["check", "--emit", "bpf"]).arg(&file));
    assert!(status.success(), "{said}");
    let probes: Vec<&str> = listed.lines().filter(|line| line.starts_with("probe ")).collect();
    assert_eq!(probes.len(), 2, "{listed}");
    assert!(probes[0].starts_with("probe 1 at main (uprobe), "), "{listed}");
    assert!(listed.contains(": call get_attach_cookie"), "{listed}");
    assert!(listed.contains(": exit"), "{listed}");
}

/// Another reader of eBPF finds the instructions that were listed, and the maps by their names.
#[test]
fn objects_are_read_by_llvm_objdump() {
    let objdump = need!("emit: objects", find_program("llvm-objdump"), "llvm-objdump");
    let scratch = Scratch::new();
    let file = written(&scratch, PROGRAM);
    let named = scratch.path().join("two.o");
    let mut write = dprobes();
    let (status, _, said) = run(write.args(["check", "--emit", "bpf", "-o"]).arg(&named).arg(&file));
    assert!(status.success(), "{said}");
    let (_, listed, _) = run(dprobes().args(["check", "--emit", "bpf"]).arg(&file));
    let expected: Vec<usize> = listed
        .lines()
        .filter(|line| line.starts_with("probe "))
        .map(|line| {
            let (before, _) = line.split_once(" instructions").expect("how many");
            before.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
        })
        .collect();
    for (object, expected) in ["two.o", "two.2.o"].into_iter().zip(expected) {
        let shown = output(Command::new(&objdump).arg("-dr").arg(scratch.path().join(object)));
        assert!(shown.contains("elf64-bpf") && shown.contains("<probe_"), "{shown}");
        assert!(shown.contains("R_BPF_64_64") && shown.contains("probes"), "{shown}");
        // A load of 64 bits is two instructions and one line.
        let lines = shown.lines().filter(|line| line.contains('\t') && !line.contains("R_BPF"));
        let loads = shown.lines().filter(|line| line.contains(" ll")).count();
        assert_eq!(lines.count() + loads, expected, "{object}: {shown}");
    }
}

#[test]
fn what_the_kernel_cannot_do_is_refused_with_its_line() {
    let scratch = Scratch::new();
    let file = written(&scratch, &PROGRAM.replace("push arg, 0\nlog 1", "push r, ds\nlog 1"));
    let (status, listed, said) = run(dprobes().args(["check", "--emit", "bpf"]).arg(&file));
    assert!(!status.success() && listed.is_empty(), "{listed}");
    assert!(said.contains("an eBPF program sees no segment register"), "{said}");
    assert!(said.contains("two.rpn:"), "{said}");
    // Options that do not go together, and a script.
    let (status, _, said) = run(dprobes().args(["check", "-o", "x.o"]).arg(&file));
    assert!(!status.success() && said.contains("--emit bpf"), "{said}");
    let (status, _, said) =
        run(dprobes().args(["check", "--emit", "bpf", "-e", "uprobe:/bin/true:main { @ = count(); }"]));
    assert!(!status.success() && said.contains("--emit asm"), "{said}");
}

#[test]
fn a_full_disk_is_told() {
    let scratch = Scratch::new();
    let file = written(&scratch, PROGRAM);
    let (status, _, said) = run(dprobes().args(["check", "--emit", "bpf", "-o", "/dev/full"]).arg(&file));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("/dev/full: No space left on device"), "{said}");
}
