//! Compares where instructions start with the listing of `objdump -d`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::{PLAIN, Scratch, have, have_m32, libc, libc_32, run};
use image::{Image, NoCode, NotAnInstruction};

/// An instruction that objdump lists: its length and text.
type Listing = BTreeMap<u64, (u64, String)>;

/// What `objdump -d` lists, by address; `(bad)` is not an instruction.
fn objdump(path: &Path) -> Listing {
    let text = run(Command::new("objdump").args(["-d", "-w", "--insn-width=16"]).arg(path));
    let mut listing = Listing::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(address), Some(bytes)) = (fields.next(), fields.next()) else { continue };
        let Ok(address) = u64::from_str_radix(address.trim().trim_end_matches(':'), 16) else { continue };
        let text = fields.next().unwrap_or_default().trim().to_owned();
        listing.insert(address, (bytes.split_whitespace().count() as u64, text));
    }
    listing
}

/// The disagreements between the listing and the image, in both directions.
struct Comparison {
    checked: usize,
    /// objdump lists an instruction, the image refuses it.
    refused: Vec<(u64, String, NotAnInstruction)>,
    /// objdump lists none, the image accepts one: the address, and the instruction that objdump has
    /// around it.
    accepted: Vec<(u64, String)>,
}

fn compare(path: &Path) -> Comparison {
    let image = Image::open(path).unwrap();
    let listing = objdump(path);
    let mut found = Comparison { checked: listing.len(), refused: Vec::new(), accepted: Vec::new() };
    for (address, (length, text)) in &listing {
        // objdump shows few padding zeros as an instruction.
        let pads = |misplaced: &NotAnInstruction| {
            text.starts_with("add    %al,(%") && misplaced.to_string().contains("a run of zero bytes")
        };
        if let Err(misplaced) = image.check_boundary(*address)
            && !text.contains("(bad)")
            && !pads(&misplaced)
        {
            found.refused.push((*address, text.clone(), misplaced));
        }
        for inside in address + 1..address + length {
            match image.check_boundary(inside) {
                Ok(()) => found.accepted.push((inside, text.clone())),
                // If both find the same instruction, the image must name the one that objdump
                // shows.
                Err(NotAnInstruction::InsideInstruction { before, after, .. }) => {
                    assert!(before < inside && inside < after, "{inside:#x} in {before:#x}..{after:#x}");
                }
                Err(_) => {}
            }
        }
    }
    found
}

/// objdump prints `fwait` and the instruction after it as one; for the processor, and for us, they
/// are two.
fn is_wait(text: &str) -> bool {
    ["fstcw", "fstenv", "fstsw", "fclex", "finit", "fsave", "fwait"].iter().any(|name| text.contains(name))
}

fn expect_equal(name: &str, path: &Path) {
    let found = compare(path);
    let refused: Vec<_> =
        found.refused.iter().map(|(at, text, why)| format!("{at:#x} {text}: {why}")).collect();
    let accepted: Vec<_> = found.accepted.iter().filter(|(_, text)| !is_wait(text)).collect();
    assert!(found.checked > 20, "{name}: objdump listed {} instructions", found.checked);
    assert!(refused.is_empty(), "{name}: refused {} of {}: {refused:#?}", refused.len(), found.checked);
    assert!(accepted.is_empty(), "{name}: accepted inside instructions: {accepted:x?}");
}

#[test]
fn compiled_programs() {
    if !have("compiled_programs", &["gcc", "objdump", "strip"]) {
        return;
    }
    let scratch = Scratch::new();
    for (name, options) in [
        ("pie", &["-O2", "-fPIE", "-pie"][..]),
        ("fixed", &["-O2", "-fno-PIE", "-no-pie"]),
        ("slow", &["-O0", "-g"]),
        ("shadow", &["-O2", "-fcf-protection=full"]),
        ("lazy", &["-O2", "-Wl,-z,lazy", "-fcf-protection=none"]),
        ("mixed", &["-O2", "-Wl,-z,noseparate-code"]),
        ("unwindless", &["-O2", "-fno-asynchronous-unwind-tables"]),
    ] {
        let program = scratch.compile("plain.c", PLAIN, name, options);
        expect_equal(name, &program);
        let stripped = scratch.strip(&program, &format!("{name}-stripped"), &[]);
        expect_equal(&format!("{name}, stripped"), &stripped);
    }
}

#[test]
fn a_static_program() {
    if !have("a_static_program", &["gcc", "objdump"]) {
        return;
    }
    let scratch = Scratch::new();
    for (name, options) in [("static", &["-O2", "-static"]), ("static-pie", &["-O2", "-static-pie"])] {
        let program = scratch.compile("plain.c", PLAIN, name, options);
        let found = compare(&program);
        report(name, &found);
        assert!(found.refused.len() * 10_000 <= found.checked, "{} refused", found.refused.len());
        assert!(found.accepted.iter().all(|(_, text)| is_wait(text)), "{:x?}", found.accepted);
    }
}

#[test]
fn the_c_library() {
    if !have("the_c_library", &["objdump"]) {
        return;
    }
    let found = compare(&libc());
    report("libc", &found);
    assert!(found.checked > 100_000);
    assert!(found.refused.is_empty(), "{} refused", found.refused.len());
    assert!(found.accepted.iter().all(|(_, text)| is_wait(text)), "{:x?}", found.accepted);
}

#[test]
fn compiled_programs_of_32_bits() {
    if !have_m32("compiled_programs_of_32_bits") {
        return;
    }
    let scratch = Scratch::new();
    for (name, options) in [
        ("pie", &["-m32", "-O2", "-fPIE", "-pie"][..]),
        ("fixed", &["-m32", "-O2", "-fno-PIE", "-no-pie"]),
        ("slow", &["-m32", "-O0", "-g"]),
        ("shadow", &["-m32", "-O2", "-fcf-protection=full"]),
        ("unwindless", &["-m32", "-O2", "-fno-asynchronous-unwind-tables"]),
    ] {
        let program = scratch.compile("plain.c", PLAIN, name, options);
        expect_equal(name, &program);
        let stripped = scratch.strip(&program, &format!("{name}-stripped"), &[]);
        expect_equal(&format!("{name}, stripped"), &stripped);
    }
}

#[test]
fn the_c_library_of_32_bits() {
    if !have_m32("the_c_library_of_32_bits") {
        return;
    }
    let found = compare(&libc_32());
    report("libc, 32 bits", &found);
    assert!(found.checked > 100_000);
    // Its string functions have tables among their code, which confuse objdump.
    assert!(found.refused.len() * 10_000 <= found.checked, "{} refused", found.refused.len());
    let accepted = found.accepted.iter().filter(|(_, text)| !is_wait(text)).count();
    assert!(accepted * 10_000 <= found.checked, "{:x?}", found.accepted);
}

/// Data among code in every form that assembly files have, and a branch past a `lock` prefix.
const DATA: &str = r#"
        .text
        .globl  dispatch
        .type   dispatch, @function
dispatch:
        .cfi_startproc
        lea     table(%rip), %rax
        movslq  (%rax,%rdi,4), %rdx
        add     %rdx, %rax
        jmp     *%rax
        .balign 4
table:  .long   case0 - table, case1 - table, 0x06060606, 0x2f2f2f2f
case0:  mov     $1, %eax
        ret
case1:  mov     $2, %eax
        ret
        .cfi_endproc
        .size   dispatch, . - dispatch

        .globl  guarded
        .type   guarded, @function
guarded:
        .cfi_startproc
        cmpl    $0, %fs:24
        je      1f
        lock
1:      cmpxchg %rdx, (%rdi)
        ret
        .cfi_endproc
        .size   guarded, . - guarded

        .globl  switched
        .type   switched, @function
switched:
        .cfi_startproc
        cmp     $1, %edi
        ja      2f
        mov     %edi, %edi
        lea     places(%rip), %rax
        movslq  (%rax,%rdi,4), %rdx
        add     %rax, %rdx
        jmp     *%rdx
        .balign 4
places: .long   behind - places, 2f - places
        .byte   0x06, 0x06
behind: cmpl    $0, %fs:24
        je      1f
        lock
1:      cmpxchg %rdx, (%rdi)
2:      ret
        .cfi_endproc
        .size   switched, . - switched

        .type   numbers, @object
numbers: .quad  0x9090909090909090
        .size   numbers, 8

        .globl  waiter
        .type   waiter, @function
waiter: fstcw   -2(%rsp)
        movl    $5, 64(%rdi)
        ret
        .size   waiter, . - waiter
        .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn data_among_code() {
    if !have("data_among_code", &["gcc", "nm"]) {
        return;
    }
    let scratch = Scratch::new();
    let library = scratch.compile("data.S", DATA, "data.so", &["-shared", "-nostdlib"]);
    let image = Image::open(&library).unwrap();
    let symbols = run(Command::new("nm").arg(&library));
    let at = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let ok = |vaddr: u64| assert_eq!(image.check_boundary(vaddr), Ok(()), "{vaddr:#x}");
    let dispatch = at("dispatch");
    // lea is 7 bytes long, movslq 4, add 3, jmp 2.
    [0, 7, 11, 14].iter().for_each(|distance| ok(dispatch + distance));
    // The table is refused from its first byte that cannot be an instruction on, and so are the
    // bytes before it, back to the jump, that the sweep took for instructions.
    for vaddr in at("table")..at("case0") {
        assert!(image.check_boundary(vaddr).is_err(), "{vaddr:#x}");
    }
    ok(at("case0"));
    ok(at("case0") + 5);
    ok(at("case1"));

    let guarded = at("guarded");
    let (branch, lock) = (guarded + 9, guarded + 11);
    ok(branch);
    ok(lock);
    assert_eq!(image.entered_inside(lock), Some(lock + 1));
    assert_eq!(image.entered_inside(branch), None);
    let misplaced = image.check_boundary(lock + 1).unwrap_err();
    let NotAnInstruction::InsideInstruction { before, after, ref text, .. } = misplaced else {
        panic!("{misplaced}")
    };
    assert_eq!((before, after), (lock, lock + 5));
    assert!(text.contains("cmpxchg"), "{text}");

    // The same where only a table leads.
    let (branch, lock) = (at("behind") + 9, at("behind") + 11);
    [branch, lock, lock + 5].into_iter().for_each(ok);
    let misplaced = image.check_boundary(lock + 1).unwrap_err();
    assert!(
        matches!(misplaced, NotAnInstruction::InsideInstruction { before, after, .. } if (before, after) == (lock, lock + 5)),
        "{misplaced}"
    );

    // Bytes that would decode as nops, but a symbol says they are data.
    let numbers = at("numbers");
    let Err(NotAnInstruction::NotCode { why, .. }) = image.check_boundary(numbers) else {
        panic!("{numbers:#x}")
    };
    assert_eq!(why, NoCode::Data("numbers".to_owned()));

    // fwait is an instruction, and so is the one after it.
    let waiter = at("waiter");
    [0, 1, 5, 12].iter().for_each(|distance| ok(waiter + distance));
    let inside = image.check_boundary(waiter + 6).unwrap_err().to_string();
    assert!(inside.contains(&format!("{:#x} and {:#x}", waiter + 5, waiter + 12)), "{inside}");
    assert!(inside.contains("movl"), "{inside}");

    let header = image.check_boundary(0).unwrap_err();
    assert!(matches!(header, NotAnInstruction::NotCode { .. }), "{header}");
}

#[test]
fn thirty_two_bits() {
    if !have("thirty_two_bits", &["as", "ld", "objdump"]) {
        return;
    }
    const SOURCE: &str = "
        .globl _start
        .type _start, @function
_start: inc %eax
        aaa
        mov 4(%esp), %ecx
        push $0x12345678
        call other
        mov $1, %eax
        int $0x80
        .size _start, . - _start
        .type other, @function
other:  lcall *(%ecx)
        enter $8, $0
        leave
        ret $4
        .size other, . - other
        .rept 12
        add $0x11223344, %eax
        .endr
";
    let scratch = Scratch::new();
    let source = scratch.file("small.s", SOURCE);
    let (object, program) = (scratch.path().join("small.o"), scratch.path().join("small"));
    run(Command::new("as").arg("--32").arg("-o").arg(&object).arg(&source));
    run(Command::new("ld").args(["-m", "elf_i386", "-o"]).arg(&program).arg(&object));
    assert_eq!(Image::open(&program).unwrap().machine(), image::Machine::I386);
    expect_equal("i386", &program);
}

#[test]
#[ignore = "takes the files to compare from DPROBES_COMPARE, separated by colons"]
fn any_file() {
    let files = std::env::var("DPROBES_COMPARE").expect("DPROBES_COMPARE names ELF files");
    for file in files.split(':') {
        report(file, &compare(Path::new(file)));
    }
}

fn report(name: &str, found: &Comparison) {
    println!(
        "{name}: {} instructions, {} refused, {} accepted inside",
        found.checked,
        found.refused.len(),
        found.accepted.len()
    );
    // Adjacent refused addresses with the same reason are one range.
    for group in found.refused.chunk_by(|a, b| b.0 - a.0 < 64).take(40) {
        let (first, text, why) = &group[0];
        let last = group[group.len() - 1].0;
        println!("  refused {} in {first:#x}..={last:#x}, first {text}: {why}", group.len());
    }
    for (at, text) in found.accepted.iter().take(40) {
        println!("  accepted {at:#x} inside {text}");
    }
}
