//! Checks which addresses control may reach on code written for it: which functions are closed, and
//! what leads into them.

use crate::common::{BARE, BARE_ANYWHERE, Scratch, have};

/// A function with one address for each way to reach it, a function with a table of unknown size,
/// and one that is never called.
const CODE: &str = "
    .text

    function closed
    nop                             # 0
    nop                             # 1: a direct jump of its own
    nop                             # 2: a direct jump of what is not proven
    nop                             # 3: an address that is loaded
    nop                             # 4: a number
    nop                             # 5: a pointer in data
    nop                             # 6: a jump into it from another function
    nop                             # 7: nothing
    test %edi, %edi                 # 8
    jne closed + 1                  # 10
    ret
    done closed
    function unbounded
    lea table(%rip), %rdx
    movslq (%rdx,%rdi,4), %rax
    add %rdx, %rax
    jmp *%rax
    done unbounded
    function thunked                # a jump that is a return: by a thunk, and by itself
    movslq (%rdx,%rdi,4), %rax
    jmp thunk
    done thunked
    function pushed
    push %rax
    ret
    done pushed
    function thunk
    call 1f
2:  pause
    jmp 2b
1:  mov %rax, (%rsp)
    ret
    done thunk
    .p2align 4
.Lpart:
    .cfi_startproc
    xor %eax, %eax
    ret
    .cfi_endproc
    function _start
    call closed
    call unbounded
    call thunked
    call pushed
    lea closed + 3(%rip), %rax
    NUMBER
    test %eax, %eax
    je closed + 6
    ud2
    done _start
    .byte 0x90, 0x00                # what comes next is read from any of its bytes on
    .byte 0x48
    jmp closed + 2

    .data
    .p2align 3
pointer: .quad closed + 5
    .section .rodata
    .p2align 3
table: .long .Lpart - table
    .section .note.GNU-stack, \"\", @progbits
";

#[test]
fn all_ways_into_a_function_are_known() {
    if !have("landing", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    for (options, number) in [(BARE, "mov $closed + 4, %eax"), (BARE_ANYWHERE, "nop")] {
        let image = scratch.assembled("landing", &CODE.replace("NUMBER", number), options);
        let at = |name: &str| {
            let mut functions = image.functions().iter();
            functions.find(|function| function.name == name).expect("it has it").vaddr
        };
        let closed = at("closed");
        let landings = image.possible_targets().within(closed..closed + 8).expect("all are known");
        let offsets: Vec<u64> = landings.iter().map(|landing| landing - closed).collect();
        let expected: &[u64] = if number == "nop" { &[0, 1, 2, 3, 5, 6] } else { &[0, 1, 2, 3, 4, 5, 6] };
        assert_eq!(offsets, expected, "{options:?}");

        let flow = image.control_flow();
        assert_eq!(flow.unresolved().len(), 3, "{:?}", flow.unresolved());
        let is_closed = |vaddr: u64| !flow.closed(vaddr..vaddr + 1).is_empty();
        assert!(is_closed(closed) && is_closed(closed + 10) && is_closed(at("_start")), "{flow:?}");
        // Its jump has unknown targets: here a part that looks like a function, but is never
        // called.
        for open in ["unbounded", "thunked", "thunk", "pushed"] {
            assert!(!is_closed(at(open)), "{open}");
        }
        assert!((at("unbounded") + 16..at("_start")).all(|vaddr| !is_closed(vaddr)));
    }
}
