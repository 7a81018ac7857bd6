//! Compares what the control flow analysis proves with `objdump -d`, and checks it on code written
//! for it.

use std::collections::BTreeSet;
use std::process::Command;

use crate::common::{BARE, BARE_ANYWHERE, Scratch, have, libc, run};
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use image::{Image, Unresolved};

/// What is proven of libc agrees with objdump and covers most of it; padding does nothing.
#[test]
fn what_is_proven_of_libc_is_instructions() {
    if !have("flow", &["objdump"]) {
        return;
    }
    let image = Image::open(&libc()).expect("the C library is an ELF file");
    let flow = image.control_flow();
    assert!(flow.problem().is_none() && flow.tables().len() > 20, "{:?}", flow.problem());
    let text = run(Command::new("objdump").args(["-d", "-w", "--no-show-raw-insn"]).arg(libc()));
    let (mut listed, mut idle) = (BTreeSet::new(), BTreeSet::new());
    for (address, text) in text.lines().filter_map(|line| line.split_once(":\t")) {
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
        listed.insert(address);
        let word = text.trim_start_matches("data16 ").trim_start_matches("cs ");
        if word.starts_with("nop") || word.starts_with("xchg   %ax,%ax") || word.starts_with("int3") {
            idle.insert(address);
        }
    }
    let proven = flow.instructions(0..u64::MAX);
    assert_eq!(proven.len(), flow.count());
    // objdump counts a `lock` prefix that is jumped over, and `fwait`, as a part of the next
    // instruction.
    let others: Vec<_> = proven.iter().filter(|address| !listed.contains(address)).collect();
    assert!(others.len() < 20, "{others:x?}");
    assert!(proven.len() * 10 > listed.len() * 9, "{} of {}", proven.len(), listed.len());
    let padding = flow.padding(0..u64::MAX);
    assert!(padding.len() > 1000, "{}", padding.len());
    for range in padding {
        let inside = listed.range(range.clone());
        assert!(inside.clone().count() > 0 && inside.clone().all(|it| idle.contains(it)), "{range:x?}");
    }
}

/// A table whose size a comparison bounds, one of unknown size, code after them, and padding.
const CODE: &str = "
    .text

    function bounded
    cmp $1, %edi
    ja 3f
    mov %edi, %eax
    lea table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    add %rdx, %rax
    jmp *%rax
1:  .byte 0x90, 0xc3
    .globl second
second: mov $2, %eax
3:  ret
    .nops 6
    .globl aligned
aligned_in_bounded:
    done bounded
    .p2align 4
    function unbounded
    lea table(%rip), %rdx
    movslq (%rdx,%rdi,4), %rax
    add %rdx, %rax
    jmp *%rax
    .globl unknown
unknown: xor %eax, %eax
    ret
    done unbounded
    .p2align 4
    function _start
    call bounded
    ud2
    .globl hidden
hidden: .byte 0x48, 0x8d, 0x05
    done _start

    .section .rodata
    .p2align 3
table: .long 1b - table, second - table, unknown - table
    .section .note.GNU-stack, \"\", @progbits
";

#[test]
fn tables_are_read_as_far_as_their_size_is_known() {
    if !have("flow", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    for options in [BARE, BARE_ANYWHERE] {
        let image = scratch.assembled("flow", CODE, options);
        let flow = image.control_flow();
        let at = |name: &str| {
            let mut functions = image.functions().iter();
            functions.find(|function| function.name == name).expect("it has it").vaddr
        };
        let proven = |vaddr: u64| !flow.instructions(vaddr..vaddr + 1).is_empty();
        assert!(["bounded", "second", "unbounded", "_start"].map(at).into_iter().all(proven), "{flow:?}");
        // Nothing shows that control reaches it, or that it is code.
        assert!(!proven(at("unknown")) && !proven(at("hidden")), "{flow:?}");
        let [(jump, targets)] = flow.tables() else { panic!("{:?}", flow.tables()) };
        assert!((at("bounded")..at("second")).contains(jump) && *targets == 2, "{jump:#x} {targets}");
        let [(jump, why)] = flow.unresolved() else { panic!("{:?}", flow.unresolved()) };
        assert!((at("unbounded")..at("unknown")).contains(jump));
        assert_eq!(*why, Unresolved::NoBound);
        // There is padding after `bounded`; after the function with unknown targets none is proven.
        let padding = flow.padding(0..u64::MAX);
        assert!(padding.iter().all(|range| range.start < at("unbounded")), "{padding:x?}");
        let behind = padding.last().expect("there is some");
        assert!(behind.start > at("second") && behind.end == at("unbounded"), "{behind:x?}");
    }
}

/// One of its cases jumps past the comparison, which is found only after the table has been read.
const PAST: &str = "
    .text

    function _start
    cmp $1, %edi
    ja 3f
2:  mov %edi, %eax
    lea table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    add %rdx, %rax
    jmp *%rax
first: ret
second: mov $2, %edi
    jmp 2b
third: ret
3:  ud2
    done _start

    .section .rodata
    .p2align 2
table: .long first - table, second - table, third - table
    .section .note.GNU-stack, \"\", @progbits
";

#[test]
fn a_table_whose_bound_is_passed_by_is_not_resolved() {
    if !have("flow", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.assembled("past", PAST, BARE);
    let flow = image.control_flow();
    assert_eq!(flow.tables(), []);
    let [(_, why)] = flow.unresolved() else { panic!("{:?}", flow.unresolved()) };
    assert_eq!(*why, Unresolved::NoBound);
}

/// Four hundred jumps, each with a table of the largest size.
const MANY: &str = "
    .text

    function _start
    .rept 400
    cmp $4095, %edi
    ja 3f
    mov %edi, %eax
    lea table(%rip), %rdx
    movslq (%rdx,%rax,4), %rax
    add %rdx, %rax
    jmp *%rax
3:
    .endr
    ud2
    done _start

    .section .rodata
    .p2align 2
table: .rept 4096
    .long _start - table
    .endr
    .section .note.GNU-stack, \"\", @progbits
";

#[test]
fn all_tables_together_have_a_limit() {
    if !have("flow", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.assembled("many", MANY, BARE);
    let flow = image.control_flow();
    let too_many = flow.unresolved().iter().filter(|(_, why)| *why == Unresolved::TooMany).count();
    assert_eq!((flow.tables().len(), too_many), (256, 400 - 256));
}

/// Checks what is proven of a file for consistency: instructions are valid, and padding does
/// nothing and is reached by no instruction.
fn check(image: &Image) -> usize {
    let flow = image.control_flow();
    let proven = flow.instructions(0..u64::MAX);
    let padding = flow.padding(0..u64::MAX);
    assert_eq!(proven.len(), flow.count());
    assert!(proven.is_sorted() && padding.is_sorted_by_key(|range| range.start));
    for vaddr in &proven {
        let bytes = (1..=15).rev().find_map(|length| image.text(*vaddr, length)).expect("it is code");
        let instruction = Decoder::with_ip(64, &bytes, *vaddr, DecoderOptions::NONE).decode();
        assert!(!instruction.is_invalid(), "{vaddr:#x}: {bytes:x?}");
        if instruction.op0_kind() == OpKind::NearBranch64 {
            let target = instruction.near_branch_target();
            assert!(!padding.iter().any(|range| range.contains(&target)), "{vaddr:#x} leads to {target:#x}");
        }
    }
    for range in padding {
        let bytes = image.text(range.start, (range.end - range.start) as usize).expect("it is code");
        for idle in &mut Decoder::with_ip(64, &bytes, range.start, DecoderOptions::NONE) {
            assert!(matches!(idle.mnemonic(), Mnemonic::Nop | Mnemonic::Int3), "{range:x?}");
        }
    }
    proven.len()
}

#[test]
fn a_file_that_is_damaged_proves_nothing_that_it_does_not_have() {
    let scratch = Scratch::new();
    if !have("flow", &["gcc"]) {
        return;
    }
    let program = scratch.assemble("flow", CODE, BARE);
    let bytes = std::fs::read(program).expect("it was just assembled");
    let parse = |bytes: Vec<u8>| Image::parse(bytes, "damaged".as_ref());
    let sound = check(&parse(bytes.clone()).expect("nothing is damaged"));
    assert!(sound > 15, "{sound}");
    // With any damage the analysis ends and does not panic.
    let (mut less, mut same) = (0, 0);
    for at in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        if let Ok(image) = parse(damaged) {
            match check(&image) < sound {
                true => less += 1,
                false => same += 1,
            }
        }
    }
    assert!(less > 5 && same > 100, "{less} {same}");
    // For another machine's code nothing is proven.
    let mut foreign = bytes;
    foreign[18..20].copy_from_slice(&[183, 0]);
    let image = parse(foreign).expect("an ELF file");
    assert!(check(&image) == 0 && image.control_flow().problem().is_some());
}
