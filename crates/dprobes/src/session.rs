//! `dprobes run` and `dprobes attach`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use engine::{Error, Observer, Options, Report, StartOptions, State, Tracer, Versions};
use image::{Machine, Pattern};
use trace::Items;
use trace::sink::Target;

use crate::arguments::{Attach, Engine, Probes, Program, Run, Select, Tracing};
use crate::control::{self, Watch};
use crate::hooks::{Plugins, WithHooks};
use crate::messages::tell;
use crate::output::Output;
use crate::{Failure, front, outfile, points, program, silent, stats, summary, symbols, targets, templates};

/// Exit status of `run` when dprobes itself fails, as for `env` and `timeout`.
const FAILED: u8 = 125;
/// Exit status of `run` when the command cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status of `run` when the command is not found.
const NOT_FOUND: u8 = 127;

/// Runs a command with probes in it.
pub(crate) fn run(arguments: &Run) -> Result<ExitCode, Failure> {
    let own = |failure: Failure| failure.with_status(FAILED);
    points::are_for(&arguments.probes.at, &[]).map_err(own)?;
    let machine = arguments.command.first().and_then(|command| process::machine_of_command(command));
    let Run { probes, select, tracing, engine, .. } = arguments;
    let programs = load(probes, select, tracing, *engine, machine).map_err(own)?;
    let output = open(&arguments.tracing, &programs, false).map_err(own)?;
    let mask = control::inherited_mask();
    let front = front::split().map_err(own)?;
    let plugins = Plugins::load(&arguments.tracing.plugin).map_err(own)?;
    let mut output = behind_hooks(output, &programs);
    let watch = Watch::start(None, front.ledger.pulse()).map_err(own)?;
    let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut output);
    arguments.tracing.buffering.buffer.into_iter().for_each(|bytes| tracer.set_buffer(bytes));
    if arguments.tracing.buffering.share_variables {
        tracer.share_variables();
    }
    for Loaded { program, options, .. } in programs {
        tracer.insert(program, options, None);
    }
    let pid = tracer
        .start(&arguments.command, &StartOptions { signal_mask: mask, group: Some(front.group) })
        .map_err(|error| {
            let status = match &error {
                Error::Process(process::Error::Start { cause, .. }) => match cause.kind() {
                    std::io::ErrorKind::NotFound => NOT_FOUND,
                    _ => NOT_EXECUTABLE,
                },
                _ => FAILED,
            };
            Failure::new(error).with_status(status)
        })?;
    if let Err(error) = tracer.run(&watch.control) {
        // The command has not begun, and must not run without its probes.
        kill(pid, libc::SIGKILL);
        tracer.finish(&watch.control);
        reap(pid);
        return Err(own(Failure::new(error)));
    }
    let report = tracer.finish(&watch.control);
    let ended = tracer.status(pid);
    drop(watch);
    output.events.destroy_all();
    drop(plugins);
    end(&report, Some(&mut output.inner), &arguments.tracing).map_err(own)?;
    let status = match ended {
        Some(status) => status,
        // The front was killed: the command lives on, without probes.
        None if front.is_gone() => return Ok(ExitCode::FAILURE),
        None => {
            if let Some((signal, true)) = control::signal() {
                kill(pid, signal);
            }
            reap(pid)
        }
    };
    front::end_as(status)
}

/// Probes running processes.
pub(crate) fn attach(arguments: &Attach, pids: &[i32], engine: Engine) -> Result<ExitCode, Failure> {
    let machine = machine_of(pids);
    let programs = load(&arguments.probes, &arguments.select, &arguments.tracing, engine, machine)?;
    points::are_for(&arguments.probes.at, pids)?;
    for &pid in pids {
        is_not_itself(pid)?;
        points::check(&arguments.probes.at, pid)?;
    }
    let output = open(&arguments.tracing, &programs, true)?;
    let front = front::split()?;
    let plugins = Plugins::load(&arguments.tracing.plugin)?;
    let mut output = behind_hooks(output, &programs);
    let watch = Watch::start(arguments.duration, front.ledger.pulse())?;
    let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut output);
    arguments.tracing.buffering.buffer.into_iter().for_each(|bytes| tracer.set_buffer(bytes));
    if arguments.tracing.buffering.share_variables {
        tracer.share_variables();
    }
    for Loaded { program, options, .. } in programs {
        tracer.insert(program, options, None);
    }
    let result =
        pids.iter().try_for_each(|&pid| tracer.attach(pid)).and_then(|()| tracer.run(&watch.control));
    let report = tracer.finish(&watch.control);
    drop(watch);
    output.events.destroy_all();
    drop(plugins);
    result.map_err(Failure::new)?;
    let ended = end(&report, Some(&mut output.inner), &arguments.tracing);
    for line in silent::elsewhere(&arguments.probes.at, &report, pids) {
        tell(&format!("note: {line}"));
    }
    ended.map(|()| ExitCode::SUCCESS)
}

/// The machine of processes, if all have the same.
pub(crate) fn machine_of(pids: &[i32]) -> Option<Machine> {
    let (first, others) = pids.split_first()?;
    let machine = process::machine_of_process(*first)?;
    others.iter().all(|&pid| process::machine_of_process(pid) == Some(machine)).then_some(machine)
}

/// Refuses to probe dprobes itself. The tracer cannot check this: it is another process.
pub(crate) fn is_not_itself(pid: i32) -> Result<(), Failure> {
    match pid as u32 == std::process::id() {
        true => Err(Failure::new(format!("process {pid} cannot be traced: it is dprobes itself"))),
        false => Ok(()),
    }
}

/// A program of a command line.
pub(crate) struct Loaded {
    /// The name of its file.
    name: String,
    pub(crate) program: Versions,
    /// How it is inserted.
    pub(crate) options: Options,
}

impl Loaded {
    /// A program of a script.
    pub(crate) fn of_script(program: Versions, options: Options) -> Loaded {
        Loaded { name: "script".to_owned(), program, options }
    }
}

/// Loads the programs of a command line, with their options.
pub(crate) fn load(
    probes: &Probes,
    select: &Select,
    tracing: &Tracing,
    engine: Engine,
    machine: Option<Machine>,
) -> Result<Vec<Loaded>, Failure> {
    let load = |program: &Program| {
        let name = program.file.display().to_string();
        let program = program::load_to_insert(program, select, machine)?;
        let options = options(tracing, engine.into(), &program)?;
        Ok(Loaded { name, program, options })
    };
    points::programs(probes).iter().map(load).collect()
}

/// Loads the programs of a command line for the kernel engine, with the texts that they were
/// compiled from.
pub(crate) fn load_for_kernel(
    programs: Vec<Program>,
    select: &Select,
    tracing: &Tracing,
    machine: Option<Machine>,
    items: Option<Items>,
) -> Result<(Vec<Loaded>, Vec<Option<rpn::Sources>>), Failure> {
    let (mut all, mut sources) = (Vec::new(), Vec::new());
    for program in programs {
        let name = program.file.display().to_string();
        let loaded = program::load_for_kernel(&program, select, machine)?;
        let program = loaded.versions;
        // No tracer reads the engine.
        let options = options(tracing, engine::Engine::default(), &program)?;
        let options = Options { items: items.unwrap_or(options.items), ..options };
        all.push(Loaded { name, program, options });
        sources.push(loaded.sources);
    }
    Ok((all, sources))
}

/// Opens the output, and checks first that the statistics file can be written.
pub(crate) fn open(tracing: &Tracing, programs: &[Loaded], tells_armed: bool) -> Result<Output, Failure> {
    open_targets(tracing, &targets_of(tracing), programs, tells_armed)
}

/// Like [`open`], with these targets.
pub(crate) fn open_targets(
    tracing: &Tracing,
    targets: &[Target],
    programs: &[Loaded],
    tells_armed: bool,
) -> Result<Output, Failure> {
    if let Some(path) = &tracing.stats {
        outfile::probe(path).map_err(|error| Failure::new(format!("{}: {error}", printable::path(path))))?;
    }
    targets::suit(targets, &tracing.shown)?;
    let view = targets::view(&tracing.shown, templates::open(&tracing.shown)?);
    let mut output = Output::open(targets, view, tracing.buffering.lossless, tells_armed)?;
    // Programs are numbered in the order in which they are inserted.
    for (number, Loaded { name, program, options }) in programs.iter().enumerate() {
        output.program(number, name, program.main(), options.items);
    }
    Ok(output)
}

/// Puts the hooks before the output, and announces the programs to them.
pub(crate) fn behind_hooks<O: Observer>(output: O, programs: &[Loaded]) -> WithHooks<O> {
    let output = WithHooks::new(output);
    for (number, Loaded { name, program, options }) in programs.iter().enumerate() {
        output.events.create(number, &program.main().module, name, options.items);
    }
    output
}

/// The targets of records.
pub(crate) fn targets_of(tracing: &Tracing) -> Vec<Target> {
    targets::named(&tracing.log_target, tracing.output.as_deref(), tracing.format, Some(Target::Terminal))
}

fn options(tracing: &Tracing, engine: engine::Engine, program: &Versions) -> Result<Options, Failure> {
    Ok(Options {
        engine,
        verify_opcodes: !tracing.dont_verify_opcodes,
        items: targets::items(&targets_of(tracing), &tracing.shown),
        lossless: tracing.buffering.lossless,
        max_dumps: tracing.max_dumps,
        symbols: symbols::of(program.main(), tracing.sym.as_deref())?,
        tables: None,
        semaphores: Vec::new(),
    })
}

/// Prints the summary and writes the statistics.
///
/// # Errors
/// They cannot be written, or something was lost and `--strict` is given.
pub(crate) fn end(report: &Report, output: Option<&mut Output>, tracing: &Tracing) -> Result<(), Failure> {
    let targets = output.map(|output| output.end(report)).unwrap_or_default();
    for probe in &report.probes {
        let nowhere = probe.places.as_ref().is_some_and(Vec::is_empty);
        if nowhere && probe.state == State::Waiting && Pattern::is_one(&probe.module) {
            tell(&format!("warning: {}:{}: nothing matched", probe.module, probe.point));
        }
    }
    tell("summary");
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        printable::lines(&summary::text(report, &targets)).as_bytes(),
    );
    let losses = summary::losses(report, &targets);
    if let Some(losses) = &losses {
        tell(&format!("warning: {losses}"));
    }
    if let Some(path) = &tracing.stats {
        stats::write(report, &targets, path)?;
    }
    match losses.filter(|_| tracing.strict) {
        Some(losses) => Err(Failure::new(format!("{losses} (--strict)"))),
        None => Ok(()),
    }
}

/// Sends a signal to the started command.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: a plain system call; the process is this one's child and has not been waited for.
    unsafe { libc::kill(pid, signal) };
}

/// Ends the started command, which is no longer traced: by the signal that has ended tracing, or by
/// SIGINT, and by SIGTERM if it heeds neither.
pub(crate) fn end_command(pid: i32) {
    /// How long the command may take to end before it is asked again.
    const PATIENCE: Duration = Duration::from_secs(2);
    kill(pid, control::signal().map_or(libc::SIGINT, |(signal, _)| signal));
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let mut status = 0;
        // SAFETY: `status` is valid for the call.
        if unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::WNOHANG) } != 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(pid, libc::SIGTERM);
    reap(pid);
}

/// Waits for the started command, which is no longer traced, and returns its wait status. A second
/// signal that asks for the end stops the wait.
pub(crate) fn reap(pid: i32) -> i32 {
    let before = control::signals();
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for the call.
        let ended = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
        if ended == pid && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) {
            return status;
        }
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if ended == -1 && (!interrupted || (before > 0 && control::signals() > before)) {
            return libc::W_EXITCODE(i32::from(FAILED), 0);
        }
    }
}
