//! Compiles the handlers of a program for the kernel and loads them, each once.
//!
//! In: a probe of an `Object`, and where its handler is to run (`Spot`). Out: a program that the
//! kernel has taken, ready to be attached; or why there is none.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use bpf::Feature;
use kernel::tracepoints::FieldAccess;
use kernel::{AttachKind, Condition, Filter, Handler, Maps, Refusal, Size, Target};
use rpn::{Diagnostic, FunctionPoint, Location, ModuleKind, Object, Probe, Severity, Sources};
use vm::{Effects, Word};

use super::kinds;

/// The loaded handlers of one program.
#[derive(Debug)]
pub(super) struct Handlers {
    loaded: HashMap<Key, Rc<bpf::Program>>,
    /// Whether only the chosen processes are probed.
    pub(super) filtered: bool,
    /// Which threads are probed.
    only: Filter,
    /// Whether hits are counted by process, too.
    pub(super) by_process: bool,
    /// Whether the kernel may be stopped by its debugger or a crash dump.
    pub(super) allow_panic: bool,
    /// Whether they are a script's.
    pub(super) is_script: bool,
    /// What of the script only the kernel can run.
    bound: Bound,
}

/// What of a script only the kernel can run, though processes are given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound {
    watchpoints: bool,
    kernel: bool,
}

impl Bound {
    /// What the programs of a script have of it.
    pub(super) fn of(objects: &[Object]) -> Bound {
        let watches = |object: &&Object| object.probes.iter().any(|probe| probe.watch.is_some());
        Bound {
            watchpoints: objects.iter().any(|object| watches(&object)),
            kernel: objects.iter().any(|object| object.kind != ModuleKind::User && !watches(&object)),
        }
    }

    /// The same in words.
    fn name(self) -> &'static str {
        match (self.watchpoints, self.kernel) {
            (true, false) => "watchpoints",
            (true, true) => "watchpoints and probes of the kernel",
            (false, true) => "probes of the kernel",
            (false, false) => "",
        }
    }
}

/// What tells handlers apart. Probes of the same text share one, unless it names its probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    word: Word,
    entry: usize,
    mask: u16,
    heap: usize,
    place: AttachKind,
    multi: bool,
    condition: Option<Condition>,
    cookie: Option<u64>,
    returns: bool,
    /// The minor code and the offset, if stack traces show them.
    point: Option<(u32, u64)>,
    fields: Option<Vec<Option<FieldAccess>>>,
}

/// Where a handler is to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<'a> {
    pub(super) place: AttachKind,
    /// Whether it will be attached to many places at once.
    pub(super) multi: bool,
    pub(super) condition: Option<Condition>,
    /// The offset in the module, or the address in the kernel.
    pub(super) offset: u64,
    /// The cookie of every hit, where hits have none by themselves.
    pub(super) cookie: Option<u64>,
    /// At a tracepoint, how each field that the program names is accessed.
    pub(super) fields: Option<&'a [Option<FieldAccess>]>,
}

impl Spot<'_> {
    /// Where a probe's handler runs, unless it is at a tracepoint or, by its type, at a function
    /// of the kernel.
    pub(super) fn of(object: &Object, probe: &Probe) -> Spot<'static> {
        Spot::at(match (object.kind, probe.watch) {
            _ if kinds::has_events(object) => AttachKind::Event,
            (ModuleKind::User, None) => AttachKind::Uprobe,
            (ModuleKind::User, Some(_)) => AttachKind::UserBreakpoint,
            (_, None) => AttachKind::Kprobe,
            (_, Some(_)) => AttachKind::KernelBreakpoint,
        })
    }

    /// A place of its kind, of which nothing more is known.
    pub(super) fn at(place: AttachKind) -> Spot<'static> {
        Spot { place, multi: false, condition: None, offset: 0, cookie: None, fields: None }
    }
}

impl Handlers {
    /// `filtered`: only the processes that the maps list are probed.
    pub(super) fn new(
        filtered: bool,
        only: Filter,
        by_process: bool,
        allow_panic: bool,
        script: Option<Bound>,
    ) -> Handlers {
        let (is_script, bound) = (script.is_some(), script.unwrap_or_default());
        Handlers { loaded: HashMap::new(), filtered, only, by_process, allow_panic, is_script, bound }
    }

    /// How others run a handler that the kernel cannot.
    pub(super) fn others(&self, kind: ModuleKind) -> String {
        let bound = self.bound.name();
        match (self.is_script, kind, self.filtered) {
            (true, ModuleKind::User, false) if bound.is_empty() => {
                "with -p PID, or a command behind `--`, the script runs in the process".to_owned()
            }
            (true, ModuleKind::User, false) => format!(
                "without {bound}, and with -p PID or a command behind `--`, the script runs in the process"
            ),
            // Nothing but the kernel's stack can be meant.
            (true, ModuleKind::User, true) if bound.is_empty() => {
                "without the kernel's stack, the script runs in the process".to_owned()
            }
            (true, ModuleKind::User, true) => format!("without {bound}, the script runs in the process"),
            (false, ModuleKind::User, _) => "with -p PID, the other engines run it".to_owned(),
            _ => String::new(),
        }
    }

    /// Whether handlers of an object differ by where they are: they write stack traces.
    pub(super) fn name_their_place(object: &Object) -> bool {
        object.autostacktrace || vm::may(&object.code, object.word(), Effects::USES_STACK_TRACE)
    }

    /// Compiles a handler without loading it.
    ///
    /// # Errors
    /// What it cannot do there.
    pub(super) fn compile(
        &self,
        object: &Object,
        probe: &Probe,
        spot: Spot<'_>,
        maps: &Maps,
    ) -> Result<kernel::Compiled, Refusal> {
        let target = Target {
            filtered: self.filtered,
            only: self.only,
            by_process: self.by_process,
            except: Some(std::process::id()),
            returns: returns(probe),
            facilities: self.allow_panic,
            ..Handlers::target(object, spot, maps.size())
        };
        let tables = maps.tables().shape();
        let handler =
            Handler { tables, is_script: self.is_script, ..Handler::of(object, probe, spot.offset) };
        kernel::compile_for_tracepoint(&handler, &target, spot.fields.unwrap_or_default())
    }

    /// What a handler is compiled for on this machine, in all processes.
    pub(super) fn target(object: &Object, spot: Spot<'_>, size: Size) -> Target {
        let writes = vm::may(&object.code, object.word(), Effects::WRITES_MEMORY);
        Target {
            place: spot.place,
            sleepable: spot.place == AttachKind::Uprobe && Feature::SleepableUprobe.is_available(),
            filtered: false,
            only: Filter::default(),
            except: None,
            returns: false,
            condition: spot.condition,
            cookie: spot.cookie,
            facilities: false,
            by_process: false,
            without_context: true,
            writes_registers: Feature::WriteRegisters.is_available(),
            // The kernel warns in its log when this is tried, so only for who needs it.
            writes_memory: writes && Feature::WriteMemory.is_available(),
            size,
        }
    }

    /// The handler of a probe in the kernel.
    ///
    /// # Errors
    /// What it cannot do there, or why the kernel refuses it.
    pub(super) fn load(
        &mut self,
        object: &Object,
        probe: &Probe,
        spot: Spot<'_>,
        maps: &Maps,
        sources: Option<&Sources>,
    ) -> Result<Rc<bpf::Program>, String> {
        let Spot { place, multi, condition, offset, cookie, fields } = spot;
        let point = match Handlers::name_their_place(object) {
            true => Some((probe.minor, offset)),
            // A script's handler may ask which attach point it is.
            false => self.is_script.then_some((probe.minor, 0)),
        };
        let (word, entry, mask, heap) = (object.word(), probe.entry, probe.mask, probe.heap);
        let key = Key {
            word,
            entry,
            mask,
            heap,
            place,
            multi,
            condition,
            cookie,
            returns: returns(probe),
            point,
            fields: fields.map(<[_]>::to_vec),
        };
        if let Some(program) = self.loaded.get(&key) {
            return Ok(Rc::clone(program));
        }
        let compiled =
            self.compile(object, probe, spot, maps).map_err(|refusal| reason(&refusal, object, sources))?;
        let program = maps.load(&compiled, multi).map_err(|error| {
            let why =
                error.reason().map_or_else(String::new, |reason| format!(": {}", printable::text(reason)));
            let help = match self.is_script && error.errno == bpf::Errno::E2BIG {
                true => "; divide the action into several, or make `max_strlen` in `config` smaller",
                false => "",
            };
            // Where it has given up because of the length says nothing.
            let insn = error.insn.filter(|_| error.errno != bpf::Errno::E2BIG);
            let offset = insn.and_then(|insn| compiled.code.source(insn));
            let what = format!("the kernel refuses the handler ({}{why}){help}", error.errno);
            match offset {
                Some(offset) => located(&what, offset as usize, object, sources),
                None => what,
            }
        })?;
        let program = Rc::new(program);
        match self.loaded.entry(key) {
            Entry::Occupied(there) => Ok(Rc::clone(there.get())),
            Entry::Vacant(free) => Ok(Rc::clone(free.insert(program))),
        }
    }
}

/// Whether a probe's sites are instructions that leave a function.
fn returns(probe: &Probe) -> bool {
    matches!(probe.location, Location::Points { point: FunctionPoint::Return, .. })
}

/// Why a handler cannot run in the kernel, in one line, with its place in the text if there is one.
fn reason(refusal: &Refusal, object: &Object, sources: Option<&Sources>) -> String {
    located(&refusal.to_string(), refusal.offset, object, sources)
}

/// A message with the place of an instruction.
fn located(what: &str, offset: usize, object: &Object, sources: Option<&Sources>) -> String {
    match (object.line_at(offset), sources) {
        (Some(span), Some(sources)) => format!("{}: {what}", sources.locate(span)),
        _ => format!("{what} (the instruction at {offset:#x} of its code)"),
    }
}

/// The same as a message about the program's text. `others`: which other engine runs it.
pub(super) fn diagnostic(
    refusal: &Refusal,
    object: &Object,
    sources: Option<&Sources>,
    help: Option<String>,
    others: &str,
    colour: bool,
) -> Option<String> {
    let span = object.line_at(refusal.offset)?;
    let more = if others.is_empty() { String::new() } else { format!("; {others}") };
    let message = Diagnostic {
        severity: Severity::Error,
        message: format!("the kernel engine cannot run this handler: {refusal}"),
        span,
        label: String::new(),
        help: help.or_else(|| {
            Some(format!("`dprobes help kernel-engine` lists what handlers cannot do there{more}"))
        }),
        related: Vec::new(),
    };
    Some(message.render(sources?, colour))
}
