//! Where a thread enters the kernel for the tracer: a system call instruction, and a place for the
//! stub that leads to it.
//!
//! In: the executable mappings of a process and its memory. Out: an [`Entrance`]. The place for the
//! stub is in the zeros at a mapping's end; [`what_is_at`] tells them from the stub of an earlier
//! tracer. Nothing is written here.

use image::Machine;

use super::copy_code::COPY_CODE;
use crate::{Mapping, Memory};

/// The bytes of the `syscall` instruction.
pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The bytes of `int 0x80`.
const INT_80: [u8; 2] = [0xcd, 0x80];

/// The code with which a thread makes a call for the tracer and returns.
pub const STUB: [u8; 14] = [0x0f, 0x05, 0x48, 0x89, 0x44, 0x24, 0xf8, 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Bytes that must be zeros around the stub's place: more than the stub, since the code or data
/// before it may end in zeros.
const ZEROS: usize = 64;

/// The largest piece of code searched at once.
const CHUNK: usize = 1 << 16;
/// The stub is put this many bytes before the end of a mapping.
const BEHIND: u64 = 16;

/// How the threads of a process make system calls for the tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entrance {
    /// The address of an instruction that enters the kernel.
    pub instruction: u64,
    /// The tracer's own memory for the stub and the frame.
    pub refuge: Option<StubMemory>,
    /// Without a `refuge`: unused executable memory for the [`STUB`]. It is all zeros, and again so
    /// after each call.
    pub spare: Option<u64>,
}

/// Memory in a process that only its tracer uses: from there a thread returns by itself if the
/// tracer dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StubMemory {
    /// The address of the [`StubMemory::code`], in executable memory; it begins with the [`STUB`].
    pub stub: u64,
    /// The end of memory that the process can write, at least [`StubMemory::ROOM`] bytes.
    pub end: u64,
}

impl StubMemory {
    /// Bytes for a frame with all extended state that processors have, and for a signal handler
    /// below it.
    pub const ROOM: u64 = 48 << 10;
    /// Where the [`COPY_CODE`] is, seen from the stub.
    pub const COPY: u64 = (STUB.len() as u64).next_multiple_of(16);
    /// Bytes of both.
    pub const CODE: u64 = StubMemory::COPY + COPY_CODE.len() as u64;

    /// The code, to be written at the stub's address.
    pub fn code() -> Vec<u8> {
        let mut code = STUB.to_vec();
        code.resize(StubMemory::COPY as usize, 0);
        code.extend_from_slice(&COPY_CODE);
        code
    }
}

/// Finds, in the process's executable mappings, an instruction that enters the kernel from programs
/// for `machine`.
pub fn find_syscall(memory: &Memory, mappings: &[Mapping], machine: Machine) -> Option<Entrance> {
    let instruction = find_instruction(memory, mappings, machine)?;
    let spare = (machine == Machine::X86_64).then(|| free_code(memory, mappings)).flatten();
    Some(Entrance { instruction, refuge: None, spare })
}

/// The address of that instruction.
fn find_instruction(memory: &Memory, mappings: &[Mapping], machine: Machine) -> Option<u64> {
    let wanted = if machine == Machine::I386 { INT_80 } else { SYSCALL };
    let mut bytes = vec![0; CHUNK];
    // The vdso and the dynamic linker are small and always have one: the last mappings are searched
    // first.
    for mapping in mappings.iter().rev().filter(|mapping| mapping.executable && mapping.readable) {
        let mut start = mapping.start;
        while start < mapping.end {
            let length = CHUNK.min((mapping.end - start) as usize);
            if memory.peek(start, &mut bytes[..length]).is_err() {
                break;
            }
            if let Some(place) = bytes[..length].windows(2).position(|pair| pair == wanted) {
                return Some(start + place as u64);
            }
            // One byte less, to find an instruction across the border of two pieces.
            start += if length == CHUNK { length as u64 - 1 } else { length as u64 };
        }
    }
    None
}

/// The address of unused executable memory: zeros at the end of a mapping's last page, if possible
/// of the vdso.
fn free_code(memory: &Memory, mappings: &[Mapping]) -> Option<u64> {
    let code = || mappings.iter().rev().filter(|mapping| mapping.executable && mapping.readable);
    let vdso = code().filter(|mapping| mapping.label.as_deref() == Some("[vdso]"));
    let files = code().filter(|mapping| mapping.path.is_some() && !mapping.shared);
    vdso.chain(files).find_map(|mapping| {
        let stub = mapping.end.checked_sub(BEHIND)?;
        what_is_at(memory, stub).map(|_| stub)
    })
}

/// What is at the stub's place.
pub(super) enum Spare {
    Zeros,
    /// The stub of a tracer that was killed.
    Stub,
}

/// What is in the last bytes before a mapping's end, where the stub's place is `stub`; `None` if
/// the program uses them.
pub(super) fn what_is_at(memory: &Memory, stub: u64) -> Option<Spare> {
    let mut bytes = [1; ZEROS];
    memory.peek(stub.checked_sub(ZEROS as u64 - BEHIND)?, &mut bytes).ok()?;
    let place = ZEROS - BEHIND as usize;
    let there = &mut bytes[place..place + STUB.len()];
    let is_stub = *there == STUB;
    if is_stub {
        there.fill(0);
    }
    bytes.iter().all(|&byte| byte == 0).then_some(if is_stub { Spare::Stub } else { Spare::Zeros })
}

/// Whether an instruction pointer is in a stub.
pub fn is_in_stub(rip: u64, stub: u64) -> bool {
    rip.wrapping_sub(stub) < STUB.len() as u64
}
