//! The numbers by which programs in the kernel know probes, and count their hits.
//!
//! A probe's own number is its index in its program. A probe with points in several functions, or
//! at several tracepoints, has further numbers, one for each, so that hits are counted apart:
//!
//! ```text
//! probe     0  1  2            1 main   1 parse  ...
//! number    0  1  2  ...       3        4        ...    room
//! ```
//!
//! A probe whose hits are numbered one after another (`ignore`, `maxhits`), or that its handler may
//! remove, keeps one number for all.

use std::collections::HashMap;

use engine::PlaceReport;
use image::{Image, Pattern};
use rpn::{FunctionPoint, Location, Object, Probe};
use vm::Effects;

/// Numbers kept for functions that are found later.
const LATER: usize = 1024;

/// The numbers of one program.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Whether each probe may have numbers for functions.
    split: Vec<bool>,
    /// The probe and function of each number after the probes' own.
    functions: Vec<Function>,
    /// The numbers of functions: by probe, module and name.
    by_name: HashMap<(usize, String, String), u32>,
    /// How many numbers there are room for.
    room: usize,
}

/// A function with a number of its own.
#[derive(Debug)]
struct Function {
    probe: usize,
    module: String,
    name: String,
    /// The offset of its first site.
    first: u64,
    sites: usize,
}

impl Numbers {
    /// The numbers of a program, with room for the functions that its patterns match in these
    /// files, and some more.
    pub(super) fn new<'a>(object: &Object, files: impl Iterator<Item = &'a Image>) -> Numbers {
        let ends = vm::may(&object.code, object.word(), Effects::REMOVES.and(Effects::CALLS_FACILITY));
        let split: Vec<bool> = object
            .probes
            .iter()
            .map(|probe| {
                let is_points = match &probe.location {
                    Location::Points { .. } => true,
                    Location::Tracepoint { name, .. } => Pattern::is_one(name),
                    _ => false,
                };
                is_points && !ends && !engine::has_limits(probe)
            })
            .collect();
        let more = if split.contains(&true) {
            LATER + files.map(|file| matching(object, &split, file)).sum::<usize>()
        } else {
            0
        };
        let room = object.probes.len() + more;
        Numbers { split, functions: Vec::new(), by_name: HashMap::new(), room }
    }

    /// How many numbers there are room for.
    pub(super) fn capacity(&self) -> usize {
        self.room.max(1)
    }

    /// The number for a site: `offset` in the module of this name, in a function.
    pub(super) fn number(&mut self, probe: usize, module: &str, function: &str, offset: u64) -> u32 {
        if !self.split.get(probe).is_some_and(|split| *split) {
            return probe as u32;
        }
        let probes = self.split.len();
        let next = probes + self.functions.len();
        let key = (probe, module.to_owned(), function.to_owned());
        let number = match self.by_name.get(&key) {
            Some(number) => *number,
            // Without room, the probe's own number counts.
            None if next >= self.room => return probe as u32,
            None => {
                self.by_name.insert(key, next as u32);
                let (module, name) = (module.to_owned(), function.to_owned());
                self.functions.push(Function { probe, module, name, first: offset, sites: 0 });
                next as u32
            }
        };
        let function = &mut self.functions[number as usize - probes];
        function.sites += 1;
        function.first = function.first.min(offset);
        number
    }

    /// A site with this number was not attached.
    pub(super) fn leave_out(&mut self, number: u32) {
        let place = (number as usize).checked_sub(self.split.len());
        if let Some(function) = place.and_then(|place| self.functions.get_mut(place)) {
            function.sites = function.sites.saturating_sub(1);
        }
    }

    /// The probe of a number.
    pub(super) fn probe(&self, number: u32) -> Option<usize> {
        let number = number as usize;
        match number.checked_sub(self.split.len()) {
            None => Some(number),
            Some(place) => self.functions.get(place).map(|function| function.probe),
        }
    }

    /// All numbers of a probe.
    pub(super) fn all_of(&self, probe: usize) -> impl Iterator<Item = u32> {
        let functions = self.functions.iter().zip(self.split.len() as u32..);
        let own = functions.filter(move |(function, _)| function.probe == probe).map(|(_, number)| number);
        std::iter::once(probe as u32).chain(own)
    }

    /// Where a probe with points in functions was placed, the most hits first; `None` for other
    /// probes, and for those whose hits are not counted by function. `hits` are those of a number.
    pub(super) fn places(&self, probe: usize, hits: impl Fn(u32) -> u64) -> Option<Vec<PlaceReport>> {
        self.split.get(probe).filter(|split| **split)?;
        let functions = self.functions.iter().zip(self.split.len() as u32..);
        let mut found: Vec<(u64, PlaceReport)> = functions
            .filter(|(function, _)| function.probe == probe && function.sites > 0)
            .map(|(function, number)| {
                let Function { module, name, first, sites, .. } = function;
                let (module, function) = (module.clone(), name.clone());
                (*first, PlaceReport { module, function, sites: *sites, hits: hits(number) })
            })
            .collect();
        found.sort_by(|(first, one), (other_first, other)| {
            let order = other.hits.cmp(&one.hits).then_with(|| one.module.cmp(&other.module));
            order.then_with(|| first.cmp(other_first)).then_with(|| one.function.cmp(&other.function))
        });
        Some(found.into_iter().map(|(_, place)| place).collect())
    }
}

/// How many functions, or single instructions, of a file the split probes of a program may match.
fn matching(object: &Object, split: &[bool], file: &Image) -> usize {
    /// Numbers for a file, at most.
    const MOST: u64 = 1 << 16;
    let of = |definition: &Probe| {
        let Location::Points { function, point } = &definition.location else { return 0 };
        let named = file.select_named(function);
        let found = match Pattern::new(function) {
            Ok(pattern) if named.is_empty() => file.select_matching(&|name| pattern.matches(name)),
            _ => named,
        };
        match point {
            FunctionPoint::Each => {
                let bytes = |vaddr| file.function_at(vaddr).map_or(0, |function| function.size);
                found.iter().map(|selected| bytes(selected.vaddr)).sum::<u64>() / 2
            }
            _ => found.len() as u64,
        }
    };
    let all: u64 =
        object.probes.iter().zip(split).filter(|(_, split)| **split).map(|(probe, _)| of(probe)).sum();
    all.min(MOST) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Numbers {
        let object =
            rpn::compile_text("test.rpn", text, &rpn::Options::default()).expect("it compiles").object;
        Numbers::new(&object, std::iter::empty())
    }

    #[test]
    fn functions_are_counted_apart_and_sites_of_one_together() {
        let mut numbers = numbers(
            "name = a\noffset = f\nexit\noffset = \"*\":entry\nexit\noffset = \"g*\":return\nmaxhits = 5\nexit\n",
        );
        assert_eq!(numbers.capacity(), 3 + LATER);
        assert_eq!(numbers.number(0, "a", "", 0x10), 0);
        assert_eq!(numbers.number(1, "a", "f", 0x10), 3);
        assert_eq!(numbers.number(1, "a", "g", 0x30), 4);
        assert_eq!(numbers.number(1, "a", "g", 0x20), 4);
        assert_eq!(numbers.number(2, "a", "g", 0x20), 2);
        assert_eq!((numbers.probe(2), numbers.probe(4), numbers.probe(5)), (Some(2), Some(1), None));
        assert_eq!(numbers.all_of(1).collect::<Vec<_>>(), [1, 3, 4]);
        let places = numbers.places(1, |number| u64::from(number == 4)).expect("there are some");
        let shown: Vec<_> = places.iter().map(|it| (it.function.as_str(), it.sites, it.hits)).collect();
        assert_eq!(shown, [("g", 2, 1), ("f", 1, 0)]);
        numbers.leave_out(3);
        numbers.leave_out(0);
        let places = numbers.places(1, |_| 0).expect("there are some");
        assert_eq!(places.iter().map(|it| it.function.as_str()).collect::<Vec<_>>(), ["g"]);
        assert!(numbers.places(0, |_| 0).is_none() && numbers.places(2, |_| 0).is_none());
    }

    #[test]
    fn a_handler_that_removes_its_probe_removes_all_of_it() {
        let mut numbers = numbers("name = a\noffset = \"*\":entry\nremove\n");
        assert_eq!((numbers.capacity(), numbers.number(0, "a", "f", 0)), (1, 0));
    }

    #[test]
    fn without_room_the_probe_counts_itself() {
        let mut numbers = numbers("name = a\noffset = \"*\":entry\nexit\n");
        let last =
            (0..numbers.capacity() as u64 + 1).map(|it| numbers.number(0, "a", &it.to_string(), it)).last();
        assert_eq!(last, Some(0));
    }
}
