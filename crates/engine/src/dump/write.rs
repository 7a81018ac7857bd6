//! Writes a core dump to its file, through the `elfcore` crate or, for 32-bit code, `narrow`.

use std::io::{BufWriter, Write};

use elfcore::{CoreDumpBuilder, CoreError, Elf64_Auxv, MappedFile, ProcessInfoSource, ThreadView, VaRegion};

use super::auxiliary::pairs;
use super::file::CoreFile;
use super::memory::{self, Layout, PAGE, Reader};
use super::moment::{Moment, Origin, Written};
use super::{files, narrow};
use crate::reason::NotDumped;

/// Bytes written at once.
const BUFFER: usize = 1 << 16;
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

/// Writes a core dump to its file.
pub(super) fn write_moment(
    file: &mut CoreFile,
    moment: Moment,
    origin: &Origin,
) -> Result<Written, NotDumped> {
    let Moment { process, tid, threads, left_out, changes, hidden, auxiliary, narrow, mappings, pages } =
        moment;
    let layout = memory::layout(origin, &pages, &mappings, &hidden)?;
    let Layout { regions, sparse, not_inherited } = layout;
    let reader = Reader::new(&origin.memory, &origin.pages, sparse, changes);
    // The format takes the process's own data from its main thread, which may be gone or not
    // stop.
    let leader = threads.iter().any(|view| view.tid == process);
    let pid = if leader { process } else { tid };
    if narrow {
        let source = narrow::Source {
            pid,
            threads: &threads,
            regions: &regions,
            auxiliary: &auxiliary,
            files: &files::note(&mappings, 4),
        };
        narrow::write(file, &source, reader)?;
    } else {
        let source = Source { pid, threads, regions, auxiliary: pairs(&auxiliary) };
        write(file, source, reader, &files::note(&mappings, 8)).map_err(|error| {
            NotDumped::Write(match error {
                CoreError::IoError(cause) => cause.into(),
                other => other.into(),
            })
        })?;
    }
    Ok(Written { path: file.path().to_owned(), left_out, not_inherited })
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
