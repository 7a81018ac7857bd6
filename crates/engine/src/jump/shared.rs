//! Memory that the tracer shares with probed processes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use layout::PAGE;
use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// A memory file, mapped whole in the tracer. A process may have written its content: do not trust
/// it.
pub(crate) struct Shared {
    /// None if no further process will get it.
    file: Option<File>,
    memory: MmapRaw,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} bytes)", self.size())
    }
}

impl Shared {
    /// Makes new memory, all zeros; pages are allocated on first write.
    ///
    /// # Errors
    /// No descriptors or no addresses are left.
    pub(crate) fn new(size: usize) -> io::Result<Rc<Shared>> {
        let file = File::from(within_limits(|| process::shared_memory(size as u64))?);
        let mut shared = Self::map_file(&file, size)?;
        shared.file = Some(file);
        Ok(Rc::new(shared))
    }

    /// Maps a memory file whose size is fixed.
    ///
    /// # Errors
    /// No addresses are left.
    pub(crate) fn map_file(file: &File, size: usize) -> io::Result<Shared> {
        let memory = MmapOptions::new().len(size).no_reserve_swap().map_raw(file)?;
        Ok(Shared { file: None, memory })
    }

    /// Its descriptor, to be passed to a process.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn size(&self) -> usize {
        self.memory.len()
    }

    /// The 8-byte words from `offset`, a multiple of 8, on; fewer at the end of the memory.
    pub(crate) fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let room = (self.size().saturating_sub(offset)) / size_of::<AtomicU64>();
        let offset = offset.next_multiple_of(size_of::<AtomicU64>());
        if offset >= self.size() {
            return &[];
        }
        // SAFETY: the mapping begins at a page, so the place is aligned; it has `room` words from
        // there and lives as long as `self`; atomics may be changed by others.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(offset).cast(), count.min(room)) }
    }

    /// The 4-byte word at an offset, a multiple of 4.
    pub(crate) fn half(&self, offset: usize) -> Option<&AtomicU32> {
        let fits = offset.is_multiple_of(4) && offset.checked_add(4)? <= self.size();
        // SAFETY: as in `words`.
        fits.then(|| unsafe { &*self.memory.as_ptr().add(offset).cast() })
    }

    /// Prefetches the cache line at an offset. Does nothing if that is outside.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        let place = self.memory.as_ptr().wrapping_add(offset);
        // SAFETY: a prefetch has no visible effect and never faults.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast()) };
    }

    /// Allocates the pages of a part of it now. If the kernel cannot (before 5.14) or has none
    /// left, they are allocated on first write.
    pub(crate) fn provide(&self, offset: usize, size: usize) {
        let start = offset.min(self.size()).next_multiple_of(PAGE as usize);
        let end = offset.saturating_add(size).min(self.size());
        if start < end {
            let _ = self.memory.advise_range(Advice::PopulateWrite, start, end - start);
        }
    }

    /// Copies bytes out. A process may write there meanwhile: each word of 8 bytes, counted from
    /// `offset`, is then the old or the new one if `offset` is a multiple of 8, as in all records;
    /// else each byte is.
    #[inline]
    pub(crate) fn copy(&self, offset: usize, into: &mut [u8]) -> bool {
        let fits = offset.checked_add(into.len()).is_some_and(|end| end <= self.size());
        if !fits {
            return false;
        }
        let from = self.memory.as_ptr().wrapping_add(offset);
        // SAFETY: all of `into` fits into the mapping from `offset` on, so each of its words and
        // bytes does; the mapping is aligned, so words are where `offset` is; and atomics may be
        // changed by others.
        let word = |number: usize| unsafe {
            (*from.cast::<AtomicU64>().add(number)).load(Ordering::Relaxed).to_ne_bytes()
        };
        // SAFETY: as for words.
        let byte = |number: usize| unsafe { (*from.cast::<AtomicU8>().add(number)).load(Ordering::Relaxed) };
        let (words, bytes) =
            if offset.is_multiple_of(8) { into.as_chunks_mut() } else { (&mut [][..], into) };
        let copied = words.len() * 8;
        match words {
            [one] => *one = word(0),
            [one, two] => (*one, *two) = (word(0), word(1)),
            words => (0..).zip(words).for_each(|(number, into)| *into = word(number)),
        }
        (copied..).zip(bytes).for_each(|(number, into)| *into = byte(number));
        true
    }

    #[cfg(test)]
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> bool {
        let fits = offset.checked_add(from.len()).is_some_and(|end| end <= self.size());
        if fits {
            for (number, &byte) in from.iter().enumerate() {
                // SAFETY: as in `copy`.
                unsafe { AtomicU8::from_ptr(self.memory.as_mut_ptr().add(offset + number)) }
                    .store(byte, Ordering::Relaxed);
            }
        }
        fits
    }
}

/// Runs `action`, which makes a file larger, with SIGXFSZ blocked: a file size limit then makes it
/// fail instead of killing the tracer.
pub(crate) fn within_limits<T>(action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let signal = SigSet::from(Signal::SIGXFSZ);
    let before = signal.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let result = action();
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set and the time live through the call (nix has no such call). It takes only the
    // one signal, which the action has raised.
    unsafe { libc::sigtimedwait(signal.as_ref(), std::ptr::null_mut(), &at_once) };
    before.thread_set_mask()?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_is_not_there() {
        let shared = Shared::new(8192).expect("memory");
        assert_eq!(shared.words(0, 4).len(), 4);
        assert_eq!(shared.words(8184, 4).len(), 1);
        assert_eq!(shared.words(8192, 4).len(), 0);
        assert_eq!(shared.words(usize::MAX - 7, 4).len(), 0);
        assert!(shared.half(8188).is_some() && shared.half(8192).is_none() && shared.half(2).is_none());
        let mut bytes = [1; 16];
        assert!(
            !shared.copy(8184, &mut bytes)
                && !shared.copy(usize::MAX, &mut bytes)
                && !shared.write(8190, &bytes)
        );
        shared.words(8, 1)[0].store(0x0102, Ordering::Relaxed);
        assert!(shared.copy(8, &mut bytes));
        assert_eq!(bytes[..3], [2, 1, 0]);
    }

    #[test]
    fn any_number_of_bytes_is_copied() {
        let shared = Shared::new(8192).expect("memory");
        let all: Vec<u8> = (0..200).collect();
        assert!(shared.write(8192 - all.len(), &all));
        for length in 0..all.len() {
            let mut bytes = vec![0xee; length];
            assert!(shared.copy(8192 - length, &mut bytes));
            assert_eq!(bytes, all[all.len() - length..], "{length}");
            assert!(length == 0 || !shared.copy(8193 - length, &mut bytes));
        }
    }

    #[test]
    fn pages_are_provided_as_they_are() {
        const PAGE: usize = super::PAGE as usize;
        let pages = |shared: &Shared| {
            let file = File::from(
                shared.descriptor().expect("it has one").try_clone_to_owned().expect("descriptors"),
            );
            std::os::unix::fs::MetadataExt::blocks(&file.metadata().expect("a file")) * 512 / PAGE as u64
        };
        let shared = Shared::new(16 * PAGE).expect("memory");
        if shared.memory.advise_range(Advice::PopulateWrite, 0, PAGE).is_err() {
            testing::skipped("pages", "a kernel that provides pages (5.14)");
            return;
        }
        shared.words(2 * PAGE, 1)[0].store(7, Ordering::Relaxed);
        assert_eq!(pages(&shared), 2);
        shared.provide(PAGE, 4 * PAGE);
        assert_eq!(pages(&shared), 5);
        assert_eq!(shared.words(2 * PAGE, 1)[0].load(Ordering::Relaxed), 7);
        shared.provide(15 * PAGE, usize::MAX);
        shared.provide(usize::MAX, 1);
        shared.provide(16 * PAGE, 1);
        assert_eq!(pages(&shared), 6);
    }

    #[test]
    fn nobody_can_cut_it_short() {
        let shared = Shared::new(8192).expect("memory");
        let file =
            File::from(shared.descriptor().expect("it has one").try_clone_to_owned().expect("descriptors"));
        assert!(file.set_len(0).is_err());
    }
}
