//! The memory of a core dump: which pages are dumped, and their contents.
//!
//! | mapping | in the dump |
//! |---|---|
//! | private, without a file | its pages; between them zeros, or nothing where it is far to the next one |
//! | private, of a file | what the process has written: of data all pages in memory, of code the written ones; the first page of an ELF file |
//! | shared, of a file that has a name | nothing |
//! | shared, of memory or a removed file | its pages that the process has in its tables |
//! | vdso | all |
//! | devices, `MADV_DONTDUMP`, the slots | nothing |
//!
//! Debuggers read memory that is not dumped from the files in the NT_FILE note.

use std::ops::Range;

use elfcore::{CoreError, ReadProcessMemory, VaProtection, VaRegion};
use process::{Mapping, MappingWithFlags, Memory, Page, PageMap};

use super::moment::Origin;
use crate::change::{Change, LONGEST};
use crate::reason::NotDumped;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// A gap of absent pages up to this many bytes is dumped as zeros. Programs reserve terabytes.
const GAP: u64 = 64 << 20;
/// Regions of a core file, at most: the number of program headers that its header can count, less
/// one.
const REGIONS: usize = 0xfffd;

/// The memory of a process that is dumped.
#[derive(Debug)]
pub(super) struct Layout {
    /// The dumped ranges, by address.
    pub(super) regions: Vec<VaRegion>,
    /// Ranges that may contain absent pages, by address.
    pub(super) sparse: Vec<Range<u64>>,
    /// Bytes of private memory that the process has and its copy has not.
    pub(super) not_inherited: u64,
}

/// Decides which memory of a process is dumped, except the ranges `without`. `own` are the pages of
/// the process itself, `mappings` its mappings at the moment that is dumped.
///
/// # Errors
/// The process is gone, or it has too many mappings for a core file.
pub(super) fn layout(
    origin: &Origin,
    own: &PageMap,
    mappings: &[Mapping],
    without: &[Range<u64>],
) -> Result<Layout, NotDumped> {
    let marked = process::maps_with_flags(origin.tid).map_err(|error| NotDumped::Read(error.into()))?;
    let not_inherited = if origin.is_copy { not_inherited(mappings, &marked, without) } else { 0 };
    let mut layout = Layout { regions: Vec::new(), sparse: Vec::new(), not_inherited };
    for one in &marked {
        let mapping = &one.mapping;
        // A copy has the same shared memory, but not in its tables.
        let pages = if mapping.shared { own } else { &origin.pages };
        let pieces = pieces(one, &origin.memory, pages)?;
        for piece in subtract(pieces, without) {
            if is_anonymous(mapping) {
                layout.sparse.push(piece.clone());
            }
            layout.regions.push(region(mapping, piece));
        }
        if layout.regions.len() > REGIONS {
            return Err(NotDumped::TooManyMappings(REGIONS));
        }
    }
    Ok(layout)
}

/// Bytes of private memory in `mappings` that a copy with the mappings `marked` does not have:
/// MADV_DONTFORK, MADV_WIPEONFORK.
fn not_inherited(mappings: &[Mapping], marked: &[MappingWithFlags], without: &[Range<u64>]) -> u64 {
    let copied = marked.iter().filter(|one| !one.wiped || one.undumpable);
    let there: Vec<_> =
        copied.map(|one| one.mapping.start..one.mapping.end).chain(without.to_vec()).collect();
    let own = |mapping: &&Mapping| !mapping.shared && !is_of_kernel(mapping);
    let missing = |mapping: &Mapping| -> u64 {
        let whole = mapping.start..mapping.end;
        let near = there.iter().filter(|range| range.start < whole.end && whole.start < range.end);
        let near: Vec<_> = near.cloned().collect();
        subtract(vec![whole], &near).iter().map(|range| range.end - range.start).sum()
    };
    mappings.iter().filter(own).map(missing).sum()
}

/// Whether a mapping is the kernel's, and the same in all processes.
fn is_of_kernel(mapping: &Mapping) -> bool {
    mapping.label.as_deref().is_some_and(|label| label.starts_with("[v"))
}

/// A dumped range of a mapping, as `elfcore` takes it.
fn region(mapping: &Mapping, piece: Range<u64>) -> VaRegion {
    VaRegion {
        begin: piece.start,
        end: piece.end,
        offset: mapping.offset + (piece.start - mapping.start),
        protection: VaProtection {
            is_private: !mapping.shared,
            read: mapping.readable,
            write: mapping.writable,
            execute: mapping.executable,
        },
        mapped_file_name: None,
    }
}

/// Whether a mapping is private memory without a file, whose absent pages are zeros.
fn is_anonymous(mapping: &Mapping) -> bool {
    mapping.path.is_none() && !mapping.shared && mapping.label.as_deref() != Some("[vdso]")
}

/// The ranges of a mapping that are dumped.
fn pieces(marked: &MappingWithFlags, memory: &Memory, pages: &PageMap) -> Result<Vec<Range<u64>>, NotDumped> {
    let mapping = &marked.mapping;
    let all = mapping.start..mapping.end;
    match mapping.label.as_deref() {
        Some("[vdso]") => return Ok(vec![all]),
        // Of the kernel, and the same in every process.
        Some("[vsyscall]") => return Ok(Vec::new()),
        _ if marked.undumpable || (mapping.shared && !mapping.deleted) => return Ok(Vec::new()),
        _ => {}
    }
    let gap = if is_anonymous(mapping) { GAP } else { 0 };
    let of_file = !mapping.shared && !is_anonymous(mapping);
    let mut pieces: Vec<Range<u64>> = Vec::new();
    let mut written = false;
    let mut fits = true;
    let collected = pages.runs(all, |run| {
        written |= run.page == Page::Private;
        if run.page == Page::Absent || (of_file && mapping.executable && run.page == Page::Shared) {
            return;
        }
        if let Some(last) = pieces.last_mut()
            && run.addresses.start - last.end <= gap
        {
            last.end = run.addresses.end;
        } else if pieces.len() < REGIONS {
            pieces.push(run.addresses);
        } else {
            fits = false;
        }
    });
    collected.map_err(|cause| NotDumped::Pages(cause.into()))?;
    if !fits {
        return Err(NotDumped::TooManyMappings(REGIONS));
    }
    if of_file {
        if !written {
            pieces.clear();
        }
        let first_page = mapping.start..mapping.start + PAGE;
        if pieces.first().is_none_or(|piece| piece.start > mapping.start) && begins_elf(mapping, memory) {
            pieces.insert(0, first_page);
        }
    }
    Ok(pieces)
}

/// Whether a mapping begins with the header of an ELF file.
fn begins_elf(mapping: &Mapping, memory: &Memory) -> bool {
    let mut magic = [0; 4];
    mapping.offset == 0
        && mapping.readable
        && memory.peek(mapping.start, &mut magic).is_ok()
        && magic == *b"\x7fELF"
}

/// The ranges without the parts covered by `without`.
fn subtract(ranges: Vec<Range<u64>>, without: &[Range<u64>]) -> Vec<Range<u64>> {
    without.iter().fold(ranges, |ranges, hole| {
        let cut = |range: Range<u64>| {
            let before = range.start..range.end.min(hole.start);
            let after = range.start.max(hole.end)..range.end;
            [before, after].into_iter().filter(|part| !part.is_empty())
        };
        ranges.into_iter().flat_map(cut).collect()
    })
}

/// Reads the memory of a process as it is without probes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    memory: &'a Memory,
    pages: &'a PageMap,
    sparse: Vec<Range<u64>>,
    /// The changes made to its code, by address.
    changes: Vec<Change>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        memory: &'a Memory,
        pages: &'a PageMap,
        sparse: Vec<Range<u64>>,
        mut changes: Vec<Change>,
    ) -> Reader<'a> {
        changes.sort_unstable_by_key(Change::address);
        Reader { memory, pages, sparse, changes }
    }

    /// Reads what can be read; the rest is zeros.
    fn read(&self, address: u64, into: &mut [u8]) {
        if self.memory.peek(address, into).is_ok() {
            return;
        }
        let mut place = 0;
        while place < into.len() {
            let start = address + place as u64;
            let end = into.len().min(place + (PAGE - start % PAGE) as usize);
            if self.memory.peek(start, &mut into[place..end]).is_err() {
                into[place..end].fill(0);
            }
            place = end;
        }
    }

    /// Whether an address is in a range that may have absent pages.
    fn is_sparse(&self, address: u64) -> bool {
        let place = self.sparse.partition_point(|piece| piece.end <= address);
        self.sparse.get(place).is_some_and(|piece| piece.contains(&address))
    }

    /// Replaces bytes written for probes by the program's.
    fn restore(&self, address: u64, bytes: &mut [u8]) {
        let end = address + bytes.len() as u64;
        let first = self.changes.partition_point(|change| change.address() + (LONGEST as u64) <= address);
        for change in self.changes[first..].iter().take_while(|change| change.address() < end) {
            change.hide(address, bytes);
        }
    }
}

impl ReadProcessMemory for Reader<'_> {
    /// Always fills all of `into`, and never fails: the writer would replace a page by bytes of its
    /// own.
    fn read_process_memory(&mut self, base: usize, into: &mut [u8]) -> Result<usize, CoreError> {
        let start = base as u64;
        let end = start + into.len() as u64;
        into.fill(0);
        if self.is_sparse(start) {
            let aligned = start - start % PAGE..end.next_multiple_of(PAGE);
            // Fails only if the process is gone, which is checked at the end.
            let _ = self.pages.runs(aligned, |run| {
                let (from, to) = (run.addresses.start.max(start), run.addresses.end.min(end));
                if run.page != Page::Absent && from < to {
                    self.read(from, &mut into[(from - start) as usize..(to - start) as usize]);
                }
            });
        } else {
            self.read(start, into);
        }
        self.restore(start, into);
        Ok(into.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_cut_out() {
        assert_eq!(subtract(vec![1..5, 8..9], &[]), [1..5, 8..9]);
        assert_eq!(subtract(vec![1..10, 12..20], &[3..5, 9..13, 19..30]), [1..3, 5..9, 13..19]);
        assert_eq!(subtract(vec![4..6, 7..8], &[4..6, 7..8]), []);
    }

    /// Maps memory in which only some pages were touched.
    fn mapped(pages: u64, touched: &[u64]) -> u64 {
        // SAFETY: a fresh anonymous mapping, used by nobody else; the pages written are in it.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let length = (pages * PAGE) as usize;
            let start = libc::mmap(std::ptr::null_mut(), length, rights, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            libc::madvise(start, length, libc::MADV_NOHUGEPAGE);
            for page in touched {
                start.byte_add((page * PAGE) as usize).cast::<u64>().write_volatile(0xcc00 + page);
            }
            start as u64
        }
    }

    /// The dumped ranges of this process within a range.
    fn pieces_in(range: Range<u64>, without: &[Range<u64>]) -> Vec<Range<u64>> {
        let pid = std::process::id() as i32;
        let origin = Origin::of_thread(pid).expect("own memory");
        let layout = layout(&origin, &origin.pages, &[], without).expect("own memory");
        let all = layout.regions.iter().map(|region| region.begin..region.end);
        // The mapping may have been merged with its neighbours.
        all.filter(|piece| piece.start < range.end && range.start < piece.end)
            .map(|piece| piece.start.max(range.start)..piece.end.min(range.end))
            .collect()
    }

    #[test]
    fn reserved_memory_is_left_out_and_small_gaps_are_not() {
        let far = 10 * GAP / PAGE;
        let start = mapped(2 * far, &[far - 3, far, far + 1, 2 * far - 1]);
        let end = start + 2 * far * PAGE;
        let page = |number: u64| start + number * PAGE;
        let expected = [page(far - 3)..page(far + 2), page(2 * far - 1)..end];
        // Pages of merged neighbours may be near its ends.
        let inner: Vec<_> = pieces_in(page(1)..end, &[]);
        assert_eq!(inner, expected);
        let inner = pieces_in(page(1)..end, std::slice::from_ref(&(page(far)..page(far + 1))));
        assert_eq!(inner, [page(far - 3)..page(far), page(far + 1)..page(far + 2), page(2 * far - 1)..end]);
    }

    #[test]
    fn what_is_not_to_be_dumped_is_not() {
        let start = mapped(4, &[0, 1, 2, 3]);
        // SAFETY: the pages were mapped above, and no contents change.
        let done =
            unsafe { libc::madvise((start + PAGE) as *mut libc::c_void, PAGE as usize, libc::MADV_DONTDUMP) };
        assert_eq!(done, 0);
        let pieces = pieces_in(start..start + 4 * PAGE, &[]);
        assert_eq!(pieces, [start..start + PAGE, start + 2 * PAGE..start + 4 * PAGE]);
    }

    #[test]
    fn what_children_do_not_inherit_is_counted() {
        let mapping = |start, end| Mapping::anonymous(start * PAGE, end * PAGE, None);
        let marked = |start, end, wiped, undumpable| MappingWithFlags {
            mapping: mapping(start, end),
            undumpable,
            wiped,
        };
        let shared = Mapping { shared: true, ..mapping(30, 40) };
        let before = [mapping(1, 4), mapping(10, 20), mapping(20, 22), mapping(22, 24), shared];
        // The first is gone in part; the next is wiped; then one of ours, which nobody misses.
        let after = [
            marked(2, 4, false, false),
            marked(10, 20, false, false),
            marked(20, 22, true, false),
            marked(22, 24, true, true),
        ];
        assert_eq!(not_inherited(&before, &after, &[]), 3 * PAGE);
        assert_eq!(not_inherited(&before, &after, std::slice::from_ref(&(0..2 * PAGE))), 2 * PAGE);
    }

    #[test]
    fn own_code_is_not_in_it_but_the_header_is() {
        static DATA: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(7);
        DATA.store(8, std::sync::atomic::Ordering::Relaxed);
        let page_of = |address: u64| address / PAGE * PAGE..(address / PAGE + 1) * PAGE;
        let code = page_of(own_code_is_not_in_it_but_the_header_is as *const () as u64);
        assert_eq!(pieces_in(code, &[]), []);
        let data = page_of(&raw const DATA as u64);
        assert_eq!(pieces_in(data.clone(), &[]), [data]);
        let maps = process::maps(std::process::id() as i32).expect("own mappings");
        let own = std::env::current_exe().expect("the test has a file");
        let first = maps.iter().find(|mapping| mapping.path.as_ref() == Some(&own)).expect("it is mapped");
        let header = page_of(first.start);
        assert_eq!(pieces_in(header.clone(), &[]), [header]);
    }

    #[test]
    fn the_reader_restores_bytes_fills_holes_and_always_reads_all() {
        let pid = std::process::id() as i32;
        let (memory, pages) =
            (Memory::open(pid).expect("own memory"), PageMap::open(pid).expect("own pages"));
        let start = mapped(8, &[1, 2, 6]);
        let all = start..start + 8 * PAGE;
        // The second byte of each touched page is cc; that of page 6 was not probed.
        let places = [(2 * PAGE + 1, 0x22), (PAGE + 1, 0x11), (PAGE, 0x99)];
        let changes =
            places.map(|(place, original)| Change::new(start + place, &[original], &[0xcc])).to_vec();
        let mut reader = Reader::new(&memory, &pages, vec![all.clone()], changes);
        let mut bytes = vec![0xff; 8 * PAGE as usize];
        assert_eq!(
            reader.read_process_memory(start as usize, &mut bytes).expect("it never fails"),
            bytes.len()
        );
        let word = |page: u64| &bytes[(page * PAGE) as usize..][..3];
        assert_eq!([word(1), word(2), word(6)], [[1, 0x11, 0], [2, 0x22, 0], [6, 0xcc, 0]]);
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 6);
        let mut touched = 0;
        pages.runs(all, |run| touched += u32::from(run.page != Page::Absent)).expect("own pages");
        assert_eq!(touched, 2, "reading has made no page");
        // Nothing is mapped there.
        let mut bytes = [0xff; 5000];
        let mut reader = Reader::new(&memory, &pages, Vec::new(), Vec::new());
        assert_eq!(reader.read_process_memory(0, &mut bytes).expect("it never fails"), 5000);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
