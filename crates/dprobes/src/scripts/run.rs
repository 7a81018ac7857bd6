//! `dprobes trace`: a script on processes.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::source::{Sources, Span};
use engine::{Options, Report, StartOptions, Tracer, Versions};
use printout::{Output, Reader, StackMode};
use process::{Held, ModuleError};
use rpn::ModuleKind;
use script::{Compiled, Opaque, Type};
use trace::Items;
use vm::State;

use super::command::command;
use super::memory::Memory;
use super::metrics::Metrics;
use super::names::Names;
use super::observer::{Script, SharedScript};
use super::places::{self, Places};
use super::records::{self, Message, Records};
use super::scope::{Scope, program_named};
use super::timers::{Timers, Waker};
use super::world::World;
use super::writer::Writer;
use super::{flame, listing, source, tables, unhit};
use crate::addresses::Addresses;
use crate::arguments::{Engine, Firing, ScriptFormat, Trace};
use crate::control::{self, Watch};
use crate::kernel_engine::{KernelNames, ScriptPrograms, ScriptSession, SystemMap};
use crate::messages::tell;
use crate::{Failure, front, progress, session, started_command, symbols};

/// Runs a script, or says what it would do.
pub(crate) fn trace(arguments: &Trace) -> Result<ExitCode, Failure> {
    if arguments.list {
        return listing::list(arguments);
    }
    let command = command(arguments)?;
    let result = trace_command(arguments, &command);
    // As with `run`: a lesser status is the command's.
    let is_lesser = |failure: &Failure| !command.is_empty() && failure.status() < started_command::FAILED;
    result.map_err(
        |failure| if is_lesser(&failure) { failure.with_status(started_command::FAILED) } else { failure },
    )
}

/// Runs a script in a command, if there is one, and in the processes that are named.
fn trace_command(arguments: &Trace, command: &[OsString]) -> Result<ExitCode, Failure> {
    let pids = arguments.processes.ids();
    // Of a process that may not be read, nothing would be found.
    for &pid in &pids {
        if let Err(error @ ModuleError::Forbidden { .. }) = process::maps(pid) {
            return Err(Failure::new(error));
        }
    }
    let path = command.first().and_then(|command| program_named(command));
    let system_wide = pids.is_empty() && command.is_empty();
    let symbols = symbols::OfScript::read(arguments.sym.as_deref())?;
    let scope = Scope {
        pids: &pids,
        command: path.as_deref(),
        system_wide,
        by_kernel: system_wide,
        symbols: symbols.program.as_ref(),
        kernel: symbols.of_kernel(),
        unverified: arguments.printed.firing.dont_verify_opcodes,
        ..Scope::default()
    };
    let (mut checked, compiled) = source::compile(arguments, &scope)?;
    let scope = Scope { by_kernel: system_wide || checked.needs_kernel(), ..scope };
    let sources = std::mem::take(&mut checked.sources);
    let key_names = checked.key_names();
    let asks_kernel = !checked.kernel_symbols().is_empty();
    // The debug information of the programs may be large.
    drop(checked);
    let places = places::find(&compiled, &sources, &scope)?;
    let by_kernel = scope.by_kernel && !places.objects.is_empty();
    if let Some(path) = &arguments.printed.flame {
        flame::check(path, &compiled)?;
    }
    if by_kernel {
        check_kernel_options(&arguments.printed.firing, system_wide)?;
    }
    if arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    control::expect(places.signals.iter().map(|(signal, _)| *signal));
    let shows_kernel = shows_kernel(&compiled);
    let probes_kernel = places.objects.iter().any(|object| object.kind == ModuleKind::Kernel);
    if symbols.kernel.is_some() && !(shows_kernel || asks_kernel || probes_kernel) {
        return Err(Failure::new("--sym: a System.map, and the script asks for no symbol of the kernel"));
    }
    let names = shows_kernel.then(|| scope.kernel.names()).transpose();
    let names = names.map_err(|reason| {
        Failure::new(format!("the script shows addresses of the kernel by name: {reason}"))
    })?;
    let names = Cell::new(names.unwrap_or_default());
    let metrics = Metrics::prepare(&arguments.printed.export, key_names)?;
    let script = Prepared {
        names,
        metrics: Cell::new(metrics),
        arguments,
        sources: &sources,
        compiled: &compiled,
        places: &places,
        pids: &pids,
        map: symbols.kernel.as_ref(),
    };
    match by_kernel {
        true => script.in_kernel(command, path.as_deref()),
        false => script.in_processes(command, path.as_deref()),
    }
}

/// Whether the kernel can run a script as these options say.
fn check_kernel_options(firing: &Firing, system_wide: bool) -> Result<(), Failure> {
    if firing.engine != Engine::Auto {
        return Err(Failure::new(match system_wide {
            true => {
                "--engine: jumps and traps are for processes: name them with -p, or a command behind `--`"
            }
            false => "--engine: a script with probes of the kernel, or its stack, is run by the kernel",
        }));
    }
    if firing.lossless {
        return Err(Failure::new(
            "--lossless: the kernel does not make programs wait; --buffer gives more room for what is printed",
        ));
    }
    Ok(())
}

/// A script that is about to run.
struct Prepared<'a> {
    arguments: &'a Trace,
    sources: &'a Sources,
    compiled: &'a Compiled,
    places: &'a Places,
    pids: &'a [i32],
    /// The file with the kernel's symbols, if one was named.
    map: Option<&'a Arc<SystemMap>>,
    /// The kernel's symbols, if it shows addresses of it, for the script to take.
    names: Cell<KernelNames>,
    /// The metrics that are exported, if any, for the script to take.
    metrics: Cell<Option<Metrics>>,
}

impl<'a> Prepared<'a> {
    /// The script, with what it prints to and what ends it.
    ///
    /// # Errors
    /// Metrics cannot be exported.
    fn script(&self, writer: Writer, control: &Arc<engine::Control>) -> Result<SharedScript<'a>, Failure> {
        let Prepared { arguments, sources, compiled, places, .. } = *self;
        let output = match arguments.printed.format {
            ScriptFormat::Text => Output::Text,
            ScriptFormat::Json => Output::Json,
            ScriptFormat::Folded => Output::Folded,
        };
        let units: Option<printout::Durations> = arguments.durations.then_some(convert::report::duration);
        let reader = Reader::new(compiled, output, StackMode::default()).with_durations(units);
        let shown = arguments.text_file().is_none() && io::stdout().is_terminal();
        let world = World {
            compiled,
            sources,
            memory: OnceCell::new(),
            kernel: self.names.take(),
            symbols: Addresses::default(),
            names: Names::default(),
            unwatched: Vec::new(),
            records: None,
            untaken: 0,
            cleared: BTreeSet::new(),
            allow_unsafe: arguments.allow_unsafe,
        };
        let reader = if arguments.printed.flame.is_some() { reader.with_flame() } else { reader };
        let mut world = world;
        let targets = arguments.targets();
        if !targets.is_empty() {
            use printout::World as _;
            let templates = reader.templates().map(|(number, at, format)| {
                let place = world.locate(at);
                Message { number, place: format!("{}:{}", place.file, place.line), format }
            });
            let messages: Vec<Message> = templates.collect();
            world.records = Some(Records::open(&targets, &messages, places)?);
        }
        let mut metrics = self.metrics.take();
        metrics.iter_mut().try_for_each(Metrics::start)?;
        Ok(SharedScript(Rc::new(RefCell::new(Script {
            reader: if shown { reader.for_terminal() } else { reader },
            flame: arguments.printed.flame.as_deref(),
            world,
            places,
            timers: Timers::new(&places.intervals),
            waker: None,
            writer,
            printed: Vec::new(),
            control: Arc::clone(control),
            quiet: arguments.printed.quiet,
            shows_symbols: shows(compiled, &[Opaque::UserStack, Opaque::UserSymbol]),
            shows_names: shows(compiled, &[Opaque::Process]),
            status: None,
            lost: 0,
            state: Box::new(State::new()),
            announced: HashMap::new(),
            metrics,
        }))))
    }

    /// Runs it by the kernel: in all processes, or in these and in a command that is started.
    fn in_kernel(&self, command: &[OsString], path: Option<&Path>) -> Result<ExitCode, Failure> {
        let Prepared { arguments, compiled, places, sources, pids, map, .. } = *self;
        let firing = &arguments.printed.firing;
        pids.iter().try_for_each(|&pid| session::is_not_itself(pid))?;
        are_there(pids, command, path)?;
        let held = (!command.is_empty()).then(|| {
            let surroundings = StartOptions { signal_mask: control::inherited_mask(), group: None };
            Held::start(command, &surroundings).map_err(Failure::new)
        });
        let held = held.transpose()?;
        let started = held.as_ref().map(Held::pid);
        let mut session = ScriptSession::new(&places.objects, firing.buffer, pids, held)?;
        let tables = tables::in_kernel(compiled, places)?;
        let writer = Writer::start(arguments.text_file())?;
        progress::begin("putting the probes in");
        let watch = Watch::start(arguments.duration, None)?;
        let script = self.script(writer, &watch.control)?;
        script.0.borrow_mut().begin(Memory::Kernel(Arc::clone(&tables)));
        let mut observer = SharedScript(Rc::clone(&script.0));
        let is_over = watch.control.stop.load(Ordering::Relaxed);
        let result = match is_over {
            true => Ok(()),
            false => {
                let place =
                    |minor: u32| places.points.get(minor as usize).map_or(Span::default(), |it| it.at.0);
                let Places { objects, events, semaphores, symbols, .. } = places;
                let items = items(arguments);
                let verify_opcodes = !arguments.printed.firing.dont_verify_opcodes;
                let programs = ScriptPrograms {
                    objects,
                    sources,
                    events,
                    semaphores,
                    symbols,
                    map,
                    verify_opcodes,
                    items,
                };
                session.run(programs, &tables, &mut observer, &watch.control, &place)
            }
        };
        let report = session.finish(&mut observer);
        self.tell_hits(&report, &script, result.is_ok());
        // A command that has not begun ends with this.
        drop(session);
        drop((observer, watch));
        let status = if result.is_ok() { end(script, Script::end)? } else { end(script, Script::abandon)? };
        result?;
        let ended = started.and_then(started_command::ended);
        end_as(started, ended, status)
    }

    /// Runs it in processes, and in a command that is started.
    fn in_processes(&self, command: &[OsString], path: Option<&Path>) -> Result<ExitCode, Failure> {
        let Prepared { arguments, compiled, places, pids, .. } = *self;
        let plan = tables::in_processes(compiled, places)?;
        pids.iter().try_for_each(|&pid| session::is_not_itself(pid))?;
        are_there(pids, command, path)?;
        let mask = control::inherited_mask();
        let front = front::split()?;
        let writer = Writer::start(arguments.text_file())?;
        progress::begin("putting the probes in");
        let watch = Watch::start(arguments.duration, front.ledger.pulse())?;
        let script = self.script(writer, &watch.control)?;
        let waker = script.0.borrow().wakes().map(Waker::start).transpose()?;
        script.0.borrow_mut().waker = waker;
        let mut observer = SharedScript(Rc::clone(&script.0));
        let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut observer);
        let Firing { buffer, cost, .. } = arguments.printed.firing;
        buffer.into_iter().for_each(|bytes| tracer.set_buffer(bytes));
        tracer.set_max_overhead(if command.is_empty() { cost.of_processes() } else { cost.of_command() });
        let (number, shared) = tracer.add_tables(plan).map_err(Failure::new)?;
        let memory = Memory::Processes(shared);
        // `begin` may ask for the number of the command, which is started first then.
        let (mut early, mut late) = match compiled.child {
            Some(_) if !command.is_empty() => (None, Some(memory)),
            _ => (Some(memory), None),
        };
        let begin = |memory: &mut Option<Memory>| {
            memory.take().into_iter().for_each(|memory| script.0.borrow_mut().begin(memory));
        };
        begin(&mut early);
        let is_over = || watch.control.stop.load(Ordering::Relaxed);
        let surroundings = StartOptions { signal_mask: mask, group: Some(front.group) };
        let (mut started, mut result) = (None, Ok::<(), Failure>(()));
        if !is_over() && (!places.objects.is_empty() || !command.is_empty()) {
            for object in &places.objects {
                let versions = Versions::only(object.clone(), "scripts are for x86-64 programs");
                let semaphores = places.semaphores.get(&object.module).cloned().unwrap_or_default();
                let symbols = places.symbols.get(&object.module).cloned();
                let options = Options { semaphores, symbols, ..options(arguments, number) };
                tracer.insert(versions, options, None);
            }
            if !command.is_empty() {
                let start = tracer.start(command, &surroundings).map(|pid| started = Some(pid));
                result = start.map_err(|error| started_command::not_started(error, command));
            }
            if let (Some(memory), Some(pid), Some(child)) = (&late, started, compiled.child) {
                memory.maps().put(child, &[], pid as u64);
            }
            if result.is_ok() {
                begin(&mut late);
            }
            let attach = |pid: &i32| tracer.attach(*pid).map_err(Failure::new);
            result = result.and_then(|()| pids.iter().try_for_each(attach));
            result = result.and_then(|()| tracer.run(&watch.control).map_err(Failure::new));
            if let (Some(pid), Err(_)) = (started, &result) {
                // The command has not begun, and must not run without its probes.
                started_command::kill(pid, libc::SIGKILL);
            }
        } else {
            // Nothing is probed: what is due is run until the script, or somebody, ends it.
            watch.control.placed.store(true, Ordering::Relaxed);
            let lives = |&pid: &i32| Path::new(&format!("/proc/{pid}")).exists();
            while !is_over() && (pids.is_empty() || pids.iter().any(lives)) {
                std::thread::sleep(IDLE);
                script.0.borrow_mut().rest();
            }
        }
        let report = tracer.finish(&watch.control);
        self.tell_hits(&report, &script, result.is_ok());
        let ended = started.and_then(|pid| tracer.status(pid));
        drop(tracer);
        drop((observer, watch));
        let status = if result.is_ok() { end(script, Script::end)? } else { end(script, Script::abandon)? };
        result?;
        end_as(started, ended, status)
    }

    /// Tells of hits that ran no handler, and of functions without a hit, if they were probed until
    /// somebody else than the script ended it.
    fn tell_hits(&self, report: &Report, script: &SharedScript<'_>, was_run: bool) {
        let missed: u64 = report.probes.iter().map(|probe| probe.counts.missed).sum();
        if missed > 0 {
            tell(&format!(
                "warning: {missed} hits ran no handler: too many threads were in handlers at a time"
            ));
        }
        if was_run && !self.arguments.printed.quiet && script.0.borrow().status.is_none() {
            unhit::tell_of(report, self.places, self.pids);
        }
    }
}

/// Ends a script, of which nobody else has a part. Returns the status that it has set.
fn end<'a>(
    script: SharedScript<'a>,
    end: impl FnOnce(Script<'a>) -> io::Result<Option<u8>>,
) -> Result<Option<u8>, Failure> {
    let script = Rc::into_inner(script.0).map(RefCell::into_inner);
    let status = script.map(end).transpose();
    Ok(status.map_err(|error| Failure::new(format!("the output: {error}")))?.flatten())
}

/// Whether the processes, or the command, are there: `begin` is run before they are traced.
///
/// # Errors
/// One is not.
fn are_there(pids: &[i32], command: &[OsString], path: Option<&Path>) -> Result<(), Failure> {
    if let Some(pid) = pids.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        return Err(Failure::new(format!("no process {pid}")));
    }
    match command.first() {
        Some(word) if !path.is_some_and(Path::exists) => {
            let missing = io::Error::from_raw_os_error(libc::ENOENT);
            let error = format!("cannot run `{}`: {missing}", printable::path(Path::new(word)));
            Err(started_command::not_found(&error, command))
        }
        _ => Ok(()),
    }
}

/// The longest sleep where nothing is probed: a signal, and a timer, end it.
const IDLE: Duration = Duration::from_millis(100);

/// The header items of records: few, if they are only read here.
fn items(arguments: &Trace) -> Items {
    match &*arguments.targets() {
        [] => Items::PID.with(Items::TSC),
        targets => records::items(targets),
    }
}

/// How the programs of a script are inserted.
fn options(arguments: &Trace, tables: usize) -> Options {
    Options {
        engine: arguments.printed.firing.engine.into(),
        verify_opcodes: !arguments.printed.firing.dont_verify_opcodes,
        items: items(arguments),
        lossless: arguments.printed.firing.lossless,
        max_dumps: 1,
        symbols: None,
        tables: Some(tables),
        semaphores: Vec::new(),
        lenient: false,
    }
}

/// Ends with the status that the script says, or as the command. One that is still there was
/// started for this, and is ended.
fn end_as(started: Option<i32>, ended: Option<i32>, status: Option<u8>) -> Result<ExitCode, Failure> {
    if let (Some(pid), None) = (started, ended) {
        started_command::end_command(pid);
    }
    match (status, ended) {
        (Some(status), _) => Ok(ExitCode::from(status)),
        (None, Some(ended)) => front::end_as(ended),
        (None, None) => Ok(ExitCode::SUCCESS),
    }
}

/// Whether values of these types are printed.
fn shows(compiled: &Compiled, kinds: &[Opaque]) -> bool {
    fn is_shown(ty: &Type, kinds: &[Opaque]) -> bool {
        match ty {
            Type::Opaque(kind) => kinds.contains(kind),
            Type::Tuple(members) => members.iter().any(|member| is_shown(member, kinds)),
            _ => false,
        }
    }
    let maps = compiled.maps.iter().flat_map(|map| map.key.iter().chain([&map.value]));
    let mut all = maps.chain(compiled.events.iter().flat_map(|event| &event.arguments));
    all.any(|ty| is_shown(ty, kinds))
}

/// Whether addresses of the kernel are shown as symbols.
fn shows_kernel(compiled: &Compiled) -> bool {
    shows(compiled, &[Opaque::KernelStack, Opaque::KernelSymbol])
}
