//! The code of the running kernel, from `/proc/kcore`: as it is executed, after the kernel has
//! patched itself.
//!
//! `/proc/kcore` is an ELF core file of the whole address space: a segment for each piece.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use patch::Mode;

/// The most bytes of headers: a machine with much memory has some hundred segments.
const HEADERS: usize = 1 << 16;
/// The longest instruction.
const LONGEST: usize = 15;
/// The longest function that is disassembled.
const LONGEST_FUNCTION: u64 = 1 << 20;

/// The running kernel's code.
#[derive(Debug)]
pub(super) struct Text {
    file: File,
    /// Addresses, and the offset in the file of the first.
    segments: Vec<(Range<u64>, u64)>,
}

/// An instruction of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) address: u64,
    pub(super) length: usize,
    /// Whether it leaves the function.
    pub(super) is_exit: bool,
}

impl Text {
    /// Opens the kernel's memory; `None` if this process may not read it, or the kernel has no such
    /// file.
    pub(super) fn open() -> Option<Text> {
        let file = File::open("/proc/kcore").ok()?;
        let mut head = vec![0; HEADERS];
        let length = file.read_at(&mut head, 0).ok()?;
        let segments = segments(&head[..length])?;
        Some(Text { file, segments })
    }

    /// Reads bytes of code.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let (range, offset) = self.segments.iter().find(|(range, _)| range.contains(&address))?;
        self.file.read_exact_at(into, offset + (address - range.start)).ok()
    }

    /// The instructions of a function.
    ///
    /// # Errors
    /// Its bytes cannot be read, or are no instructions throughout.
    pub(super) fn function(&self, range: Range<u64>) -> Result<Vec<Instruction>, String> {
        let size = range.end.saturating_sub(range.start);
        if size > LONGEST_FUNCTION {
            return Err(format!("it has {size} bytes, which is more than a function has"));
        }
        let mut bytes = vec![0; size as usize];
        self.read(range.start, &mut bytes)
            .ok_or_else(|| "its bytes cannot be read in /proc/kcore".to_owned())?;
        disassemble(&bytes, range.start)
    }
}

/// The segments of a core file.
fn segments(head: &[u8]) -> Option<Vec<(Range<u64>, u64)>> {
    let header = FileHeader64::<LittleEndian>::parse(head).ok()?;
    let endian = LittleEndian;
    let loads = header.program_headers(endian, head).ok()?.iter();
    let loads = loads.filter(|segment| segment.p_type(endian) == PT_LOAD);
    let range = |start: u64, size: u64| start..start.saturating_add(size);
    Some(
        loads
            .map(|segment| {
                (range(segment.p_vaddr(endian), segment.p_memsz(endian)), segment.p_offset(endian))
            })
            .collect(),
    )
}

/// Disassembles a function from its start. Padding at its end is left out.
fn disassemble(bytes: &[u8], start: u64) -> Result<Vec<Instruction>, String> {
    // Between functions the compiler puts `int3` or `nop`s.
    let end = bytes.iter().rposition(|byte| !matches!(byte, 0xcc | 0x90)).map_or(0, |last| last + 1);
    let own = start..start.saturating_add(bytes.len() as u64);
    let mut all = Vec::new();
    let mut at = 0;
    while at < end {
        let rest = &bytes[at..bytes.len().min(at + LONGEST)];
        let address = start + at as u64;
        let length = patch::instruction_length(Mode::Bits64, rest)
            .ok_or_else(|| format!("no instruction at {address:#x}: the bytes look like data"))?;
        all.push(Instruction { address, length, is_exit: is_exit(&rest[..length], address, &own) });
        at += length;
    }
    Ok(all)
}

/// Whether an instruction leaves a function: a return, or a jump to another function, as the
/// kernel's own `__x86_return_thunk`.
fn is_exit(instruction: &[u8], address: u64, own: &Range<u64>) -> bool {
    let next = address.wrapping_add(instruction.len() as u64);
    match instruction {
        [0xc3] | [0xf3, 0xc3] | [0xc2, ..] => true,
        [0xe9, distance @ ..] | [0x2e, 0xe9, distance @ ..] if distance.len() == 4 => {
            let distance = i32::from_le_bytes([distance[0], distance[1], distance[2], distance[3]]);
            !own.contains(&next.wrapping_add_signed(i64::from(distance)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_functions_exits_are_its_returns_and_the_jumps_out_of_it() {
        // push rbp; je +2; ret; int3; jmp far away; jmp to the start; padding
        let code = [
            0x55, 0x74, 0x02, 0xc3, 0xcc, 0xe9, 0x00, 0x10, 0x00, 0x00, 0xe9, 0xf1, 0xff, 0xff, 0xff, 0xcc,
            0x90,
        ];
        let all = disassemble(&code, 0x1000).expect("they are instructions");
        let exits: Vec<u64> = all.iter().filter(|it| it.is_exit).map(|it| it.address).collect();
        assert_eq!(exits, [0x1003, 0x1005]);
        assert_eq!(all.len(), 6);
        assert!(disassemble(&[0x06, 0xc3], 0x1000).is_err());
        assert!(disassemble(&[], 0x1000).is_ok_and(|all| all.is_empty()));
    }

    #[test]
    fn a_core_file_has_segments() {
        let mut core = vec![0; 64 + 56];
        core[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        core[16..20].copy_from_slice(&[4, 0, 62, 0]);
        core[32] = 64;
        core[52..58].copy_from_slice(&[64, 0, 56, 0, 1, 0]);
        core[64] = 1;
        core[64 + 8..64 + 16].copy_from_slice(&0x2000u64.to_le_bytes());
        core[64 + 16..64 + 24].copy_from_slice(&0xffff_ffff_8100_0000u64.to_le_bytes());
        core[64 + 40..64 + 48].copy_from_slice(&0x1000u64.to_le_bytes());
        let found = segments(&core).expect("it is one");
        assert_eq!(found, [(0xffff_ffff_8100_0000..0xffff_ffff_8100_1000, 0x2000)]);
        assert_eq!(segments(b"no core file"), None);
    }
}
