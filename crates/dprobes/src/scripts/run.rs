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

use engine::{Options, StartOptions, TablesPlan, Tracer, Versions};
use printout::{Output, Reader, StackMode};
use script::{Compiled, Opaque, Type};
use trace::Items;
use vm::{Op, State};

use super::observer::{Script, SharedScript};
use super::places::{self, Places, constants};
use super::scope::{Scope, program_named};
use super::source;
use super::symbols::Symbols;
use super::timers::{Timers, Waker};
use super::world::World;
use super::writer::Writer;
use crate::arguments::{ScriptFormat, Trace};
use crate::control::{self, Watch};
use crate::messages::tell;
use crate::{Failure, front, session, stdout};

/// Words for the maps of a script, in all copies.
const BUDGET: usize = (56 << 20) / 8;

/// Runs a script, or says what it would do.
pub(crate) fn trace(arguments: &Trace) -> Result<ExitCode, Failure> {
    if arguments.list {
        return list(arguments);
    }
    let command = command(arguments)?;
    let path = command.first().and_then(|command| program_named(command));
    let scope = Scope { pids: &arguments.pid, command: path.as_deref(), expands: false };
    let (checked, compiled) = source::compile(arguments, &scope)?;
    let places = places::find(&compiled, &checked.sources, &scope)?;
    if !places.objects.is_empty() && arguments.pid.is_empty() && command.is_empty() {
        return Err(Failure::new(
            "no process is given: -p PID, or a command behind `--`; scripts cannot probe all processes yet",
        ));
    }
    let plan = tables(&compiled, &places)?;
    if arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    arguments.pid.iter().try_for_each(|&pid| session::is_not_itself(pid))?;
    are_there(&arguments.pid, &command, path.as_deref())?;
    let mask = control::inherited_mask();
    let front = front::split()?;
    let writer = Writer::start(arguments.output.as_deref())?;
    let output = match arguments.format {
        ScriptFormat::Text => Output::Text,
        ScriptFormat::Json => Output::Json,
        ScriptFormat::Folded => Output::Folded,
    };
    let reader = Reader::new(&compiled, output, StackMode::default());
    let shown = arguments.output.is_none() && io::stdout().is_terminal();
    let memory = Rc::new(OnceCell::new());
    let world = World {
        compiled: &compiled,
        sources: &checked.sources,
        tables: Rc::clone(&memory),
        symbols: Symbols::default(),
        allow_unsafe: arguments.allow_unsafe,
    };
    let timers = Timers::new(&places.intervals);
    let shortest = timers.shortest();
    let watch = Watch::start(arguments.duration, front.ledger.pulse())?;
    let script = Rc::new(RefCell::new(Script {
        reader: if shown { reader.for_terminal() } else { reader },
        world,
        places: &places,
        timers,
        writer,
        control: Arc::clone(&watch.control),
        quiet: arguments.quiet,
        shows_symbols: shows_symbols(&compiled),
        status: None,
        lost: 0,
        state: Box::new(State::new()),
        announced: HashMap::new(),
    }));
    let waker = shortest.map(Waker::start).transpose()?;
    let mut observer = SharedScript(Rc::clone(&script));
    let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut observer);
    arguments.firing.buffer.into_iter().for_each(|bytes| tracer.set_buffer(bytes));
    let (number, shared) = tracer.add_tables(plan).map_err(Failure::new)?;
    let _ = memory.set(shared);
    script.borrow_mut().begin();
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
            result = tracer.start(&command, &surroundings).map(|pid| started = Some(pid));
        }
        result = result.and_then(|()| arguments.pid.iter().try_for_each(|&pid| tracer.attach(pid)));
        result = result.and_then(|()| tracer.run(&watch.control));
        if let (Some(pid), Err(_)) = (started, &result) {
            // The command has not begun, and must not run without its probes.
            session::kill(pid, libc::SIGKILL);
        }
    } else {
        // Nothing is probed: what is due is run until the script, or somebody, ends it.
        watch.control.placed.store(true, Ordering::Relaxed);
        let lives = |&pid: &i32| Path::new(&format!("/proc/{pid}")).exists();
        while !is_over() && (arguments.pid.is_empty() || arguments.pid.iter().any(lives)) {
            std::thread::sleep(IDLE);
            script.borrow_mut().tick();
        }
    }
    let report = tracer.finish(&watch.control);
    let missed: u64 = report.probes.iter().map(|probe| probe.counts.missed).sum();
    if missed > 0 {
        tell(&format!("warning: {missed} hits ran no handler: too many threads were in handlers at a time"));
    }
    let ended = started.and_then(|pid| tracer.status(pid));
    drop(tracer);
    drop(observer);
    drop(waker);
    drop(watch);
    let script = Rc::into_inner(script).map(RefCell::into_inner);
    let status = script.map(Script::end).transpose();
    let status = status.map_err(|error| Failure::new(format!("the output: {error}")))?.flatten();
    result.map_err(Failure::new)?;
    if let (Some(pid), None) = (started, ended) {
        // Tracing ended before the command, which was started for this.
        session::kill(pid, control::signal().map_or(libc::SIGINT, |(signal, _)| signal));
        session::reap(pid);
    }
    Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from))
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

/// The most threads whose names handlers can ask for.
const MAX_THREADS: u32 = 16384;

/// Places the maps of a script.
///
/// # Errors
/// They are too large.
fn tables(compiled: &Compiled, places: &Places) -> Result<TablesPlan, Failure> {
    let mut infos: Vec<maps::MapInfo> = compiled.maps.iter().map(|map| map.info).collect();
    let asks = vm::instructions(&compiled.code, vm::Word::W8)
        .filter_map(|it| it.instruction())
        .any(|it| matches!(it.op, Op::CommF | Op::PushIds));
    let threads = asks.then_some(infos.len());
    if asks {
        let (key, value, entries) = (8, engine::THREAD_BYTES, MAX_THREADS);
        infos.push(maps::MapInfo { key, value, entries, ..maps::MapInfo::default() });
    }
    let words = maps::plan(&mut infos, engine::processors(), BUDGET).unwrap_or(usize::MAX);
    if words > BUDGET {
        return Err(too_large(compiled, &infos, words));
    }
    Ok(TablesPlan { infos, words, constants: constants(compiled, places), threads })
}

/// Says which map is the largest. Maps lie one behind the other, if they could be placed at all.
fn too_large(compiled: &Compiled, infos: &[maps::MapInfo], words: usize) -> Failure {
    let places = infos.iter().map(|info| info.place as usize);
    let ends = places.clone().skip(1).chain([words]);
    let sizes = places.zip(ends).map(|(place, end)| end.saturating_sub(place));
    let largest = compiled.maps.iter().zip(sizes).max_by_key(|(_, size)| *size);
    let largest = match largest {
        Some((map, size)) if words < usize::MAX => {
            format!(
                ": they need {} MiB, and @{} needs {} of them",
                mebibytes(words),
                map.name,
                mebibytes(size)
            )
        }
        _ => String::new(),
    };
    Failure::new(format!(
        "the maps of the script are larger than {} MiB{largest}; `max_map_keys` and `max_strlen` in `config` make them smaller",
        mebibytes(BUDGET)
    ))
}

/// Words as MiB, rounded up.
fn mebibytes(words: usize) -> usize {
    words.div_ceil((1 << 20) / 8)
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
    let path = command.first().and_then(|command| program_named(command));
    let scope = Scope { pids: &arguments.pid, command: path.as_deref(), expands: true };
    let (checked, compiled) = source::compile_text(arguments, listed.as_deref(), &scope)?;
    let places = places::find(&compiled, &checked.sources, &scope)?;
    let names: String = places.names.iter().map(|(name, _)| format!("{name}\n")).collect();
    stdout::show(&printable::lines(&names))?;
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
