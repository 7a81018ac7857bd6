//! Finds facts by their numbers.

use std::collections::HashMap;

use super::facts::{Counts, Module, Probe, Program, Source};
use super::info::Info;

/// The module of an unknown program.
const UNKNOWN: &str = "?";

/// The name of a point, `MODULE:POINT`, as it is shown everywhere. An empty module is shown as `?`:
/// its program is unknown.
pub fn point_name(module: &str, point: &str) -> String {
    format!("{}:{point}", if module.is_empty() { UNKNOWN } else { module })
}

/// Maps of a store's facts by their numbers; of several facts with one number, the first counts. It
/// is built in one pass, and a lookup takes constant time, since a store may hold hundreds of
/// thousands of facts.
#[derive(Clone, Debug, Default)]
pub struct Lookup<'a> {
    programs: HashMap<u32, &'a Program>,
    probes: HashMap<(u32, u32), &'a Probe>,
    modules: HashMap<u32, &'a Module>,
    sources: HashMap<(u32, u64), &'a Source>,
    counts: HashMap<(u32, u32), &'a Counts>,
}

impl<'a> Lookup<'a> {
    /// Indexes the facts of a store.
    pub fn new(info: &'a Info) -> Lookup<'a> {
        // Later entries replace earlier ones, so reversed order keeps the first.
        Lookup {
            programs: info.programs.iter().rev().map(|program| (program.number, program)).collect(),
            probes: info.probes.iter().rev().map(|probe| ((probe.program, probe.number), probe)).collect(),
            modules: info.modules.iter().rev().map(|module| (module.number, module)).collect(),
            sources: info
                .sources
                .iter()
                .rev()
                .map(|source| ((source.module, source.offset), source))
                .collect(),
            counts: info.counts.iter().rev().map(|counts| ((counts.program, counts.probe), counts)).collect(),
        }
    }

    /// A program by its number.
    pub fn program(&self, number: u32) -> Option<&'a Program> {
        self.programs.get(&number).copied()
    }

    /// The module of a program, as written in it; `?` if the program is unknown.
    pub fn module_of(&self, program: u32) -> &'a str {
        self.program(program).map_or(UNKNOWN, |program| program.module.as_str())
    }

    /// A probe by the numbers of its program and its own.
    pub fn probe(&self, program: u32, number: u32) -> Option<&'a Probe> {
        self.probes.get(&(program, number)).copied()
    }

    /// The name of a probe, `MODULE:POINT`.
    pub fn probe_name(&self, probe: &Probe) -> String {
        point_name(self.module_of(probe.program), &probe.point)
    }

    /// A module by its number.
    pub fn module(&self, number: u32) -> Option<&'a Module> {
        self.modules.get(&number).copied()
    }

    /// The source line of an instruction, by module and file offset.
    pub fn source(&self, module: u32, offset: u64) -> Option<&'a Source> {
        self.sources.get(&(module, offset)).copied()
    }

    /// The final counts of a probe, by the numbers of its program and its own.
    pub fn counts(&self, program: u32, probe: u32) -> Option<&'a Counts> {
        self.counts.get(&(program, probe)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_first_of_a_number_is_meant() {
        let mut info = Info::default();
        for (number, module) in [(1, "one"), (2, "two"), (1, "again")] {
            info.programs.push(Program { number, module: module.to_owned(), ..Program::default() });
        }
        let probe = Probe { program: 1, number: 7, point: "f".to_owned(), ..Probe::default() };
        info.probes.push(probe.clone());
        let lookup = Lookup::new(&info);
        assert_eq!((lookup.module_of(1), lookup.module_of(2), lookup.module_of(3)), ("one", "two", "?"));
        assert_eq!((lookup.probe(1, 7), lookup.probe(2, 7)), (Some(&probe), None));
        assert_eq!(lookup.probe_name(&probe), "one:f");
        assert_eq!(lookup.probe_name(&Probe { program: 3, ..probe.clone() }), "?:f");
        assert_eq!(point_name("", "f"), "?:f");
    }

    #[test]
    fn many_are_found_as_fast_as_few() {
        let mut info = Info::default();
        for number in 0..200_000 {
            info.programs.push(Program { number, ..Program::default() });
            info.probes.push(Probe { program: number, number, ..Probe::default() });
        }
        let start = Instant::now();
        let lookup = Lookup::new(&info);
        assert!(info.probes.iter().all(|probe| lookup.probe_name(probe) == "?:"));
        // Searching them all for each takes a minute.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
