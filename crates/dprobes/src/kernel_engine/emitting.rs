//! `dprobes check --emit bpf`: handlers as eBPF, without attaching them.

use std::path::{Path, PathBuf};

use kernel::{AttachKind, Handler, MAP_NAMES, MapsOptions};
use rpn::{Object, Probe, Sources};

use super::handlers::{self, Handlers, Spot};
use super::{kinds, rights, tracepoints};
use crate::Failure;

/// A handler that was compiled.
pub(crate) struct EmittedHandler {
    /// The probe's number, from 1.
    number: usize,
    /// Where the probe is.
    point: String,
    /// What libbpf calls programs of its kind.
    section: &'static str,
    code: bpf::Code,
}

/// Compiles the handlers of a program as the kernel engine does for all processes of this machine.
///
/// # Errors
/// What a handler cannot do in the kernel.
pub(crate) fn emit(object: &Object, sources: Option<&Sources>) -> Result<Vec<EmittedHandler>, Failure> {
    let size = MapsOptions::default().size(object.probes.len());
    let size = size.map_err(|error| Failure::new(format!("the processors of this machine: {error}")))?;
    let emitted = |(index, probe): (usize, &Probe)| {
        if tracepoints::is_one(probe) || kinds::is_typed(object) {
            return Err(Failure::new(format!(
                "probe {}: at a tracepoint the code depends on the record that the running kernel has there; --emit bpf is of other probes",
                index + 1
            )));
        }
        let spot = Spot::of(object, probe);
        let target = Handlers::target(object, spot, size);
        let handler = Handler::of(object, probe, spot.offset);
        let code = kernel::compile(&handler, &target).map_err(|refusal| {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let shown = handlers::diagnostic(&refusal, object, sources, None, "", colour);
            let plain = || Failure::new(format!("{}:{}: {refusal}", object.module, probe.point));
            shown.map_or_else(plain, Failure::complete)
        })?;
        Ok(EmittedHandler {
            number: index + 1,
            point: probe.point.to_string(),
            section: section(spot.place),
            code: code.code,
        })
    };
    object.probes.iter().enumerate().map(emitted).collect()
}

/// Whether the kernel could run a program in all processes, as far as that is known without trying.
///
/// # Errors
/// What this process may not do, or what a handler cannot do in the kernel.
pub(crate) fn could_run(object: &Object) -> Result<(), String> {
    rights::check()?;
    let size = MapsOptions::default().size(object.probes.len());
    let size = size.map_err(|error| format!("the processors of this machine: {error}"))?;
    object.probes.iter().try_for_each(|probe| {
        let spot = Spot::of(object, probe);
        let handler = Handler::of(object, probe, spot.offset);
        let compiled = kernel::compile(&handler, &Handlers::target(object, spot, size));
        compiled.map(drop).map_err(|refusal| format!("{}: {refusal}", printable::text(&probe.point)))
    })
}

fn section(place: AttachKind) -> &'static str {
    match place {
        AttachKind::Uprobe => "uprobe",
        AttachKind::Kprobe => "kprobe",
        AttachKind::Kretprobe => "kretprobe",
        AttachKind::Tracepoint => "tracepoint",
        AttachKind::RawTracepoint => "raw_tracepoint",
        AttachKind::Fentry(_) => "fentry",
        AttachKind::Fexit(_) => "fexit",
        AttachKind::UserBreakpoint | AttachKind::KernelBreakpoint | AttachKind::Event => "perf_event",
    }
}

impl EmittedHandler {
    /// The instructions, one in a line.
    pub(crate) fn text(&self) -> String {
        let names = MAP_NAMES.iter().enumerate();
        let maps: Vec<String> = names.map(|(number, name)| format!("{number} {name}")).collect();
        format!(
            "probe {} at {} ({}), {} instructions; maps: {}\n{}",
            self.number,
            self.point,
            self.section,
            self.code.insns().len(),
            maps.join(", "),
            self.code
        )
    }

    /// Its object file, where several are written for one name: `count.o`, `count.2.o`.
    pub(crate) fn file(&self, named: &Path) -> PathBuf {
        if self.number == 1 {
            return named.to_owned();
        }
        let end = match named.extension() {
            Some(extension) => format!("{}.{}", self.number, extension.to_string_lossy()),
            None => self.number.to_string(),
        };
        named.with_extension(end)
    }

    /// The object file's bytes.
    pub(crate) fn object(&self) -> Vec<u8> {
        bpf::write_object(&self.code, &MAP_NAMES, self.section, &format!("probe_{}", self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_object_has_the_name_that_is_asked_for() {
        let mut assembler = bpf::Assembler::new();
        assembler.exit();
        let code = assembler.finish().expect("one instruction");
        let handler =
            |number| EmittedHandler { number, point: String::new(), section: "uprobe", code: code.clone() };
        assert_eq!(handler(1).file(Path::new("a/count.o")), Path::new("a/count.o"));
        assert_eq!(handler(2).file(Path::new("a/count.o")), Path::new("a/count.2.o"));
        assert_eq!(handler(3).file(Path::new("count")), Path::new("count.3"));
    }
}
