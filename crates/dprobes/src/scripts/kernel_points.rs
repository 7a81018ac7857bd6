//! Attach points in the kernel: functions, by address or by type, and tracepoints.

use image::Pattern;
use rpn::{FunctionPoint, Location, ModuleKind};
use script::{AttachPoint, AttachTarget, Handler, Provider};

use super::named::names_its_point;
use super::places::{Finder, KERNEL};
use crate::kernel_engine::{KernelSymbols, TYPED, matching_tracepoints};

impl Finder<'_> {
    /// Adds the probes of an attach point in the kernel.
    pub(super) fn kernel_point(&mut self, handler: &Handler, point: &AttachPoint) {
        let named = match &point.place {
            AttachTarget::Kernel { function, .. } => function,
            AttachTarget::Tracepoint(_, name) => name,
            _ => return,
        };
        let is_pattern = Pattern::is_one(named);
        let system_pattern =
            matches!(&point.place, AttachTarget::Tracepoint(Some(system), _) if Pattern::is_one(system));
        let is_named = || self.scope.expands || names_its_point(self.compiled, handler);
        if !(system_pattern || is_pattern && is_named()) {
            return self.one_of_kernel(handler, point);
        }
        let most = if self.scope.expands { usize::MAX } else { self.compiled.settings.max_probes };
        match expanded(point, self.scope.kernel) {
            Ok(points) if points.is_empty() => {
                self.missing.add(handler.action, point, KERNEL, "nothing of the kernel matches");
            }
            Ok(points) if points.len() > most => {
                let why = format!("the pattern matches {} places, and `max_probes` is {most}", points.len());
                self.refuse(point, &why, "write a narrower pattern, or leave `probe` and `func` out");
            }
            Ok(points) => points.iter().for_each(|point| self.one_of_kernel(handler, point)),
            Err((why, help)) => self.refuse(point, &why, help),
        }
    }

    fn one_of_kernel(&mut self, handler: &Handler, point: &AttachPoint) {
        let (file, kind, location) = match (point.provider, &point.place) {
            (Provider::Kprobe | Provider::Kretprobe, AttachTarget::Kernel { module, function, offset }) => {
                let at = match (point.provider, offset) {
                    (Provider::Kretprobe, _) => FunctionPoint::Return,
                    (_, Some(offset)) => FunctionPoint::Offset(*offset),
                    (_, None) => FunctionPoint::Entry,
                };
                let module = module.as_deref().filter(|module| *module != KERNEL);
                let kind = module.map_or(ModuleKind::Kernel, |_| ModuleKind::KernelModule);
                let location = Location::Points { function: function.clone(), point: at };
                (module.unwrap_or(KERNEL), kind, location)
            }
            (provider, AttachTarget::Kernel { module, function, offset }) => {
                if module.as_ref().is_some_and(|module| module != KERNEL) || offset.is_some() {
                    let instead = if provider == Provider::Fentry { "kprobe" } else { "kretprobe" };
                    let help = format!("`{instead}` probes functions of modules, and any instruction");
                    return self.refuse(point, "only functions of the kernel itself have types here", &help);
                }
                let at = match provider {
                    Provider::Fexit => FunctionPoint::Return,
                    _ => FunctionPoint::Entry,
                };
                let location = Location::Points { function: function.clone(), point: at };
                (TYPED, ModuleKind::Kernel, location)
            }
            (Provider::Rawtracepoint, AttachTarget::Tracepoint(_, name)) => {
                let location = Location::Tracepoint { system: String::new(), name: name.clone() };
                (TYPED, ModuleKind::Kernel, location)
            }
            (_, AttachTarget::Tracepoint(Some(system), name)) => {
                let location = Location::Tracepoint { system: system.clone(), name: name.clone() };
                (KERNEL, ModuleKind::Kernel, location)
            }
            _ => return,
        };
        let function = match &point.place {
            AttachTarget::Kernel { function, .. } => function.clone(),
            _ => String::new(),
        };
        self.add_to((handler, point), (file, kind), location, (point.to_string(), function));
    }
}

/// The attach points that one with patterns means.
///
/// # Errors
/// It cannot be known here; and what can be done.
fn expanded(
    point: &AttachPoint,
    symbols: KernelSymbols<'_>,
) -> Result<Vec<AttachPoint>, (String, &'static str)> {
    let with = |place: AttachTarget| AttachPoint { place, ..point.clone() };
    let plain = |reason: String| (reason, "");
    let kernel = Some(KERNEL.to_owned());
    let points: Vec<AttachPoint> = match (point.provider, &point.place) {
        (Provider::Tracepoint, AttachTarget::Tracepoint(Some(system), name)) => {
            let found = matching_tracepoints(system, name).map_err(|reason| (reason, WITHOUT_TRACEFS))?;
            found
                .into_iter()
                .map(|(system, name)| with(AttachTarget::Tracepoint(Some(system), name)))
                .collect()
        }
        (_, AttachTarget::Tracepoint(_, name)) => {
            let (types, names) = (types()?, pattern(name)?);
            let found = types.tracepoints().into_iter().filter(|name| names.matches(name));
            found.map(|name| with(AttachTarget::Tracepoint(kernel.clone(), name))).collect()
        }
        (Provider::Fentry | Provider::Fexit, AttachTarget::Kernel { function, .. }) => {
            let (types, names) = (types()?, pattern(function)?);
            let place = |function| AttachTarget::Kernel { module: kernel.clone(), function, offset: None };
            let found = types.functions().into_iter().filter(|name| names.matches(name));
            found.map(|function| with(place(function))).collect()
        }
        (_, AttachTarget::Kernel { module, function, offset }) => {
            let place = |function| AttachTarget::Kernel { module: module.clone(), function, offset: *offset };
            let of = module.as_deref().filter(|module| *module != KERNEL);
            let found = symbols.functions(function, of).map_err(plain)?;
            found.into_iter().map(|function| with(place(function))).collect()
        }
        _ => vec![point.clone()],
    };
    Ok(points)
}

/// What is known of tracepoints without tracefs.
const WITHOUT_TRACEFS: &str =
    "without it only names without a subsystem are known: `dprobes trace -l 'rawtracepoint:*'`";

fn pattern(text: &str) -> Result<Pattern, (String, &'static str)> {
    Pattern::new(text).map_err(|error| (error.to_string(), ""))
}

fn types() -> Result<bpf::KernelTypes, (String, &'static str)> {
    bpf::KernelTypes::read().map_err(|error| {
        (format!("the kernel does not tell its types (/sys/kernel/btf/vmlinux): {error}"), "")
    })
}
