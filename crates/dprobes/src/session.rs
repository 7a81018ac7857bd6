//! `dprobes run` and `dprobes attach`.
//!
//! In: the arguments of the command. Out: a tracer with their programs, which runs until the end,
//! and the exit status.

use std::process::ExitCode;

use engine::{Observer, Options, Report, StartOptions, State, Tracer, Versions};
use image::{Machine, Pattern};
use trace::Items;
use trace::sink::Target;

use crate::addresses::SharedAddresses;
use crate::arguments::{Attach, Engine, Probes, Program, Run, Select, Tracing};
use crate::control::{self, Watch};
use crate::cost::{self, Work};
use crate::hooks::{Plugins, WithHooks};
use crate::messages::{count, tell};
use crate::output::{Output, Told};
use crate::started_command::{FAILED, RunCommand, end_as_command, run_command};
use crate::{
    Failure, at_programs, front, outfile, points, program, progress, silent, stats, summary, symbols,
    targets, templates, wrappers,
};

/// Runs a command with probes in it.
pub(crate) fn run(arguments: &Run) -> Result<ExitCode, Failure> {
    let own = |failure: Failure| failure.with_status(FAILED);
    points::are_for(&arguments.probes.at, &[]).map_err(own)?;
    let machine = arguments.command.first().and_then(|command| process::machine_of_command(command));
    let Run { probes, select, tracing, engine, .. } = arguments;
    let programs = load(probes, select, tracing, *engine, machine).map_err(own)?;
    tell_empty(&arguments.probes, &programs);
    let output = open(&arguments.tracing, &programs, false).map_err(own)?;
    let mask = control::inherited_mask();
    let front = front::split().map_err(own)?;
    let plugins = Plugins::load(&arguments.tracing.plugin).map_err(own)?;
    let mut output = behind_hooks(output, &programs);
    progress::begin("putting the probes in");
    let watch = Watch::start(None, front.ledger.pulse()).map_err(own)?;
    let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut output);
    arguments.tracing.buffering.buffer.into_iter().for_each(|bytes| tracer.set_buffer(bytes));
    tracer.set_max_overhead(arguments.tracing.cost.of_command());
    if arguments.tracing.buffering.share_variables {
        tracer.share_variables();
    }
    for Loaded { program, options, .. } in programs {
        tracer.insert(program, options, None);
    }
    let options = StartOptions { signal_mask: mask, group: Some(front.group) };
    let started = run_command(&mut tracer, &watch, &arguments.command, &options);
    let RunCommand { pid, report, ended } = started.map_err(|failure| {
        let probes_program = arguments.probes.at.iter().any(|at| at.module == points::PROGRAM);
        wrappers::explain(failure, probes_program, &arguments.command)
    })?;
    drop(watch);
    output.events.destroy_all();
    drop(plugins);
    let cost = cost::text(&report, ended.and_then(|_| cost::of_ended()));
    end(&report, Some(&mut output.inner), &arguments.tracing, &cost).map_err(own)?;
    end_as_command(pid, ended, &front)
}

/// Probes running processes.
pub(crate) fn attach(arguments: &Attach, pids: &[i32], engine: Engine) -> Result<ExitCode, Failure> {
    if let Some(option) = arguments.only.given() {
        return Err(Failure::new(format!(
            "{option}: the processes are given with -p; the kernel engine filters hits: leave -p out, or add --engine kernel"
        )));
    }
    if arguments.by_process {
        return Err(Failure::new(
            "--by-process: only the kernel engine counts by process: leave -p out, or add --engine kernel",
        ));
    }
    let machine = machine_of(pids);
    let programs = load(&arguments.probes, &arguments.select, &arguments.tracing, engine, machine)?;
    points::are_for(&arguments.probes.at, pids)?;
    for &pid in pids {
        is_not_itself(pid)?;
        points::check(&arguments.probes.at, pid)?;
    }
    tell_empty(&arguments.probes, &programs);
    let output = open(&arguments.tracing, &programs, true)?;
    let front = front::split()?;
    let plugins = Plugins::load(&arguments.tracing.plugin)?;
    let mut output = behind_hooks(output, &programs);
    progress::begin("putting the probes in");
    let watch = Watch::start(arguments.duration, front.ledger.pulse())?;
    let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut output);
    arguments.tracing.buffering.buffer.into_iter().for_each(|bytes| tracer.set_buffer(bytes));
    tracer.set_max_overhead(arguments.tracing.cost.of_processes());
    if arguments.tracing.buffering.share_variables {
        tracer.share_variables();
    }
    for Loaded { program, options, .. } in programs {
        tracer.insert(program, options, None);
    }
    let work = Work::of(pids);
    let result =
        pids.iter().try_for_each(|&pid| tracer.attach(pid)).and_then(|()| tracer.run(&watch.control));
    let work = work.since();
    let report = tracer.finish(&watch.control);
    drop(watch);
    output.events.destroy_all();
    drop(plugins);
    result.map_err(Failure::new)?;
    let cost = cost::text(&report, work);
    let ended = end(&report, Some(&mut output.inner), &arguments.tracing, &cost);
    for line in silent::elsewhere(&arguments.probes.at, &report, pids) {
        tell(&format!("note: {line}"));
    }
    ended.map(|()| ExitCode::SUCCESS)
}

/// Says which handlers make records with nothing in them: what ends without `abort` is a record.
fn tell_empty(probes: &Probes, programs: &[Loaded]) {
    // Without `--do` it is what was asked for.
    if probes.file.is_none() && probes.handlers.texts().is_empty() {
        return;
    }
    for object in programs.iter().map(|loaded| loaded.program.main()) {
        // Codes may be all that is to be said.
        let says_codes = vm::may(&object.code, object.word(), vm::Effects::SETS_CODES);
        let makes_empty =
            |probe: &&rpn::Probe| object.logged(probe).is_some_and(|forms| forms.iter().any(Vec::is_empty));
        if says_codes || object.logmax == 0 {
            continue;
        }
        let empty: Vec<&rpn::Probe> = object.probes.iter().filter(makes_empty).collect();
        if let Some(first) = empty.first() {
            let others = match empty.len() {
                1 => String::new(),
                more => format!(" and {}", count(more as u64 - 1, "other")),
            };
            tell(&format!(
                "note: the handler of `{}`{others} may end without `log` and without `abort`: then a record is empty; \
                 `abort` makes none",
                printable::text(&first.point)
            ));
        }
    }
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
    /// The header items that plugins get.
    header: Items,
    /// How it is inserted.
    pub(crate) options: Options,
}

impl Loaded {
    /// A program with its options, from a file of this name.
    pub(crate) fn new(name: String, program: Versions, options: Options) -> Loaded {
        Loaded { name, program, header: options.items, options }
    }

    /// A program of a script.
    pub(crate) fn of_script(program: Versions, options: Options) -> Loaded {
        Loaded::new("script".to_owned(), program, options)
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
        Ok(Loaded { name, program, header: header(tracing), options })
    };
    at_programs::programs(probes, has_targets(tracing))?.iter().map(load).collect()
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
        all.push(Loaded { name, program, header: items.unwrap_or_else(|| header(tracing)), options });
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
    let addresses = SharedAddresses::default();
    let view = targets::view(&tracing.shown, templates::open(&tracing.shown)?, &addresses);
    let told = match (tracing.quiet, tells_armed) {
        (true, _) => Told::Warnings,
        (false, true) => Told::All,
        (false, false) => Told::AllButArmed,
    };
    let mut output = Output::open(targets, view, addresses, tracing.buffering.lossless, told)?;
    // Programs are numbered in the order in which they are inserted.
    for (number, Loaded { name, program, options, .. }) in programs.iter().enumerate() {
        output.program(number, name, program.main(), options.items);
    }
    Ok(output)
}

/// Puts the hooks before the output, and announces the programs to them.
pub(crate) fn behind_hooks<O: Observer>(output: O, programs: &[Loaded]) -> WithHooks<O> {
    let output = WithHooks::new(output);
    for (number, Loaded { name, program, header, .. }) in programs.iter().enumerate() {
        output.events.create(number, &program.main().module, name, *header);
    }
    output
}

/// Whether the user says where records go.
pub(crate) fn has_targets(tracing: &Tracing) -> bool {
    tracing.output.is_some() || !tracing.log_target.is_empty()
}

/// The targets of records.
pub(crate) fn targets_of(tracing: &Tracing) -> Vec<Target> {
    targets::named(&tracing.log_target, tracing.output.as_deref(), tracing.format, Some(Target::Terminal))
}

/// The header items of records as bytes.
fn header(tracing: &Tracing) -> Items {
    targets::header_items(&targets_of(tracing), &tracing.shown)
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
        lenient: false,
    })
}

/// Prints the summary, with a line that says what probing has cost, and writes the statistics.
///
/// # Errors
/// They cannot be written, or something was lost and `--strict` is given.
pub(crate) fn end(
    report: &Report,
    output: Option<&mut Output>,
    tracing: &Tracing,
    cost: &str,
) -> Result<(), Failure> {
    let targets = output.map(|output| output.end(report)).unwrap_or_default();
    for probe in &report.probes {
        let nowhere = probe.places.as_ref().is_some_and(Vec::is_empty);
        if nowhere && probe.state == State::Waiting && Pattern::is_one(&probe.module) {
            tell(&format!("warning: {}:{}: nothing matched", probe.module, probe.point));
        }
    }
    tell_summary(report, &targets, tracing, cost)?;
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

/// Prints the summary, or writes it to a file.
fn tell_summary(
    report: &Report,
    targets: &[crate::targets::TargetCounts],
    tracing: &Tracing,
    cost: &str,
) -> Result<(), Failure> {
    let text = || summary::text(report, targets, tracing.verbose.verbose) + cost;
    let print = || {
        // A failure cannot be reported anywhere.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), printable::lines(&text()).as_bytes());
    };
    match tracing.summary.as_deref() {
        Some(path) if path == "-" => print(),
        Some(path) => {
            let failed = |error| Failure::new(format!("{}: {error}", printable::path(path)));
            outfile::write_whole(path, printable::lines(&text()).as_bytes()).map_err(failed)?;
        }
        None if tracing.quiet => {}
        None => {
            tell("summary");
            print();
        }
    }
    Ok(())
}
