//! Finds the addresses where an instruction certainly starts, from which disassembly may begin.

use std::ops::Range;

use super::dynamic::Dynamic;
use super::functions::{FunctionKind, Symbols};
use super::headers::{Headers, Machine, Section};

/// Bytes of an entry of i386's procedure linkage table (System V ABI, Intel386 supplement,
/// "Procedure Linkage Table").
const PLT_ENTRY: usize = 16;
/// The most entries that are read; a program has some thousand.
const PLT_ENTRIES: usize = 1 << 16;

/// An address from which to disassemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) vaddr: u64,
    /// Whether control provably reaches it: a function's symbol, an unwinding entry, the entry
    /// point, the start of a code section. False for the end of data among code.
    pub(crate) proven: bool,
    /// The end of the code that it claims: the end of the function, or without a size everything up
    /// to the next start.
    pub(crate) claimed: u64,
}

/// A range that contains code: a section, or a segment if the file has no sections.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pub(crate) range: Range<u64>,
    pub(crate) name: String,
}

/// All starts of one image.
#[derive(Debug)]
pub(crate) struct Starts {
    /// By address, one for each address.
    pub(crate) starts: Vec<Start>,
    /// Addresses of labels without a type.
    pub(crate) labels: Vec<u64>,
    /// By address.
    pub(crate) areas: Vec<Area>,
    /// Data among code, by address.
    pub(crate) data: Vec<(String, Range<u64>)>,
}

impl Starts {
    pub(crate) fn collect(
        headers: &Headers,
        dynamic: &Dynamic,
        symbols: &Symbols,
        frames: &[Range<u64>],
    ) -> Starts {
        let mut starts = Vec::new();
        let mut labels = Vec::new();
        let mut add = |vaddr, claimed, proven| starts.push(Start { vaddr, proven, claimed });

        for function in &symbols.functions {
            match function.kind {
                FunctionKind::Label => labels.push(function.vaddr),
                _ if function.size == 0 => add(function.vaddr, u64::MAX, true),
                _ => add(function.vaddr, function.vaddr + function.size, true),
            }
        }
        for frame in frames.iter().filter(|frame| headers.is_executable(frame.start)) {
            add(frame.start, frame.end, true);
        }
        for vaddr in [Some(headers.entry), dynamic.init, dynamic.fini].into_iter().flatten() {
            if headers.is_executable(vaddr) {
                add(vaddr, vaddr, true);
            }
        }
        // The first entry of i386's `.plt` ends in four zero bytes, so without this the entries
        // after it would look like data.
        if headers.machine == Machine::I386
            && let Some(plt) = headers.section(".plt")
        {
            for entry in (0..plt.size).step_by(PLT_ENTRY).take(PLT_ENTRIES) {
                let vaddr = plt.vaddr.saturating_add(entry);
                if headers.is_executable(vaddr) {
                    add(vaddr, vaddr.saturating_add(PLT_ENTRY as u64), true);
                }
            }
        }
        let areas = areas(headers);
        let covered = |area: &Area| {
            let first = frames.partition_point(|frame| frame.start < area.range.start);
            frames.get(first).is_some_and(|frame| frame.start < area.range.end)
        };
        for area in areas.iter().filter(|_| !headers.sections.is_empty()) {
            // If no unwinding entry covers anything in a section (`.init`, a linker's `.plt`, Go's
            // `.text`), the section itself counts as claiming its contents to be code.
            add(area.range.start, if covered(area) { area.range.start } else { u64::MAX }, true);
        }
        let starts = merge(starts);
        let mut found = Starts { starts, labels, areas, data: Vec::new() };
        found.add_data(symbols, frames);
        found.labels.sort_unstable();
        found.labels.dedup();
        found
    }

    /// Adds data among code: it ends a stretch of instructions, and after it another begins.
    fn add_data(&mut self, symbols: &Symbols, frames: &[Range<u64>]) {
        let mut ends = Vec::new();
        for (name, range) in &symbols.data {
            let is_start = |vaddr: u64| self.starts.binary_search_by_key(&vaddr, |start| start.vaddr).is_ok();
            // An address that is also a function's is code, whatever a second symbol says.
            let is_code = is_start(range.start)
                && (symbols.functions.binary_search_by_key(&range.start, |function| function.vaddr).is_ok()
                    || frames.binary_search_by_key(&range.start, |frame| frame.start).is_ok());
            if is_code {
                continue;
            }
            let end = match range.is_empty() {
                false => range.end,
                // Without a size: up to the next known start.
                true => {
                    let next = self.starts.partition_point(|start| start.vaddr <= range.start);
                    let next = self.starts.get(next).map(|start| start.vaddr);
                    let area = self.area(range.start).map(|area| area.range.end);
                    next.into_iter().chain(area).min().unwrap_or(range.start)
                }
            };
            ends.push(Start { vaddr: end, proven: false, claimed: end });
            self.data.push((name.clone(), range.start..end));
        }
        let mut starts = std::mem::take(&mut self.starts);
        starts.extend(ends);
        self.starts = merge(starts);
    }

    /// The area that contains an address.
    pub(crate) fn area(&self, vaddr: u64) -> Option<&Area> {
        let index = self.areas.partition_point(|area| area.range.start <= vaddr).checked_sub(1)?;
        self.areas.get(index).filter(|area| area.range.contains(&vaddr))
    }

    /// The name of the data among code that contains an address.
    pub(crate) fn data_at(&self, vaddr: u64) -> Option<&str> {
        let index = self.data.partition_point(|(_, range)| range.start <= vaddr).checked_sub(1)?;
        self.data.get(index).filter(|(_, range)| range.contains(&vaddr)).map(|(name, _)| name.as_str())
    }

    /// The last start at or before an address, and the end of its stretch: the next start, data, or
    /// the end of the area. `area` must contain the address.
    pub(crate) fn stretch(&self, vaddr: u64, area: &Area) -> Option<(Start, u64)> {
        let next = self.starts.partition_point(|start| start.vaddr <= vaddr);
        let start = *self.starts[..next].last().filter(|start| area.range.contains(&start.vaddr))?;
        let mut end = area.range.end;
        if let Some(next) = self.starts.get(next) {
            end = end.min(next.vaddr);
        }
        if let Some((_, data)) = self.data.get(self.data.partition_point(|(_, data)| data.start <= vaddr)) {
            end = end.min(data.start);
        }
        Some((start, end))
    }

    /// The labels in a range.
    pub(crate) fn labels_in(&self, range: Range<u64>) -> &[u64] {
        let from = self.labels.partition_point(|label| *label < range.start);
        let to = self.labels.partition_point(|label| *label < range.end);
        &self.labels[from..to]
    }
}

/// Merges the starts at each address into one with the strongest claims.
fn merge(mut starts: Vec<Start>) -> Vec<Start> {
    starts.sort_unstable_by_key(|start| start.vaddr);
    starts.dedup_by(|next, kept| {
        let same = next.vaddr == kept.vaddr;
        if same {
            kept.proven |= next.proven;
            kept.claimed = kept.claimed.max(next.claimed);
        }
        same
    });
    starts
}

fn areas(headers: &Headers) -> Vec<Area> {
    let is_code = |section: &&Section| {
        section.executable && section.allocated && section.kind != object::elf::SHT_NOBITS
    };
    let mut areas: Vec<Area> = if headers.sections.is_empty() {
        let of = |segment: &super::headers::Segment| Area {
            range: segment.vaddr..segment.file_end(),
            name: "the executable segment".to_owned(),
        };
        headers.executable_segments().map(of).collect()
    } else {
        let of = |section: &Section| Area {
            range: section.vaddr..section.vaddr.saturating_add(section.size),
            name: section.name.clone(),
        };
        headers.sections.iter().filter(is_code).map(of).collect()
    };
    areas.retain(|area| !area.range.is_empty() && headers.is_executable(area.range.start));
    areas.sort_by_key(|area| area.range.start);
    areas
}
