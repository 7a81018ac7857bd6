//! What an assembler has collected, before there are distances.

use crate::insn::Insn;
use crate::label::{AssembleError, Label};
use crate::opcode::{class, jump};

/// Something that was pushed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// An instruction that names no label.
    Plain(Insn),
    /// A 64-bit load.
    Wide([Insn; 2]),
    /// A jump, conditional or not.
    Jump(Insn, Label),
    /// A call of a function.
    Call(Insn, Label),
    /// A 64-bit load of a function's address.
    Address([Insn; 2], Label),
}

impl Item {
    /// How many instructions it is.
    pub(crate) fn size(self) -> i32 {
        match self {
            Self::Plain(_) | Self::Jump(..) | Self::Call(..) => 1,
            Self::Wide(_) | Self::Address(..) => 2,
        }
    }

    /// Whether the next item can be executed after this one.
    pub(crate) fn falls_through(self) -> bool {
        match self {
            Self::Plain(insn) => insn.code != class::JMP | jump::EXIT,
            Self::Jump(insn, _) => insn.code != class::JMP | jump::JA,
            _ => true,
        }
    }

    /// The label that it names.
    pub(crate) fn label(self) -> Option<Label> {
        match self {
            Self::Jump(_, label) | Self::Call(_, label) | Self::Address(_, label) => Some(label),
            Self::Plain(_) | Self::Wide(_) => None,
        }
    }
}

/// Items, and where labels and functions are among them.
#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) list: Vec<Item>,
    /// For each label the item that it names, once it is bound.
    pub(crate) labels: Vec<Option<usize>>,
    /// The first items of functions, in ascending order; the first is 0.
    pub(crate) functions: Vec<usize>,
    /// From which place in the caller's source the items from here on come, if from any; ascending.
    pub(crate) sources: Vec<(usize, Option<u32>)>,
}

impl Default for Items {
    fn default() -> Self {
        Self { list: Vec::new(), labels: Vec::new(), functions: vec![0], sources: Vec::new() }
    }
}

impl Items {
    /// The item that a label names.
    pub(crate) fn item_of(&self, label: Label) -> Result<usize, AssembleError> {
        self.labels[label.0 as usize].ok_or(AssembleError::Unbound(label))
    }

    /// The items of the function to which an item belongs.
    pub(crate) fn function(&self, item: usize) -> std::ops::Range<usize> {
        let after = self.functions.partition_point(|&first| first <= item);
        let end = self.functions.get(after).copied().unwrap_or(self.list.len());
        self.functions[after - 1]..end
    }

    /// Checks that every label that is named is bound, jumps to its own function and calls to a
    /// function's begin.
    pub(crate) fn check(&self) -> Result<(), AssembleError> {
        for (number, &item) in self.list.iter().enumerate() {
            let Some(label) = item.label() else { continue };
            let place = self.item_of(label)?;
            match item {
                Item::Jump(..) if !self.function(number).contains(&place) => {
                    return Err(AssembleError::LeavesFunction(number));
                }
                Item::Call(..) | Item::Address(..) if self.functions.binary_search(&place).is_err() => {
                    return Err(AssembleError::NotAFunction(label));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
