//! Core files of 32-bit processes, as the kernel writes them for i386.
//!
//! The `elfcore` crate writes only 64-bit core files, which a debugger does not accept for a 32-bit
//! program. So this writes the same in words of 4 bytes:
//!
//! ```text
//!   52 bytes        ELF header: ELFCLASS32, ET_CORE, EM_386
//!   32 bytes each   program headers: PT_NOTE, then a PT_LOAD for each piece of memory
//!   notes           PRPSINFO, AUXV, FILE; for each thread PRSTATUS and what else it has (PRFPREG, PRXFPREG,
//!                   X86_XSTATE, 386_TLS), the thread that debuggers begin with first
//!   memory          from the next page on
//! ```
//!
//! A note is three words - the length of its name with the NUL, the length of its contents, its
//! type - then name and contents, each padded to a multiple of 4.

use std::io::{BufWriter, Write};

use elfcore::{ReadProcessMemory, ThreadView, VaRegion};

use super::file::CoreFile;
use super::memory::{PAGE, Reader};
use crate::reason::NotDumped;

/// Bytes of the ELF header, and of a program header.
const HEADER: usize = 52;
const PROGRAM_HEADER: usize = 32;
/// Bytes of memory that are written at once.
const CHUNK: usize = 1 << 16;
/// Types of notes (include/uapi/linux/elf.h).
const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_FILE: u32 = 0x4649_4c45;
/// Types of program headers, and permissions of memory.
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;
/// Clock ticks per second in times that the kernel reports to programs (USER_HZ).
const TICKS: u64 = 100;

/// Indices into `struct user_regs_struct` of x86-64 for the words of that of i386: ebx, ecx, edx,
/// esi, edi, ebp, eax, ds, es, fs, gs, orig_eax, eip, cs, eflags, esp, ss.
const REGISTERS: [usize; 17] = [5, 11, 12, 13, 14, 4, 10, 23, 24, 25, 26, 15, 16, 17, 18, 19, 20];

/// The contents of the file besides the memory.
#[derive(Debug)]
pub(super) struct Source<'a> {
    /// The process.
    pub(super) pid: i32,
    /// Its threads; debuggers begin with the first.
    pub(super) threads: &'a [ThreadView],
    /// The dumped ranges of its memory, by address.
    pub(super) regions: &'a [VaRegion],
    /// Its auxiliary vector, as in /proc.
    pub(super) auxiliary: &'a [u8],
    /// The contents of the NT_FILE note.
    pub(super) files: &'a [u8],
}

/// Writes the whole file.
///
/// # Errors
/// The file cannot be written, or there is memory that a 32-bit file cannot contain.
pub(super) fn write(
    file: &mut CoreFile,
    source: &Source<'_>,
    mut reader: Reader<'_>,
) -> Result<(), NotDumped> {
    let failed = |cause: std::io::Error| NotDumped::Write(cause.into());
    let head = head(source)?;
    let mut writer = BufWriter::with_capacity(CHUNK, &mut *file);
    writer.write_all(&head).map_err(failed)?;
    let mut bytes = vec![0; CHUNK];
    for region in source.regions {
        let mut at = region.begin;
        while at < region.end {
            let length = (region.end - at).min(CHUNK as u64) as usize;
            reader
                .read_process_memory(at as usize, &mut bytes[..length])
                .map_err(|error| NotDumped::Read(error.into()))?;
            writer.write_all(&bytes[..length]).map_err(failed)?;
            at += length as u64;
        }
    }
    writer.flush().map_err(failed)?;
    drop(writer);
    file.complete().map_err(failed)
}

/// Everything before the memory.
fn head(source: &Source<'_>) -> Result<Vec<u8>, NotDumped> {
    let notes = notes(source);
    let headers = HEADER + PROGRAM_HEADER * (1 + source.regions.len());
    let mut place = ((headers + notes.len()) as u64).next_multiple_of(PAGE);
    let mut head = Vec::with_capacity(place as usize);
    head.extend(*b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_CORE, EM_386; version, entry, program headers, section headers, flags.
    halves(&mut head, &[4, 3]);
    words(&mut head, &[1, 0, HEADER as u32, 0, 0]);
    let count = u16::try_from(1 + source.regions.len()).map_err(|_| NotDumped::TooManyFor32)?;
    halves(&mut head, &[HEADER as u16, PROGRAM_HEADER as u16, count, 0, 0, 0]);
    words(&mut head, &[PT_NOTE, headers as u32, 0, 0, notes.len() as u32, 0, 0, 4]);
    for region in source.regions {
        let rights = &region.protection;
        let flags = [(rights.read, PF_R), (rights.write, PF_W), (rights.execute, PF_X)];
        let flags = flags.iter().filter(|(has, _)| *has).map(|(_, flag)| flag).sum();
        let size = region.end - region.begin;
        let [offset, address, length, _] = [place, region.begin, size, region.end - 1].map(u32::try_from);
        let beyond = |_| NotDumped::TooLargeFor32;
        u32::try_from(region.end - 1).map_err(beyond)?;
        let (offset, address, length) =
            (offset.map_err(beyond)?, address.map_err(beyond)?, length.map_err(beyond)?);
        words(&mut head, &[PT_LOAD, offset, address, 0, length, length, flags, PAGE as u32]);
        place += size;
    }
    head.extend(notes);
    head.resize(head.len().next_multiple_of(PAGE as usize), 0);
    Ok(head)
}

/// The notes of the process and its threads.
fn notes(source: &Source<'_>) -> Vec<u8> {
    let mut notes = Vec::new();
    if let Some(first) = source.threads.first() {
        note(&mut notes, b"CORE", NT_PRPSINFO, &process_information(source.pid, first));
    }
    note(&mut notes, b"CORE", NT_AUXV, source.auxiliary);
    note(&mut notes, b"CORE", NT_FILE, source.files);
    for thread in source.threads {
        note(&mut notes, b"CORE", NT_PRSTATUS, &status(thread));
        for part in &thread.arch_state.components {
            note(&mut notes, part.note_name, part.note_type, &part.data);
        }
    }
    notes
}

fn note(notes: &mut Vec<u8>, name: &[u8], kind: u32, contents: &[u8]) {
    words(notes, &[name.len() as u32 + 1, contents.len() as u32, kind]);
    notes.extend_from_slice(name);
    notes.push(0);
    notes.resize(notes.len().next_multiple_of(4), 0);
    notes.extend_from_slice(contents);
    notes.resize(notes.len().next_multiple_of(4), 0);
}

/// `struct elf_prpsinfo` of i386: 124 bytes.
fn process_information(pid: i32, thread: &ThreadView) -> Vec<u8> {
    let mut bytes = vec![0, thread.state, u8::from(thread.state == b'Z'), thread.nice as u8];
    words(&mut bytes, &[thread.flags as u32]);
    halves(&mut bytes, &[thread.uid as u16, thread.gid as u16]);
    words(&mut bytes, &[pid, thread.ppid, thread.pgrp, thread.session].map(|number| number as u32));
    for (text, room) in [(&thread.comm, 16), (&thread.cmd_line, 80)] {
        let end = bytes.len() + room;
        // Leaves room for a NUL.
        bytes.extend(text.bytes().take(room - 1));
        bytes.resize(end, 0);
    }
    bytes
}

/// `struct elf_prstatus` of i386: 144 bytes.
fn status(thread: &ThreadView) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Signal number, code, error; the current signal.
    words(&mut bytes, &[u32::from(thread.cursig), 0, 0]);
    halves(&mut bytes, &[thread.cursig, 0]);
    words(&mut bytes, &[thread.sigpend as u32, thread.sighold as u32]);
    words(&mut bytes, &[thread.tid, thread.ppid, thread.pgrp, thread.session].map(|number| number as u32));
    for ticks in [thread.utime, thread.stime, thread.cutime, thread.cstime] {
        let microseconds = ticks % TICKS * (1_000_000 / TICKS);
        words(&mut bytes, &[(ticks / TICKS) as u32, microseconds as u32]);
    }
    let registers = &thread.arch_state.gpr_state;
    words(&mut bytes, &REGISTERS.map(|place| registers.get(place).map_or(0, |word| *word as u32)));
    // Floating-point registers are there.
    words(&mut bytes, &[1]);
    bytes
}

fn words(bytes: &mut Vec<u8>, words: &[u32]) {
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

fn halves(bytes: &mut Vec<u8>, halves: &[u16]) {
    bytes.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use elfcore::{ArchState, VaProtection};

    fn thread() -> ThreadView {
        ThreadView {
            tid: 7,
            cmd_line: "prog ".to_owned() + &"x".repeat(100),
            comm: "prog".to_owned(),
            state: b'R',
            ppid: 1,
            pgrp: 2,
            session: 3,
            flags: 0,
            utime: 250,
            stime: 0,
            cutime: 0,
            cstime: 0,
            nice: 0,
            uid: 1000,
            gid: 100,
            cursig: 0,
            sighold: 0,
            sigpend: 0,
            arch_state: Box::new(ArchState { gpr_state: (0..27).collect(), components: Vec::new() }),
        }
    }

    #[test]
    fn the_structures_have_the_kernels_sizes_and_places() {
        let bytes = status(&thread());
        assert_eq!(bytes.len(), 144);
        let word = |place: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[place + byte]));
        assert_eq!((word(24), word(40), word(44)), (7, 2, 500_000), "its number and its user time");
        assert_eq!((word(72), word(72 + 4 * 12), word(72 + 4 * 15)), (5, 16, 19), "ebx, eip, esp");
        let bytes = process_information(6, &thread());
        assert_eq!(bytes.len(), 124);
        assert_eq!((&bytes[28..33], bytes[123], bytes[122]), (&b"prog\0"[..], 0, b'x'));
    }

    #[test]
    fn memory_that_32_bits_cannot_tell_is_refused() {
        let region = |begin, end| VaRegion {
            begin,
            end,
            offset: 0,
            protection: VaProtection { is_private: true, read: true, write: false, execute: true },
            mapped_file_name: None,
        };
        let head = |regions: &[VaRegion]| {
            let source = Source { pid: 7, threads: &[thread()], regions, auxiliary: &[], files: &[] };
            super::head(&source)
        };
        let fits = head(&[region(0x1000, 0x3000), region(0xffff_f000, 1 << 32)]).expect("it fits");
        assert_eq!(fits.len() as u64 % PAGE, 0);
        assert!(head(&[region(0xffff_f000, 0x1_0000_1000)]).is_err());
        assert!(head(&[region(0, 0xffff_f000), region(0xffff_f000, 1 << 32)]).is_err());
    }
}
