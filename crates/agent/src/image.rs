//! The agent's code as bytes, ready to be written into a process.
//!
//! It is one block including its constants, mapped readable and executable, never writable. It runs
//! at any address: relocations of pointers to its constants are applied before it is written.

use alloc::vec::Vec;

use layout::LOW_END;

/// The agent's code, linked for address 0.
#[derive(Debug)]
pub struct Image {
    bytes: &'static [u8],
    /// Entry points by their names.
    entries: &'static [(&'static str, u32)],
    /// The size of the instructions, which come first.
    code: u32,
    /// The offset of the settings.
    settings: u32,
    /// The fault table: offsets of an instruction that may fault and of where to continue.
    faults: &'static [(u32, u32)],
    /// Relocations: offsets of words that hold an address, and their values at address 0.
    relocations: &'static [(u32, u64)],
}

/// The parameters of the agent for an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The address of the [`layout::Identity`].
    pub identity: u32,
    /// The address of the word that shows whether the reader of all rings lives:
    /// [`layout::ABANDONED`] says that it does not; any other value must keep changing while it
    /// does.
    pub reader: u32,
    /// The address of the [`layout::stacks::Directory`]; 0: stacks are walked by frame pointers.
    pub stacks: u32,
}

/// An entry point of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// [`crate::inside::entry::dprobes_resume`].
    Resume,
    /// [`crate::inside::entry::dprobes_wait`].
    Wait,
    /// [`crate::inside::entry::dprobes_map`].
    Map,
    /// [`crate::inside::entry::dprobes_give_up`].
    GiveUp,
}

impl Entry {
    /// All entry points.
    pub const ALL: [Entry; 4] = [Entry::Resume, Entry::Wait, Entry::Map, Entry::GiveUp];

    /// Its symbol in the image.
    fn name(self) -> &'static str {
        match self {
            Entry::Resume => "resume",
            Entry::Wait => "wait",
            Entry::Map => "map",
            Entry::GiveUp => "give_up",
        }
    }
}

static IMAGE: Image = include!(concat!(env!("OUT_DIR"), "/agent.rs"));

/// The agent's image.
pub fn image() -> &'static Image {
    &IMAGE
}

impl Image {
    /// The size of the image in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The size of the instructions in bytes; constants follow.
    pub fn code_size(&self) -> usize {
        self.code as usize
    }

    /// The bytes to write at `base`, a multiple of 64 at most [`LOW_END`] minus the size.
    pub fn at(&self, base: u64, settings: Settings) -> Vec<u8> {
        debug_assert!(base.is_multiple_of(64) && base + self.bytes.len() as u64 <= LOW_END);
        let mut bytes = self.bytes.to_vec();
        // The build has checked that these offsets are inside.
        let mut set = |place: u32, value: u64| {
            let place = place as usize;
            bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
        };
        for &(place, value) in self.relocations {
            set(place, base.wrapping_add(value));
        }
        set(self.settings, settings.identity.into());
        set(self.settings + 8, settings.reader.into());
        set(self.settings + 16, settings.stacks.into());
        bytes
    }

    /// The address of an entry point if the image is at `base`.
    pub fn entry(&self, entry: Entry, base: u64) -> u64 {
        let found = self.entries.iter().find(|(name, _)| *name == entry.name());
        let (_, place) = found.expect("a test looks for each entry point");
        base + u64::from(*place)
    }

    /// The fault table if the image is at `base`: for each instruction that may fault, ascending,
    /// its address and where the thread continues.
    pub fn faults(&self, base: u64) -> impl Iterator<Item = (u64, u64)> {
        self.faults.iter().map(move |&(from, to)| (base + u64::from(from), base + u64::from(to)))
    }
}
