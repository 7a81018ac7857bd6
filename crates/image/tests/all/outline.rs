//! Compares the parts and exits of functions with `objdump -d`, and checks them on code written for
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::common::{BARE, BARE_ANYWHERE, Scratch, have, libc, run};
use image::{Exit, Image, Pattern};

/// The instructions that objdump lists, as text.
fn objdump(path: &Path) -> BTreeMap<u64, String> {
    let text = run(Command::new("objdump").args(["-d", "-w", "--no-show-raw-insn"]).arg(path));
    let line = |line: &str| {
        let (address, text) = line.split_once(":\t")?;
        Some((u64::from_str_radix(address.trim(), 16).ok()?, text.trim().to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Every `ret` of libc is an exit of its function, and every exit leaves the function.
#[test]
fn the_exits_of_libc_are_those_that_objdump_shows() {
    if !have("outline", &["objdump"]) {
        return;
    }
    let image = Image::open(&libc()).expect("the C library is an ELF file");
    let listing = objdump(&libc());
    let mut returns = BTreeSet::new();
    let (mut functions, mut jumps) = (0, 0);
    for function in image.select_matching(&|_| true).iter().filter(|function| !function.indirect) {
        let Ok(outline) = image.outline(function.vaddr) else { continue };
        functions += 1;
        for (vaddr, exit) in &outline.exits {
            let text = listing.get(vaddr).unwrap_or_else(|| panic!("{vaddr:#x} of {function:?}"));
            let target = || {
                let target = text.split_whitespace().nth(1).and_then(|it| u64::from_str_radix(it, 16).ok());
                target.unwrap_or_else(|| panic!("{text}"))
            };
            match exit {
                Exit::Return => assert!(text.contains("ret"), "{vaddr:#x} {text}"),
                Exit::Indirect => assert!(text.contains("jmp") && text.contains('*'), "{vaddr:#x} {text}"),
                Exit::Jump | Exit::Branch => {
                    let text = text.trim_start_matches("bnd ");
                    assert_eq!(text.starts_with("jmp"), *exit == Exit::Jump, "{vaddr:#x} {text}");
                    assert!(!outline.contains(target()), "{vaddr:#x} {text} stays in {function:?}");
                }
            }
            jumps += usize::from(*exit != Exit::Return);
            returns.extend((*exit == Exit::Return).then_some(*vaddr));
        }
        // Each instruction that objdump shows in it is one.
        let listed = outline.parts.iter().flat_map(|part| listing.range(part.clone())).count();
        let unknown: u64 = outline.unknown_bytes();
        assert!(unknown > 0 || listed.abs_diff(outline.instructions.len()) <= 2, "{function:?}: {listed}");
        for (vaddr, text) in outline.parts.iter().flat_map(|part| listing.range(part.clone())) {
            let is_return = text.split_whitespace().any(|word| word == "ret") && !text.contains("(bad)");
            let known = !outline.unknown.iter().any(|range| range.contains(vaddr));
            assert!(!is_return || !known || returns.contains(vaddr), "{vaddr:#x} {text} of {function:?}");
        }
    }
    assert!(functions > 1500 && returns.len() > 2000 && jumps > 300, "{functions} {} {jumps}", returns.len());
}

/// Switches and tail calls that look alike.
const JUMPS: &str = "
    .text
    .globl _start

    function relative_switch
    lea table(%rip), %rdx
    movslq (%rdx,%rdi,4), %rax
    add %rdx, %rax
    jmp *%rax
1:  ret
2:  nop
    ret
    done relative_switch

    function absolute_switch
    lea places(%rip), %rdx
    jmp *(%rdx,%rdi,8)
3:  ret
4:  nop
    ret
    done absolute_switch

    function marked_switch
    notrack jmp *%rax
    ret
    done marked_switch

    function framed_switch
    push %rbx
    .cfi_adjust_cfa_offset 8
    jmp *%rax
    pop %rbx
    .cfi_adjust_cfa_offset -8
    ret
    done framed_switch

    function call_by_table
    lea functions(%rip), %rdx
    jmp *(%rdx,%rdi,8)
    done call_by_table

    function call_by_pointer
    mov (%rdi), %rax
    jmp *%rax
    done call_by_pointer

    function call_after_frame
    push %rbx
    .cfi_adjust_cfa_offset 8
    mov 8(%rdi), %rax
    pop %rbx
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    done call_after_frame

    function call_by_slot
    jmp *functions(%rip)
    done call_by_slot

    function branches
    jz relative_switch
    jrcxz branches
    loop 5f
5:  jmp relative_switch
    jmp branches
    done branches

    function _start
    ud2
    done _start

    .section .rodata
    .p2align 3
table: .long 1b - table, 2b - table
    .section .data.rel.ro, \"aw\", @progbits
    .p2align 3
places: .quad 3b, 4b
functions: .quad relative_switch, absolute_switch
    .section .note.GNU-stack, \"\", @progbits
";

#[test]
fn a_switch_is_told_from_a_tail_call() {
    if !have("outline", &["gcc"]) {
        return;
    }
    use Exit::{Branch, Indirect, Jump, Return};
    let expected: [(&str, &[Exit]); 9] = [
        ("relative_switch", &[Return, Return]),
        ("absolute_switch", &[Return, Return]),
        ("marked_switch", &[Return]),
        ("framed_switch", &[Return]),
        ("call_by_table", &[Indirect]),
        ("call_by_pointer", &[Indirect]),
        ("call_after_frame", &[Indirect]),
        ("call_by_slot", &[Indirect]),
        ("branches", &[Branch, Jump]),
    ];
    let scratch = Scratch::new();
    for options in [BARE, BARE_ANYWHERE] {
        let image = scratch.assembled("jumps", JUMPS, options);
        for (name, exits) in expected {
            let function = &image.select_named(name)[0];
            let outline = image.outline(function.vaddr).unwrap();
            let found: Vec<Exit> = outline.exits.iter().map(|(_, exit)| *exit).collect();
            assert_eq!(found, exits, "{name} {options:?}");
        }
        assert!(image.outline(image.entry()).unwrap().exits.is_empty());
    }
}

#[test]
fn indirect_functions_have_implementations() {
    if !have("outline", &["gcc"]) {
        return;
    }
    let source = "\
        static int one(void) { return 1; }\n\
        static int two(void) { return 2; }\n\
        static volatile int which;\n\
        static void *pick(void) { return which ? (void *)one : (void *)two; }\n\
        int picked(void) __attribute__((ifunc(\"pick\")));\n\
        int main(void) { return picked() != 2; }\n";
    let scratch = Scratch::new();
    for options in [&["-O1"][..], &["-O1", "-no-pie"], &["-O0"]] {
        let image = scratch.image("pick.c", source, "pick", options);
        let picked = &image.select_named("picked")[0];
        assert!(picked.indirect);
        let found = image.implementations(picked.vaddr);
        let expected: BTreeSet<u64> = ["one", "two"].map(|name| image.select_named(name)[0].vaddr).into();
        assert_eq!(found.into_iter().collect::<BTreeSet<u64>>(), expected, "{options:?}");
    }
}

#[test]
fn patterns_select_functions_once() {
    let image = Image::open(&libc()).expect("the C library is an ELF file");
    let pattern = Pattern::new("*alloc*").unwrap();
    let found = image.select_matching(&|name| pattern.matches(name));
    let addresses: BTreeSet<u64> = found.iter().map(|function| function.vaddr).collect();
    assert_eq!(addresses.len(), found.len(), "aliases are one");
    assert!(found.len() > 5 && addresses.contains(&image.select_named("malloc")[0].vaddr));
    let version = Pattern::new("malloc@*").unwrap();
    let versioned = image.select_matching(&|name| version.matches(name));
    assert_eq!(versioned.len(), 1, "{versioned:?}");
    assert!(image.select_matching(&|_| false).is_empty());
}
