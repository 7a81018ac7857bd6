//! Dumps the process of a thread that has hit a probe.
//!
//! ```text
//!   threads    run | stop, one by one | the hitting one has the process copied | run on
//!   copy                                                                      | read, then killed
//! ```
//!
//! While all threads are stopped, their registers are read, and the process is copied
//! ([`process::Caller::copy_process`]). Then they go on, and a thread of the tracer writes the dump
//! from the copy. Where a process cannot be copied, it is held until the dump is written, and the
//! message says why.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use process::{Copied, Registers, Status, Stop, Stopped};

use super::disk_space::room_for;
use super::dumps::{Active, Dumps, Wanted, text};
use super::file::CoreFile;
use super::moment::{Moment, Origin, Written};
use super::take::take_moment;
use super::watch::Watch;
use super::write::write_moment;
use super::writer::Job;
use crate::followed::Followed;
use crate::messages::Messages;
use crate::observer::Note;
use crate::reason::{NotDumped, NotForked};

/// Dumps processes.
pub(crate) struct Dumper<'t, 'a> {
    pub(crate) followed: &'t mut Followed,
    pub(crate) messages: &'t mut Messages<'a>,
    pub(crate) dumps: &'t mut Dumps,
}

/// A thread after an attempt to have its process copied, its stop, and the copy.
type Tried = (Stopped, Stop, Result<(Copied, Origin), NotForked>);

impl Dumper<'_, '_> {
    /// Dumps the process of a thread that is stopped. `before`: its registers to go on with; after
    /// a hit, at the probed instruction, before the handlers.
    ///
    /// The other threads are held until their events are handled. Returns the thread, with
    /// those registers or as it was, and its stop.
    ///
    /// # Errors
    /// The thread has been killed.
    pub(crate) fn dump(
        &mut self,
        thread: Stopped,
        stop: Stop,
        wanted: Wanted,
        before: &Registers,
    ) -> Result<(Stopped, Stop), process::Error> {
        let Wanted { head, probe, registers, begun, changes } = wanted;
        let tid = thread.tid();
        let pid = self.followed.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
        let failed = |reason: NotDumped| format!("{head} core dump of process {pid} failed: {reason}");
        let room = room_for(Path::new("."), process::anonymous_memory(pid));
        let file = match room.and_then(|()| CoreFile::create(pid)) {
            Ok(file) => file,
            Err(reason) => {
                self.dumps.give_back(probe);
                // The numbers differ each time.
                if self.messages.told.is_new(format!("{probe:?} has no file for a core dump")) {
                    self.messages.observer.note(&Note::Exit(failed(reason)));
                }
                return Ok((thread, stop));
            }
        };
        let moment = match take_moment(self.followed, self.messages, pid, &thread, &registers) {
            Ok(mut moment) => {
                moment.changes.extend(changes);
                moment
            }
            Err(reason) => {
                self.messages.observer.note(&Note::Exit(failed(file.discard(reason))));
                return Ok((thread, stop));
            }
        };
        let (thread, stop, copied) = match self.copy(thread, stop, &moment, before) {
            Ok(tried) => tried,
            Err(error) => {
                let reason = file.discard(NotDumped::Killed);
                self.messages.observer.note(&Note::Exit(failed(reason)));
                return Err(error);
            }
        };
        let held = match copied {
            Ok((copied, origin)) => {
                let copied = Arc::new(copied);
                let stop_flag = Arc::new(AtomicBool::new(false));
                let watch = Arc::new(Watch { copied: Arc::clone(&copied), stop: Arc::clone(&stop_flag) });
                let path = file.path().to_owned();
                let job = Job { file, moment, origin, watch };
                match job.begin() {
                    Ok(writer) => {
                        self.dumps.active.push(Active {
                            head,
                            pid,
                            begun,
                            pause: None,
                            copied,
                            ended: false,
                            writer,
                            stop: stop_flag,
                            refused: 0,
                        });
                    }
                    Err(cause) => {
                        // It is empty.
                        let _ = std::fs::remove_file(path);
                        self.messages.observer.note(&Note::Exit(failed(NotDumped::NoThread(cause.into()))));
                    }
                }
                return Ok((thread, stop));
            }
            Err(reason) => reason,
        };
        let result = write_held(file, moment, &thread);
        let told = text(&head, pid, &result, begun.elapsed(), Some(&held));
        self.messages.observer.note(&Note::Exit(told));
        Ok((thread, stop))
    }

    /// Has a thread copy its process, whose threads are all stopped.
    ///
    /// # Errors
    /// The thread has been killed.
    fn copy(
        &mut self,
        mut thread: Stopped,
        stop: Stop,
        moment: &Moment,
        before: &Registers,
    ) -> Result<Tried, process::Error> {
        let number = match self.may_copy(&thread, moment) {
            Ok(number) => number,
            Err(reason) => return Ok((thread, stop, Err(reason))),
        };
        // From here on the hit's signal is gone: without its tracer the thread would hit the probe
        // again, or find the program's own instruction.
        thread.set_registers(before)?;
        let mut copied = Err(NotForked::Adopts);
        let (thread, stop, allowed) =
            self.followed.spaces.with_calls(number, thread, stop, &[], |caller| {
                let (caller, adopts) = caller.adopts_orphans()?;
                match adopts {
                    Ok(false) => {
                        let (caller, made) = caller.copy_process()?;
                        copied = made.map_err(|error| NotForked::Refused(error.into()));
                        Ok(caller)
                    }
                    Ok(true) => Ok(caller),
                    Err(error) => {
                        copied = Err(NotForked::Refused(error.into()));
                        Ok(caller)
                    }
                }
            })?;
        let copied = match allowed {
            Ok(()) => copied.and_then(|copied| match Origin::of_copy(copied.pid()) {
                Ok(origin) => Ok((copied, origin)),
                Err(error) => Err(NotForked::Refused(error.into())),
            }),
            Err(reason) => Err(NotForked::NoCalls(reason)),
        };
        Ok((thread, stop, copied))
    }

    /// Whether a thread can have its process copied. Returns the number of its address space.
    fn may_copy(&self, thread: &Stopped, moment: &Moment) -> Result<u32, NotForked> {
        let tid = thread.tid();
        if moment.narrow {
            return Err(NotForked::Narrow);
        }
        if !moment.left_out.is_empty() {
            return Err(NotForked::NotStopped);
        }
        let number = self.followed.threads.get(&tid).and_then(|tracked| tracked.space);
        let space = number.and_then(|number| Some((number, self.followed.spaces.get(&number)?)));
        let Some((number, space)) = space else { return Err(NotForked::NoGuard) };
        if space.entrance().is_none_or(|entrance| entrance.refuge.is_none()) {
            return Err(NotForked::NoGuard);
        }
        if process::has_shadow_stack(tid) {
            return Err(NotForked::ShadowStack);
        }
        // The first process of a pid namespace adopts its orphans.
        if Status::read(moment.process).is_ok_and(|status| status.inner_id == 1) {
            return Err(NotForked::Adopts);
        }
        if !process::children_share_pid_namespace(tid) {
            return Err(NotForked::Namespace);
        }
        if process::has_userfaultfd(moment.process) {
            return Err(NotForked::Userfaultfd);
        }
        Ok(number)
    }
}

/// Writes the dump of a process that is held meanwhile.
fn write_held(mut file: CoreFile, moment: Moment, thread: &Stopped) -> Result<Written, NotDumped> {
    let written = Origin::of_thread(thread.tid())
        .map_err(|error| NotDumped::Read(error.into()))
        .and_then(|origin| write_moment(&mut file, moment, &origin));
    // If the process was killed meanwhile, its memory reads as zeros.
    let lives = thread.signal_mask().map(drop).map_err(|_| NotDumped::Killed);
    written.and_then(|written| lives.map(|()| written)).map_err(|reason| file.discard(reason))
}
