//! Emulates instructions that handlers and the agent execute, where the process has forbidden them
//! to its threads.
//!
//! `rdtsc` is forbidden by `PR_SET_TSC` and by seccomp's strict mode, `cpuid` by `ARCH_SET_CPUID`:
//! both fault then. Since every record needs the time, from the first such `rdtsc` on the tracer
//! writes the time into the process ([`Identity::time`]), and handlers read it from there.

use std::arch::x86_64::__cpuid_count;
use std::mem::offset_of;

use layout::Identity;
use libc::siginfo_t;
use process::Registers;

use super::clock::counter;
use super::step_out::stepper::Stepper;
use crate::signal::SI_KERNEL;
use crate::space::Space;
use crate::spaces::Spaces;

const RDTSC: [u8; 2] = [0x0f, 0x31];
const CPUID: [u8; 2] = [0x0f, 0xa2];

impl Stepper<'_, '_> {
    /// If a thread has faulted, in a handler or in the agent, at an instruction that its process
    /// has forbidden: emulates it in `registers`. Returns whether it was one.
    pub(super) fn execute_forbidden(
        &mut self,
        number: u32,
        registers: &mut Registers,
        info: &siginfo_t,
    ) -> bool {
        let Some(space) = self.followed.spaces.get_mut(&number) else { return false };
        let mut bytes = [0; 2];
        let (signal, code) = (info.si_signo, info.si_code);
        if (signal, code) != (libc::SIGSEGV, SI_KERNEL)
            || space.code.memory.peek(registers.rip(), &mut bytes).is_err()
        {
            return false;
        }
        const RAX: usize = 0;
        const RCX: usize = 1;
        const RDX: usize = 2;
        const RBX: usize = 3;
        let mut general = registers.general();
        match bytes {
            RDTSC => {
                let now = counter();
                (general[RAX], general[RDX]) = (now & u64::from(u32::MAX), now >> 32);
                space.threads.tsc_forbidden = true;
                tell_time(space);
            }
            CPUID => {
                let leaf = __cpuid_count(general[RAX] as u32, general[RCX] as u32);
                for (register, value) in [(RAX, leaf.eax), (RBX, leaf.ebx), (RCX, leaf.ecx), (RDX, leaf.edx)]
                {
                    general[register] = value.into();
                }
            }
            _ => return false,
        }
        registers.set_general(&general);
        registers.set_rip(registers.rip() + bytes.len() as u64);
        true
    }
}

/// Writes the time into all processes that may not read it themselves.
pub(super) fn tell_times(spaces: &Spaces) {
    spaces.values().filter(|space| space.threads.tsc_forbidden).for_each(tell_time);
}

/// Writes the time into the process.
fn tell_time(space: &Space) {
    let Some(handler_memory) = &space.shared.handler_memory else { return };
    let write = |field: usize, bytes: &[u8]| {
        // Fails only if the process is gone.
        let _ = space.code.memory.poke(handler_memory.identity + field as u64, bytes);
    };
    write(offset_of!(Identity, time), &counter().to_le_bytes());
    write(offset_of!(Identity, no_rdtsc), &1_u32.to_le_bytes());
}
