//! Whether a process can be probed, and how.

use std::fs::OpenOptions;
use std::path::Path;

use ::process::{ImageCache, Obstacle, Status};
use image::Machine;

use super::finding::{Finding, State};

/// Looks at a process.
pub(super) fn findings(pid: i32) -> Vec<Finding> {
    let Ok(status) = Status::read(pid) else {
        return vec![Finding::new(State::Fails, "process", format!("there is no process {pid}"))];
    };
    let name = ::process::name(pid);
    let mut findings =
        vec![Finding::new(State::Note, "process", format!("{pid} {name}, of user {}", status.uid))];
    if let Some(why) = cannot(pid, &status) {
        findings.push(Finding::new(State::Fails, "tracing", why));
        return findings;
    }
    findings.push(Finding::new(State::Works, "tracing", "allowed"));
    findings.extend(machine(pid));
    if status.seccomp != 0 {
        let text = "the process filters its system calls (seccomp): probes are traps where dprobes may not suspend the filter";
        findings.push(Finding::new(State::Note, "sandbox", text));
    }
    if ::process::has_shadow_stack(pid) {
        findings.push(Finding::new(State::Note, "shadow stack", "the process has one"));
    }
    let room = ::process::maps(pid).map(|maps| ::process::low_gaps(&maps, None));
    findings.push(match room {
        Ok(gaps) if gaps.iter().any(|gap| gap.end - gap.start >= 16 << 20) => {
            Finding::new(State::Works, "jumps", "there is room below 2 GiB for what they need")
        }
        _ => Finding::new(
            State::Lacking,
            "jumps",
            "there is no room below 2 GiB: probes are traps, of microseconds",
        ),
    });
    findings.extend(modules(pid));
    findings
}

/// Why the process cannot be traced at all.
fn cannot(pid: i32, status: &Status) -> Option<String> {
    if status.kernel {
        return Some("it is a thread of the kernel: `modtype = kernel` probes the kernel".to_owned());
    }
    if status.has_ended() {
        return Some("it has ended and only waits for its parent".to_owned());
    }
    if status.tgid != pid {
        return Some(format!("it is a thread of process {}; give that process", status.tgid));
    }
    if status.tracer != 0 {
        let tracer = status.tracer;
        return Some(format!("process {tracer} ({}) traces it already", ::process::name(tracer)));
    }
    // Opened and not written: the kernel checks the same as for tracing.
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
    memory.is_err().then(|| format!("the kernel forbids it: {}", Obstacle::to(pid)))
}

fn machine(pid: i32) -> Option<Finding> {
    let machine = ::process::machine_of_process(pid);
    Some(match machine {
        Some(Machine::X86_64) => Finding::new(State::Works, "machine", "x86-64"),
        Some(Machine::I386) => {
            Finding::new(State::Lacking, "machine", "i386: probes are traps, of microseconds")
        }
        _ => Finding::new(State::Fails, "machine", "it is no x86-64 or i386 program"),
    })
}

/// The modules, and which of them have no symbols.
fn modules(pid: i32) -> Vec<Finding> {
    let modules = match ::process::modules(pid, &mut ImageCache::new()) {
        Ok(modules) => modules,
        Err(error) => return vec![Finding::new(State::Fails, "modules", error.to_string())],
    };
    let functions: usize = modules.iter().map(|module| module.image.functions().len()).sum();
    let count = crate::messages::count(modules.len() as u64, "module");
    let text = format!("{count} with {functions} functions; `dprobes list -p {pid}` shows them");
    let mut findings = vec![Finding::new(State::Works, "modules", text)];
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stripped = modules.iter().filter(|module| module.image.functions().is_empty());
    let stripped: Vec<String> = stripped.map(|module| name(&module.path)).collect();
    if !stripped.is_empty() {
        let text = format!("without symbols: {}; --sym takes a file that has them", stripped.join(", "));
        findings.push(Finding::new(State::Lacking, "symbols", text));
    }
    findings
}
