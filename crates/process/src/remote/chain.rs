//! Several system calls with one stop: a chain of signal frames, each leading to the next call.
//!
//! ```text
//!     call 1 --frame--> call 2 --frame--> ... --frame--> tkill --frame--> where the thread was
//!                                                          ^ it stops here
//! ```
//!
//! The return to each frame but the last prepares the next call, so that the thread makes all calls
//! in sequence without its tracer; each call's result goes into the frame after it. The last call
//! sends the thread a signal that stops it if it is traced and otherwise does nothing. If the
//! tracer dies, the thread makes all the calls and returns.
//!
//! The signal is SIGURG, and the program must not see it: a thread that has a handler for it,
//! blocks it or has one pending makes its calls one by one. So does a thread with seccomp filters:
//! without the tracer, which suspends them, a filter may kill it for a call. So does a thread whose
//! interrupted call has a restart block in the kernel, which the return to a frame deletes.

use std::io;
use std::ops::Range;

use libc::c_long;

use super::CallDetour;
use super::entrance::SYSCALL;
use crate::thread::{Stop, Stopped};
use crate::{Error, Registers, frame, memory, ptrace};

/// A process that does not handle it ignores it.
const SIGNAL: libc::c_int = libc::SIGURG;
/// Its bit in a mask.
const SIGNAL_BIT: u64 = 1 << (SIGNAL - 1);
/// The most calls of one chain without `room`: as many frames as fit below the last one.
const MAX_CALLS_WITHOUT_ROOM: usize = 8;
/// The value in a result's place before the call has been made.
const NONE: u64 = -(libc::EFAULT as i64) as u64;

/// A call's number and its arguments.
pub(crate) type Numbers = (c_long, [u64; 6]);

impl CallDetour {
    /// Makes several system calls, each one even if an earlier one has failed, with one stop if
    /// possible, and returns their results. `room` is memory of the process for the frames; without
    /// it they go below the last one, where few fit. `step` is called after each change of the
    /// thread's state.
    ///
    /// # Errors
    /// The thread has been killed. An error of a call itself is in its result.
    pub(crate) fn calls(
        &mut self,
        mut thread: Stopped,
        calls: &[Numbers],
        room: Option<Range<u64>>,
        step: &mut dyn FnMut(),
    ) -> Result<(Stopped, Vec<io::Result<u64>>), Error> {
        let mut results = Vec::with_capacity(calls.len());
        let most = room
            .as_ref()
            .map_or(MAX_CALLS_WITHOUT_ROOM, |room| (room.end - room.start) as usize / frame::HEAD);
        for calls in calls.chunks(most.max(1)) {
            let own = self.can_chain(&thread);
            match own.zip(self.way_back.as_ref().map(|way| (way.stub, way.rsp))) {
                Some((own, way)) => {
                    let (stopped, values) =
                        self.chain(thread, calls, own, way, room.as_ref().map(|room| room.start), step)?;
                    thread = stopped;
                    results.extend(values.into_iter().map(value_or_error));
                }
                None => {
                    for &(number, arguments) in calls {
                        let (stopped, result) = self.call(thread, number, arguments, step)?;
                        thread = stopped;
                        results.push(result);
                    }
                }
            }
        }
        Ok((thread, results))
    }

    /// The thread's own id in its namespace, if it can make several calls with one stop.
    fn can_chain(&mut self, thread: &Stopped) -> Option<u64> {
        let mask = self.mask;
        let is_noted = self.saved.call_number() >= 0 && self.saved.result() == frame::RESTART_BLOCK;
        let can_return = self.way_back.is_some() && !is_noted;
        *self.chains.get_or_insert_with(|| {
            let status = thread.status().ok().filter(|_| can_return)?;
            let taken = status.caught | status.pending | mask;
            let is_free = taken & SIGNAL_BIT == 0 && status.seccomp == 0;
            u64::try_from(status.inner_id).ok().filter(|&own| is_free && own != 0)
        })
    }

    /// Makes the calls. `own` is the thread's id in its namespace, `stub` the stub's address,
    /// `last` the stack pointer at the frame that leads back. The other frames are at `room`, or
    /// below that one.
    fn chain(
        &mut self,
        mut thread: Stopped,
        calls: &[Numbers],
        own: u64,
        (stub, last): (u64, u64),
        room: Option<u64>,
        step: &mut dyn FnMut(),
    ) -> Result<(Stopped, Vec<u64>), Error> {
        let tid = thread.tid();
        let size = frame::HEAD as u64;
        // The frame that leads back has the extended state after its head; all frames share it.
        let end = last - 8;
        let state = end + size;
        let start = room.unwrap_or(end - size * calls.len() as u64);
        // The stack pointer for a call, by its number: at the frame that leads to the next one.
        let rsp = |number: usize| start + size * number as u64 + 8;
        let stop = (libc::SYS_tkill, [own, SIGNAL as u64, 0, 0, 0, 0]);
        let mut frames = Vec::with_capacity(calls.len() * frame::HEAD);
        for (number, &(call, arguments)) in calls.iter().chain([&stop]).enumerate().skip(1) {
            let is_last = number == calls.len();
            let registers = self.for_call(call, arguments, if is_last { last } else { rsp(number) });
            let at = frames.len();
            frames.extend_from_slice(&frame::head(&registers, if is_last { !SIGNAL_BIT } else { !0 }, state));
            frames[at..at + 8].copy_from_slice(&NONE.to_le_bytes());
        }
        let unreachable =
            || Error::Refused { what: "writing memory", pid: tid, cause: io::ErrorKind::Other.into() };
        memory::write(tid, start, &frames).map_err(|_| unreachable())?;
        step();
        let registers = self.for_call(calls[0].0, calls[0].1, rsp(0));
        self.send(&mut thread, &registers, step)?;
        loop {
            ptrace::resume(tid, 0)?;
            let (stopped, stop) = thread.next_stop()?;
            thread = stopped.known_as(&thread, false);
            step();
            match stop {
                Stop::Signal(SIGNAL) if is_behind(&thread.registers()?, stub, last) => break,
                Stop::Signal(libc::SIGSTOP) => self.held_stop = true,
                // SIGSEGV is blocked, so this is a fault: the process has changed or unmapped what
                // the thread was to execute.
                Stop::Signal(libc::SIGSEGV) => {
                    self.settled = Stop::Other;
                    break;
                }
                _ => {}
            }
        }
        let mut bytes = vec![0; frames.len()];
        memory::read(tid, start, &mut bytes).map_err(|_| unreachable())?;
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(NONE, |word| u64::from_le_bytes(*word));
        Ok((thread, bytes.chunks(frame::HEAD).map(word).collect()))
    }
}

/// Whether a thread has just sent itself the signal at the end of a chain.
fn is_behind(registers: &Registers, stub: u64, last: u64) -> bool {
    (registers.rip(), registers.rsp()) == (stub + SYSCALL.len() as u64, last)
}

/// Splits a call's result into value and error.
fn value_or_error(value: u64) -> io::Result<u64> {
    match value as i64 {
        error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
        _ => Ok(value),
    }
}
