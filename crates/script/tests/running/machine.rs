//! A thread that hits a probe: registers, memory, and what a handler asks of the system.

use std::collections::BTreeMap;

use vm::{Clock, Fault, Machine, Register};

/// The rest of a page of which a part is given is zeros.
const PAGE: u64 = 4096;

/// Registers, memory and system values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    /// Registers by their name.
    pub(crate) registers: BTreeMap<String, u64>,
    /// Readable memory.
    pub(crate) memory: Vec<(u64, Vec<u8>)>,
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) processor: u64,
    pub(crate) now: u64,
    pub(crate) ids: (u32, u32),
    pub(crate) name: String,
    pub(crate) stack: Vec<u64>,
    pub(crate) parent: u32,
    /// What handlers did to the thread, in words.
    pub(crate) acts: Vec<String>,
}

impl Machine for Thread {
    fn register(&mut self, register: Register) -> u64 {
        self.registers.get(register.name()).copied().unwrap_or(0)
    }

    fn set_register(&mut self, register: Register, value: u64) {
        self.acts.push(format!("{} = {value}", register.name()));
        self.registers.insert(register.name().into(), value);
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        for (offset, byte) in into.iter_mut().enumerate() {
            let address = address.wrapping_add(offset as u64);
            let found = self
                .memory
                .iter()
                .find_map(|(start, bytes)| bytes.get(usize::try_from(address.checked_sub(*start)?).ok()?));
            let is_page = || {
                let pages = |(start, bytes): &(u64, Vec<u8>)| {
                    (*start / PAGE, (start + bytes.len() as u64 - 1) / PAGE)
                };
                self.memory.iter().map(pages).any(|(first, last)| (first..=last).contains(&(address / PAGE)))
            };
            *byte = match found {
                Some(byte) => *byte,
                None if is_page() => 0,
                None => return Err(Fault { address }),
            };
        }
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        if address < PAGE || from.len() > 8 {
            return Err(Fault { address });
        }
        let mut word = [0; 8];
        word[..from.len()].copy_from_slice(from);
        let size = match from.len() {
            8 => String::new(),
            size => format!(", {size} bytes"),
        };
        self.acts.push(format!("at {address}{size}: {}", u64::from_le_bytes(word)));
        for (start, bytes) in &mut self.memory {
            let place = address.checked_sub(*start).and_then(|place| usize::try_from(place).ok());
            if let Some(place) = place.and_then(|place| bytes.get_mut(place..place + from.len())) {
                place.copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn verify(&mut self, _: u64, _: bool) -> bool {
        false
    }

    fn pid(&mut self) -> u64 {
        self.pid
    }

    fn processor(&mut self) -> u64 {
        self.processor
    }

    /// Of a tracepoint's record: as a test has none, small numbers.
    fn field(&mut self, index: u16) -> Option<u64> {
        Some(index.into())
    }

    fn thread(&mut self) -> Option<u64> {
        Some(self.tid)
    }

    fn time(&mut self, clock: Clock) -> Option<u64> {
        self.now += 1;
        let before = match clock {
            Clock::Monotonic => 0,
            _ => 1_000_000,
        };
        Some(self.now + before)
    }

    fn random(&mut self) -> Option<u32> {
        Some(4)
    }

    fn ids(&mut self) -> Option<(u32, u32)> {
        Some(self.ids)
    }

    fn parent(&mut self) -> Option<u32> {
        Some(self.parent)
    }

    fn signal(&mut self, number: u64, to_thread: bool) -> bool {
        self.acts.push(format!("signal {number} to the {}", if to_thread { "thread" } else { "process" }));
        true
    }

    fn override_function(&mut self, result: u64) -> bool {
        self.acts.push(format!("the function returns {result}"));
        true
    }

    fn name(&mut self) -> Option<[u8; 16]> {
        let mut name = [0; 16];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        Some(name)
    }

    fn stack(&mut self, frames: &mut [u64]) -> Option<usize> {
        let count = frames.len().min(self.stack.len());
        frames[..count].copy_from_slice(&self.stack[..count]);
        Some(count)
    }
}
