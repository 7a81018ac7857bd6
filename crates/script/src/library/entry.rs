//! What a row of the library says.

use crate::provider::Providers;
use crate::types::{Aggregate, Opaque, Type};

/// What an argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// Any value.
    Any,
    /// Any value, or a whole map.
    AnyOrMap,
    /// An integer.
    Integer,
    /// An integer that the script states.
    Number,
    /// A pointer, or an integer that is an address.
    Address,
    /// A pointer.
    Pointer,
    /// An address, an array or a string: something with bytes.
    Memory,
    /// A string.
    Text,
    /// A string that the script states.
    Literal,
    /// A format as of `printf`; its values follow.
    Format,
    /// A value that is true or false.
    Condition,
    /// A signal's number or name.
    Signal,
    /// An address of a network: an integer, or an array of 4 or 16 bytes.
    NetworkAddress,
    /// A literal of any type.
    Default,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole map.
    Map,
    /// A whole map that has keys.
    KeyedMap,
    /// A map or a stack.
    Countable,
    /// A key of the map that is the first argument.
    Key,
    /// A scratch variable that is set to a value of the map.
    Variable,
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in the documentation.
    pub name: &'static str,
    /// What it must be.
    pub accepts: Accepts,
    /// Whether it may be left out.
    pub optional: bool,
}

/// What a function gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// Nothing.
    Nothing,
    /// True or false.
    Bool,
    /// An unsigned integer of this size.
    Unsigned(u8),
    /// A signed integer of this size.
    Signed(u8),
    /// A string.
    Text,
    /// Bytes.
    Bytes,
    /// `uint64 *`
    Pointer,
    /// Something to keep and print.
    Opaque(Opaque),
    /// The value of a map.
    Aggregate(Aggregate),
    /// The type of an argument.
    Same(usize),
    /// An unsigned integer of the argument's size.
    Swapped,
    /// Bytes of an address: 4, or 16 if the text has a colon.
    AddressBytes,
    /// The type of the second argument, or `bool` if there is none.
    OfDefault,
    /// Known only when the probe is placed.
    Later,
}

/// How a row is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A value: with or without parentheses.
    Value,
    /// A function.
    Function,
    /// A function that only a map can be set to.
    MapFunction,
}

/// What a row needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: any engine can do it.
    Nothing,
    /// The probe's code in the kernel.
    Kernel,
    /// `--unsafe`: it changes the traced process or starts commands.
    Unsafe,
    /// What no engine of ours has.
    Missing(&'static str),
}

/// A row of the table.
#[derive(Debug)]
pub struct Entry {
    /// The name.
    pub name: &'static str,
    /// How it is used.
    pub usage: Usage,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Its result.
    pub gives: Gives,
    /// The probes in which it has a meaning.
    pub meaning: Providers,
    /// What it needs.
    pub needs: Needs,
    /// What it does, in a few words.
    pub about: &'static str,
}

pub(super) const fn needed(name: &'static str, accepts: Accepts) -> Parameter {
    Parameter { name, accepts, optional: false }
}

pub(super) const fn optional(name: &'static str, accepts: Accepts) -> Parameter {
    Parameter { name, accepts, optional: true }
}

impl Entry {
    pub(super) const fn new(
        name: &'static str,
        usage: Usage,
        parameters: &'static [Parameter],
        gives: Gives,
    ) -> Entry {
        let about = "";
        Entry { name, usage, parameters, gives, meaning: Providers::ALL, needs: Needs::Nothing, about }
    }

    pub(super) const fn within(self, meaning: Providers) -> Entry {
        Entry { meaning, ..self }
    }

    pub(super) const fn needs(self, needs: Needs) -> Entry {
        Entry { needs, ..self }
    }

    pub(super) const fn about(self, about: &'static str) -> Entry {
        Entry { about, ..self }
    }

    /// The number of arguments that it takes at least, and at most.
    pub fn counts(&self) -> (usize, Option<usize>) {
        let least = self.parameters.iter().filter(|parameter| !parameter.optional).count();
        let formats = self.parameters.iter().any(|parameter| parameter.accepts == Accepts::Format);
        (least, (!formats).then_some(self.parameters.len()))
    }

    /// How it is written: `str(data[, length])`.
    pub fn form(&self) -> String {
        let mut out = self.name.to_string();
        if self.usage == Usage::Value && self.parameters.is_empty() {
            return out;
        }
        out.push('(');
        for (index, parameter) in self.parameters.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let (open, close) = if parameter.optional { ("[", "]") } else { ("", "") };
            // What may be left out is in brackets with its comma.
            let later = self.parameters[index..].iter().any(|each| !each.optional);
            out.push_str(&match parameter.optional && later {
                true => format!("{open}{}, {close}", parameter.name),
                false if index > 0 && self.parameters[index - 1].optional && !parameter.optional => {
                    parameter.name.to_string()
                }
                false => format!("{open}{comma}{}{close}", parameter.name),
            });
            if parameter.accepts == Accepts::Format {
                out.push_str(", ...");
            }
        }
        out.push(')');
        out
    }
}

impl Gives {
    /// The type, if it is always the same.
    pub fn fixed(self) -> Option<Type> {
        Some(match self {
            Gives::Nothing => Type::Void,
            Gives::Bool => Type::Bool,
            Gives::Unsigned(bytes) => Type::unsigned(bytes),
            Gives::Signed(bytes) => Type::signed(bytes),
            Gives::Text => Type::Text,
            Gives::Bytes => Type::Bytes,
            Gives::Pointer => Type::U64.pointer(),
            Gives::Opaque(opaque) => Type::Opaque(opaque),
            Gives::Aggregate(aggregate) => Type::Aggregate(aggregate),
            Gives::Later => Type::Unknown,
            Gives::Same(_) | Gives::Swapped | Gives::AddressBytes | Gives::OfDefault => return None,
        })
    }

    pub(super) fn shown(self) -> String {
        match self.fixed() {
            Some(Type::Unknown) => "known when run".into(),
            Some(Type::Void) => "-".into(),
            Some(ty) => format!("`{ty}`"),
            None => match self {
                Gives::Swapped => "unsigned, same size".into(),
                Gives::AddressBytes => "`uint8[4]` or `uint8[16]`".into(),
                _ => "the argument's type".into(),
            },
        }
    }
}
