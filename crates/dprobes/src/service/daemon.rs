//! The session process: one thread traces and answers requests, another takes requests from the
//! socket.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;
use std::time::{Duration, Instant};

use engine::{Options, Tracer, Variables, Versions};
use image::Machine;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use trace::sink::Target;

use super::protocol::{self, GetVars, Insert, Mode, Reply, Request};
use super::refused::{self, Refusal, Refused};
use super::scan::{self, Scanner};
use super::sink::{SessionOutput, Shared};
use super::socket::{self, Home};
use crate::arguments::{Preprocessor, Program, Select, Shown};
use crate::control::Watch;
use crate::hooks::{Events, Plugins, WithHooks};
use crate::{Failure, front, heap, messages, program, summary, symbols, targets, templates};

/// How long to wait for the last records of a removed program.
const COMPLETION: Duration = Duration::from_millis(300);
/// How long an insert waits for its probes to be in: tens of thousands take seconds on a busy
/// machine.
const SETTLING: Duration = Duration::from_secs(10);
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

struct Session<'a> {
    tracer: Tracer<'a>,
    watch: Watch,
    sinks: Shared,
    /// The programs, as shown to the hooks.
    events: Events,
    plugins: Plugins,
    scanner: Scanner,
    refused: Refused,
    home: Home,
    over: bool,
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

    /// The numbers of the programs of a module, or of all.
    fn programs(&self, name: Option<&str>) -> Vec<usize> {
        let inserted = self.tracer.inserted().into_iter();
        inserted
            .filter(|program| name.is_none_or(|name| program.object.module == name))
            .map(|program| program.number)
            .collect()
    }

    fn insert(&mut self, insert: &Insert) -> Result<Reply, String> {
        let program = Program {
            file: insert.file.clone(),
            text: insert.text.clone(),
            preprocessor: Preprocessor { define: insert.defines.clone(), include: insert.includes.clone() },
        };
        let select = Select { group: insert.groups.clone(), kind: insert.types.clone() };
        let mut program =
            program::load_again(&program, &select).map_err(|failure| failure.message().to_owned())?;
        let shown = Shown {
            log: insert.items.clone(),
            unformatted_output: insert.unformatted,
            templates: insert.templates.clone(),
        };
        let templates = templates::open(&shown).map_err(|failure| failure.message().to_owned())?;
        let targets =
            insert.targets.iter().map(|target| Target::parse(target).map_err(|error| error.to_string()));
        let targets = targets.collect::<Result<Vec<Target>, String>>()?;
        let symbols = symbols::of(program.main(), insert.symbols.as_deref());
        let symbols = symbols.map_err(|failure| failure.message().to_owned())?;
        let options = Options {
            engine: insert.engine.into(),
            verify_opcodes: insert.verify_opcodes,
            items: targets::items(&targets, &shown),
            lossless: insert.lossless,
            symbols,
        };
        insert.buffer.into_iter().for_each(|bytes| self.tracer.set_buffer(bytes));
        if insert.share_variables {
            self.tracer.share_variables();
        }
        let module = program.main().module.clone();
        let old = self.programs(Some(&module));
        if insert.mode == Mode::New && !old.is_empty() {
            return Err(format!(
                "probes are inserted in `{module}` already; add --merge to add these to them, or --replace to put these in \
                 their place"
            ));
        }
        for plugin in &insert.plugins {
            self.plugins.add(plugin).map_err(|failure| failure.message().to_owned())?;
        }
        let processes = if insert.processes.is_empty() {
            let own = scan::own_processes().into_iter().chain(self.tracer.followed());
            self.check_processes(
                &mut program,
                &options,
                own.filter(|&pid| scan::maps_module(pid, &module)).collect(),
            )?
        } else {
            self.admit_named(&program, &options, &insert.processes)?;
            insert.processes.iter().map(|&pid| (pid, None)).collect()
        };
        let count = program.main().probes.len();
        let points: HashSet<String> = program.main().probes.iter().map(|probe| probe.point.clone()).collect();
        // Only after the program is admitted: a store begun in vain would block the next attempt.
        let mut reply = Reply::done("");
        let opened = self.sinks.0.borrow_mut().begin(&targets, insert.lossless, &mut reply.warnings)?;
        match insert.mode {
            Mode::Replace => old.into_iter().for_each(|number| self.take_out(number)),
            _ => old.into_iter().for_each(|number| self.take_out_points(number, &points)),
        }
        let only = (!insert.processes.is_empty()).then(|| insert.processes.clone());
        let (object, items) = (program.main().clone(), options.items);
        drop(self.sinks.0.borrow_mut().heard());
        let number = self.tracer.insert(program, options, only);
        self.events.create(number, &module, &insert.file.display().to_string(), items);
        {
            let mut sinks = self.sinks.0.borrow_mut();
            sinks.direct(number, &opened, insert.lossless);
            let (name, view) = (insert.file.display().to_string(), targets::view(&shown, templates));
            sinks.targets.each_of(number, |open| open.program(number, &name, &object, items, &view));
        }
        let followed = self.tracer.followed();
        let mut probed = 0;
        for (pid, reason) in processes {
            if let Some(reason) = reason {
                self.refused.note(number, pid, reason);
                continue;
            }
            match followed.contains(&pid).then_some(()).map_or_else(|| self.tracer.attach(pid), Ok) {
                Ok(()) => probed += 1,
                Err(error) if !insert.processes.is_empty() => {
                    self.take_out(number);
                    self.let_go_unprobed();
                    SessionOutput::remove_files(&opened);
                    return Err(error.to_string());
                }
                Err(error) => reply.warnings.push(error.to_string()),
            }
        }
        reply.warnings.extend(self.refused.lines(number));
        let control = Arc::clone(&self.watch.control);
        if !self.tracer.settle(&control, SETTLING) {
            reply.warnings.push(
                "a process has not stopped yet for its probes: they come in as soon as it does".to_owned(),
            );
        }
        reply.warnings.extend(self.sinks.0.borrow_mut().heard());
        if insert.mode == Mode::Replace {
            self.let_go_unprobed();
        }
        reply.text = format!(
            "{} inserted in `{module}`, which {} now\n",
            messages::count(count as u64, "probe"),
            match probed {
                0 => "no process maps".to_owned(),
                1 => "1 process maps".to_owned(),
                more => format!("{more} processes map"),
            }
        );
        let others = match probed {
            0 => {
                scan::processes_of_others().into_iter().filter(|&pid| scan::maps_module(pid, &module)).count()
            }
            _ => 0,
        };
        if others > 0 && insert.processes.is_empty() {
            reply.warnings.push(format!(
                "{} of other users: without -p, probes are for your own processes; with -p PID they are for any that you may \
                 trace",
                match others {
                    1 => "1 process that maps it is".to_owned(),
                    more => format!("{more} processes that map it are"),
                }
            ));
        }
        Ok(reply)
    }

    /// Determines in which of the processes that map a module a program can be placed, and why the
    /// others are refused. All processes of a machine are treated alike: if a probe cannot be
    /// placed in one of them, the program is refused to all.
    ///
    /// # Errors
    /// The program can be placed in none of them, since the module lacks something.
    fn check_processes(
        &mut self,
        program: &mut Versions,
        options: &Options,
        processes: Vec<i32>,
    ) -> Result<Vec<(i32, Option<Refusal>)>, String> {
        let (mut takes, mut failures) = (false, Vec::new());
        for machine in [Machine::X86_64, Machine::I386] {
            let own = processes.iter().filter(|&&pid| process::machine_of_process(pid) == Some(machine));
            let own: Vec<i32> = own.copied().collect();
            if own.is_empty() || program.of(machine).is_err() {
                continue;
            }
            let check = |&pid: &i32| match self.tracer.check(program, options.clone(), pid) {
                Err(engine::Error::Process(error)) if error.is_gone() => Ok(()),
                result => result,
            };
            match own.iter().try_for_each(check) {
                Ok(()) => takes = true,
                Err(error) => failures.push((machine, error.to_string())),
            }
        }
        if let (false, Some((_, reason))) = (takes, failures.first()) {
            return Err(reason.clone());
        }
        for (machine, reason) in failures {
            program.refuse(machine, reason);
        }
        Ok(processes.into_iter().map(|pid| (pid, refused::reason(program, pid))).collect())
    }

    /// Checks that a program can be placed in each of the named processes.
    fn admit_named(
        &mut self,
        program: &Versions,
        options: &Options,
        processes: &[i32],
    ) -> Result<(), String> {
        for &pid in processes {
            process::Status::read(pid).map_err(|error| error.to_string())?;
            if let Some((machine, reason)) = refused::reason(program, pid) {
                return Err(format!(
                    "process {pid} is a program for {machine}, which this is not for: {reason}"
                ));
            }
            self.tracer.check(program, options.clone(), pid).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Removes those probes of a program that a file to be merged redefines.
    fn take_out_points(&mut self, number: usize, points: &HashSet<String>) {
        let Some(program) = self.tracer.program(number) else { return };
        let probes = program.object.probes.iter().enumerate();
        let doubled: Vec<usize> =
            probes.filter(|(_, probe)| points.contains(&probe.point)).map(|(number, _)| number).collect();
        drop(program);
        self.tracer.remove_probes(number, &doubled);
    }

    fn take_out(&mut self, number: usize) {
        self.tracer.remove(number);
        // Earlier records are written before the program's targets are closed.
        let control = Arc::clone(&self.watch.control);
        self.tracer.complete(&control, COMPLETION);
        self.end_sink(number);
        self.refused.forget(number);
        self.tracer.forget(number);
    }

    /// Ends the output of a program; a store gets the counts.
    fn end_sink(&mut self, number: usize) {
        let globals = self.tracer.values(Variables::Global, 0..=usize::MAX);
        let globals: Vec<u64> = globals.into_iter().map(|(_, value)| value).collect();
        let mut sinks = self.sinks.0.borrow_mut();
        if let Some(program) = self.tracer.program(number) {
            let counts: Vec<_> = program.probes.iter().map(|&(_, state, counts)| (state, counts)).collect();
            sinks.targets.each_of(number, |open| open.ended(number as u32, &counts, &program.locals));
        }
        sinks.forget(number, &globals);
        drop(sinks);
        self.events.destroy(number);
    }

    /// Ends the outputs of all programs; none has a probe in a process any more.
    fn end_sinks(&mut self) {
        for number in self.programs(None) {
            self.end_sink(number);
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

    /// Detaches from processes that have no probe left.
    fn let_go_unprobed(&mut self) {
        let control = Arc::clone(&self.watch.control);
        self.tracer.let_go_unprobed(&control);
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

    /// Follows the user's processes that map a probed module and are not followed yet, except those
    /// that no inserted program has a version for.
    fn look_for_processes(&mut self) {
        if !self.tracer.serves_all() {
            return;
        }
        for pid in self.scanner.due(&self.tracer.followed()) {
            let inserted = self.tracer.inserted();
            let wanted = inserted
                .iter()
                .filter(|program| program.probes.iter().any(|(_, state, _)| !state.is_over()))
                .filter(|program| program.is_for_all && scan::maps_module(pid, &program.object.module));
            let reasons: Vec<_> =
                wanted.map(|program| (program.number, refused::reason(program.versions, pid))).collect();
            let is_wanted = reasons.iter().any(|(_, reason)| reason.is_none());
            for (number, reason) in reasons {
                if let Some(reason) = reason {
                    self.refused.note(number, pid, reason);
                }
            }
            if !is_wanted {
                continue;
            }
            match self.tracer.attach(pid) {
                Ok(()) => {}
                Err(engine::Error::Process(error)) if error.is_gone() => {}
                Err(error) => self.sinks.0.borrow_mut().tell(&format!("warning: {error}")),
            }
        }
    }
}

/// The message for a module without probes.
fn none_inserted(name: &str) -> String {
    format!("no probes are inserted in `{name}`; `dprobes query --all` shows what is")
}
