//! Counts how often each instruction of a program runs, without probes: single-steps the whole
//! program with ptrace and reads rip at every stop.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// An instruction as objdump shows it.
pub(crate) struct Instruction {
    pub(crate) address: u64,
    pub(crate) text: String,
}

/// The instructions of a section, from objdump; `None` without objdump.
pub(crate) fn disassemble(program: &Path, section: &str) -> Option<Vec<Instruction>> {
    let objdump = crate::support::find_program("objdump")?;
    let output =
        Command::new(objdump).args(["-d", "-w", "--no-show-raw-insn", "-j", section]).arg(program).output();
    let output = output.expect("objdump runs");
    assert!(output.status.success(), "{output:?}");
    let parse = |line: &str| {
        let (address, text) = line.split_once(":\t")?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        Some(Instruction { address, text: text.split_whitespace().collect::<Vec<_>>().join(" ") })
    };
    Some(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect())
}

/// Single-steps a program to its end; returns how often each instruction began.
///
/// A repeated string instruction stops once per repetition with rip unchanged, which counts as one
/// beginning. `pushf` stores the trap flag set by the stepping: it is cleared in memory, so that
/// the program does not later step itself.
#[expect(clippy::zombie_processes, reason = "it is waited for with waitpid, which also tells of its stops")]
pub(crate) fn count_by_stepping(program: &Path, instructions: &[Instruction]) -> HashMap<u64, u64> {
    let of_interest: HashMap<u64, &str> =
        instructions.iter().map(|each| (each.address, &*each.text)).collect();
    let mut command = Command::new(program);
    command.stdout(Stdio::null());
    // SAFETY: between fork and exec the closure makes one system call, which is safe there.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        })
    };
    let child = command.spawn().expect("the program under test starts");
    let pid = child.id() as i32;
    let mut counts = HashMap::new();
    let mut last = 0;
    let mut pushed_flags = false;
    // SAFETY: an all-zero user_regs_struct is a valid one: it holds numbers only.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    loop {
        let mut status = 0;
        // SAFETY: status is a live i32, which is what waitpid writes.
        let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(waited, pid, "the stepped program can be waited for");
        if !libc::WIFSTOPPED(status) {
            return counts;
        }
        let signal = libc::WSTOPSIG(status);
        assert_eq!(signal, libc::SIGTRAP, "the stepped program got a signal at {last:#x}");
        // SAFETY: registers is a live user_regs_struct, which is what PTRACE_GETREGS writes; pid is
        // stopped.
        let read = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &mut registers) };
        assert_eq!(read, 0, "registers can be read");
        if pushed_flags {
            // SAFETY: PEEKDATA and POKEDATA take an address of the stopped process, not of this
            // one.
            unsafe {
                let word = libc::ptrace(libc::PTRACE_PEEKDATA, pid, registers.rsp, 0);
                libc::ptrace(libc::PTRACE_POKEDATA, pid, registers.rsp, word & !0x100);
            }
        }
        let text = of_interest.get(&registers.rip);
        let repeats = text.is_some_and(|text| text.contains("rep") && !text.contains("ret"));
        if text.is_some() && !(repeats && registers.rip == last) {
            *counts.entry(registers.rip).or_insert(0) += 1;
        }
        pushed_flags = text.is_some_and(|text| text.starts_with("pushf"));
        last = registers.rip;
        // SAFETY: PTRACE_SINGLESTEP takes no pointers; pid is stopped.
        let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
        assert_eq!(stepped, 0, "the program can be stepped");
    }
}
