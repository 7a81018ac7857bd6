//! One program of the background session, in a thread of its own: attaching thousands of probes,
//! or detaching them, must not make the session's tracer wait.
//!
//! In: a program ([`ToInsert`]), and what the session asks of it ([`InKernel`]). Out: what the
//! thread says ([`Said`]), in order: notes and counts, then [`Said::Attached`] or
//! [`Said::Refused`]; then records, and counts when they are asked for; at last [`Said::Ended`].
//! When the thread ends, everything is detached.

use std::collections::HashSet;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Builder;
use std::time::{Duration, Instant};

use engine::{Lost, Note, Observer, Placed, Report};
use kernel::{Filter, Globals};
use nix::sys::signal::SigSet;
use process::Module;
use rpn::{ModuleKind, Sources};
use trace::Record;
use vm::Word;

use super::attaching::{Program, To};
use super::looping::{BUSY, IDLE, Session};
use super::numbers::Numbers;
use super::targets::Targets;
use super::{SystemMap, no_memory, refusal, report, ring, takes_map};
use crate::Failure;
use crate::session::Loaded;

/// Time between two turns when all probes are over, or all processes have ended.
const RESTING: Duration = Duration::from_secs(1);
/// Time between two reports of counts that nobody has asked for.
const PUBLISHING: Duration = Duration::from_secs(1);
/// How long the session may take to write records out before the kernel crashes.
const WRITING_OUT: Duration = Duration::from_secs(5);
/// Records that are sent together.
const BATCH: usize = 512;
/// Records that may be on their way to the session; more stay in the rings.
const MOST_WAITING: usize = 1 << 16;

/// The global variables of all programs that the kernel runs in a session.
///
/// # Errors
/// The kernel gives no memory.
pub(crate) fn globals() -> Result<Arc<Globals>, Failure> {
    // A program that is inserted later may have any number.
    Globals::create(u16::MAX.into()).map_err(no_memory)
}

/// The values of this many global variables.
pub(crate) fn values(globals: &Globals, count: usize) -> Vec<u64> {
    globals.values()[..count].iter().map(|value| report::value_of(value, Word::W8)).collect()
}

/// A program that is to be inserted.
pub(crate) struct ToInsert {
    pub(crate) loaded: Loaded,
    /// The texts that it was compiled from.
    pub(crate) sources: Option<Sources>,
    /// The processes that are probed, with what they fork; all if there is none.
    pub(crate) pids: Vec<i32>,
    /// The file with the kernel's symbols, if one was named.
    pub(crate) sym: Option<PathBuf>,
    /// The size of each processor's ring, if it was asked for.
    pub(crate) buffer: Option<u64>,
    pub(crate) globals: Arc<Globals>,
    /// Whether its handlers may call the kernel's debugger or a crash dump.
    pub(crate) allow_panic: bool,
    /// Whether a target wants to know the sites that were hit.
    pub(crate) wants_placed: bool,
    /// Whether counts are said again and again.
    pub(crate) publishes: bool,
}

/// What the thread of a program says.
#[derive(Debug)]
pub(crate) enum Said {
    /// A message.
    Note(Note),
    /// Its probes are attached, or wait for a module.
    Attached,
    /// It cannot run, and nothing is attached: why.
    Refused(Failure),
    /// Records, in the order of time.
    Records(Vec<Record>),
    /// The targets are to write out what they have, and to say when it is done.
    WriteOut(Sender<()>),
    /// A site was hit in a process for the first time.
    Placed(Box<Site>),
    /// Records were lost in the kernel.
    Lost(Lost),
    /// So many records of a probe were lost since this was last said.
    Dropped { probe: usize, count: u64 },
    /// Its counts and variables, and the number of who has asked for them last; 0: nobody.
    Counts(Box<Report>, u64),
    /// Everything is detached, and all was said.
    Ended,
}

/// A site in a process.
#[derive(Debug)]
pub(crate) struct Site {
    pid: i32,
    probe: usize,
    module: Module,
    address: u64,
    engine: &'static str,
}

impl Site {
    /// As it is told to observers, with the program's number.
    pub(crate) fn placed(&self, program: usize) -> Placed<'_> {
        let Site { pid, probe, address, engine, .. } = *self;
        Placed { pid, program, probe, module: &self.module, address, engine, tactic: None }
    }
}

/// What the session asks of the thread.
enum Ask {
    /// To say the counts, on behalf of who has this number.
    Counts(u64),
    /// To set the local variables in a range to zero.
    Reset(RangeInclusive<usize>),
    /// To take out the probes with these points.
    TakeOut(HashSet<String>),
}

/// How much the session can take.
#[derive(Debug)]
struct Intake {
    /// Records on their way.
    waiting: AtomicUsize,
    /// Whether the session's targets take records now.
    is_open: AtomicBool,
}

/// The session's end of a program that the kernel runs. When it is dropped, the program ends.
#[derive(Debug)]
pub(crate) struct InKernel {
    asks: Sender<Ask>,
    room: Arc<Intake>,
}

impl InKernel {
    /// Starts the thread of a program. It says everything through `say`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(program: ToInsert, say: impl Fn(Said) + Send + 'static) -> Result<InKernel, Failure> {
        let (asks, asked) = mpsc::channel();
        let room = Arc::new(Intake { waiting: AtomicUsize::new(0), is_open: AtomicBool::new(true) });
        let teller = Teller {
            say: Box::new(say),
            records: Vec::new(),
            room: Arc::clone(&room),
            wants_placed: program.wants_placed,
            writes_out: program.allow_panic,
        };
        let thread = Builder::new().name("kernel engine".to_owned());
        thread
            .spawn(move || work(program, &asked, teller))
            .map_err(|error| Failure::new(format!("a thread for the program cannot be started: {error}")))?;
        Ok(InKernel { asks, room })
    }

    /// Has it say its counts as of now, on behalf of who has this number.
    pub(crate) fn count(&self, who: u64) {
        self.ask(Ask::Counts(who));
    }

    /// Sets the local variables in a range to zero.
    pub(crate) fn reset(&self, range: RangeInclusive<usize>) {
        self.ask(Ask::Reset(range));
    }

    /// Takes out the probes with these points.
    pub(crate) fn take_out(&self, points: HashSet<String>) {
        self.ask(Ask::TakeOut(points));
    }

    /// So many of its records were taken.
    pub(crate) fn took(&self, records: usize) {
        self.room.waiting.fetch_sub(records, Ordering::Relaxed);
    }

    /// Whether records can be taken now. While they cannot, they stay in the rings.
    pub(crate) fn open(&self, is_open: bool) {
        self.room.is_open.store(is_open, Ordering::Relaxed);
    }

    fn ask(&self, ask: Ask) {
        // Fails if the thread has ended, which it says.
        let _ = self.asks.send(ask);
    }
}

/// The thread.
fn work(program: ToInsert, asked: &Receiver<Ask>, mut teller: Teller) {
    // The session's main thread takes signals.
    let _ = SigSet::all().thread_block();
    let (globals, publishes) = (Arc::clone(&program.globals), program.publishes);
    let gvars: usize = program.loaded.program.gvars().into();
    let mut session = match attach(program, &mut teller) {
        Ok(session) => session,
        Err(failure) => return teller.say(Said::Refused(failure)),
    };
    let values = || values(&globals, gvars);
    teller.say(Said::Counts(Box::new(session.report(values())), 0));
    teller.say(Said::Attached);
    let mut published = Instant::now();
    loop {
        let came = session.turn(&mut teller);
        teller.flush();
        let is_over = session.wait(Duration::ZERO) || session.is_finished();
        if publishes && published.elapsed() >= PUBLISHING {
            published = Instant::now();
            teller.say(Said::Counts(Box::new(session.report(values())), 0));
        }
        let ask = match asked.recv_timeout(if came { BUSY } else { pause(is_over) }) {
            Ok(ask) => ask,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        match ask {
            Ask::Counts(who) => {
                // With what has come meanwhile.
                session.turn(&mut teller);
                teller.flush();
                teller.say(Said::Counts(Box::new(session.report(values())), who));
            }
            Ask::Reset(range) => session.programs().iter().for_each(|program| reset(program, &range)),
            Ask::TakeOut(points) => {
                session.programs().iter_mut().for_each(|program| take_out(program, &points));
            }
        }
    }
    let report = session.finish(&mut teller, values);
    drop(session);
    teller.flush();
    teller.say(Said::Counts(Box::new(report), 0));
}

/// How long it sleeps when no records come.
fn pause(is_over: bool) -> Duration {
    if is_over { RESTING } else { IDLE }
}

/// Attaches a program.
fn attach(program: ToInsert, teller: &mut Teller) -> Result<Session, Failure> {
    let ToInsert { loaded, sources, pids, sym, buffer, globals, allow_panic, .. } = program;
    let targets = (!pids.is_empty()).then(|| Targets::new(&pids, true)).transpose()?;
    let processes = targets.as_ref().map(|targets| Arc::clone(&targets.processes));
    let object = loaded.program.main();
    let name = (object.kind == ModuleKind::User).then(|| object.module.clone());
    let mut session = Session::new(targets, None, vec![name]);
    if let Some(map) = sym.filter(|_| takes_map(object)) {
        session.set_system_map(SystemMap::read(&map).map_err(Failure::new)?.into());
    }
    let numbers = Numbers::new(object, session.found(0).map(|found| &*found.image));
    let to = To {
        globals: &globals,
        ring: ring(buffer)?,
        processes: processes.as_ref(),
        only: Filter::default(),
        by_process: false,
        allow_panic,
        tables: None,
        script: None,
        events: &[],
    };
    session.add(Program::new(loaded, sources, numbers, to)?);
    session.start(teller, refusal)?;
    Ok(session)
}

/// Sets the local variables in a range to zero.
fn reset(program: &Program, range: &RangeInclusive<usize>) {
    let locals = program.maps.locals().iter().enumerate();
    let wanted = locals.filter(|(index, _)| range.contains(index));
    wanted.for_each(|(_, value)| value.store(0, Ordering::Relaxed));
}

/// Detaches the probes with these points for good.
fn take_out(program: &mut Program, points: &HashSet<String>) {
    let all = program.probes.iter_mut().zip(&program.versions.main().probes);
    all.filter(|(_, definition)| points.contains(&definition.point)).for_each(|(probe, _)| probe.end());
}

/// The observer of the thread: sends everything to the session.
struct Teller {
    say: Box<dyn Fn(Said) + Send>,
    /// Records that are sent together.
    records: Vec<Record>,
    room: Arc<Intake>,
    wants_placed: bool,
    /// Whether the kernel may not go on after [`Observer::idle`].
    writes_out: bool,
}

impl Teller {
    fn say(&self, said: Said) {
        (self.say)(said);
    }

    /// Sends the records.
    fn flush(&mut self) {
        if !self.records.is_empty() {
            let records = std::mem::take(&mut self.records);
            self.room.waiting.fetch_add(records.len(), Ordering::Relaxed);
            self.say(Said::Records(records));
        }
    }
}

impl Drop for Teller {
    /// The thread has ended, also by a mistake of ours: the session must not wait for it.
    fn drop(&mut self) {
        self.say(Said::Ended);
    }
}

impl Observer for Teller {
    /// Takes a record; the session counts those that no target takes.
    fn record(&mut self, _program: usize, record: &Record) -> io::Result<()> {
        self.records.push(record.clone());
        if self.records.len() >= BATCH {
            self.flush();
        }
        Ok(())
    }

    fn note(&mut self, note: &Note) {
        self.flush();
        self.say(Said::Note(note.clone()));
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.flush();
        let Placed { pid, probe, address, engine, .. } = *placed;
        self.say(Said::Placed(Box::new(Site { pid, probe, module: placed.module.clone(), address, engine })));
    }

    fn wants_placed(&self) -> bool {
        self.wants_placed
    }

    fn dropped(&mut self, _program: usize, probe: usize, count: u64) {
        self.say(Said::Dropped { probe, count });
    }

    fn lost(&mut self, lost: &Lost) {
        self.flush();
        self.say(Said::Lost(*lost));
    }

    fn idle(&mut self) {
        self.flush();
        if self.writes_out {
            let (done, is_done) = mpsc::channel();
            self.say(Said::WriteOut(done));
            let _ = is_done.recv_timeout(WRITING_OUT);
        }
    }

    fn is_ready(&mut self) -> bool {
        let Intake { waiting, is_open } = &*self.room;
        is_open.load(Ordering::Relaxed) && waiting.load(Ordering::Relaxed) < MOST_WAITING
    }
}
