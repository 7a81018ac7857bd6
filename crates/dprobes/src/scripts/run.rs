//! `dprobes trace`: a script on processes.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::source::Sources;
use engine::{Options, StartOptions, Tracer, Versions};
use printout::{Output, Reader, StackMode};
use script::{AttachPoint, Checked, Compiled, Opaque, Place, Provider, Type};
use trace::Items;
use vm::State;

use super::memory::Memory;
use super::observer::{Script, SharedScript};
use super::places::{self, Places};
use super::scope::{Scope, program_named};
use super::symbols::Symbols;
use super::timers::{Timers, Waker};
use super::world::World;
use super::writer::Writer;
use super::{source, tables};
use crate::arguments::{ScriptFormat, Trace};
use crate::control::{self, Watch};
use crate::messages::tell;
use crate::{Failure, front, kernel_engine, session, stdout};

/// Runs a script, or says what it would do.
pub(crate) fn trace(arguments: &Trace) -> Result<ExitCode, Failure> {
    if arguments.list {
        return list(arguments);
    }
    let command = command(arguments)?;
    let pids = arguments.processes.ids();
    let path = command.first().and_then(|command| program_named(command));
    let system_wide = pids.is_empty() && command.is_empty();
    let scope = Scope { pids: &pids, command: path.as_deref(), expands: false, system_wide };
    let (mut checked, compiled) = source::compile(arguments, &scope)?;
    let sources = std::mem::take(&mut checked.sources);
    // The debug information of the programs may be large.
    drop(checked);
    let places = places::find(&compiled, &sources, &scope)?;
    let by_kernel = system_wide && !places.objects.is_empty();
    if arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let script = Prepared { arguments, sources: &sources, compiled: &compiled, places: &places, pids: &pids };
    match by_kernel {
        true => script.in_kernel(),
        false => script.in_processes(&command, path.as_deref()),
    }
}

/// A script that is about to run.
struct Prepared<'a> {
    arguments: &'a Trace,
    sources: &'a Sources,
    compiled: &'a Compiled,
    places: &'a Places,
    pids: &'a [i32],
}

impl<'a> Prepared<'a> {
    /// The script, with what it prints to and what ends it.
    fn script(&self, writer: Writer, control: &Arc<engine::Control>) -> SharedScript<'a> {
        let Prepared { arguments, sources, compiled, places, .. } = *self;
        let output = match arguments.format {
            ScriptFormat::Text => Output::Text,
            ScriptFormat::Json => Output::Json,
            ScriptFormat::Folded => Output::Folded,
        };
        let reader = Reader::new(compiled, output, StackMode::default());
        let shown = arguments.output.is_none() && io::stdout().is_terminal();
        let world = World {
            compiled,
            sources,
            memory: OnceCell::new(),
            symbols: Symbols::default(),
            allow_unsafe: arguments.allow_unsafe,
        };
        SharedScript(Rc::new(RefCell::new(Script {
            reader: if shown { reader.for_terminal() } else { reader },
            world,
            places,
            timers: Timers::new(&places.intervals),
            waker: None,
            writer,
            control: Arc::clone(control),
            quiet: arguments.quiet,
            shows_symbols: shows_symbols(compiled),
            status: None,
            lost: 0,
            state: Box::new(State::new()),
            announced: HashMap::new(),
        })))
    }

    /// Runs it in all processes, by the kernel.
    fn in_kernel(&self) -> Result<ExitCode, Failure> {
        let Prepared { arguments, compiled, places, .. } = *self;
        let firing = &arguments.firing;
        if firing.engine != crate::arguments::Engine::Auto {
            return Err(Failure::new(
                "--engine: jumps and traps are for processes: name them with -p, or a command behind `--`",
            ));
        }
        if firing.lossless {
            return Err(Failure::new(
                "--lossless: the kernel does not make programs wait; --buffer gives more room for what is printed",
            ));
        }
        let mut session = kernel_engine::ScriptSession::new(&places.objects, firing.buffer)?;
        let tables = tables::in_kernel(compiled, places)?;
        let writer = Writer::start(arguments.output.as_deref())?;
        let watch = Watch::start(arguments.duration, None)?;
        let script = self.script(writer, &watch.control);
        script.0.borrow_mut().begin(Memory::Kernel(Arc::clone(&tables)));
        let mut observer = SharedScript(Rc::clone(&script.0));
        let is_over = watch.control.stop.load(Ordering::Relaxed);
        let result = match is_over {
            true => Ok(()),
            false => session.run(&places.objects, &tables, &mut observer, &watch.control),
        };
        tell_missed(session.finish(&mut observer));
        drop((observer, watch));
        let status = if result.is_ok() { end(script, Script::end)? } else { end(script, Script::abandon)? };
        result?;
        Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from))
    }

    /// Runs it in processes, and in a command that is started.
    fn in_processes(&self, command: &[OsString], path: Option<&Path>) -> Result<ExitCode, Failure> {
        let Prepared { arguments, compiled, places, pids, .. } = *self;
        let plan = tables::in_processes(compiled, places)?;
        pids.iter().try_for_each(|&pid| session::is_not_itself(pid))?;
        are_there(pids, command, path)?;
        let mask = control::inherited_mask();
        let front = front::split()?;
        let writer = Writer::start(arguments.output.as_deref())?;
        let watch = Watch::start(arguments.duration, front.ledger.pulse())?;
        let script = self.script(writer, &watch.control);
        let waker = script.0.borrow().timers.shortest().map(Waker::start).transpose()?;
        script.0.borrow_mut().waker = waker;
        let mut observer = SharedScript(Rc::clone(&script.0));
        let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut observer);
        arguments.firing.buffer.into_iter().for_each(|bytes| tracer.set_buffer(bytes));
        let (number, shared) = tracer.add_tables(plan).map_err(Failure::new)?;
        script.0.borrow_mut().begin(Memory::Processes(shared));
        let is_over = || watch.control.stop.load(Ordering::Relaxed);
        let surroundings = StartOptions { signal_mask: mask, group: Some(front.group) };
        let (mut started, mut result) = (None, Ok(()));
        if !is_over() && (!places.objects.is_empty() || !command.is_empty()) {
            for object in &places.objects {
                let versions = Versions::only(object.clone(), "scripts are for x86-64 programs");
                let semaphores = places.semaphores.get(&object.module).cloned().unwrap_or_default();
                tracer.insert(versions, Options { semaphores, ..options(arguments, number) }, None);
            }
            if !command.is_empty() {
                result = tracer.start(command, &surroundings).map(|pid| started = Some(pid));
            }
            result = result.and_then(|()| pids.iter().try_for_each(|&pid| tracer.attach(pid)));
            result = result.and_then(|()| tracer.run(&watch.control));
            if let (Some(pid), Err(_)) = (started, &result) {
                // The command has not begun, and must not run without its probes.
                session::kill(pid, libc::SIGKILL);
            }
        } else {
            // Nothing is probed: what is due is run until the script, or somebody, ends it.
            watch.control.placed.store(true, Ordering::Relaxed);
            let lives = |&pid: &i32| Path::new(&format!("/proc/{pid}")).exists();
            while !is_over() && (pids.is_empty() || pids.iter().any(lives)) {
                std::thread::sleep(IDLE);
                script.0.borrow_mut().tick();
            }
        }
        let report = tracer.finish(&watch.control);
        tell_missed(report.probes.iter().map(|probe| probe.counts.missed).sum());
        let ended = started.and_then(|pid| tracer.status(pid));
        drop(tracer);
        drop((observer, watch));
        let status = if result.is_ok() { end(script, Script::end)? } else { end(script, Script::abandon)? };
        result.map_err(Failure::new)?;
        if let (Some(pid), None) = (started, ended) {
            // Tracing ended before the command, which was started for this.
            session::end_command(pid);
        }
        Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from))
    }
}

/// Tells of hits that ran no handler.
fn tell_missed(missed: u64) {
    if missed > 0 {
        tell(&format!("warning: {missed} hits ran no handler: too many threads were in handlers at a time"));
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
            Err(Failure::new(format!("cannot run `{}`: {missing}", printable::path(Path::new(word)))))
        }
        _ => Ok(()),
    }
}

/// The longest sleep where nothing is probed: a signal, and a timer, end it.
const IDLE: Duration = Duration::from_millis(100);

/// How the programs of a script are inserted.
fn options(arguments: &Trace, tables: usize) -> Options {
    Options {
        engine: arguments.firing.engine.into(),
        verify_opcodes: true,
        items: Items::PID.with(Items::TSC),
        lossless: arguments.firing.lossless,
        max_dumps: 1,
        symbols: None,
        tables: Some(tables),
        semaphores: Vec::new(),
    }
}

/// Whether addresses of processes are shown as symbols.
fn shows_symbols(compiled: &Compiled) -> bool {
    fn is_shown(ty: &Type) -> bool {
        match ty {
            Type::Opaque(Opaque::UserStack | Opaque::UserSymbol) => true,
            Type::Tuple(members) => members.iter().any(is_shown),
            _ => false,
        }
    }
    let maps = compiled.maps.iter().flat_map(|map| map.key.iter().chain([&map.value]));
    maps.chain(compiled.events.iter().flat_map(|event| &event.arguments)).any(is_shown)
}

/// The command to start, in words.
///
/// # Errors
/// It is not complete.
fn command(arguments: &Trace) -> Result<Vec<OsString>, Failure> {
    let Some(text) = &arguments.cmd else { return Ok(arguments.command.clone()) };
    let words = words(text).ok_or_else(|| Failure::new(format!("-c '{text}': a quote is not closed")))?;
    match words.is_empty() {
        true => Err(Failure::new("-c: the command is empty")),
        false => Ok(words.into_iter().map(OsString::from).collect()),
    }
}

/// Splits a command at spaces that are not quoted.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            (each, Some(open)) if each == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().push(characters.next()?),
            (each, Some(_)) => word.get_or_insert_default().push(each),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (each, None) if each.is_whitespace() => words.extend(word.take()),
            (each, None) => word.get_or_insert_default().push(each),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// The arguments of a function, or what it returns, with their types: a line for each.
fn described(checked: &Checked, point: &AttachPoint, function: &str) -> String {
    let mut point = point.clone();
    match &mut point.place {
        Place::Function { function: meant, offset: None, .. } => *meant = function.to_owned(),
        _ => return String::new(),
    }
    let Ok(functions) = checked.programs().functions(&point) else { return String::new() };
    let Some(Ok(signature)) = functions.first().map(|it| &it.signature) else { return String::new() };
    match point.provider {
        Provider::Uretprobe => {
            signature.result.iter().map(|result| format!("    {} retval\n", result.text)).collect()
        }
        _ => {
            let arguments = signature.arguments.iter();
            arguments.map(|argument| format!("    {} {}\n", argument.text, argument.name)).collect()
        }
    }
}

/// `-l`: shows what would be probed.
fn list(arguments: &Trace) -> Result<ExitCode, Failure> {
    let listed = match &*arguments.script {
        // An attach point alone.
        [point] if arguments.text.is_none() && !point.contains('{') && !Path::new(point).is_file() => {
            Some(format!("{point} {{ }}"))
        }
        _ => None,
    };
    let command = command(arguments)?;
    let pids = arguments.processes.ids();
    let path = command.first().and_then(|command| program_named(command));
    let system_wide = pids.is_empty() && command.is_empty();
    let scope = Scope { pids: &pids, command: path.as_deref(), expands: true, system_wide };
    let (checked, compiled) = source::compile_text(arguments, listed.as_deref(), &scope)?;
    let places = places::find(&compiled, &checked.sources, &scope)?;
    let mut lines = String::new();
    for ((name, function), point) in places.names.iter().zip(&places.points) {
        lines.push_str(&format!("{name}\n"));
        if arguments.verbose {
            lines.push_str(&described(&checked, point, function));
        }
    }
    stdout::show(&printable::lines(&lines))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_command_is_split_as_a_shell_does() {
        let split = |text| words(text).map(|words| words.join("|"));
        assert_eq!(split("ls -l /"), Some("ls|-l|/".into()));
        assert_eq!(split(" a 'b c' \"d\\\"e\" f\\ g '' "), Some("a|b c|d\"e|f g|".into()));
        assert_eq!(split("a 'b"), None);
        assert_eq!(split(""), Some(String::new()));
    }
}
