//! The session process: one thread traces and answers requests, another takes requests from the
//! socket. `session` is what it keeps, `insert` is the longest of its answers.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;
use std::time::{Duration, Instant};

use engine::{Tracer, Variables};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};

use super::protocol::{self, GetVars, Reply, Request};
use super::refused::Refused;
use super::scan::{self, Scanner};
use super::session::Session;
use super::sink::{SessionOutput, Shared};
use super::socket::{self, Home};
use crate::control::Watch;
use crate::hooks::{Plugins, WithHooks};
use crate::{Failure, front, heap, messages, summary};

/// How long to wait, at the end, for clients that are still being answered.
const LAST_CLIENTS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take to send its request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the session sleeps while it follows no process and searches for none.
const IDLE_SLEEP: Duration = Duration::from_millis(200);

/// A request, and the channel for its answer.
type Call = (Request, Sender<Reply>);

/// Turns this process, which the caller has forked, into the session. Does not return after
/// success; returns `Ok` if another session exists.
pub(crate) fn become_session() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("session: {error}"));
    let Some(home) = Home::open().map_err(failed)? else {
        // Another process was faster; the client will find its session.
        return Ok(());
    };
    let log = home.log().map_err(failed)?;
    // The session leaves the terminal and the directory that it came from.
    let _ = setsid();
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
    }
    let _ = dup2_stderr(&log);
    let _ = std::env::set_current_dir("/");
    let front = front::split()?;
    let (calls, requests) = mpsc::channel();
    let clients = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&clients);
    let begun = Watch::start(None, front.ledger.pulse()).and_then(|watch| {
        let listener = home.listener.try_clone().map_err(failed)?;
        listen(listener, calls, counted).map_err(failed)?;
        Ok(watch)
    });
    let watch = match begun {
        Ok(watch) => watch,
        Err(failure) => {
            // No thread would answer on its socket.
            home.close();
            return Err(failure);
        }
    };
    let shared = Shared(Rc::new(RefCell::new(SessionOutput::new(log))));
    let mut observer = WithHooks::new(shared.clone());
    let events = observer.events.clone();
    let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut observer);
    tracer.serve();
    let mut session = Session {
        tracer,
        watch,
        sinks: shared,
        events,
        plugins: Plugins::default(),
        scanner: Scanner::default(),
        refused: Refused::default(),
        home,
        over: false,
    };
    session.serve(&requests);
    session.home.close();
    session.tracer.let_go(&session.watch.control);
    session.end_sinks();
    drop(std::mem::take(&mut session.plugins));
    // No further requests are answered; wait for the answers under way.
    drop(requests);
    let end = Instant::now() + LAST_CLIENTS_TIMEOUT;
    while clients.load(Ordering::SeqCst) > 0 && Instant::now() < end {
        std::thread::sleep(scan::INTERVAL / 10);
    }
    std::process::exit(0)
}

/// Accepts clients in a thread, and serves each client in another.
fn listen(listener: UnixListener, calls: Sender<Call>, clients: Arc<AtomicUsize>) -> std::io::Result<()> {
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
fn take(stream: &UnixStream, calls: &Sender<Call>) {
    let _ = stream.set_read_timeout(Some(CLIENT_TIMEOUT));
    let answer = if socket::is_welcome(stream) {
        match protocol::read(&mut BufReader::new(stream)) {
            Ok(request) => {
                let (reply, answer) = mpsc::channel();
                // Fails if the session is ending and takes no more requests.
                let _ = calls.send((request, reply));
                answer.recv().unwrap_or_else(|_| Reply::failed("the session is ending"))
            }
            Err(error) => Reply::failed(format!("this request is not understood: {error}")),
        }
    } else {
        Reply::failed("this session belongs to another user")
    };
    // Fails if the client has gone, which does not matter.
    let _ = protocol::write(&answer, &mut &*stream);
}

impl Session<'_> {
    fn serve(&mut self, requests: &Receiver<Call>) {
        while !self.over && !self.watch.control.stop.load(Ordering::Relaxed) {
            let first = match self.tracer.follows_any() {
                true => requests.try_recv().ok(),
                // Nothing else to wait for.
                false if self.tracer.serves_all() => requests.recv_timeout(scan::INTERVAL).ok(),
                false => requests.recv_timeout(IDLE_SLEEP).ok(),
            };
            for (request, answer) in first.into_iter().chain(requests.try_iter()) {
                let reply = self.answer(request);
                let _ = answer.send(reply);
            }
            self.look_for_processes();
            let control = Arc::clone(&self.watch.control);
            self.tracer.turn(&control);
        }
    }

    fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Insert(insert) => self.insert(&insert).unwrap_or_else(Reply::failed),
            Request::Remove { name } => self.remove(name.as_deref()),
            Request::Query { name, extended } => self.query(name.as_deref(), extended),
            Request::GetVars(wanted) => self.getvars(&wanted),
            Request::Status => Reply::done(format!(
                "session {}: {}, {} followed{}\n",
                std::process::id(),
                messages::count(self.tracer.inserted().len() as u64, "program"),
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
                self.end_sinks();
                // The plugins' output is complete before the client continues.
                drop(std::mem::take(&mut self.plugins));
                Reply::done("")
            }
        }
    }

    fn remove(&mut self, name: Option<&str>) -> Reply {
        let programs = self.programs(name);
        if let (Some(name), true) = (name, programs.is_empty()) {
            return Reply::failed(none_inserted(name));
        }
        for number in programs {
            self.take_out(number);
        }
        self.let_go_unprobed();
        heap::give_back();
        Reply::done("")
    }

    fn query(&self, name: Option<&str>, extended: bool) -> Reply {
        let inserted = self.tracer.inserted();
        let wanted: Vec<_> =
            inserted.iter().filter(|program| name.is_none_or(|name| program.object.module == name)).collect();
        if let (Some(name), true) = (name, wanted.is_empty()) {
            return Reply::failed(none_inserted(name));
        }
        let mut text = String::new();
        for program in wanted {
            text.push_str(&summary::program(program));
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
        let range = wanted.range.map_or(0..=usize::MAX, |(from, to)| from..=to);
        // With neither given, both are shown.
        let both = !wanted.local && !wanted.global;
        let mut text = String::new();
        if wanted.global || both {
            if wanted.reset {
                self.tracer.reset(Variables::Global, range.clone());
            } else {
                text.push_str(&summary::indexed("gv", &self.tracer.values(Variables::Global, range.clone())));
            }
        }
        if wanted.local || both {
            let programs = self.programs(wanted.name.as_deref());
            if let (Some(name), true) = (&wanted.name, programs.is_empty()) {
                return Reply::failed(none_inserted(name));
            }
            for number in programs {
                if wanted.reset {
                    self.tracer.reset(Variables::Local(number), range.clone());
                    continue;
                }
                let values = self.tracer.values(Variables::Local(number), range.clone());
                let module = self
                    .tracer
                    .inserted()
                    .iter()
                    .find(|program| program.number == number)
                    .map(|program| program.object.module.clone());
                if !values.is_empty() {
                    text.push_str(&format!("{}:\n", module.unwrap_or_default()));
                    text.push_str(&summary::indexed("lv", &values));
                }
            }
        }
        Reply::done(text)
    }
}

/// The message for a module without probes.
fn none_inserted(name: &str) -> String {
    format!("no probes are inserted in `{name}`; `dprobes query --all` shows what is")
}
