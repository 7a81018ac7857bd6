//! A process at one moment, where its memory is read, and what was written of it.

use std::ops::Range;
use std::path::PathBuf;

use elfcore::ThreadView;
use process::{Mapping, Memory, PageMap};

use crate::change::Change;

/// A core dump that was written.
#[derive(Debug)]
pub(super) struct Written {
    /// Its file.
    pub(super) path: PathBuf,
    /// Threads that are not in it, since the kernel did not let them stop.
    pub(super) left_out: Vec<i32>,
    /// Bytes of private memory that the process has and its copy has not.
    pub(super) not_inherited: u64,
}

/// A process while its threads are held, except its memory.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) process: i32,
    /// The thread that hit the probe.
    pub(super) tid: i32,
    pub(super) threads: Vec<ThreadView>,
    /// Threads that are not among them, since the kernel did not let them stop.
    pub(super) left_out: Vec<i32>,
    /// The changes made to its code.
    pub(super) changes: Vec<Change>,
    /// Memory that is not shown.
    pub(super) hidden: Vec<Range<u64>>,
    pub(super) auxiliary: Vec<u8>,
    /// Whether it runs 32-bit code.
    pub(super) narrow: bool,
    pub(super) mappings: Vec<Mapping>,
    pub(super) pages: PageMap,
}

/// Where the memory of a dump is read: from the process, or from its copy.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) tid: i32,
    pub(super) memory: Memory,
    pub(super) pages: PageMap,
    pub(super) is_copy: bool,
}

impl Origin {
    pub(super) fn of_thread(tid: i32) -> Result<Origin, process::Error> {
        // Opened anew: a file opened before an exec shows the old memory.
        Ok(Origin { tid, memory: Memory::open(tid)?, pages: PageMap::open(tid)?, is_copy: false })
    }

    pub(super) fn of_copy(pid: i32) -> Result<Origin, process::Error> {
        Ok(Origin { is_copy: true, ..Origin::of_thread(pid)? })
    }
}
