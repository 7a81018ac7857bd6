//! `dprobes attach` by the kernel: for all processes, for one (`--engine kernel -p PID`), and for
//! the kernel itself (`modtype = kernel` and `kmod`).
//!
//! The handlers become programs that the kernel runs at each hit (crate `kernel`). No process is
//! stopped, none is traced, and none gets other memory: this process attaches the programs, reads
//! the rings, and looks for files that are mapped. When it ends, however it ends, the kernel
//! detaches the programs.
//!
//! | file | what it is |
//! |---|---|
//! | `looping` | the session: until a signal, a time limit, or the end of the process |
//! | `attaching`, `attempt` | one program: what it is attached to; what has come of one probe |
//! | `handlers` | its handlers, compiled and loaded |
//! | `files`, `places` | files that are probed, and the places in them |
//! | `in_kernel` | places in the kernel |
//! | `watches` | watchpoints |
//! | `tracepoints` | tracepoints of the kernel |
//! | `numbers` | how hits are counted by function |
//! | `records`, `taking` | what the kernel tells of a hit as records; how they reach the observer |
//! | `report` | the counts at the end |
//! | `refusals` | what the kernel's refusals mean |
//! | `facility` | the kernel's debugger, and crash dumps |
//! | `rights` | what this process may do |
//! | `script` | the programs of a script |

mod attaching;
mod attempt;
mod facility;
mod files;
mod handlers;
mod in_kernel;
mod looping;
mod numbers;
mod places;
mod records;
mod refusals;
mod report;
mod rights;
mod script;
mod taking;
mod tracepoints;
mod watches;

use std::process::ExitCode;
use std::time::Duration;

use bpf::Feature;
use engine::Observer;
use kernel::Globals;
use rpn::ModuleKind;
use trace::Items;
use vm::Word;

use crate::arguments::{self, Attach, AttachEngine, Select, Tracing};
use crate::control::Watch;
use crate::hooks::Plugins;
use crate::output::Output;
use crate::session::{self, Loaded};
use crate::{Failure, points};
use attaching::{Program, To};
use looping::Session;
use numbers::Numbers;
pub(crate) use script::ScriptSession;

/// Memory for all rings together, unless `--buffer` says how large each is.
const RINGS: u64 = 128 << 20;
/// The smallest and the largest ring that is chosen.
const RING: (u64, u64) = (1 << 20, 16 << 20);

/// How programs are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct With<'a> {
    pub(crate) tracing: &'a Tracing,
    /// The process that is probed; all if there is none.
    pub(crate) pid: Option<i32>,
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

/// Probes all processes, or one.
pub(crate) fn attach(arguments: &Attach) -> Result<ExitCode, Failure> {
    let Attach { probes, select, tracing, processes, duration, allow_panic, .. } = arguments;
    let pids = processes.ids();
    points::are_for(&probes.at, &pids)?;
    is_by_kernel(arguments.engine)?;
    let pid = match *pids {
        [] => None,
        [pid] => Some(pid),
        _ => {
            return Err(Failure::new(
                "the kernel engine probes one process, or all: give one with -p, or none; the other engines probe several",
            ));
        }
    };
    if let Some(pid) = pid {
        session::is_not_itself(pid)?;
        points::check(&probes.at, pid)?;
    }
    let with = With { tracing, pid, duration: *duration, items: None, allow_panic: *allow_panic };
    run(points::programs(probes), select, with, |programs| session::open(tracing, programs, true))
}

/// Runs programs until a signal, a time limit, or the end of the process.
pub(crate) fn run<O: HasOutput>(
    programs: Vec<arguments::Program>,
    select: &Select,
    with: With<'_>,
    open: impl FnOnce(&[Loaded]) -> Result<O, Failure>,
) -> Result<ExitCode, Failure> {
    let With { tracing, pid, duration, items, allow_panic } = with;
    suits(tracing)?;
    let machine = pid.and_then(process::machine_of_process);
    let (programs, sources) = session::load_for_kernel(programs, select, tracing, machine, items)?;
    programs.iter().try_for_each(|program| can_be_found(program, pid))?;
    check_rights(programs.iter().map(|loaded| loaded.program.main()))?;
    let names = programs.iter().map(|loaded| {
        let object = loaded.program.main();
        (object.kind == ModuleKind::User).then(|| object.module.clone())
    });
    let mut session = Session::new(pid, names.collect())?;
    let ring = ring(tracing.buffering.buffer)?;
    let gvars = programs.iter().map(|program| program.program.gvars()).max().unwrap_or(0);
    let globals = Globals::create(gvars.into()).map_err(no_memory)?;
    let output = open(&programs)?;
    let plugins = Plugins::load(&tracing.plugin)?;
    let mut output = session::behind_hooks(output, &programs);
    for (number, (loaded, sources)) in programs.into_iter().zip(sources).enumerate() {
        let numbers = Numbers::new(loaded.program.main(), session.found(number).map(|found| &*found.image));
        let process = pid.map(|pid| pid as u32);
        let to = To { globals: &globals, ring, process, allow_panic, tables: None };
        session.add(Program::new(loaded, sources, numbers, to)?);
    }
    let watch = Watch::start(duration, None)?;
    let result = session.run(&mut output, &watch.control);
    let values = || globals.values()[..gvars.into()].iter().map(|value| report::value_of(value, Word::W8));
    let report = session.finish(&mut output, || values().collect());
    drop(watch);
    output.events.destroy_all();
    drop(plugins);
    result?;
    session::end(&report, Some(output.inner.output()), tracing)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses an engine that is not this one.
fn is_by_kernel(engine: AttachEngine) -> Result<(), Failure> {
    match engine {
        AttachEngine::Auto | AttachEngine::Kernel => Ok(()),
        _ => Err(Failure::new(format!(
            "--engine {} probes one process: name it with -p; all processes are probed with --engine kernel",
            engine.name()
        ))),
    }
}

/// Refuses options that mean nothing here.
fn suits(tracing: &Tracing) -> Result<(), Failure> {
    let refuse = |option: &str, why: &str| Err(Failure::new(format!("{option}: {why}")));
    if tracing.buffering.lossless {
        return refuse(
            "--lossless",
            "the kernel engine does not make programs wait: a record without room is dropped, and counted; --buffer gives more room",
        );
    }
    if tracing.buffering.share_variables {
        return refuse(
            "--share-variables",
            "with the kernel engine all processes share the variables anyway",
        );
    }
    Ok(())
}

/// Checks that this process may have the kernel run programs, and that the kernel can.
fn check_rights<'a>(mut objects: impl Iterator<Item = &'a rpn::Object>) -> Result<(), Failure> {
    rights::check().map_err(Failure::new)?;
    process::check_proc().map_err(Failure::new)?;
    process::allow_many_files();
    if objects.any(needs_kprobes) && !Feature::Kprobe.is_available() {
        return Err(Failure::new(
            "this kernel has no kprobes (CONFIG_KPROBES), or does not let this process use them: nothing in the kernel can be probed",
        ));
    }
    Ok(())
}

/// Whether a program has probes on instructions of the kernel.
fn needs_kprobes(object: &rpn::Object) -> bool {
    let is_on_one = |probe: &rpn::Probe| probe.watch.is_none() && !tracepoints::is_one(probe);
    object.kind != ModuleKind::User && object.probes.iter().any(is_on_one)
}

/// Refuses modules that mean nothing without a process, and the kernel with one.
fn can_be_found(program: &Loaded, pid: Option<i32>) -> Result<(), Failure> {
    let object = program.program.main();
    let watches = object.probes.iter().any(|probe| probe.watch.is_some());
    match pid {
        None if object.kind == ModuleKind::User && watches => Err(Failure::new(
            "`watchpoint =` in a user program is an address of one process: name the process with -p",
        )),
        None if object.kind == ModuleKind::User && object.module == "a.out" => Err(Failure::new(
            "`a.out` is the program of a process: name the process with -p, or the program by its path",
        )),
        Some(_) if object.kind != ModuleKind::User => Err(Failure::new(format!(
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
