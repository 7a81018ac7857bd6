//! What is known, at a place of the compiled code, of the run that passes there.

/// Where an element of the stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    /// A number.
    Number(u64),
    /// The site's address, which is another one where the handler is moved.
    Site,
    /// What the program has in a general register, all 64 bits.
    Program(u8),
    /// A register of the handler's own.
    Register(u8),
    /// The cell of the element's own position.
    Cell,
}

/// A code of the record: major or minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    /// Not set yet.
    Unset,
    /// This number.
    Number(u16),
    /// What its cell holds; [`layout::UNSET`] where none was set.
    Cell,
}

/// What has been logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Log {
    /// That many bytes; and that many when a logging had succeeded last.
    Known { length: usize, complete: usize },
    /// What the cells say.
    Cells,
}

/// A count of jumps or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Count {
    /// This number.
    Known(u32),
    /// What its cell holds.
    Cell,
}

/// The state of a run, as far as it is known.
///
/// Two places of the code that stand for the same instruction are one if their shapes are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// The elements of the stack from the lowest position up that the handler reaches: [`Facts::least`].
    ///
    /// [`Facts::least`]: crate::scan::Facts::least
    pub(crate) stack: Vec<Location>,
    /// The calls that have not returned: procedure and return offset.
    pub(crate) calls: Vec<(u32, u32)>,
    /// Whether the context is claimed: then its register and the record's are set.
    pub(crate) claimed: bool,
    pub(crate) log: Log,
    pub(crate) major: Code,
    pub(crate) minor: Code,
    pub(crate) jumps: Count,
    pub(crate) calls_made: Count,
    /// Instructions executed that their cell does not count yet; 0 where none are counted.
    pub(crate) steps: u32,
}

impl Shape {
    /// The start of a run; `below` elements under the first are reached. Where `known` is false, what can be counted is in
    /// cells.
    pub(crate) fn start(below: usize, known: bool) -> Shape {
        Shape {
            stack: vec![Location::Number(0); below],
            calls: Vec::new(),
            claimed: false,
            log: if known { Log::Known { length: 0, complete: 0 } } else { Log::Cells },
            major: if known { Code::Unset } else { Code::Cell },
            minor: if known { Code::Unset } else { Code::Cell },
            jumps: if known { Count::Known(0) } else { Count::Cell },
            calls_made: if known { Count::Known(0) } else { Count::Cell },
            steps: 0,
        }
    }

    /// Whether an element is in that register.
    pub(crate) fn holds(&self, register: u8) -> bool {
        self.stack.contains(&Location::Register(register))
    }

    /// Elements in that register.
    pub(crate) fn holders(&self, register: u8) -> usize {
        self.stack.iter().filter(|it| **it == Location::Register(register)).count()
    }
}
