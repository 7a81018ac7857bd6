//! The [`Machine`] trait: the thread that hit a probe, as a handler sees it.

use crate::{FRAMES_LIMIT, Maps, Register, Word};

/// A memory access that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The first address that could not be accessed.
    pub address: u64,
}

/// What [`Machine::time`] is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// A moment before the system was started; it stands still while the system is suspended.
    Monotonic,
    /// The beginning of tracing.
    Elapsed,
    /// The system's start.
    Boot,
    /// 1970.
    Real,
}

impl Clock {
    /// The clock that an operand names.
    pub fn of(number: u64) -> Option<Clock> {
        [Clock::Monotonic, Clock::Elapsed, Clock::Boot, Clock::Real]
            .get(usize::try_from(number).ok()?)
            .copied()
    }
}

/// The registers, memory and system values of the thread that hit the probe.
///
/// The interpreter only passes valid arguments: registers that the program's processor has, memory
/// ranges that do not pass the last address of the word, writes of 1, 2, 4 or 8 bytes, reads of at
/// most [`crate::LOG_LIMIT`] bytes.
///
/// A machine may refuse the methods that have a default: `None` or `false` raises
/// [`crate::Exception::INVALID_OPCODE`], unless the method states another exception. The machine of
/// a user process refuses what [`crate::Context::Kernel`] marks.
pub trait Machine {
    /// The value of a register of the shape [`crate::Shape::General`]. `push r` of an i386 name
    /// truncates it to 32 bits.
    fn register(&mut self, register: Register) -> u64;

    /// The value of a register of the shape [`crate::Shape::Word`], [`crate::Shape::Float`],
    /// [`crate::Shape::Vector`] or [`crate::Shape::DescriptorTable`] (the limit in bits 0 to 15,
    /// the base above).
    fn wide_register(&mut self, _register: Register) -> Option<u128> {
        None
    }

    /// The result of `cpuid` for a leaf (subleaf 0): eax, ebx, ecx, edx.
    fn cpuid(&mut self, _leaf: u32) -> Option<[u32; 4]> {
        None
    }

    /// A model-specific register by number.
    fn model_specific_register(&mut self, _number: u32) -> Option<u64> {
        None
    }

    /// Whether a register that may be popped can be set to this value: a segment register accepts 0
    /// and selectors of existing segments. `false` raises [`crate::Exception::INVALID_OPERAND`].
    fn accepts(&mut self, _register: Register, _value: u64) -> bool {
        true
    }

    /// Sets a register that may be popped ([`Register::can_pop`]). The value is already truncated
    /// to the register's name: an i386 name carries 32 bits, and in a 64-bit program the upper half
    /// of the register becomes 0.
    fn set_register(&mut self, register: Register, value: u64);

    /// Copies memory from `address` on into all of `into`, which is never empty. On a fault,
    /// returns the first address that could not be read; `into` may then hold anything.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Copies all of `from` to memory from `address` on. On a fault, returns the first address that
    /// could not be written; then nothing was written.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault>;

    /// Whether the byte at `address` can be read and, if `write`, also written. Has no side
    /// effects.
    fn verify(&mut self, address: u64, write: bool) -> bool;

    /// The process id.
    fn pid(&mut self) -> u64;

    /// The processor's number.
    fn processor(&mut self) -> u64;

    /// The address of the kernel's task structure.
    fn task(&mut self) -> Option<u64> {
        None
    }

    /// A field of the record of the tracepoint that was hit, by the index of its name in the
    /// program's list: an integer extended by its sign to 64 bits, or the address of an array or a
    /// string.
    fn field(&mut self, _index: u16) -> Option<u64> {
        None
    }

    /// The thread's id.
    fn thread(&mut self) -> Option<u64> {
        None
    }

    /// A time in nanoseconds.
    fn time(&mut self, _clock: Clock) -> Option<u64> {
        None
    }

    /// A random number.
    fn random(&mut self) -> Option<u32> {
        None
    }

    /// The thread's user id and group id.
    fn ids(&mut self) -> Option<(u32, u32)> {
        None
    }

    /// The id of the process's parent.
    fn parent(&mut self) -> Option<u32> {
        None
    }

    /// Sends a signal to the thread, or to its process. Returns whether it may; a number that is no
    /// signal's is ignored.
    fn signal(&mut self, _number: u64, _to_thread: bool) -> bool {
        false
    }

    /// At a function's entry: when all handlers have run, the function returns this value at once.
    /// Returns whether it will.
    fn override_function(&mut self, _result: u64) -> bool {
        false
    }

    /// The thread's name, padded with zeros.
    fn name(&mut self) -> Option<[u8; 16]> {
        None
    }

    /// The thread's stack: the address of the instruction that was hit, then return addresses, the
    /// innermost first. Returns how many were found, at most `frames.len()`.
    fn stack(&mut self, _frames: &mut [u64]) -> Option<usize> {
        None
    }

    /// The number under which a map has the thread's stack of at most `most` frames, no more than
    /// [`FRAMES_LIMIT`], or 0 if there is none or no room for it.
    fn stack_number(&mut self, maps: &Maps<'_>, map: usize, most: usize) -> Option<u64> {
        let mut frames = [0; FRAMES_LIMIT];
        let room = frames.get_mut(..most)?;
        let found = self.stack(room)?.min(most);
        let bytes = frames.map(u64::to_le_bytes);
        Some(match found {
            0 => 0,
            found => maps.intern(map, bytes[..found].as_flattened()),
        })
    }

    /// The linear address of an offset in the segment that a selector names; `None`, if it names
    /// none, raises [`crate::Exception::SEG_FAULT`].
    fn linear_address(&mut self, _selector: u16, _offset: u64) -> Option<u64> {
        None
    }

    /// Reads `size` bytes, 1, 2 or 4, from a port.
    fn read_port(&mut self, _port: u16, _size: usize) -> Option<u32> {
        None
    }

    /// Writes the low `size` bytes, 1, 2 or 4, of a value to a port. Returns whether it could.
    fn write_port(&mut self, _port: u16, _size: usize, _value: u32) -> bool {
        false
    }

    /// Whether the run must end because its probe is being removed. A long run asks every few
    /// thousand instructions.
    fn is_over(&mut self) -> bool {
        false
    }

    /// Calls the kernel modules that have registered for `callk`. Returns whether it could.
    fn call_kernel_modules(&mut self) -> bool {
        false
    }

    /// Calls the plugins registered for `callk` and lends them the run's stack and log. Returns
    /// whether it could. The default lends nothing and does as [`Machine::call_kernel_modules`].
    fn call_registered(&mut self, _run: &mut dyn RunAccess) -> bool {
        self.call_kernel_modules()
    }
}

/// The part of a run that `callk` lends to plugins: its stack and its log.
pub trait RunAccess {
    /// The program's word.
    fn word(&self) -> Word;

    /// Pops a word from the RPN stack.
    fn pop(&mut self) -> u64;

    /// Pushes a value, truncated to the word, on the RPN stack.
    fn push(&mut self, value: u64);

    /// Logs bytes as `log mrf` logs memory. Returns whether they fitted; if not, nothing is logged.
    fn log(&mut self, bytes: &[u8]) -> bool;
}

/// The last address that a word can hold.
const fn last(word: Word) -> u64 {
    word.truncate(u64::MAX)
}

/// Reads `into.len()` bytes at `base + offset`. Addresses do not wrap: a range that passes the last
/// address of the word faults, at 0 if the part before the end can be read.
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
    // Bytes of the address space after `address`.
    let after = last(word) - address;
    match into.len().checked_sub(1) {
        None => Ok(()),
        Some(more) if more as u64 <= after => machine.read(address, into),
        Some(_) => machine.read(address, &mut into[..after as usize + 1]).and(Err(past)),
    }
}

/// Writes `from`, 1 to 8 bytes, at `address`. A range that passes the last address of the word
/// faults, at 0 if the part before the end could be written, and changes nothing.
#[inline]
pub(crate) fn write<M: Machine>(machine: &mut M, word: Word, address: u64, from: &[u8]) -> Result<(), Fault> {
    if (from.len() - 1) as u64 <= last(word) - address {
        return machine.write(address, from);
    }
    let refused = (address..=last(word)).find(|&byte| !machine.verify(byte, true));
    Err(Fault { address: refused.unwrap_or(0) })
}
