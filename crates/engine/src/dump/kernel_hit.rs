//! Dumps the process of a thread that has hit a probe of the kernel engine.
//!
//! ```text
//!   thread   hits | waits in the kernel | executes its instruction, stops | has the process copied | runs on
//!   others   run  | stop, one by one    | stopped                                                  | run on
//! ```
//!
//! The kernel does not stop a thread before the probed instruction, so the registers are those that
//! the hit has come with, and what the instruction overwrites is read before it is executed
//! (`executed`). Breakpoints of the kernel are shown as the program's instructions
//! (`breakpoints`).

use std::time::{Duration, Instant};

use process::{Event, Memory, PageMap, Stop, Stopped};

use super::dumper::Dumper;
use super::dumps::Wanted;
use super::executed::{Before, Operands};
use super::{breakpoints, hold};
use crate::change::{Change, LONGEST};
use crate::followed::Followed;
use crate::observer::Note;
use crate::reason::NotDumped;

/// How long the thread may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(20);

/// A hit of a probe of the kernel engine that asks for a core dump.
#[derive(Clone, Debug)]
pub struct KernelHit {
    /// The process.
    pub process: i32,
    /// The thread.
    pub thread: i32,
    /// What messages begin with.
    pub head: String,
    /// The registers as the handler has left them, in the order of the kernel's `struct pt_regs`;
    /// none if the thread does not wait: then it is shown where it has stopped.
    pub registers: Option<[u64; 21]>,
    /// When the probe was hit.
    pub since: Instant,
}

impl Dumper<'_, '_> {
    /// Dumps the process of a thread, all of whose threads are followed, and says what has come of
    /// it; a dump that is being written is told of when it is complete. `release` has the thread
    /// go on, and returns whether it has waited until then.
    pub(crate) fn dump_kernel_hit(&mut self, hit: &KernelHit, release: &mut dyn FnMut() -> bool) {
        match self.stop_behind(hit, release) {
            // A thread that has been killed reports its end by itself.
            Ok((thread, stop, wanted)) => {
                if let Ok((thread, stop)) = self.dump_stopped(thread, stop, wanted) {
                    // It goes on when this is handled.
                    self.followed.holds.events.push_back(Event::Stopped(thread, stop));
                }
            }
            Err(reason) => {
                let text = format!("{} core dump of process {} failed: {reason}", hit.head, hit.process);
                self.messages.observer.note(&Note::Exit(text));
            }
        }
    }

    /// Dumps the process of a thread that is stopped, wherever it is.
    fn dump_stopped(
        &mut self,
        mut thread: Stopped,
        mut stop: Stop,
        wanted: Wanted,
    ) -> Result<(Stopped, Stop), process::Error> {
        // The process has no memory of ours yet, without which it is not copied.
        let number = self.followed.threads.get(&thread.tid()).and_then(|tracked| tracked.space);
        if let (Some(number), Ok(mappings)) = (number, thread.mappings()) {
            (thread, stop, _) = self.followed.spaces.with_calls(number, thread, stop, &mappings, Ok)?;
        }
        let registers = thread.registers()?;
        self.dump(thread, stop, wanted, &registers)
    }

    /// Stops all threads of the process, the one that has hit the probe as the last.
    fn stop_behind(
        &mut self,
        hit: &KernelHit,
        release: &mut dyn FnMut() -> bool,
    ) -> Result<(Stopped, Stop, Wanted), NotDumped> {
        let &KernelHit { process, thread: tid, ref head, registers, since } = hit;
        let read = |error: process::Error| NotDumped::Read(error.into());
        hold::hold_others(self.followed, self.messages, tid, process)?;
        let memory = Memory::open(tid).map_err(read)?;
        let mappings = process::maps(tid).map_err(|error| NotDumped::Read(error.into()))?;
        let pages = PageMap::open(tid).map_err(read)?;
        let mut changes = breakpoints::kernel_changes(process, &memory, &mappings, &pages);
        self.followed.ask(self.messages, tid);
        let before = registers.map(|words| before(&memory, &changes, &words)).transpose();
        if !release() && registers.is_some() {
            return Err(NotDumped::Late(since.elapsed()));
        }
        let before = before?;
        let (thread, stop) = stopped(self.followed, tid)?;
        let mut shown = thread.registers().map_err(|_| NotDumped::Killed)?;
        if let Some(words) = registers {
            shown.set_kernel_words(&words);
        }
        changes.extend(before.into_iter().flat_map(|before| before.changes(&memory)));
        let wanted = Wanted { head: head.clone(), probe: (0, 0), registers: shown, begun: since, changes };
        Ok((thread, stop, wanted))
    }
}

/// What the probed instruction will overwrite. `changes` hide breakpoints.
fn before(memory: &Memory, changes: &[Change], words: &[u64; 21]) -> Result<Before, NotDumped> {
    let operands = Operands::of(words);
    let mut code = [0; LONGEST];
    // At the end of a mapping there are fewer bytes.
    let length = (1..=LONGEST).rev().find(|&length| memory.peek(operands.rip(), &mut code[..length]).is_ok());
    let code = &mut code[..length.unwrap_or(0)];
    changes.iter().for_each(|change| change.hide(operands.rip(), code));
    Before::read(memory, code, &operands).map_err(NotDumped::Executed)
}

/// Waits until a thread has stopped.
///
/// # Errors
/// It has ended, executes another program, or does not stop. What it does then is handled next.
fn stopped(followed: &mut Followed, tid: i32) -> Result<(Stopped, Stop), NotDumped> {
    let start = Instant::now();
    loop {
        let (event, reason) = match process::look_at(tid) {
            Ok(Some(event @ Event::Stopped(_, Stop::Exec { .. }))) => (event, NotDumped::Replaced),
            Ok(Some(Event::Stopped(thread, stop))) => return Ok((thread, stop)),
            Ok(Some(event @ Event::Ended { .. })) => (event, NotDumped::Killed),
            Err(_) => return Err(NotDumped::Killed),
            Ok(None) if start.elapsed() > STOP_TIMEOUT => return Err(NotDumped::NotStopped),
            Ok(None) => {
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        followed.holds.events.push_back(event);
        return Err(reason);
    }
}
