//! Which pages a process has, from `/proc/PID/pagemap`: one word for each page of its address
//! space.
//!
//! ```text
//! bit 63  the page is in memory
//! bit 62  it is in swap
//! bit 61  it belongs to a file, or to memory that is shared
//! ```
//!
//! Looking here before reading memory avoids allocating pages that the process never had, and
//! waiting for a page that the process itself would have to provide.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::Error;

/// Bytes of a page on x86-64, the smallest kind.
const PAGE: u64 = 4096;
/// Bytes of an entry.
const ENTRY: usize = 8;
/// Entries that are read in one call.
const CHUNK: usize = 1 << 14;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const SHARED: u64 = 1 << 61;

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The process has not touched it, or the kernel has reclaimed it: it is all zeros, or as in
    /// its file.
    Absent,
    /// A file's page, or one shared with other processes.
    Shared,
    /// The process's own: anonymous memory, or its own copy of a file's page.
    Private,
}

/// Adjacent pages of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Their addresses.
    pub addresses: Range<u64>,
    /// Their kind.
    pub page: Page,
}

/// The page map of a process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
}

impl PageMap {
    /// Opens the page map of a thread's process.
    ///
    /// # Errors
    /// The process is gone, belongs to another user, or the kernel has no page maps.
    pub fn open(tid: i32) -> Result<PageMap, Error> {
        let path = format!("/proc/{tid}/pagemap");
        let file = File::open(&path).map_err(|cause| Error::Proc { path, cause })?;
        Ok(PageMap { file })
    }

    /// Passes the pages of `addresses`, which are whole pages, to `each`, run by run. Adjacent runs
    /// may be of the same kind.
    ///
    /// # Errors
    /// The process is gone.
    pub fn runs(&self, addresses: Range<u64>, mut each: impl FnMut(Run)) -> io::Result<()> {
        let mut bytes = [0; ENTRY * 64];
        let mut large = Vec::new();
        let mut start = addresses.start;
        while start < addresses.end {
            let pages = usize::try_from((addresses.end - start).div_ceil(PAGE)).unwrap_or(usize::MAX);
            let wanted = pages.min(CHUNK) * ENTRY;
            let buffer = match bytes.get_mut(..wanted) {
                Some(buffer) => buffer,
                None => {
                    large.resize(wanted, 0);
                    &mut large[..]
                }
            };
            self.file.read_exact_at(buffer, start / PAGE * ENTRY as u64)?;
            start = split(buffer, start, &mut each);
        }
        Ok(())
    }
}

/// Splits a piece of the page map, whose first entry is the page at `start`, into runs. Returns the
/// address after them.
fn split(entries: &[u8], start: u64, each: &mut impl FnMut(Run)) -> u64 {
    let mut current: Option<Run> = None;
    let mut address = start;
    for entry in entries.as_chunks::<ENTRY>().0 {
        let page = kind(u64::from_le_bytes(*entry));
        let next = address + PAGE;
        match &mut current {
            Some(run) if run.page == page => run.addresses.end = next,
            _ => {
                if let Some(run) = current.replace(Run { addresses: address..next, page }) {
                    each(run);
                }
            }
        }
        address = next;
    }
    if let Some(run) = current {
        each(run);
    }
    address
}

/// The kind of page that an entry describes.
fn kind(entry: u64) -> Page {
    if entry & (PRESENT | SWAPPED) == 0 {
        Page::Absent
    } else if entry & SHARED != 0 {
        Page::Shared
    } else {
        Page::Private
    }
}

#[cfg(test)]
mod tests {
    use memmap2::{Advice, MmapOptions};

    use super::*;

    #[test]
    fn entries_of_one_kind_are_one_run() {
        let entries = [PRESENT, SWAPPED | 5, 0, PRESENT | SHARED | 1, PRESENT | SHARED, 0x1ff];
        let bytes: Vec<u8> = entries.iter().flat_map(|entry: &u64| entry.to_le_bytes()).collect();
        let mut runs = Vec::new();
        assert_eq!(split(&bytes, 0x1000, &mut |run| runs.push((run.addresses, run.page))), 0x7000);
        let expected = [
            (0x1000..0x3000, Page::Private),
            (0x3000..0x4000, Page::Absent),
            (0x4000..0x6000, Page::Shared),
            (0x6000..0x7000, Page::Absent),
        ];
        assert_eq!(runs, expected);
    }

    #[test]
    fn only_touched_pages_of_new_memory_are_there() {
        /// More pages than are read in one call.
        const PAGES: usize = CHUNK + 100;
        let mut memory =
            MmapOptions::new().len(PAGES * PAGE as usize).no_reserve_swap().map_anon().expect("memory");
        // It fails on a kernel without huge pages.
        let _ = memory.advise(Advice::NoHugePage);
        memory[(CHUNK + 7) * PAGE as usize] = 1;
        let start = memory.as_ptr() as u64;
        let map = PageMap::open(std::process::id() as i32).expect("own page map");
        let mut touched = Vec::new();
        let mut bytes = 0;
        map.runs(start..start + PAGES as u64 * PAGE, |run| {
            bytes += run.addresses.end - run.addresses.start;
            if run.page != Page::Absent {
                touched.push((run.addresses.start, run.addresses.end, run.page));
            }
        })
        .expect("the map can be read");
        let page = start + (CHUNK as u64 + 7) * PAGE;
        assert_eq!(touched, [(page, page + PAGE, Page::Private)]);
        assert_eq!(bytes, PAGES as u64 * PAGE);
    }
}
