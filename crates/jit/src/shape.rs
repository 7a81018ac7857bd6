//! What is known at compile time about a run at a place of the code.

/// Where an element of the stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    /// A number.
    Number(u64),
    /// The site's address, which differs if the handler is moved.
    Site,
    /// The program's value of a general register, all 64 bits.
    Program(u8),
    /// A register used by the handler.
    Register(u8),
    /// The cell for the element's own position, or for the word's own offset.
    Cell,
}

/// A code of the record: major or minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    /// Not set yet.
    Unset,
    /// This number.
    Number(u16),
    /// In its cell; [`layout::UNSET`] if not set.
    Cell,
}

/// How much has been logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Log {
    /// The length so far, and the length after the last completed logging instruction.
    Known { length: usize, complete: usize },
    /// Both are in cells.
    Cells,
}

/// A count of jumps or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Count {
    /// This number.
    Known(u32),
    /// In its cell.
    Cell,
}

/// A string in the handler's frame. Its bytes, padded with zeros to a multiple of 8, are as many as
/// its cell says ([`Cell::Text`](crate::frame::Cell::Text)); what is behind them is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Text {
    /// Its offset.
    pub(crate) at: u16,
    /// The most bytes that it has, a multiple of 8.
    pub(crate) room: u16,
}

impl Text {
    /// Whether bytes of the frame are in its room.
    pub(crate) fn overlaps(self, at: usize, length: usize) -> bool {
        at < usize::from(self.at) + usize::from(self.room) && usize::from(self.at) < at + length
    }
}

/// The known state of a run.
///
/// Code for the same bytecode instruction is shared if the shapes are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// The elements of the stack, from the lowest position that the handler reaches
    /// ([`Facts::least`]) up.
    ///
    /// [`Facts::least`]: crate::scan::Facts::least
    pub(crate) stack: Vec<Location>,
    /// The words of the handler's frame that were set, by offset, ascending; they do not overlap.
    /// All other bytes of it are 0.
    pub(crate) words: Vec<(u16, Location)>,
    /// The strings in the handler's frame, by offset, ascending: in the context's
    /// [`layout::FRAME`], with their lengths in cells. No word overlaps their room.
    pub(crate) texts: Vec<Text>,
    /// The active calls: procedure and return offset.
    pub(crate) calls: Vec<(u32, u32)>,
    /// Whether a context is claimed; then the context and record registers are set.
    pub(crate) claimed: bool,
    /// Whether a context is claimed in which no record is begun; then the context register is set.
    pub(crate) holds: bool,
    pub(crate) log: Log,
    pub(crate) major: Code,
    pub(crate) minor: Code,
    pub(crate) jumps: Count,
    pub(crate) calls_made: Count,
    /// Executed instructions not yet added to their cell; 0 if they are not counted.
    pub(crate) steps: u32,
}

impl Shape {
    /// The start of a run that reaches `below` elements under the first. If `known` is false,
    /// counts are in cells.
    pub(crate) fn start(below: usize, known: bool) -> Shape {
        Shape {
            stack: vec![Location::Number(0); below],
            words: Vec::new(),
            calls: Vec::new(),
            claimed: false,
            holds: false,
            texts: Vec::new(),
            log: if known { Log::Known { length: 0, complete: 0 } } else { Log::Cells },
            major: if known { Code::Unset } else { Code::Cell },
            minor: if known { Code::Unset } else { Code::Cell },
            jumps: if known { Count::Known(0) } else { Count::Cell },
            calls_made: if known { Count::Known(0) } else { Count::Cell },
            steps: 0,
        }
    }

    /// Whether an element or a word is in this register.
    pub(crate) fn holds(&self, register: u8) -> bool {
        self.holders(register) > 0
    }

    /// The registers with elements and words, as a bit set.
    pub(crate) fn registers(&self) -> u16 {
        let words = self.words.iter().map(|(_, location)| location);
        let bit = |location: &Location| match location {
            Location::Register(number) => 1 << number,
            _ => 0,
        };
        self.stack.iter().chain(words).map(bit).fold(0, |all, bit| all | bit)
    }

    /// The number of elements and words in this register.
    pub(crate) fn holders(&self, register: u8) -> usize {
        let words = self.words.iter().map(|(_, location)| location);
        self.stack.iter().chain(words).filter(|it| **it == Location::Register(register)).count()
    }
}
