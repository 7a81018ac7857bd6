//! What a trace says about the places that its records come from.

use trace::Items;
use trace::store::{Gap, Info, Site, Variables, point_name};

use crate::map::Map;

/// Most places remembered. Others are looked up each time.
const MAX_PLACES: usize = 1 << 16;

/// Whether a probe is at a function's entry, at a return, or elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first instruction of a function.
    Entry,
    /// An instruction that leaves a function.
    Return,
    /// Any other instruction.
    Inside,
}

/// Where a record comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSite {
    /// Its number, from 0 without gaps; `None` if there are too many sites.
    pub number: Option<u32>,
    /// The program's number.
    pub program: u32,
    /// The probe's number in the program.
    pub probe: u32,
    /// The module as the program names it; empty if lost.
    pub module: String,
    /// The probepoint as the program writes it; empty if lost.
    pub point: String,
    /// The function and the offset in it; empty if unknown.
    pub symbol: String,
    /// The number of the function among those that are probed at both an entry and a return
    /// ([`TraceFacts::function_names`]).
    pub function: Option<u32>,
    /// Whether it is at the function's entry, at a return, or elsewhere.
    pub side: Side,
    /// The header items that the record has.
    pub items: Items,
}

impl ProbeSite {
    /// The shortest name of the place: the symbol, else the probepoint.
    pub fn name(&self) -> &str {
        match (self.symbol.is_empty(), self.point.is_empty()) {
            (false, _) => &self.symbol,
            (true, false) => &self.point,
            (true, true) => "?",
        }
    }

    /// The name of the place without a distance in its function.
    pub fn function_name(&self) -> &str {
        function(self.name()).0
    }

    /// The module and the probepoint.
    pub fn probe_name(&self) -> String {
        point_name(&self.module, &self.point)
    }
}

/// A site: its symbol, its side of the function, and the function's number.
type Where = (String, Side, Option<u32>);

/// A program of the trace.
#[derive(Clone, Debug)]
struct Program {
    major: u32,
    name: String,
    module: String,
    items: Items,
}

/// The facts of a trace, prepared for lookups. It has this many fields since
/// each lookup has a table of its own.
#[derive(Clone, Debug, Default)]
pub struct TraceFacts {
    programs: Map<u32, Program>,
    points: Map<(u32, u32), String>,
    codes: Vec<(u32, u32, u32)>,
    sites: Map<(u32, u32, u64), Where>,
    /// The only function that a probe has sites in.
    only: Map<(u32, u32), Option<Where>>,
    functions: Vec<String>,
    /// The numbers of functions, by module and name.
    numbered: Map<(u32, String), u32>,
    /// The start of the trace: nanoseconds since 1970.
    pub start: u64,
    /// Offset from CLOCK_MONOTONIC to the times of records.
    pub monotonic: i64,
    /// The least and the greatest time of a record.
    pub times: Option<(u64, u64)>,
    /// How much earlier a record may be than one before it in the store, in nanoseconds.
    pub disorder: u64,
    /// The time ranges in which records were lost.
    pub gaps: Vec<Gap>,
    /// The last known names of processes, that is, of their first threads.
    pub processes: Map<u32, String>,
    /// The variables at the end.
    pub variables: Vec<Variables>,
    places: Vec<ProbeSite>,
    numbers: Map<(u32, u32, u64), u32>,
    last: Option<((u32, u32, u64), u32)>,
    /// The site of the last record whose site could not be remembered.
    other: Option<Box<ProbeSite>>,
}

impl TraceFacts {
    /// Prepares the facts of a store.
    pub fn new(info: &Info) -> TraceFacts {
        TraceFacts::default().again(info)
    }

    /// The same when more has become known: functions keep their numbers.
    pub(crate) fn again(self, info: &Info) -> TraceFacts {
        let mut known = TraceFacts {
            functions: self.functions,
            numbered: self.numbered,
            start: info.about.start,
            monotonic: info.about.monotonic,
            times: info.times,
            disorder: info.disorder,
            gaps: info.gaps(),
            variables: info.variables.clone(),
            ..TraceFacts::default()
        };
        for thread in info.threads.iter().filter(|thread| thread.tid == thread.pid) {
            known.processes.insert(thread.pid, thread.name.clone());
        }
        for program in &info.programs {
            known.programs.entry(program.number).or_insert_with(|| Program {
                major: program.major,
                name: program.name.clone(),
                module: program.module.clone(),
                items: program.items,
            });
        }
        for probe in &info.probes {
            known.points.insert((probe.program, probe.number), probe.point.clone());
            if let Some(program) = known.programs.get(&probe.program) {
                known.codes.push((probe.program, program.major, probe.minor));
            }
        }
        known.codes.sort_unstable();
        known.codes.dedup();
        known.functions(&info.sites);
        known
    }

    /// Finds the functions that are probed at both ends, and adds the sites.
    fn functions(&mut self, sites: &[Site]) {
        let mut ends: Map<(u32, &str), (bool, bool)> = Map::default();
        let sides: Vec<Side> = sites
            .iter()
            .map(|site| side(self.points.get(&(site.program, site.probe)).map_or("", String::as_str), site))
            .collect();
        for (site, side) in sites.iter().zip(&sides) {
            let (entry, leaving) = ends.entry((site.module, function(&site.symbol).0)).or_default();
            *entry |= *side == Side::Entry;
            *leaving |= *side == Side::Return;
        }
        for (site, side) in sites.iter().zip(sides) {
            let name = function(&site.symbol).0;
            let key = (site.module, name);
            let is_paired = !name.is_empty() && ends.get(&key) == Some(&(true, true));
            let number = (is_paired && side != Side::Inside).then(|| {
                *self.numbered.entry((site.module, name.to_owned())).or_insert_with(|| {
                    self.functions.push(name.to_owned());
                    self.functions.len() as u32 - 1
                })
            });
            let found: Where = (site.symbol.clone(), side, number);
            let only = self.only.entry((site.program, site.probe)).or_insert_with(|| Some(found.clone()));
            // Several sites of one function count as one place, without the offset in it.
            if let Some((symbol, own, function)) = only {
                match (*own, *function) == (side, number) && self::function(symbol).0 == name {
                    true if *symbol != site.symbol => *symbol = name.to_owned(),
                    true => {}
                    false => *only = None,
                }
            }
            // A later mapping replaces an earlier one.
            self.sites.insert((site.program, site.probe, site.address), found);
        }
    }

    /// The names of functions that are probed at both an entry and a return, by number.
    pub fn function_names(&self) -> &[String] {
        &self.functions
    }

    /// The programs, each with the major and minor codes of its records.
    pub fn codes(&self) -> &[(u32, u32, u32)] {
        &self.codes
    }

    /// The name of a program.
    pub fn program(&self, number: u32) -> Option<&str> {
        self.programs.get(&number).map(|program| program.name.as_str())
    }

    /// The sites met so far, by number.
    pub fn places(&self) -> &[ProbeSite] {
        &self.places
    }

    /// The site of a record.
    pub fn site(&mut self, program: u32, probe: u32, address: u64) -> &ProbeSite {
        let key = (program, probe, address);
        if let Some((_, number)) = self.last.filter(|(last, _)| *last == key) {
            return &self.places[number as usize];
        }
        let number = match self.numbers.get(&key) {
            Some(&number) => number,
            None if self.places.len() >= MAX_PLACES => {
                return self.other.insert(Box::new(self.find(key, None)));
            }
            None => {
                let number = self.places.len() as u32;
                self.places.push(self.find(key, Some(number)));
                self.numbers.insert(key, number);
                number
            }
        };
        self.last = Some((key, number));
        &self.places[number as usize]
    }

    fn find(&self, key: (u32, u32, u64), number: Option<u32>) -> ProbeSite {
        let (program, probe, _) = key;
        let about = self.programs.get(&program);
        let found = self.sites.get(&key).or_else(|| self.only.get(&(program, probe))?.as_ref());
        let (symbol, side, function) = found.cloned().unwrap_or((String::new(), Side::Inside, None));
        ProbeSite {
            number,
            program,
            probe,
            module: about.map(|about| about.module.clone()).unwrap_or_default(),
            point: self.points.get(&(program, probe)).cloned().unwrap_or_default(),
            symbol,
            function,
            side,
            // For a lost program, all items are taken as present.
            items: about.map_or(Items::ALL, |about| about.items),
        }
    }
}

/// The function of a symbol, and whether the symbol is its start: `main+0x4` is `main`.
fn function(symbol: &str) -> (&str, bool) {
    match symbol.rsplit_once("+0x") {
        Some((name, distance)) if u64::from_str_radix(distance, 16).is_ok() => (name, false),
        _ => (symbol, true),
    }
}

/// Which side of its function a site is at. It is a return if the probepoint asks for returns, an
/// entry if it is the function's start.
fn side(point: &str, site: &Site) -> Side {
    let kind = point.rsplit_once(':').map_or("", |(_, kind)| kind.trim());
    match (kind, function(&site.symbol)) {
        (kind, _) if kind.eq_ignore_ascii_case("return") => Side::Return,
        // Such a probepoint covers every instruction, of which one is the first.
        ("*", _) | (_, ("", _)) => Side::Inside,
        (_, (_, true)) => Side::Entry,
        _ => Side::Inside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::store::{Probe, Program};

    fn site(probe: u32, address: u64, symbol: &str) -> Site {
        Site { probe, address, symbol: symbol.to_owned(), ..Site::default() }
    }

    fn info() -> Info {
        let mut info = Info::default();
        info.programs.push(Program { module: "a.out".to_owned(), items: Items::ALL, ..Program::default() });
        for (number, point) in ["f:entry", "f:return", "g:entry", "f:*"].into_iter().enumerate() {
            info.probes.push(Probe { number: number as u32, point: point.to_owned(), ..Probe::default() });
        }
        info.sites = vec![
            site(0, 0x10, "f"),
            site(1, 0x14, "f+0x4"),
            site(1, 0x18, "f+0x8"),
            site(2, 0x20, "g"),
            site(3, 0x10, "f"),
        ];
        info
    }

    #[test]
    fn a_function_has_a_number_if_both_its_ends_are_probed() {
        let mut known = TraceFacts::new(&info());
        assert_eq!(known.function_names(), ["f"]);
        let entry = known.site(0, 0, 0x10).clone();
        assert_eq!((entry.side, entry.function, entry.number), (Side::Entry, Some(0), Some(0)));
        let end = known.site(0, 1, 0x18).clone();
        assert_eq!((end.side, end.function, end.symbol.as_str()), (Side::Return, Some(0), "f+0x8"));
        assert_eq!(known.site(0, 2, 0x20).function, None, "g has no return");
        assert_eq!(known.site(0, 3, 0x10).side, Side::Inside, "every instruction");
        assert_eq!(known.site(0, 0, 0x10), &entry);
    }

    #[test]
    fn without_an_address_the_only_function_of_a_probe_is_meant() {
        let mut known = TraceFacts::new(&info());
        let end = known.site(0, 1, 0);
        assert_eq!((end.side, end.function, end.symbol.as_str()), (Side::Return, Some(0), "f"));
        assert_eq!(known.site(7, 7, 7).name(), "?");
        assert_eq!(known.site(7, 7, 7).probe_name(), "?:");
    }

    #[test]
    fn names_with_signs_are_no_distances() {
        assert_eq!(function("operator+"), ("operator+", true));
        assert_eq!(function("operator++0x4"), ("operator+", false));
        assert_eq!(function("f+0xg"), ("f+0xg", true));
    }
}
