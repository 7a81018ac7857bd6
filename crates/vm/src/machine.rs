//! The place where a probe fired, as a handler sees it.

use crate::{Register, Word};

/// The first address that could not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// That address.
    pub address: u64,
}

/// The registers, memory and system values of the thread that hit the probe.
///
/// The interpreter calls it with what a program names and nothing else: registers that the program's processor
/// has, memory ranges that do not pass the last address of the word, writes of 1, 2, 4 or 8 bytes, reads of at
/// most [`crate::LOG_LIMIT`] bytes.
///
/// The methods that have a default are those that a machine may refuse: their `None` and `false` raise
/// [`crate::Exception::INVALID_OPCODE`], or where they say so another exception. A machine of a user process refuses
/// what [`crate::Context::Kernel`] marks.
pub trait Machine {
    /// The value of a register of the shape [`crate::Shape::General`]. `push r` of an i386 name takes its low 32 bits.
    fn register(&mut self, register: Register) -> u64;

    /// The value of a register of the shape [`crate::Shape::Word`], [`crate::Shape::Float`],
    /// [`crate::Shape::Vector`] or [`crate::Shape::DescriptorTable`] (the limit in bits 0 to 15, the base above).
    fn wide_register(&mut self, _register: Register) -> Option<u128> {
        None
    }

    /// What the processor says to `cpuid` of a leaf (its subleaf 0): eax, ebx, ecx, edx.
    fn cpuid(&mut self, _leaf: u32) -> Option<[u32; 4]> {
        None
    }

    /// A model-specific register, by its number.
    fn model_specific_register(&mut self, _number: u32) -> Option<u64> {
        None
    }

    /// Whether a register that may be popped can be set to a value: a segment register takes 0, and selectors of segments that are
    /// there. What it does not take raises [`crate::Exception::INVALID_OPERAND`].
    fn takes(&mut self, _register: Register, _value: u64) -> bool {
        true
    }

    /// Sets a register that may be popped ([`Register::can_pop`]). The value is already cut to the register's
    /// name: an i386 name carries 32 bits, and in a 64-bit program the register's upper half becomes 0.
    fn set_register(&mut self, register: Register, value: u64);

    /// Copies memory from `address` on into the whole of `into`, which is never empty: all of it, or none and the
    /// first address that could not be read. What `into` holds after a fault does not matter.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Copies the whole of `from` to memory from `address` on: all of it, or nothing and the first address that
    /// could not be written.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault>;

    /// Whether the byte at `address` can be read and, if `write`, also written. Changes nothing.
    fn verify(&mut self, address: u64, write: bool) -> bool;

    /// The process id.
    fn pid(&mut self) -> u64;

    /// The number of the processor.
    fn processor(&mut self) -> u64;

    /// The address of the kernel's task structure.
    fn task(&mut self) -> Option<u64> {
        None
    }

    /// The linear address of an offset in the segment that a selector names. `None` where it names none: that raises
    /// [`crate::Exception::SEG_FAULT`].
    fn linear_address(&mut self, _selector: u16, _offset: u64) -> Option<u64> {
        None
    }

    /// Reads `size` bytes, 1, 2 or 4, from a port.
    fn read_port(&mut self, _port: u16, _size: usize) -> Option<u32> {
        None
    }

    /// Writes the low `size` bytes, 1, 2 or 4, of a value to a port. Whether it did.
    fn write_port(&mut self, _port: u16, _size: usize, _value: u32) -> bool {
        false
    }

    /// Whether the run is to end, since its probe is taken out. A run that takes long asks every few thousand instructions.
    fn is_over(&mut self) -> bool {
        false
    }

    /// Calls the kernel modules that have registered for `callk`. Whether it could.
    fn call_kernel_modules(&mut self) -> bool {
        false
    }

    /// Calls whoever has registered for `callk`, and lends them what the run has. Whether it could. By itself it lends nothing,
    /// and does as [`Machine::call_kernel_modules`].
    fn call_registered(&mut self, _run: &mut dyn Lent) -> bool {
        self.call_kernel_modules()
    }
}

/// What a run lends to whom `callk` calls: its stack and its log.
pub trait Lent {
    /// The program's word.
    fn word(&self) -> Word;

    /// Pops a word from the RPN stack.
    fn pop(&mut self) -> u64;

    /// Pushes a value, cut to the word, on the RPN stack.
    fn push(&mut self, value: u64);

    /// Logs bytes as `log mrf` logs memory. Whether they fitted; if not, nothing is logged.
    fn log(&mut self, bytes: &[u8]) -> bool;
}

/// The last address of a word.
const fn last(word: Word) -> u64 {
    word.truncate(u64::MAX)
}

/// Reads `into.len()` bytes at `base + offset`. Addresses do not wrap: a range that passes the last address of the
/// word faults, at 0 if all before the end can be read.
#[inline]
pub(crate) fn read<M: Machine>(
    machine: &mut M,
    word: Word,
    base: u64,
    offset: usize,
    into: &mut [u8],
) -> Result<(), Fault> {
    let past = Fault { address: 0 };
    let address = match base.checked_add(offset as u64) {
        Some(address) if address <= last(word) => address,
        _ => return Err(past),
    };
    // Bytes after the first that the address space still has.
    let after = last(word) - address;
    match into.len().checked_sub(1) {
        None => Ok(()),
        Some(more) if more as u64 <= after => machine.read(address, into),
        Some(_) => machine.read(address, &mut into[..after as usize + 1]).and(Err(past)),
    }
}

/// Writes `from`, of 1 to 8 bytes, at `address`. A range that passes the last address of the word faults, at 0 if
/// all before the end could be written, and changes nothing.
#[inline]
pub(crate) fn write<M: Machine>(machine: &mut M, word: Word, address: u64, from: &[u8]) -> Result<(), Fault> {
    if (from.len() - 1) as u64 <= last(word) - address {
        return machine.write(address, from);
    }
    let refused = (address..=last(word)).find(|&byte| !machine.verify(byte, true));
    Err(Fault { address: refused.unwrap_or(0) })
}
