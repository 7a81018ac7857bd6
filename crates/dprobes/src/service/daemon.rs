//! The session process: one thread traces and answers requests, another takes requests from the
//! socket. `session` is what it keeps, `insert` is the longest of its answers.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::BufReader;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::Builder;
use std::time::{Duration, Instant};

use engine::{Tracer, Variables};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};

use super::in_kernel::{Event, KernelPrograms};
use super::metrics::Exports;
use super::observer::{SessionOutput, Shared};
use super::protocol::{self, GetVars, Reply, Request};
use super::refused::Refused;
use super::scan::{self, Scanner};
use super::session::Session;
use super::socket::{self, Home};
use super::supervisor;
use crate::control::Watch;
use crate::hooks::{Plugins, WithHooks};
use crate::{Failure, front, heap, messages, summary};

/// How long to wait, at the end, for clients that are still being answered.
const LAST_CLIENTS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take to send its request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the session sleeps while it follows no process and searches for none.
const IDLE_SLEEP: Duration = Duration::from_millis(200);

/// The most events that are answered before the tracer has its turn.
const MOST_EVENTS: usize = 64;

/// Where a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunMode {
    /// Apart from the terminal and the directory of the command that started it.
    Background,
    /// As the process that was started, for a supervisor of services: its messages go to standard
    /// error.
    Foreground,
}

/// Turns this process, which has one thread, into the session. Does not return after success;
/// returns `Ok` if another session exists. Its traps may take `max_overhead` of the time.
///
/// # Errors
/// The session cannot begin, or metrics cannot be exported.
pub(super) fn become_session(
    ground: RunMode,
    exports: Exports,
    max_overhead: Option<f64>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("session: {error}"));
    let Some(home) = Home::open().map_err(failed)? else {
        // Another process was faster; the client will find its session.
        return Ok(());
    };
    let log = match ground {
        RunMode::Background => home.log(),
        RunMode::Foreground => std::io::stderr().as_fd().try_clone_to_owned().map(File::from),
    };
    let log = log.map_err(failed)?;
    if ground == RunMode::Background {
        let _ = setsid();
        if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
            let _ = dup2_stdin(&null);
            let _ = dup2_stdout(&null);
        }
        let _ = dup2_stderr(&log);
    }
    let _ = std::env::set_current_dir("/");
    let front = front::split()?;
    let (calls, requests) = mpsc::channel();
    let clients = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&clients);
    let begun = Watch::start(None, front.ledger.pulse()).and_then(|watch| {
        let listener = home.listener.try_clone().map_err(failed)?;
        listen(listener, calls.clone(), counted).map_err(failed)?;
        let metrics = exports.start().map_err(failed)?;
        Ok((watch, metrics))
    });
    let (watch, metrics) = match begun {
        Ok(begun) => begun,
        Err(failure) => {
            // No thread would answer on its socket.
            home.close();
            return Err(failure);
        }
    };
    if ground == RunMode::Foreground {
        supervisor::ready();
    }
    let shared = Shared(Rc::new(RefCell::new(SessionOutput::new(log))));
    let mut observer = WithHooks::new(shared.clone());
    let events = observer.events.clone();
    let mut of_kernel = WithHooks::new(shared.clone());
    of_kernel.events = events.clone();
    let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut observer);
    tracer.serve();
    tracer.set_max_overhead(max_overhead);
    let mut session = Session {
        tracer,
        watch,
        sinks: shared,
        events,
        plugins: Plugins::default(),
        scanner: Scanner::default(),
        refused: Refused::default(),
        home,
        kernel: KernelPrograms::new(calls, of_kernel),
        requests,
        metrics,
        over: false,
    };
    session.serve();
    session.over = true;
    session.home.close();
    session.tracer.let_go(&session.watch.control);
    session.end_kernel();
    session.end_export();
    session.end_sinks();
    drop(std::mem::take(&mut session.plugins));
    // No further requests are answered; wait for the answers under way.
    drop(session.requests);
    let end = Instant::now() + LAST_CLIENTS_TIMEOUT;
    while clients.load(Ordering::SeqCst) > 0 && Instant::now() < end {
        std::thread::sleep(scan::INTERVAL / 10);
    }
    std::process::exit(0)
}

/// Accepts clients in a thread, and serves each client in another.
fn listen(listener: UnixListener, calls: Sender<Event>, clients: Arc<AtomicUsize>) -> std::io::Result<()> {
    let thread = Builder::new().name("clients".to_owned());
    let listening = move || {
        for stream in listener.incoming().flatten() {
            let serve = {
                let (stream, calls, clients) = (stream.try_clone(), calls.clone(), Arc::clone(&clients));
                clients.fetch_add(1, Ordering::SeqCst);
                move || {
                    if let Ok(stream) = stream {
                        take(&stream, &calls);
                    }
                    clients.fetch_sub(1, Ordering::SeqCst);
                }
            };
            // If no more threads can be started, this thread serves the client.
            if Builder::new().name("client".to_owned()).spawn(serve).is_err() {
                take(&stream, &calls);
                clients.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    thread.spawn(listening).map(drop)
}

/// Reads one client's request and writes the answer.
fn take(stream: &UnixStream, calls: &Sender<Event>) {
    let _ = stream.set_read_timeout(Some(CLIENT_TIMEOUT));
    let answer = if socket::is_welcome(stream) {
        match protocol::read(&mut BufReader::new(stream)) {
            Ok(request) => {
                let (reply, answer) = mpsc::channel();
                // Fails if the session is ending and takes no more requests.
                let _ = calls.send(Event::Call(request, reply));
                answer.recv().unwrap_or_else(|_| Reply::failed("the session is ending"))
            }
            Err(error) => Reply::failed(format!(
                "this request is not understood: {error}; a session of another version is ended by `dprobes session stop`"
            )),
        }
    } else {
        Reply::failed("this session belongs to another user")
    };
    // Fails if the client has gone, which does not matter.
    let _ = protocol::write(&answer, &mut &*stream);
}

impl Session<'_> {
    fn serve(&mut self) {
        while !self.over && !self.watch.control.stop.load(Ordering::Relaxed) {
            let first = match self.tracer.follows_any() {
                true => self.requests.try_recv().ok(),
                // Nothing else to wait for.
                false if self.tracer.serves_all() => self.requests.recv_timeout(scan::INTERVAL).ok(),
                false => self.requests.recv_timeout(IDLE_SLEEP).ok(),
            };
            let more = self.requests.try_iter().take(MOST_EVENTS);
            let events: Vec<Event> = first.into_iter().chain(more).collect();
            for event in events {
                match event {
                    Event::Call(request, answer) => self.take(request, answer),
                    Event::Said(number, said) => self.said(number, said),
                }
            }
            if self.over {
                return;
            }
            self.export();
            self.kernel.turn();
            self.look_for_processes();
            let control = Arc::clone(&self.watch.control);
            self.tracer.turn(&control);
        }
    }

    /// Answers a request at once, or when the threads of programs that the kernel runs have said
    /// what is needed for that.
    fn take(&mut self, request: Request, answer: Sender<Reply>) {
        let name = match &request {
            Request::Insert(insert) => return self.insert(insert, answer),
            Request::Remove { name } => return self.remove(name.as_deref(), answer),
            Request::Query { name, .. } => name.clone(),
            Request::GetVars(wanted) => wanted.name.clone(),
            Request::Status | Request::Stop => return drop(answer.send(self.answer(request))),
        };
        self.answer_with_counts(request, name.as_deref(), answer);
    }

    /// Answers a request that needs nothing more.
    pub(super) fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Query { name, extended } => self.query(name.as_deref(), extended),
            Request::GetVars(wanted) => self.getvars(&wanted),
            Request::Insert(_) | Request::Remove { .. } => Reply::failed("this is no question"),
            Request::Status => Reply::done(format!(
                "session {}: {}, {} followed{}\n",
                std::process::id(),
                messages::count(self.inserted().len() as u64, "program"),
                messages::count(self.tracer.followed().len() as u64, "process")
                    .replace("processs", "processes"),
                match self.tracer.copied() {
                    0 => String::new(),
                    copied => format!("; {} armed as in another process", messages::count(copied, "module")),
                }
            )),
            Request::Stop => {
                self.over = true;
                // New clients find no session from now on.
                self.home.close();
                let control = Arc::clone(&self.watch.control);
                self.tracer.let_go(&control);
                self.end_kernel();
                self.end_sinks();
                // The plugins' output is complete before the client continues.
                drop(std::mem::take(&mut self.plugins));
                Reply::done("")
            }
        }
    }

    fn remove(&mut self, name: Option<&str>, answer: Sender<Reply>) {
        let programs = self.programs(name);
        if let (Some(name), true) = (name, programs.is_empty()) {
            return drop(answer.send(Reply::failed(none_inserted(name))));
        }
        let (in_kernel, in_processes): (Vec<usize>, Vec<usize>) =
            programs.into_iter().partition(|&number| self.kernel.has(number));
        in_processes.into_iter().for_each(|number| self.take_out(number));
        self.let_go_unprobed();
        heap::give_back();
        self.remove_from_kernel(in_kernel.into_iter().collect(), answer);
    }

    fn query(&self, name: Option<&str>, extended: bool) -> Reply {
        let inserted = self.inserted();
        let wanted: Vec<_> =
            inserted.iter().filter(|program| name.is_none_or(|name| program.object.module == name)).collect();
        if let (Some(name), true) = (name, wanted.is_empty()) {
            return Reply::failed(none_inserted(name));
        }
        let mut text = String::new();
        for program in wanted {
            text.push_str(&summary::program(program));
            if let Some(attached) = self.kernel.attached(program.number) {
                text.push_str(&format!("  run by the kernel: {attached}\n"));
            }
            for target in self.sinks.0.borrow().targets.taken(program.number) {
                if target.written + target.lost > 0 {
                    text.push_str(&format!("  {}", summary::target(&target)));
                }
            }
            for line in self.refused.lines(program.number) {
                text.push_str(&format!("  {line}\n"));
            }
            let points = program.object.probes.iter().map(|probe| probe.point.clone());
            text.push_str(&summary::users(&program.users, &points.collect::<Vec<_>>()));
            if extended {
                text.push_str(&summary::variables("lv", &program.locals));
                text.push_str(&rpn::disassemble(program.object));
            }
        }
        Reply::done(text)
    }

    fn getvars(&mut self, wanted: &GetVars) -> Reply {
        let range = wanted.indices();
        let mut text = String::new();
        if wanted.wants_globals() {
            if wanted.reset {
                self.tracer.reset(Variables::Global, range.clone());
                self.kernel.reset_globals(&range);
            } else {
                text.push_str(&summary::indexed("gv", &self.tracer.values(Variables::Global, range.clone())));
                let in_kernel = within(&self.kernel.global_values(), &range);
                if !in_kernel.is_empty() {
                    text.push_str("of programs that the kernel runs:\n");
                    text.push_str(&summary::indexed("gv", &in_kernel));
                }
            }
        }
        if wanted.wants_locals() {
            let programs = self.programs(wanted.name.as_deref());
            if let (Some(name), true) = (&wanted.name, programs.is_empty()) {
                return Reply::failed(none_inserted(name));
            }
            if wanted.reset {
                // The threads of others have done it.
                let in_processes = programs.into_iter().filter(|&number| !self.kernel.has(number));
                in_processes.for_each(|number| self.tracer.reset(Variables::Local(number), range.clone()));
                return Reply::done(text);
            }
            for program in self.inserted() {
                let values = within(&program.locals, &range);
                if programs.contains(&program.number) && !values.is_empty() {
                    text.push_str(&format!("{}:\n", program.object.module));
                    text.push_str(&summary::indexed("lv", &values));
                }
            }
        }
        Reply::done(text)
    }
}

/// The variables whose index is in the range: indices and values.
fn within(values: &[u64], range: &RangeInclusive<usize>) -> Vec<(usize, u64)> {
    values.iter().copied().enumerate().filter(|(index, _)| range.contains(index)).collect()
}

/// The message for a module without probes.
fn none_inserted(name: &str) -> String {
    format!("no probes are inserted in `{name}`; `dprobes query --all` shows what is")
}
