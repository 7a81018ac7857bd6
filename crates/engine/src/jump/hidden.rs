//! Writes the table of memory that handlers must not see ([`layout::hidden`]) into an address
//! space.
//!
//! It is mapped, readable and executable, in spaces whose handlers access memory. It is rewritten
//! before sites are written, after memory was mapped for probes, and some time after probes were
//! removed: for a while it may hide memory that is no longer ours, but it never shows memory that
//! is.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::time::{Duration, Instant};

use layout::PAGE;
use layout::hidden::{
    BEFORE_OURS, BELOW_STACK, BYTES, CLEAN_LEAF, INDEX, LEAF, LEAF_BITS, LEAF_COUNT, LEAVES, LIST,
    LIST_BYTES, LIST_SIZE, LISTS, Lists, MARK_OURS, PAGE_BITS, RANGES, SIZE, SUSPECT_LEAF,
};
use process::{Mapping, Memory};

use crate::module_key::Generation;

mod space;

mod spaces;

/// How much of a stack, from its end down, the table covers at most.
const STACK: u64 = 256 << 20;

/// The longest time until the tracer learns of a fork.
const RECENTLY: Duration = Duration::from_secs(10);
/// A value that is no mark: the memory's content is not known.
const UNKNOWN: u8 = 0xff;

/// The table of one address space.
#[derive(Clone, Debug)]
pub(crate) struct Hidden {
    base: u64,
    /// The leaves that were written, by number.
    leaves: BTreeMap<u64, Leaf>,
    version: u32,
    /// The generation of the sites that it shows.
    shows: Option<Generation>,
    /// Where the stack may grow.
    stack: Range<u64>,
    written: Instant,
}

#[derive(Clone, Debug)]
struct Leaf {
    /// Its offset from the start of the table.
    place: u64,
    marks: Vec<u8>,
}

/// What is to be hidden: our memory, and changed bytes of code (encoded by `changed_byte`).
#[derive(Debug, Default)]
struct HiddenRanges {
    ranges: Vec<Range<u64>>,
    bytes: Vec<u64>,
}

impl Hidden {
    /// The table that has just been mapped at an address, all zeros.
    pub(crate) fn new(base: u64, mappings: &[Mapping], stack_limit: u64) -> Hidden {
        let stack = mappings.iter().find(|mapping| mapping.label.as_deref() == Some("[stack]"));
        let stack = stack.map_or(0..0, |stack| {
            stack.end.saturating_sub(stack_limit.min(STACK)).min(stack.start)..stack.start
        });
        Hidden { base, leaves: BTreeMap::new(), version: 0, shows: None, stack, written: Instant::now() }
    }

    /// The table in a child, whose memory was copied perhaps while the table was being written.
    pub(crate) fn copy(&self) -> Hidden {
        let mut copy = self.clone();
        if self.written.elapsed() < RECENTLY {
            copy.leaves.values_mut().for_each(|leaf| leaf.marks.fill(UNKNOWN));
        }
        copy.shows = None;
        copy
    }

    pub(crate) fn mapped(&self) -> (u64, u64) {
        (self.base, SIZE)
    }

    /// Writes the table.
    fn write(&mut self, memory: &Memory, mut secret: HiddenRanges) -> io::Result<()> {
        secret.fit();
        self.write_marks(memory, &secret)?;
        let next = self.version.wrapping_add(1);
        let list = u64::from(next & 1);
        let place = self.base + LIST + list * LIST_SIZE;
        let ranges: Vec<u8> = secret
            .ranges
            .iter()
            .flat_map(|range| [range.start, range.end])
            .flat_map(u64::to_le_bytes)
            .collect();
        let bytes: Vec<u8> = secret.bytes.iter().flat_map(|byte| byte.to_le_bytes()).collect();
        memory.poke(place, &ranges)?;
        memory.poke(place + LIST_BYTES, &bytes)?;
        let field =
            |offset: usize, value: u32| memory.poke(self.base + LISTS + offset as u64, &value.to_le_bytes());
        let of_list = size_of::<u32>() * list as usize;
        field(offset_of!(Lists, ranges) + of_list, secret.ranges.len() as u32)?;
        field(offset_of!(Lists, bytes) + of_list, secret.bytes.len() as u32)?;
        if self.version == 0 {
            let stack: Vec<u8> =
                [self.stack.start, self.stack.end].into_iter().flat_map(u64::to_le_bytes).collect();
            memory.poke(self.base + LISTS + offset_of!(Lists, stack) as u64, &stack)?;
        }
        // A handler that reads the old list sees by the version that it is no longer valid.
        field(offset_of!(Lists, version), next)?;
        self.version = next;
        self.written = Instant::now();
        Ok(())
    }

    /// Writes the pages of marks that have changed.
    fn write_marks(&mut self, memory: &Memory, secret: &HiddenRanges) -> io::Result<()> {
        let marks = secret.marks(&self.stack);
        let numbers: BTreeSet<u64> = self.leaves.keys().chain(marks.keys()).copied().collect();
        for number in numbers {
            let clean = || vec![0; LEAF as usize];
            let wanted = marks.get(&number).cloned().unwrap_or_else(clean);
            let used = self.leaves.len() as u64;
            let is_new = !self.leaves.contains_key(&number);
            let offset = |place: u64| ((place - CLEAN_LEAF) as u32).to_le_bytes();
            let entry = self.base + number * size_of::<u32>() as u64;
            if is_new && used >= LEAF_COUNT {
                // No leaf is left: every access there is looked up.
                memory.poke(self.base + SUSPECT_LEAF, &[MARK_OURS; LEAF as usize])?;
                memory.poke(entry, &offset(SUSPECT_LEAF))?;
                continue;
            }
            let leaf = self
                .leaves
                .entry(number)
                .or_insert_with(|| Leaf { place: LEAVES + used * LEAF, marks: clean() });
            for (page, (new, old)) in
                wanted.chunks(PAGE as usize).zip(leaf.marks.chunks_mut(PAGE as usize)).enumerate()
            {
                if new != old {
                    memory.poke(self.base + leaf.place + page as u64 * PAGE, new)?;
                    old.copy_from_slice(new);
                }
            }
            if is_new {
                memory.poke(entry, &offset(leaf.place))?;
            }
        }
        Ok(())
    }
}

impl HiddenRanges {
    /// Sorts ranges and bytes, and coarsens them where there are more than fit.
    fn fit(&mut self) {
        self.bytes.sort_unstable();
        self.bytes.dedup();
        // Instead of bytes that do not fit, their addresses are hidden as ranges.
        let more = self.bytes.split_off(self.bytes.len().min(BYTES as usize));
        self.ranges.extend(more.into_iter().map(|byte| byte >> 16..(byte >> 16) + 1));
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges = joined(&self.ranges, 0);
        let mut apart = PAGE;
        while self.ranges.len() > RANGES as usize {
            self.ranges = joined(&self.ranges, apart);
            apart *= 2;
        }
    }

    /// The marks of all pages that have one, by leaf.
    fn marks(&self, stack: &Range<u64>) -> BTreeMap<u64, Vec<u8>> {
        let mut leaves: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut mark = |pages: Range<u64>, mark: u8| {
            for page in pages {
                let number = page >> (LEAF_BITS - PAGE_BITS) & u64::from(INDEX);
                let leaf = leaves.entry(number).or_insert_with(|| vec![0; LEAF as usize]);
                leaf[(page & u64::from(INDEX)) as usize] |= mark;
            }
        };
        let pages = |range: &Range<u64>| range.start >> PAGE_BITS..(range.end + PAGE - 1) >> PAGE_BITS;
        for range in &self.ranges {
            let pages = pages(range);
            mark(pages.start.saturating_sub(1)..pages.start, BEFORE_OURS);
            mark(pages, MARK_OURS);
        }
        let mut last = None;
        for page in self.bytes.iter().map(|byte| byte >> (16 + PAGE_BITS)) {
            if last != Some(page) {
                mark(page.saturating_sub(1)..page, BEFORE_OURS);
                mark(page..page + 1, MARK_OURS);
                last = Some(page);
            }
        }
        mark(pages(stack), BELOW_STACK);
        leaves
    }
}

/// Joins sorted ranges that are at most `apart` bytes apart.
fn joined(ranges: &[Range<u64>], apart: u64) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(apart) => last.end = last.end.max(range.end),
            _ => joined.push(range.clone()),
        }
    }
    joined
}
