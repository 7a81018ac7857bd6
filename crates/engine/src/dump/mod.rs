//! Core dumps of processes that continue to run.
//!
//! The thread that hit the probe is already stopped. All other threads of its process are stopped
//! too (`hold`), so that the dump is consistent; their events are handled afterwards, as if they
//! came then. Threads are shown where they would be in the unprobed program (`threads`). So is the
//! memory: without slots, and with the program's own bytes at sites (`memory`). The file (`file`)
//! is as the kernel would write it with its default `coredump_filter` (man page core(5)):
//!
//! ```text
//!   ELF header, program headers
//!   notes      PRPSINFO; for each thread PRSTATUS, PRFPREG, X86_XSTATE, SIGINFO; AUXV; FILE
//!   memory     what belongs to the process alone, and the first page of each ELF file; zeros take no room
//! ```
//!
//! The note of mapped files is in `files`. The file of a 32-bit process is a 32-bit file
//! (`narrow`).
//!
//! Nothing in the process is changed, and no page is allocated in it.

mod file;
mod files;
mod hold;
mod memory;
mod narrow;
mod threads;

use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;

use elfcore::{CoreDumpBuilder, CoreError, Elf64_Auxv, MappedFile, ProcessInfoSource, ThreadView, VaRegion};
use process::{Memory, PageMap, Registers, Stopped};

use crate::followed::Followed;
use crate::messages::Messages;
use file::CoreFile;
use memory::{Layout, PAGE, Reader};

/// Bytes written at once.
const BUFFER: usize = 1 << 16;
/// Bytes of the auxiliary vector that are read, at most; the kernel's has about twenty entries of
/// 16 bytes.
const AUXILIARY: u64 = 1 << 14;

/// A core dump that was written.
#[derive(Debug)]
pub(crate) struct Written {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Threads that are not in it, since the kernel did not let them stop.
    pub(crate) left_out: Vec<i32>,
}

/// The data of a process that the `elfcore` crate needs.
struct Source {
    pid: i32,
    threads: Vec<ThreadView>,
    regions: Vec<VaRegion>,
    auxiliary: Vec<Elf64_Auxv>,
}

impl ProcessInfoSource for Source {
    fn pid(&self) -> i32 {
        self.pid
    }

    fn threads(&self) -> &[ThreadView] {
        &self.threads
    }

    fn va_regions(&self) -> &[VaRegion] {
        &self.regions
    }

    fn mapped_files(&self) -> Option<&[MappedFile]> {
        // See `files`.
        None
    }

    fn aux_vector(&self) -> Option<&[Elf64_Auxv]> {
        Some(&self.auxiliary)
    }

    fn page_size(&self) -> usize {
        PAGE as usize
    }
}

/// Writes a core dump of the process of a stopped thread, which is shown with `registers`. The
/// other threads stay stopped; their events are handled next.
///
/// # Errors
/// Why no core dump was written.
pub(crate) fn dump_core(
    followed: &mut Followed,
    messages: &mut Messages<'_>,
    pid: i32,
    thread: &Stopped,
    registers: &Registers,
) -> Result<Written, String> {
    let mut file = CoreFile::create(pid)?;
    match fill(followed, messages, &mut file, pid, thread, registers) {
        Ok(left_out) => Ok(Written { path: file.path().to_owned(), left_out }),
        Err(reason) => Err(file.discard(reason)),
    }
}

/// Writes a core dump to its file. Returns the threads that are not in it.
fn fill(
    followed: &mut Followed,
    messages: &mut Messages<'_>,
    file: &mut CoreFile,
    pid: i32,
    thread: &Stopped,
    registers: &Registers,
) -> Result<Vec<i32>, String> {
    let tid = thread.tid();
    let left_out = hold::hold_others(followed, messages, tid, pid)?;
    let number = followed.threads.get(&tid).and_then(|tracked| tracked.space);
    let Some(space) = number.and_then(|number| followed.spaces.get(&number)) else {
        return Err("its memory layout is not known".to_owned());
    };
    let threads = threads::views(followed, pid, thread, registers, space)?;
    let pages = PageMap::open(tid).map_err(|error| error.to_string())?;
    // Opened anew: a file opened before an exec shows the old memory.
    let memory = Memory::open(tid).map_err(|error| error.to_string())?;
    let slots: Vec<_> =
        space.mapped.areas.iter().map(|area| area.base()..area.base() + area.size()).collect();
    let Layout { regions, sparse, mappings } = memory::layout(tid, &memory, &pages, &slots)?;
    let mut changes = Vec::new();
    space.sites.each_change(|change| changes.push(*change));
    let reader = Reader::new(&memory, &pages, sparse, changes);
    // The format takes the process's own data from its main thread, which may be gone or not
    // stop.
    let leader = threads.iter().any(|view| view.tid == pid);
    let pid = if leader { pid } else { tid };
    let auxiliary = auxiliary_vector(tid);
    if registers.is_32_bit() {
        let files = files::note(&mappings, 4);
        let source = narrow::Source {
            pid,
            threads: &threads,
            regions: &regions,
            auxiliary: &auxiliary,
            files: &files,
        };
        narrow::write(file, &source, reader)?;
    } else {
        let source = Source { pid, threads, regions, auxiliary: pairs(&auxiliary) };
        write(file, source, reader, &files::note(&mappings, 8)).map_err(|error| match error {
            CoreError::IoError(cause) => cause.to_string(),
            other => other.to_string(),
        })?;
    }
    // If the process was killed meanwhile, its memory reads as zeros.
    thread.registers().map_err(|_| "the process was killed meanwhile".to_owned())?;
    Ok(left_out)
}

/// Writes the whole file.
fn write(file: &mut CoreFile, source: Source, reader: Reader<'_>, note: &[u8]) -> Result<(), CoreError> {
    let mut writer = BufWriter::with_capacity(BUFFER, &mut *file);
    let mut rest = note;
    let mut builder = CoreDumpBuilder::from_source(source, reader);
    builder.add_custom_file_note(files::NAME, &mut rest, files::note_length(note));
    builder.write(&mut writer)?;
    writer.flush()?;
    drop(writer);
    files::mend(file, note)?;
    Ok(file.complete()?)
}

/// The auxiliary vector that the kernel gave to the process: pairs of words.
fn auxiliary_vector(tid: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(format!("/proc/{tid}/auxv")) {
        // What cannot be read is left out; debuggers can do without.
        let _ = file.take(AUXILIARY).read_to_end(&mut bytes);
    }
    bytes
}

/// The auxiliary vector of a 64-bit process.
fn pairs(bytes: &[u8]) -> Vec<Elf64_Auxv> {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let pairs = words.as_chunks().0.iter();
    pairs.map(|&[a_type, a_val]| Elf64_Auxv { a_type, a_val }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_auxiliary_vector_tells_the_size_of_a_page() {
        let vector = pairs(&auxiliary_vector(std::process::id() as i32));
        let page = vector.iter().find(|entry| entry.a_type == libc::AT_PAGESZ).expect("every process has it");
        assert_eq!(page.a_val, PAGE);
        assert_eq!(vector.last().map(|entry| entry.a_type), Some(libc::AT_NULL));
    }
}
