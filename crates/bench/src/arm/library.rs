//! Generates the assembler source of a library with many functions.

use std::fmt::Write;

/// The first instructions of functions, as compilers emit them; `N` is the number added to the
/// argument.
const FORMS: [(&str, &str); 10] = [
    ("push %rbp; mov %rsp,%rbp", "lea N(%rdi),%rax; pop %rbp; ret"),
    ("sub $8,%rsp", "lea N(%rdi),%rax; add $8,%rsp; ret"),
    ("push %r12; push %rbx; mov %rdi,%rbx", "lea N(%rbx),%rax; pop %rbx; pop %r12; ret"),
    ("mov %rdi,%rax", "add $N,%rax; ret"),
    (
        "push %r15; push %r14; push %rbp; sub $16,%rsp",
        "add $16,%rsp; pop %rbp; pop %r14; pop %r15; lea N(%rdi),%rax; ret",
    ),
    ("endbr64; push %rbp", "lea N(%rdi),%rax; pop %rbp; ret"),
    ("xor %eax,%eax", "test %rdi,%rdi; lea N(%rdi),%rax; ret"),
    ("test %rdi,%rdi; je 1f", "1: lea N(%rdi),%rax; ret"),
    ("mov zero(%rip),%rax", "lea N(%rax,%rdi),%rax; ret"),
    ("push %rbx; mov %edi,%ebx; sub $0x120,%rsp", "add $0x120,%rsp; pop %rbx; lea N(%rdi),%rax; ret"),
];
/// Filler instructions without lasting effect.
const BALLAST: [&str; 5] =
    ["xor %edx,%edx", "lea 7(%rcx,%rdx,2),%rcx", "mov %rdi,%rsi", "imul $0x1234567,%rcx,%rdx", "cmp $9,%dl"];
/// The most filler instructions in a function.
const MAX_BALLAST: u64 = 24;

/// The source of a library with this many functions. Number N is named `fG_N`, where G is N modulo
/// `groups`.
pub(super) fn source(functions: u64, groups: u64) -> String {
    let mut source = String::from(".section .note.GNU-stack\n.data\nzero: .quad 0\n.text\n");
    let mut luck = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: u64| {
        // Knuth's linear congruential generator: the same library every time.
        luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (luck >> 33) % below
    };
    let mut table = format!(
        ".section .data.rel.ro,\"aw\"\n.globl count,functions\n.type count,@object\n.type functions,@object\n\
         .size count,8\n.size functions,{}\n.p2align 3\ncount: .quad {functions}\nfunctions:\n",
        functions * 8
    );
    for number in 0..functions {
        let name = format!("f{}_{number}", number % groups);
        let (begin, end) = FORMS[next(FORMS.len() as u64) as usize];
        let end = end.replace('N', &number.to_string());
        let _ = writeln!(source, ".p2align 4\n.globl {name}\n.type {name},@function\n{name}: {begin}");
        for _ in 0..next(MAX_BALLAST) {
            let _ = writeln!(source, "{}", BALLAST[next(BALLAST.len() as u64) as usize]);
        }
        let _ = writeln!(source, "{end}\n.size {name},.-{name}");
        let _ = writeln!(table, ".quad {name}");
    }
    source + &table
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_function_is_in_the_table() {
        let source = super::source(7, 2);
        for number in 0..7 {
            let name = format!("f{}_{number}", number % 2);
            assert!(source.contains(&format!("{name}: ")) && source.contains(&format!(".quad {name}\n")));
        }
        assert_eq!(source, super::source(7, 2), "the same every time");
    }
}
