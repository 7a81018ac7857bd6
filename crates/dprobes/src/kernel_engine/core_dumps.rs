//! Core dumps of processes whose threads have hit probes of the kernel engine (`exit 3`).
//!
//! A handler in the kernel asks for a dump, and its thread waits there for a moment
//! (`kernel::DumpRequests`). A thread of this process waits for such requests. For each it follows
//! the process (`engine::Tracer`), has it copied, lets it go, and writes the copy to a file. There
//! is one dump at a time.
//!
//! In: the requests of one program. Out: messages, which the session takes.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use engine::{Control, KernelHit, Note, Observer, Tracer};
use kernel::{DumpRequest, DumpRequests, Maps};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use rpn::Object;
use trace::Record;
use vm::Effects;

use crate::Failure;

/// The pid namespace that the kernel numbers processes in (PROC_PID_INIT_INO of proc_ns.h).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The thread that writes the core dumps of a program.
#[derive(Debug)]
pub(super) struct CoreDumps {
    notes: Receiver<Note>,
    /// Its end is the thread's.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// What is known of a probe.
#[derive(Clone, Copy, Debug)]
struct Probe {
    codes: (u32, u32),
    /// Whether its threads wait in the kernel.
    waits: bool,
    /// How many dumps it may still write.
    left: u32,
}

impl CoreDumps {
    /// Begins to wait for the requests of a program, if it can have some. Each probe may write
    /// `most` dumps.
    ///
    /// # Errors
    /// There is no thread, or no memory.
    pub(super) fn begin(object: &Object, maps: &Maps, most: u32) -> Result<Option<CoreDumps>, Failure> {
        if !vm::may(&object.code, object.word(), Effects::CALLS_FACILITY) {
            return Ok(None);
        }
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("a thread for core dumps (`exit 3`) cannot be started: {error}"))
        };
        let requests = maps.dump_requests().map_err(|error| failed(&error))?;
        let (stop, stopped) = UnixStream::pair().map_err(|error| failed(&error))?;
        let (say, notes) = mpsc::channel();
        let probes = object.probes.iter().map(|probe| Probe {
            codes: (object.major, probe.minor),
            waits: probe.watch.is_none(),
            left: most,
        });
        let mut dumper = Dumper { requests, probes: probes.collect(), say };
        let thread = Builder::new().name("core dumps".to_owned());
        let thread = thread.spawn(move || dumper.work(&stopped)).map_err(|error| failed(&error))?;
        Ok(Some(CoreDumps { notes, stop: Some(stop), thread: Some(thread) }))
    }

    /// Tells what has come of dumps.
    pub(super) fn tell(&self, observer: &mut dyn Observer) {
        self.notes.try_iter().for_each(|note| observer.note(&note));
    }

    /// Waits until the dump that is being written is complete, or its file is removed.
    pub(super) fn finish(&mut self, observer: &mut dyn Observer) {
        self.end();
        self.tell(observer);
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // If it has failed, nothing is left to be done.
            let _ = thread.join();
        }
    }
}

impl Drop for CoreDumps {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the thread has.
struct Dumper {
    requests: DumpRequests,
    probes: Vec<Probe>,
    say: Sender<Note>,
}

impl Dumper {
    /// Answers requests until `stopped` has lost its other end.
    fn work(&mut self, stopped: &UnixStream) {
        // The session's main thread takes signals.
        let _ = SigSet::all().thread_block();
        self.probes.iter().enumerate().for_each(|(number, _)| self.requests.allow(number, true));
        loop {
            let mut events =
                [self.requests.as_fd(), stopped.as_fd()].map(|it| PollFd::new(it, PollFlags::POLLIN));
            let waited = poll(&mut events, PollTimeout::NONE);
            let is_over = events[1].any().unwrap_or(true);
            if is_over || waited.is_err_and(|error| error != nix::errno::Errno::EINTR) {
                return;
            }
            while let Some(request) = self.requests.next_request() {
                self.answer(&request);
            }
        }
    }

    /// Has a process dumped.
    fn answer(&mut self, request: &DumpRequest) {
        let number = request.probe as usize;
        let Some(probe) = self.probes.get_mut(number) else {
            self.requests.done(request);
            return;
        };
        // Also an attempt counts: it has made the thread wait.
        probe.left = probe.left.saturating_sub(1);
        let Probe { codes, waits, left } = *probe;
        if left == 0 {
            self.requests.allow(number, false);
        }
        let (major, minor) = (request.major.unwrap_or(codes.0), request.minor.unwrap_or(codes.1));
        let head = format!("DProbes({major},{minor})");
        match is_first_namespace() {
            true => self.dump(request, head.clone(), waits),
            false => self.say(format!(
                "{head} core dump of process {} failed: dprobes runs in another pid namespace than the machine's \
                 first, whose numbers of processes the kernel tells",
                request.tgid
            )),
        }
        let refused = self.requests.done(request);
        if refused > 0 {
            self.say(format!(
                "{head} exits to a core dump that came meanwhile: {refused}, which wrote none: one is written at a time"
            ));
        }
    }

    fn dump(&mut self, request: &DumpRequest, head: String, waits: bool) {
        if !waits {
            self.say(format!(
                "{head} exit 3: a thread does not wait at a watchpoint: process {} is dumped where its threads have \
                 come to",
                request.tgid
            ));
        }
        let now = Instant::now();
        let hit = KernelHit {
            process: request.tgid as i32,
            thread: request.tid as i32,
            head,
            registers: waits.then_some(request.registers),
            since: now.checked_sub(request.age()).unwrap_or(now),
        };
        let no_thread =
            format!("{} core dump of process {} failed: no thread to trace it", hit.head, hit.process);
        let (requests, mut teller) = (&self.requests, Teller(self.say.clone()));
        // What the tracer has not let go, such as a thread that has just been born, the kernel lets
        // go when the tracing thread ends.
        std::thread::scope(|scope| {
            let trace = move || {
                let mut tracer = Tracer::new(None, &mut teller);
                tracer.dump_kernel_hit(&hit, &mut || requests.take(request));
                tracer.finish(&Control::default());
            };
            // Without a thread, the one of the process goes on after a moment.
            if let Err(error) = Builder::new().name("core dump".to_owned()).spawn_scoped(scope, trace) {
                self.say(format!("{no_thread}: {error}"));
            }
        });
    }

    fn say(&self, text: String) {
        // Fails only if the session is gone.
        let _ = self.say.send(Note::Exit(text));
    }
}

/// Passes messages on. There are no probes, so there is nothing else.
struct Teller(Sender<Note>);

impl Observer for Teller {
    fn record(&mut self, _program: usize, _record: &Record) -> std::io::Result<()> {
        Ok(())
    }

    fn note(&mut self, note: &Note) {
        if let Note::Exit(_) = note {
            // Fails only if the session is gone.
            let _ = self.0.send(note.clone());
        }
    }
}

/// Whether this process numbers processes as the kernel does.
fn is_first_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST_NAMESPACE)
}
