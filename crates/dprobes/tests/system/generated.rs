//! Random assembly: functions with tables and literals, overlapping instructions, calls that return
//! elsewhere, instructions that fault and are skipped. With all or some of it probed, by both
//! engines, the program behaves as unprobed: its output has a checksum of all its functions' data.
//! Every entry is counted at each call.
//!
//! More of it:
//! `DPROBES_GENERATED_SEEDS=50 cargo test -p dprobes --test system -- --ignored generated`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Run, Scratch, dprobes, find_program, need, run};

/// How often each function is called.
const ROUNDS: u64 = 6;

/// A small generator of random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Instructions that only use registers, some of one or two bytes.
const PLAIN: [&str; 14] = [
    "cwtl",
    "not %eax",
    "neg %eax",
    "add %edi, %eax",
    "lea 3(%rax,%rdi), %rax",
    "xor $0x55, %al",
    "imul $7, %rax, %rax",
    "nop",
    "push %rbx\n pop %rbx",
    "test %edi, %edi\n jz 77f\n inc %eax\n77: dec %eax",
    "mov %rax, %rdx",
    "xchg %rax, %rdx",
    "add $0x12345678, %rax",
    "sub %rdx, %rax",
];

/// The assembly of some functions, `g_LETTER_NUMBER`, which take and return a number.
fn assembly(random: &mut Random, functions: u64) -> (String, Vec<String>, usize) {
    let mut text = String::from(
        ".text\n.balign 16\n.type skip_pop, @function\nskip_pop: pop %rcx\n add (%rcx), %rax\n add $8, %rcx\n jmp *%rcx\n\
         .size skip_pop, . - skip_pop\n.type skip_add, @function\nskip_add: addq $8, (%rsp)\n inc %rax\n ret\n\
         .size skip_add, . - skip_add\n.type skip_load, @function\nskip_load: mov (%rsp), %rcx\n add (%rcx), %rax\n lea 8(%rcx), %rcx\n mov %rcx, (%rsp)\n ret\n\
         .size skip_load, . - skip_load\n.type plain, @function\nplain: add $5, %rax\n ret\n.size plain, . - plain\n",
    );
    let (mut names, mut data) = (Vec::new(), 0);
    for number in 0..functions {
        let name = format!("g_{}_{number}", random.pick(&["a", "b", "c"]));
        let unwound = random.below(2) == 0;
        let (begin, end) = if unwound { (".cfi_startproc", ".cfi_endproc") } else { ("", "") };
        let align = random.pick(&["1", "8", "16"]);
        write!(
            text,
            ".balign {align}, 0x90\n.globl {name}\n.type {name}, @function\n{name}: {begin}\n mov %rdi, %rax\n xor %edx, %edx\n"
        )
        .expect("a string takes it");
        let mut literal = |text: &mut String, random: &mut Random| {
            let value = match random.below(4) {
                0 => 0x9090_9090_9090_9090,
                1 => random.below(256),
                _ => random.below(u64::MAX),
            };
            writeln!(text, "data_{data}: .quad {value:#x}").expect("a string takes it");
            data += 1;
        };
        for _ in 0..=random.below(3) {
            for _ in 0..random.below(4) {
                writeln!(text, " {}", random.pick(&PLAIN)).expect("a string takes it");
            }
            match random.below(8) {
                0 => {
                    let callee = random.pick(&["skip_pop", "skip_add", "skip_load"]);
                    writeln!(text, " call {callee}").expect("a string takes it");
                    literal(&mut text, random);
                }
                1 => {
                    let callee = random.pick(&["skip_pop", "skip_add", "skip_load"]);
                    writeln!(text, " push %rbx\n lea {callee}(%rip), %rbx\n call *%rbx")
                        .expect("a string takes it");
                    literal(&mut text, random);
                    text.push_str(" pop %rbx\n");
                }
                2 => {
                    text.push_str(" jmp 7f\n6:\n");
                    literal(&mut text, random);
                    text.push_str("7: add 6b(%rip), %rax\n");
                }
                3 => {
                    // A table, with a visible bound or without.
                    let bound = random.pick(&["cmp $3, %ecx\n ja 5f\n", ""]);
                    writeln!(
                        text,
                        " mov %edi, %ecx\n and $3, %ecx\n {bound} lea 9f(%rip), %rdx\n movslq (%rdx,%rcx,4), %rcx\n add %rdx, %rcx\n jmp *%rcx\n \
                         .balign 4, 0x90\n9: .long 1f - 9b, 2f - 9b, 3f - 9b, 4f - 9b\n1: add $1, %rax\n jmp 5f\n2: not %rax\n jmp 5f\n\
                         3: sub $3, %rax\n jmp 5f\n4: inc %eax\n5: xor %edx, %edx"
                    )
                    .expect("a string takes it");
                }
                4 => text.push_str(" test $1, %dil\n jz 8f + 1\n8: lock incq counted(%rip)\n"),
                5 => text.push_str(" ud2\n cwtl\n not %eax\n neg %eax\n"),
                6 => text.push_str(" mov $8, %esi\n lodsb\n cwtl\n not %eax\n neg %eax\n"),
                _ => text.push_str(" call plain\n cwtl\n neg %eax\n"),
            }
        }
        writeln!(text, " ret\n{end}\n.size {name}, . - {name}").expect("a string takes it");
        names.push(name);
    }
    text.push_str(".data\n.globl counted, all_data, functions\ncounted: .quad 0\nall_data:\n");
    (0..data).for_each(|at| writeln!(text, " .quad data_{at}").expect("a string takes it"));
    text.push_str(" .quad 0\nfunctions:\n");
    names.iter().for_each(|name| writeln!(text, " .quad {name}").expect("a string takes it"));
    text.push_str(" .quad 0\n.section .note.GNU-stack, \"\", @progbits\n");
    (text, names, data)
}

const MAIN: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
extern long (*functions[])(long);
extern unsigned char *all_data[];
extern long counted;
static void pass_over(int signal, siginfo_t *info, void *context)
{
    ucontext_t *user = context;
    user->uc_mcontext.gregs[REG_RIP] += signal == SIGILL ? 2 : 1;
    user->uc_mcontext.gregs[REG_RAX] += 3;
}
int main(int count, char **words)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = pass_over;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, 0);
    sigaction(SIGSEGV, &action, 0);
    unsigned long sum = 0;
    for (int at = 0; functions[at]; at++) {
        unsigned long all = 0;
        for (long round = 0; round < ROUNDS; round++)
            all = all * 31 + functions[at](round * 1234567);
        printf("%d %lx\n", at, all);
    }
    for (int at = 0; all_data[at]; at++)
        for (int byte = 0; byte < 8; byte++)
            sum = sum * 31 + all_data[at][byte];
    printf("data %lx counted %ld\n", sum, counted);
    return 17;
}
"#;

/// Builds the program of a seed.
fn build(scratch: &Scratch, seed: u64, functions: u64) -> Option<(PathBuf, Vec<String>)> {
    let gcc = find_program("gcc")?;
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (text, names, _) = assembly(&mut random, functions);
    let source = scratch.file(&format!("generated-{seed}.s"), &text);
    let main = scratch.file("main.c", MAIN);
    let program = scratch.path().join(format!("generated-{seed}"));
    let kind = if seed.is_multiple_of(2) { "-no-pie" } else { "-pie" };
    let mut command = Command::new(gcc);
    command.args(["-O1", kind, &format!("-DROUNDS={ROUNDS}"), "-o"]).arg(&program).arg(source).arg(main);
    let (status, _, stderr) = run(&mut command);
    assert!(status.success(), "seed {seed}: {stderr}");
    Some((program, names))
}

/// Probes what a pattern matches, and compares the output.
fn compare(program: &Path, alone: &str, engine: &str, points: &str) {
    let module = program.file_name().unwrap_or_default().to_string_lossy();
    let mut command = dprobes();
    command.args(["run", "--engine", engine, "--at", &format!("{module}:{points}")]);
    command.args(["--do", "inc lv, 0; abort", "--"]).arg(program);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!(status.code(), Some(17), "{module} {engine} {points}: {stderr}");
    assert_eq!(stdout, alone, "{module} {engine} {points}: {stderr}");
}

fn seed(seed: u64, functions: u64) -> Option<()> {
    let scratch = Scratch::new();
    let (program, names) = build(&scratch, seed, functions)?;
    let (status, alone, _) = run(&mut Command::new(&program));
    assert_eq!(status.code(), Some(17), "seed {seed}");
    for engine in ["auto", "trap"] {
        for points in ["g_*:*", "g_a_*:*", "g_b_*:*", "g_*:return"] {
            compare(&program, &alone, engine, points);
        }
        let text = crate::support::counting(&program, &names);
        let outcome = Run::new(&text).option(format!("--engine={engine}")).on([&program]).ended_with(17);
        assert_eq!(outcome.stdout, alone, "seed {seed} {engine}");
        for (minor, name) in (1..).zip(&names) {
            assert_eq!(outcome.stats.hits(minor), ROUNDS, "seed {seed} {engine}: {name}");
        }
    }
    Some(())
}

#[test]
fn random_assembly_does_what_it_does_unprobed() {
    need!("generated", seed(1, 120), "gcc");
    // A program at a fixed address.
    need!("generated", seed(2, 120), "gcc");
}

#[test]
#[ignore = "takes minutes: thousands of functions, as many programs as DPROBES_GENERATED_SEEDS says (20)"]
fn much_random_assembly_does_what_it_does_unprobed() {
    let seeds = std::env::var("DPROBES_GENERATED_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(testing::rounds(8, 20));
    for number in 100..100 + seeds {
        need!("generated", seed(number, 400), "gcc");
    }
}
