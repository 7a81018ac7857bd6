//! What names and keywords of types mean.

use crate::types::{self, Type};

/// What a name of the text's own stands for.
#[derive(Clone)]
pub(super) enum Meaning {
    Type(Type),
    /// A struct or union.
    Whole,
    Nothing,
}

/// The keywords of a number's type, in any order: `long unsigned int`.
#[derive(Default)]
pub(super) struct Words {
    signed: u8,
    unsigned: u8,
    long: u8,
    short: u8,
    int: u8,
    char: u8,
    float: u8,
    double: u8,
    bool: u8,
    void: u8,
}

impl Words {
    /// Counts a word; false if it is no keyword.
    pub(super) fn add(&mut self, word: &str) -> bool {
        let count = match word {
            "signed" => &mut self.signed,
            "unsigned" => &mut self.unsigned,
            "long" => &mut self.long,
            "short" => &mut self.short,
            "int" => &mut self.int,
            "char" => &mut self.char,
            "float" => &mut self.float,
            "double" => &mut self.double,
            "_Bool" | "bool" => &mut self.bool,
            "void" => &mut self.void,
            _ => return false,
        };
        *count = count.saturating_add(1);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        let Words { signed, unsigned, long, short, int, char, float, double, bool, void } = *self;
        [signed, unsigned, long, short, int, char, float, double, bool, void] == [0; 10]
    }

    /// The type; `None` if these words are none, or one that cannot be passed.
    pub(super) fn meaning(&self) -> Option<Meaning> {
        let Words { signed, unsigned, long, short, int, char, float, double, bool, void } = *self;
        match (float, double, bool, void) {
            (0, 0, 0, 0) => {}
            _ if [signed, unsigned, long, short, int, char] != [0; 6] => return None,
            (1, 0, 0, 0) => return Some(Meaning::Type(Type::Fraction { text: "float", bytes: 4 })),
            (0, 1, 0, 0) => return Some(Meaning::Type(Type::Fraction { text: "double", bytes: 8 })),
            (0, 0, 1, 0) => return Some(Meaning::Type(Type::Truth)),
            (0, 0, 0, 1) => return Some(Meaning::Nothing),
            _ => return None,
        }
        let base = match (long, short, int, char) {
            (0, 0, 0, 1) => "char",
            (0, 1, 0 | 1, 0) => "short",
            (0, 0, 0 | 1, 0) => "int",
            (1, 0, 0 | 1, 0) => "long",
            (2, 0, 0 | 1, 0) => "long long",
            _ => return None,
        };
        let spelling = match (signed, unsigned) {
            (1, 0) if base == "char" => "signed char".to_owned(),
            (0 | 1, 0) => base.to_owned(),
            (0, 1) => format!("unsigned {base}"),
            _ => return None,
        };
        types::number(&spelling).map(Meaning::Type)
    }
}
