//! Probes by the kernel: for all processes, for some (`--engine kernel -p PID`), and for the kernel
//! itself (`modtype = kernel` and `kmod`).
//!
//! In: a command line (`attach`), programs that are loaded (`run`), or one for the background
//! session (`inserted`). Out: records and messages for the observer, while the session runs;
//! counts at its end.
//!
//! The handlers become programs that the kernel runs at each hit (crate `kernel`). No process is
//! stopped, none is traced, and none gets other memory: this process attaches the programs, reads
//! the rings, and looks for files that are mapped. When it ends, however it ends, the kernel
//! detaches the programs.
//!
//! | file | what it is |
//! |---|---|
//! | `losses` | what is told of lost records |
//! | `looping` | the session: until a signal, a time limit, or the end of the process |
//! | `inserted` | a program of the background session, in its own thread |
//! | `attaching`, `attempt` | one program: what it is attached to; what has come of one probe |
//! | `handlers`, `emitting` | its handlers, compiled and loaded; or shown |
//! | `files`, `places` | files that are probed, and the places in them |
//! | `mishandled` | instructions that the kernel's uprobes execute wrongly |
//! | `kernel_symbols` | where the kernel's symbols are from: `/proc/kallsyms`, or the file of `--sym` |
//! | `in_kernel`, `kernel_names` | places in the kernel; its symbols by address and by name |
//! | `semaphores` | the counters of static probes |
//! | `watches` | watchpoints |
//! | `tracepoints` | tracepoints of the kernel |
//! | `events` | events that processors count, and times |
//! | `kinds` | which programs of scripts name no module |
//! | `typed` | functions of the kernel by their types; raw tracepoints |
//! | `targets` | the processes that a session is limited to |
//! | `numbers` | how hits are counted by function |
//! | `records`, `taking` | what the kernel tells of a hit as records; how they reach the observer |
//! | `report` | the counts at the end |
//! | `refusals` | what the kernel's refusals mean |
//! | `core_dumps` | core dumps of processes (`exit 3`) |
//! | `facility` | the kernel's debugger, and crash dumps |
//! | `rights` | what this process may do |
//! | `script` | the programs of a script |

mod attaching;
mod attempt;
mod core_dumps;
mod emitting;
mod events;
mod facility;
mod files;
mod handlers;
mod in_kernel;
mod inserted;
mod kernel_names;
mod kernel_symbols;
mod kinds;
mod looping;
mod losses;
mod mishandled;
mod numbers;
mod patterns;
mod places;
mod records;
mod refusals;
mod report;
mod rights;
mod script;
mod semaphores;
mod taking;
mod targets;
mod tracepoints;
mod typed;
mod watches;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bpf::Feature;
use engine::{Observer, Refused};
use kernel::{Filter, Globals};
use rpn::ModuleKind;
use trace::Items;
use vm::Word;

use crate::arguments::{self, Attach, AttachEngine, Buffering, Select, Tracing};
use crate::control::Watch;
use crate::hooks::Plugins;
use crate::output::Output;
use crate::session::{self, Loaded};
use crate::{Failure, at_programs, points};
use attaching::{Program, To};
pub(crate) use emitting::{EmittedHandler, could_run, emit};
pub(crate) use in_kernel::{KernelFunction, SystemMap};
pub(crate) use inserted::{InKernel, Said, ToInsert, globals, values};
pub(crate) use kernel_names::KernelNames;
pub(crate) use kernel_symbols::KernelSymbols;
pub(crate) use kinds::{EVENTS, TYPED};
use looping::Session;
use numbers::Numbers;
pub(crate) use patterns::tracepoints as matching_tracepoints;
pub(crate) use script::{ScriptPrograms, ScriptSession};
use targets::Targets;
pub(crate) use watches::named as watched_symbol;

/// Memory for all rings together, unless `--buffer` says how large each is.
const RINGS: u64 = 128 << 20;
/// The smallest and the largest ring that is chosen.
const RING: (u64, u64) = (1 << 20, 16 << 20);

/// How programs are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct With<'a> {
    pub(crate) tracing: &'a Tracing,
    /// The processes that are probed; all if there is none.
    pub(crate) pids: &'a [i32],
    /// Which threads are probed.
    pub(crate) only: Filter,
    /// Whether hits are counted by process, too.
    pub(crate) by_process: bool,
    /// When the session ends by itself.
    pub(crate) duration: Option<Duration>,
    /// The items of the records' headers, if not those that the targets show.
    pub(crate) items: Option<Items>,
    /// Whether handlers in the kernel may call its debugger or a crash dump.
    pub(crate) allow_panic: bool,
}

/// An observer that has an [`Output`], which is closed at the end.
pub(crate) trait HasOutput: Observer {
    /// The output.
    fn output(&mut self) -> &mut Output;
}

impl HasOutput for Output {
    fn output(&mut self) -> &mut Output {
        self
    }
}

/// Whether this process may load programs into the kernel.
///
/// # Errors
/// What it lacks.
pub(crate) fn rights() -> Result<(), String> {
    rights::check()
}

/// Probes all processes, or some.
pub(crate) fn attach(arguments: &Attach) -> Result<ExitCode, Failure> {
    let Attach { probes, select, tracing, processes, only, by_process, duration, allow_panic, .. } =
        arguments;
    let pids = processes.ids();
    points::are_for(&probes.at, &pids)?;
    is_by_kernel(arguments.engine)?;
    for &pid in &pids {
        session::is_not_itself(pid)?;
        points::check(&probes.at, pid)?;
    }
    let only = only.filter()?;
    let with = With {
        tracing,
        pids: &pids,
        only,
        by_process: *by_process,
        duration: *duration,
        items: None,
        allow_panic: *allow_panic,
    };
    run(at_programs::programs(probes, session::has_targets(tracing))?, select, with, |programs| {
        session::open(tracing, programs, true)
    })
}

/// Runs programs until a signal, a time limit, or the end of the process.
pub(crate) fn run<O: HasOutput>(
    programs: Vec<arguments::Program>,
    select: &Select,
    with: With<'_>,
    open: impl FnOnce(&[Loaded]) -> Result<O, Failure>,
) -> Result<ExitCode, Failure> {
    let With { tracing, pids, only, by_process, duration, items, allow_panic } = with;
    check_options(&tracing.buffering)?;
    let machine = session::machine_of(pids);
    let (programs, sources) = session::load_for_kernel(programs, select, tracing, machine, items)?;
    programs.iter().try_for_each(|program| can_be_found(program.program.main(), pids))?;
    check_rights(programs.iter().map(|loaded| loaded.program.main()))?;
    let names = programs.iter().map(|loaded| {
        let object = loaded.program.main();
        (object.kind == ModuleKind::User).then(|| object.module.clone())
    });
    let targets = (!pids.is_empty()).then(|| Targets::new(pids, false)).transpose()?;
    let processes = targets.as_ref().map(|targets| Arc::clone(&targets.processes));
    let mut session = Session::new(targets, None, names.collect());
    if let Some(map) =
        tracing.sym.as_deref().filter(|_| programs.iter().any(|it| takes_map(it.program.main())))
    {
        session.set_system_map(SystemMap::read(map).map_err(Failure::new)?.into());
    }
    let ring = ring(tracing.buffering.buffer)?;
    let gvars = programs.iter().map(|program| program.program.gvars()).max().unwrap_or(0);
    let globals = Globals::create(gvars.into()).map_err(no_memory)?;
    let output = open(&programs)?;
    let plugins = Plugins::load(&tracing.plugin)?;
    let mut output = session::behind_hooks(output, &programs);
    for (number, (loaded, sources)) in programs.into_iter().zip(sources).enumerate() {
        let numbers = Numbers::new(loaded.program.main(), session.found(number).map(|found| &*found.image));
        let processes = processes.as_ref();
        let to = To {
            globals: &globals,
            ring,
            processes,
            only,
            by_process,
            allow_panic,
            tables: None,
            script: None,
            events: &[],
        };
        session.add(Program::new(loaded, sources, numbers, to)?);
    }
    let watch = Watch::start(duration, None)?;
    let result = session.run(&mut output, &watch.control, refusal);
    let values = || globals.values()[..gvars.into()].iter().map(|value| report::value_of(value, Word::W8));
    let report = session.finish(&mut output, || values().collect());
    drop(watch);
    output.events.destroy_all();
    drop(plugins);
    result?;
    session::end(&report, Some(output.inner.output()), tracing, "")?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses an engine that is not this one.
fn is_by_kernel(engine: AttachEngine) -> Result<(), Failure> {
    match engine {
        AttachEngine::Auto | AttachEngine::Kernel => Ok(()),
        _ => Err(Failure::new(format!(
            "--engine {} probes processes: name them with -p; all processes are probed with --engine kernel",
            engine.name()
        ))),
    }
}

/// The message that probes of programs, by number, are refused.
fn refusal(refused: Vec<(usize, Refused)>) -> Failure {
    Failure::new(engine::Error::Refused(refused.into_iter().map(|(_, refused)| refused).collect()))
}

/// Refuses options that mean nothing here.
pub(crate) fn check_options(buffering: &Buffering) -> Result<(), Failure> {
    let refuse = |option: &str, why: &str| Err(Failure::new(format!("{option}: {why}")));
    if buffering.lossless {
        return refuse(
            "--lossless",
            "the kernel engine does not make programs wait: a record without room is dropped, and counted; --buffer gives more room",
        );
    }
    if buffering.share_variables {
        return refuse(
            "--share-variables",
            "with the kernel engine all processes share the variables anyway",
        );
    }
    Ok(())
}

/// The functions of the running kernel whose names match.
///
/// # Errors
/// The kernel does not show its symbols.
pub(crate) fn kernel_functions(matches: impl Fn(&str) -> bool) -> Result<Vec<KernelFunction>, String> {
    Ok(in_kernel::Kernel::read(None)?.functions(matches))
}

/// Whether this kernel has kprobes, and lets this process use them.
pub(crate) fn has_kprobes() -> bool {
    Feature::Kprobe.is_available()
}

/// Whether this process may have the kernel run programs.
pub(crate) fn is_allowed() -> bool {
    rights::check().is_ok()
}

/// Checks that this process may have the kernel run programs, and that the kernel can.
pub(crate) fn check_rights<'a>(mut objects: impl Iterator<Item = &'a rpn::Object>) -> Result<(), Failure> {
    rights::check().map_err(Failure::new)?;
    process::check_proc().map_err(Failure::new)?;
    process::allow_many_files();
    if objects.any(needs_kprobes) && !has_kprobes() {
        return Err(Failure::new(
            "this kernel has no kprobes (CONFIG_KPROBES), or does not let this process use them: nothing in the kernel can be probed",
        ));
    }
    Ok(())
}

/// Whether only the kernel can run a program: it probes the kernel, or watches memory.
pub(crate) fn is_needed(object: &rpn::Object) -> bool {
    object.kind != ModuleKind::User || object.probes.iter().any(|probe| probe.watch.is_some())
}

/// Whether the file of `--sym` is for a program the kernel's System.map.
fn takes_map(object: &rpn::Object) -> bool {
    object.kind == ModuleKind::Kernel
}

/// Whether a program has probes on instructions of the kernel.
fn needs_kprobes(object: &rpn::Object) -> bool {
    let is_on_one = |probe: &rpn::Probe| probe.watch.is_none() && !tracepoints::is_one(probe);
    let has_code = !kinds::has_events(object) && !kinds::is_typed(object);
    has_code && object.kind != ModuleKind::User && object.probes.iter().any(is_on_one)
}

/// Refuses modules that mean nothing without a process, and the kernel with one.
pub(crate) fn can_be_found(object: &rpn::Object, pids: &[i32]) -> Result<(), Failure> {
    let watches = object.probes.iter().any(|probe| probe.watch.is_some());
    match pids {
        [] if object.kind == ModuleKind::User && watches => Err(Failure::new(
            "`watchpoint =` in a user program is an address of one process: name the process with -p",
        )),
        [] if object.kind == ModuleKind::User && object.module == "a.out" => Err(Failure::new(
            "`a.out` is the program of a process: name the process with -p, or the program by its path",
        )),
        [_, ..] if object.kind != ModuleKind::User => Err(Failure::new(format!(
            "`modtype = {}`: the kernel is probed for all processes; leave -p out",
            object.kind.name()
        ))),
        _ => Ok(()),
    }
}

fn no_memory(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("memory for handlers in the kernel: {error}"))
}

/// The size of each processor's ring.
fn ring(asked: Option<u64>) -> Result<u32, Failure> {
    let processors = bpf::possible_processors().map_err(no_memory)? as u64;
    let share = (RINGS / processors.max(1)).clamp(RING.0, RING.1);
    let size = asked.unwrap_or(1 << share.ilog2());
    Ok(u32::try_from(size).unwrap_or(1 << 30))
}
