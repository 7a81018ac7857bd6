//! The agent's own code as bytes, to be put into a process.
//!
//! It is one piece, mapped readable and executable, never writable; constants are in it. It runs at any address; where it
//! has pointers to its own constants, the address is added to them before it is written.

use alloc::vec::Vec;

use layout::LOW_END;

/// The agent's own code, as it was linked for address 0.
#[derive(Debug)]
pub struct Image {
    bytes: &'static [u8],
    /// Entry points by their names.
    entries: &'static [(&'static str, u32)],
    /// Bytes of instructions, which come first.
    code: u32,
    /// The place of the settings.
    settings: u32,
    /// The fault table: the place of an instruction that may fault, and the place to go on at.
    faults: &'static [(u32, u32)],
    /// The places of words that hold an address, and what they hold at address 0.
    relocations: &'static [(u32, u64)],
}

/// What the agent is told of the address space that it is put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The address of the [`layout::Identity`].
    pub identity: u32,
    /// The address of the word by which the reader of all rings shows that it lives: [`layout::ABANDONED`] says that
    /// it does not, any other value must change while it does.
    pub reader: u32,
}

/// An entry point of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// [`crate::inside::entry::dprobes_resume`].
    Resume,
    /// [`crate::inside::entry::dprobes_wait`].
    Wait,
    /// [`crate::inside::entry::dprobes_give_up`].
    GiveUp,
}

impl Entry {
    /// All of them.
    pub const ALL: [Entry; 3] = [Entry::Resume, Entry::Wait, Entry::GiveUp];

    /// Its name in the image.
    fn name(self) -> &'static str {
        match self {
            Entry::Resume => "resume",
            Entry::Wait => "wait",
            Entry::GiveUp => "give_up",
        }
    }
}

static IMAGE: Image = include!(concat!(env!("OUT_DIR"), "/agent.rs"));

/// The agent's own code.
pub fn image() -> &'static Image {
    &IMAGE
}

impl Image {
    /// Bytes of it.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of instructions; what follows them is constants.
    pub fn code_size(&self) -> usize {
        self.code as usize
    }

    /// The bytes for an address, a multiple of 64 below [`LOW_END`] less the size.
    pub fn at(&self, base: u64, settings: Settings) -> Vec<u8> {
        debug_assert!(base.is_multiple_of(64) && base + self.bytes.len() as u64 <= LOW_END);
        let mut bytes = self.bytes.to_vec();
        // The build has looked at the places: the words are there.
        let mut set = |place: u32, value: u64| {
            let place = place as usize;
            bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
        };
        for &(place, value) in self.relocations {
            set(place, base.wrapping_add(value));
        }
        set(self.settings, settings.identity.into());
        set(self.settings + 8, settings.reader.into());
        bytes
    }

    /// The address of an entry point where the image is at `base`.
    pub fn entry(&self, entry: Entry, base: u64) -> u64 {
        let found = self.entries.iter().find(|(name, _)| *name == entry.name());
        let (_, place) = found.expect("a test looks for each entry point");
        base + u64::from(*place)
    }

    /// The fault table where the image is at `base`: the address of each instruction that may fault, ascending, and that at
    /// which the thread goes on then.
    pub fn faults(&self, base: u64) -> impl Iterator<Item = (u64, u64)> {
        self.faults.iter().map(move |&(from, to)| (base + u64::from(from), base + u64::from(to)))
    }
}
