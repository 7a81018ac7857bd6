//! The probes of a plan, as a program for the engine: each fires once, and records nothing.

use engine::{Engine, Options, ProbeReport, Report, State, Versions};
use rpn::{Location, Object, Probe};
use trace::Items;

use super::Module;
use super::hit::Hit;

/// The text of the program, with one probe, which all others are like.
const TEXT: &str = "name = module\nmodtype = user\nlogmax = 0\nmaxhits = 1\noffset = 0\nabort\n";

/// The program of a module.
pub(super) fn program(module: &Module) -> Versions {
    let compiled = rpn::compile_text("coverage", TEXT, &rpn::Options::default());
    let compiled = compiled.expect("the text is a program").object;
    let pattern = compiled.probes.first().expect("it has a probe").clone();
    let offset = |site: &u64| module.image.offset_of_address(*site);
    let probe = |site: &u64| {
        // A site is an instruction, and so in the file.
        let offset = offset(site).unwrap_or(0);
        Probe { point: format!("{offset:#x}"), location: Location::Offset(offset), ..pattern.clone() }
    };
    let probes = module.plan.sites.iter().map(probe).collect();
    let object = Object { module: module.path.clone(), probes, ..compiled };
    Versions::only(object, "its lines are measured on x86-64 only")
}

/// How it is inserted.
pub(super) fn options() -> Options {
    Options {
        engine: Engine::Trap,
        // The plan has checked the boundaries of instructions.
        verify_opcodes: false,
        items: Items::default(),
        lossless: false,
        max_dumps: 1,
        symbols: None,
        tables: None,
        semaphores: Vec::new(),
        lenient: true,
    }
}

/// What became of a site.
pub(super) fn hit(probe: &ProbeReport) -> Hit {
    match probe.state {
        _ if probe.counts.hits > 0 => Hit::Reached,
        State::Refused => Hit::Unmeasured,
        _ => Hit::Missed,
    }
}

/// Whether a module was in no process.
pub(super) fn is_waiting(report: &Report, module: &str) -> bool {
    let mut probes = report.probes.iter().filter(|probe| probe.module == module);
    probes.all(|probe| probe.state == State::Waiting)
}
