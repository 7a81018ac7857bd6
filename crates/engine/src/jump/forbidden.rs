//! Instructions that handlers and the agent execute, and that a process may have forbidden its threads: the tracer does what the
//! processor would have done.
//!
//! `rdtsc` is forbidden by `PR_SET_TSC` and by seccomp's strict mode, `cpuid` by `ARCH_SET_CPUID`. Both fault then. Reading the time is
//! asked for by every record, so from the first fault on the process is told the time ([`Identity::time`]) and does without the instruction.

use std::arch::x86_64::__cpuid_count;
use std::mem::offset_of;

use layout::Identity;
use libc::siginfo_t;
use process::Registers;

use super::clock::counter;
use crate::signal::SI_KERNEL;
use crate::space::Space;
use crate::tracer::Tracer;

/// The instruction `rdtsc`.
const RDTSC: [u8; 2] = [0x0f, 0x31];
/// The instruction `cpuid`.
const CPUID: [u8; 2] = [0x0f, 0xa2];

impl Tracer<'_> {
    /// Executes the instruction at which a thread has faulted in a handler or in the agent, if it is one that its process has
    /// forbidden: changes its registers.
    pub(super) fn execute_forbidden(
        &mut self,
        number: u32,
        registers: &mut Registers,
        info: &siginfo_t,
    ) -> bool {
        let Some(space) = self.spaces.get_mut(&number) else { return false };
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
                space.clockless = true;
                space.tell_time();
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

    /// Tells the time to the processes that may not read it.
    pub(super) fn tell_times(&self) {
        self.spaces.values().filter(|space| space.clockless).for_each(Space::tell_time);
    }
}

impl Space {
    /// Tells its process the time.
    fn tell_time(&self) {
        let Some(ground) = &self.ground else { return };
        let write = |field: usize, bytes: &[u8]| {
            // It fails only if the process is gone.
            let _ = self.code.memory.poke(ground.identity + field as u64, bytes);
        };
        write(offset_of!(Identity, time), &counter().to_le_bytes());
        write(offset_of!(Identity, clockless), &1_u32.to_le_bytes());
    }
}
