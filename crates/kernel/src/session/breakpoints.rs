//! Attaches to accesses to memory, by the processor's debug registers: of a process, or of all.
//!
//! A thread has four debug registers. Those of a process are set for each of its threads; threads
//! that it creates later inherit them. The events end with the thread, and when the process
//! executes another program, in which the address means something else.

use std::collections::HashSet;

use bpf::{Access, AttachError, Breakpoint, Errno, Link, Program};

use super::Attached;

/// How often the threads of a process are listed, at most, until no new one is found.
const ROUNDS: usize = 100;

/// Memory that is watched: 1, 2, 4 or 8 bytes, at a multiple of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchpoint {
    /// The address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub length: u8,
    /// Which accesses count.
    pub access: Access,
}

impl Watchpoint {
    fn breakpoint(self) -> Breakpoint {
        // An instruction is watched with the length of a word.
        let length = if self.access == Access::Execute { 8 } else { u64::from(self.length) };
        Breakpoint {
            address: self.address,
            length,
            access: self.access,
            thread: None,
            processor: None,
            inherit: false,
            kernel: true,
        }
    }

    /// Attaches a program of the kind [`bpf::ProgramKind::PerfEvent`] to accesses by all threads of
    /// a process, also those that it creates later, and by the kernel on their behalf.
    ///
    /// # Errors
    /// Why the kernel refuses: `ESRCH` if there is no such process, `ENOSPC` if a thread has no
    /// debug register left.
    pub fn attach_to(self, program: &Program, process: u32, cookie: u64) -> Result<Attached, AttachError> {
        let mut links = Vec::new();
        let mut known = HashSet::new();
        for _ in 0..ROUNDS {
            let threads = threads(process);
            if threads.is_empty() {
                return Err(AttachError::Event(Errno::ESRCH));
            }
            // A thread that a watched one has created since is watched already.
            let new: Vec<u32> = threads.into_iter().filter(|thread| known.insert(*thread)).collect();
            if new.is_empty() {
                break;
            }
            for thread in new {
                let breakpoint = Breakpoint { thread: Some(thread), inherit: true, ..self.breakpoint() };
                match breakpoint.attach(program, cookie) {
                    Ok(link) => links.push(link),
                    // It has ended meanwhile.
                    Err(AttachError::Event(Errno::ESRCH)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Attached { links, refused: Vec::new() })
    }

    /// Attaches a program to accesses by all threads of all processes, and by the kernel.
    ///
    /// # Errors
    /// Why the kernel refuses: `ENOSPC` if a processor has no debug register left.
    pub fn attach_to_all(self, program: &Program, cookie: u64) -> Result<Attached, AttachError> {
        let mut links: Vec<Link> = Vec::new();
        for processor in online() {
            let breakpoint = Breakpoint { processor: Some(processor), ..self.breakpoint() };
            match breakpoint.attach(program, cookie) {
                Ok(link) => links.push(link),
                // It was taken offline meanwhile.
                Err(AttachError::Event(Errno::ENODEV)) => {}
                Err(error) => return Err(error),
            }
        }
        match links.is_empty() {
            true => Err(AttachError::Event(Errno::ENODEV)),
            false => Ok(Attached { links, refused: Vec::new() }),
        }
    }
}

/// The threads of a process; none if it is gone.
fn threads(process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processors that execute threads.
pub(super) fn online() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    ranges(&text)
}

/// The numbers in a list such as `0-3,5`.
fn ranges(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(ranges("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!((ranges("0\n"), ranges("")), (vec![0], vec![]));
    }

    #[test]
    fn the_threads_of_a_process_are_listed_and_a_process_that_is_not_there_has_none() {
        assert!(threads(std::process::id()).contains(&std::process::id()));
        assert!(threads(u32::MAX).is_empty());
        assert!(!online().is_empty());
    }
}
