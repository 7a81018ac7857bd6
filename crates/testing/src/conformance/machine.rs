//! A machine with a few regions of memory and a register file. It checks that the interpreter keeps
//! the contract of [`Machine`].

use std::collections::BTreeMap;
use vm::{Clock, Fault, LOG_LIMIT, Machine, Register, RegisterSet, Shape, Word};

/// A range of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The address of its first byte.
    pub start: u64,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Whether it is writable.
    pub writable: bool,
}

/// Registers, memory and system values. Unset values are 0, absent or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestMachine {
    /// The word size of its program.
    pub word: Word,
    /// The nonzero registers of the register file by index, all 64 bits.
    pub registers: BTreeMap<u16, u64>,
    /// All memory, in regions that do not overlap.
    pub memory: Vec<Region>,
    /// The process id.
    pub pid: u64,
    /// The number of the processor.
    pub processor: u64,
    /// The address of the task structure, unless refused.
    pub task: Option<u64>,
    /// The fields of the tracepoint's record, unless there is none.
    pub fields: Vec<u64>,
    /// Registers outside the register file.
    pub wide: BTreeMap<u16, u128>,
    /// eax, ebx, ecx and edx of each leaf.
    pub cpuid: BTreeMap<u32, [u32; 4]>,
    /// The model-specific registers.
    pub model_specific: BTreeMap<u32, u64>,
    /// The base of each selector's segment.
    pub segments: BTreeMap<u16, u64>,
    /// The value of each port.
    pub ports: BTreeMap<u16, u32>,
    /// The number of calls of kernel modules, if they can be called.
    pub calls: Option<u64>,
    /// What is known of the thread.
    pub thread: ThreadFacts,
}

/// What a machine knows of its thread. What is unset is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadFacts {
    /// Its id.
    pub id: Option<u64>,
    /// The time by each clock, in the order of their numbers.
    pub times: [Option<u64>; 4],
    /// Its process's parent.
    pub parent: Option<u32>,
    /// The random number that it gets.
    pub random: Option<u32>,
    /// Its user and its group.
    pub ids: Option<(u32, u32)>,
    /// Its name.
    pub name: Option<[u8; 16]>,
    /// The addresses on its stack.
    pub stack: Option<Vec<u64>>,
}

impl TestMachine {
    /// The byte at an address, if it is readable (writable if `write`).
    fn byte(&mut self, address: u64, write: bool) -> Option<&mut u8> {
        self.memory.iter_mut().find_map(|region| {
            let offset = usize::try_from(address.checked_sub(region.start)?).ok()?;
            let writable = region.writable;
            region.bytes.get_mut(offset).filter(|_| writable || !write)
        })
    }

    /// Checks the contract: a range is not empty and ends within the address space.
    fn check(&self, address: u64, length: usize) {
        let last = self.word.truncate(u64::MAX);
        assert!(length > 0, "an empty access at {address:#x}");
        assert!(address <= last, "{address:#x} is no address");
        assert!(length as u64 - 1 <= last - address, "{length} bytes at {address:#x} pass the end");
    }
}

impl Machine for TestMachine {
    fn register(&mut self, register: Register) -> u64 {
        assert!(self.word == Word::W8 || register.set() == RegisterSet::Both);
        assert_eq!(register.shape(), Shape::General);
        self.registers.get(&(register as u16)).copied().unwrap_or(0)
    }

    fn set_register(&mut self, register: Register, value: u64) {
        assert!(self.word == Word::W8 || register.set() == RegisterSet::Both);
        assert!(register.can_pop());
        assert!(register.set() == RegisterSet::Long || value <= u32::MAX.into());
        self.registers.insert(register as u16, value);
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.check(address, into.len());
        assert!(into.len() <= LOG_LIMIT);
        for (offset, place) in into.iter_mut().enumerate() {
            let address = address + offset as u64;
            // Bytes read before a fault must not be used.
            *place = *self.byte(address, false).ok_or(Fault { address })?;
        }
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.check(address, from.len());
        assert!(from.len() <= 8);
        let mut addresses = (0..from.len() as u64).map(|offset| address + offset);
        if let Some(address) = addresses.find(|&address| self.byte(address, true).is_none()) {
            return Err(Fault { address });
        }
        for (offset, &byte) in from.iter().enumerate() {
            *self.byte(address + offset as u64, true).expect("it was there above") = byte;
        }
        Ok(())
    }

    fn verify(&mut self, address: u64, write: bool) -> bool {
        self.check(address, 1);
        self.byte(address, write).is_some()
    }

    fn pid(&mut self) -> u64 {
        self.pid
    }

    fn processor(&mut self) -> u64 {
        self.processor
    }

    fn task(&mut self) -> Option<u64> {
        self.task
    }

    fn field(&mut self, index: u16) -> Option<u64> {
        self.fields.get(usize::from(index)).copied()
    }

    fn wide_register(&mut self, register: Register) -> Option<u128> {
        assert!(self.word == Word::W8 || register.set() == RegisterSet::Both);
        assert!(!matches!(register.shape(), Shape::General | Shape::Cpuid | Shape::ModelSpecific));
        self.wide.get(&(register as u16)).copied()
    }

    fn cpuid(&mut self, leaf: u32) -> Option<[u32; 4]> {
        self.cpuid.get(&leaf).copied()
    }

    fn model_specific_register(&mut self, number: u32) -> Option<u64> {
        self.model_specific.get(&number).copied()
    }

    fn thread(&mut self) -> Option<u64> {
        self.thread.id
    }

    fn time(&mut self, clock: Clock) -> Option<u64> {
        let [monotonic, elapsed, boot, real] = self.thread.times;
        match clock {
            Clock::Monotonic => monotonic,
            Clock::Elapsed => elapsed,
            Clock::Boot => boot,
            Clock::Real => real,
        }
    }

    fn random(&mut self) -> Option<u32> {
        self.thread.random
    }

    fn parent(&mut self) -> Option<u32> {
        self.thread.parent
    }

    fn ids(&mut self) -> Option<(u32, u32)> {
        self.thread.ids
    }

    fn name(&mut self) -> Option<[u8; 16]> {
        self.thread.name
    }

    fn stack(&mut self, frames: &mut [u64]) -> Option<usize> {
        let stack = self.thread.stack.as_ref()?;
        let found = stack.len().min(frames.len());
        frames[..found].copy_from_slice(&stack[..found]);
        Some(found)
    }

    fn linear_address(&mut self, selector: u16, offset: u64) -> Option<u64> {
        self.segments.get(&selector).map(|base| base.wrapping_add(offset))
    }

    fn read_port(&mut self, port: u16, size: usize) -> Option<u32> {
        assert!([1, 2, 4].contains(&size));
        // May return more bits than requested: the rest must not be used.
        self.ports.get(&port).copied()
    }

    fn write_port(&mut self, port: u16, size: usize, value: u32) -> bool {
        assert!([1, 2, 4].contains(&size));
        assert!(u64::from(value) < 1 << (8 * size));
        match self.ports.get_mut(&port) {
            Some(held) => *held = value,
            None => return false,
        }
        true
    }

    fn call_kernel_modules(&mut self) -> bool {
        match &mut self.calls {
            Some(calls) => *calls += 1,
            None => return false,
        }
        true
    }
}
