//! Attaching to accesses to an address, by the processor's debug registers.

use crate::link::{AttachError, Link, Scope, attach_event};
use crate::program::Program;
use crate::sys::{PerfEventAttr, event_flag};

/// What raises a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Access {
    /// A write.
    Write = 2,
    /// A read or a write: x86 cannot tell them apart.
    ReadWrite = 3,
    /// The execution of the instruction there. The length is 8.
    Execute = 4,
}

/// Accesses to 1, 2, 4 or 8 bytes of memory, aligned to their length. A processor has four
/// breakpoints, which all threads that it executes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakpoint {
    /// The address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub length: u64,
    /// Which accesses.
    pub access: Access,
    /// The thread; any, on one processor, if there is none.
    pub thread: Option<u32>,
    /// The processor; any if there is none.
    pub processor: Option<u32>,
    /// Whether it is also set for the threads and processes that the thread creates from now on.
    ///
    /// Then the cookie cannot be relied on: their events have the cookie 0, and when the kernel
    /// switches from one such thread to another it may exchange the events of the two. What has to
    /// tell such breakpoints apart needs a program for each.
    pub inherit: bool,
    /// Whether accesses by the kernel, in system calls of the thread, count too.
    pub kernel: bool,
}

impl Breakpoint {
    /// Attaches a program of the kind [`PerfEvent`](crate::ProgramKind::PerfEvent). It is executed
    /// after the access, or before the instruction.
    ///
    /// # Errors
    /// If the kernel refuses: [`AttachError::Event`] with `ENOSPC` if no breakpoint is left,
    /// `EINVAL` if the address is not aligned, `ESRCH` if there is no such thread.
    pub fn attach(&self, program: &Program, cookie: u64) -> Result<Link, AttachError> {
        const BREAKPOINT: u32 = 5;
        let mut flags = event_flag::EXCLUDE_HYPERVISOR;
        if self.inherit {
            flags |= event_flag::INHERIT | event_flag::INHERIT_THREAD | event_flag::REMOVE_ON_EXEC;
        }
        if !self.kernel {
            flags |= event_flag::EXCLUDE_KERNEL;
        }
        let attr = PerfEventAttr {
            kind: BREAKPOINT,
            sample_period: 1,
            flags,
            bp_type: self.access as u32,
            config1: self.address,
            config2: self.length,
            ..Default::default()
        };
        let number = |number: Option<u32>| number.map_or(-1, |number| number as i32);
        let scope = Scope { thread: number(self.thread), processor: number(self.processor) };
        // SAFETY: a breakpoint's `config1` is a number to the kernel, which never reads memory
        // there.
        unsafe { attach_event(program, attr, scope, cookie) }
    }
}
