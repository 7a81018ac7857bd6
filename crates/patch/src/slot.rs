//! Slots: code that does elsewhere what the displaced instruction does at its own address.
//!
//! `template` makes them. A [`Slot`] knows its bytes and what each place in it means for a thread
//! that stops there.

use crate::machine::Registers;
use crate::slot_position::SlotPosition;

/// No slot is longer than this, in bytes.
pub const SLOT_CAPACITY: usize = 48;

/// Where a slot continues if its instruction falls through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Continuation {
    /// At the instruction after the original: a jump back.
    #[default]
    Next,
    /// At this address: a jump there.
    To(u64),
    /// Directly behind the slot's bytes: no jump.
    Behind,
}

/// A slot for one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The address for which the bytes were made.
    pub address: u64,
    /// The slot's code, in some slots followed by data that the code reads: at most
    /// [`SLOT_CAPACITY`] bytes. It must be readable and executable; the program never writes to it.
    pub bytes: Vec<u8>,
    /// The length of the first instruction, which in most slots is the displaced one itself.
    pub instruction_length: usize,
    pub(crate) site: u64,
    pub(crate) places: Vec<(usize, SlotPosition)>,
    pub(crate) absolute: Vec<usize>,
}

impl Slot {
    /// Offsets of the 64-bit words that hold addresses of the program: they change by as much as
    /// the module moves, all other bytes stay the same. Empty for 32-bit code.
    pub fn absolute(&self) -> &[usize] {
        &self.absolute
    }

    /// The slot of the same 64-bit instruction where module and slot are `by` bytes higher.
    #[must_use]
    pub fn moved(&self, by: u64) -> Slot {
        let mut bytes = self.bytes.clone();
        for &at in &self.absolute {
            let word = &mut bytes[at..at + 8];
            let address = word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
            word.copy_from_slice(&address.wrapping_add(by).to_le_bytes());
        }
        Slot {
            address: self.address.wrapping_add(by),
            bytes,
            instruction_length: self.instruction_length,
            site: self.site.wrapping_add(by),
            places: self.places.iter().map(|&(offset, place)| (offset, place.moved(by))).collect(),
            absolute: self.absolute.clone(),
        }
    }

    /// The state of a thread whose rip is `offset` bytes into the slot.
    ///
    /// When the kernel restarts a system call (rax: -512 to -516) it moves rip back by two bytes:
    /// leave such a thread in the slot, or it hits the site's breakpoint again.
    pub fn position_at(&self, offset: usize) -> SlotPosition {
        self.places
            .iter()
            .find(|(known, _)| *known == offset)
            .map_or(SlotPosition::Inside, |(_, place)| *place)
    }

    /// Sets the registers of a thread that stopped in this slot to what they would be in unprobed
    /// code. Returns false, and changes nothing, if rip is not at one of the slot's instructions.
    pub fn mend(&self, registers: &mut Registers) -> bool {
        match registers.rip.checked_sub(self.address).map(usize::try_from) {
            Some(Ok(offset)) => self.position_at(offset).mend(self.site, registers),
            _ => false,
        }
    }
}
