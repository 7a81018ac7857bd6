//! The types of values.

use std::fmt::{self, Display, Formatter};
use std::rc::Rc;

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Integer {
    /// Its size: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it has negative values.
    pub signed: bool,
}

impl Integer {
    /// `int64`.
    pub const I64: Integer = Integer { bytes: 8, signed: true };
    /// `uint64`.
    pub const U64: Integer = Integer { bytes: 8, signed: false };

    /// The smallest type that has all values of both, if one has.
    pub(crate) fn common(self, other: Integer) -> Option<Integer> {
        if self.signed == other.signed {
            return Some(self.max(other));
        }
        let (signed, unsigned) = if self.signed { (self, other) } else { (other, self) };
        let bytes = signed.bytes.max(unsigned.bytes.checked_mul(2)?);
        (bytes <= 8).then_some(Integer { bytes, signed: true })
    }

    /// Whether it has this value.
    pub(crate) fn holds(self, value: u64) -> bool {
        let bits = u32::from(self.bytes) * 8 - u32::from(self.signed);
        bits >= 64 || value >> bits == 0
    }

    /// The smallest unsigned type that has a value.
    pub(crate) fn of(value: u64) -> Integer {
        let bytes = [1, 2, 4].into_iter().find(|bytes| value >> (bytes * 8) == 0).unwrap_or(8);
        Integer { bytes, signed: false }
    }

    /// The smallest signed type that has the negative of a value; `int64` if none has.
    pub(crate) fn of_negative(value: u64) -> Integer {
        let bytes = [1u8, 2, 4].into_iter().find(|bytes| value <= 1 << (bytes * 8 - 1)).unwrap_or(8);
        Integer { bytes, signed: true }
    }
}

/// What a named type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tag {
    /// A struct.
    Struct,
    /// A union.
    Union,
    /// An enum.
    Enum,
    /// A name without a keyword, of which only a program can tell what it means.
    Alias,
}

impl Tag {
    /// The keyword.
    pub fn word(self) -> &'static str {
        match self {
            Tag::Struct => "struct",
            Tag::Union => "union",
            Tag::Enum => "enum",
            Tag::Alias => "type",
        }
    }
}

/// Values that a script keeps and prints, but does not look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opaque {
    /// A stack of the kernel.
    KernelStack,
    /// A stack of a process.
    UserStack,
    /// An address of the kernel that is printed as a symbol.
    KernelSymbol,
    /// An address of a process that is printed as a symbol.
    UserSymbol,
    /// An address of a network.
    Inet,
    /// An address of a network card.
    Mac,
    /// A formatted time.
    Timestamp,
    /// The path of a cgroup.
    CgroupPath,
    /// The name of a user, by its number.
    User,
    /// The name of a process, by its number.
    Process,
}

/// The value of a map that is updated by a function, such as `count()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aggregate {
    /// `avg`.
    Avg,
    /// `count`.
    Count,
    /// `hist`.
    Hist,
    /// `lhist`.
    Lhist,
    /// `max`.
    Max,
    /// `min`.
    Min,
    /// `stats`.
    Stats,
    /// `sum`.
    Sum,
    /// `tseries`.
    Tseries,
}

impl Aggregate {
    /// Whether it can be read as one integer.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Aggregate::Avg | Aggregate::Count | Aggregate::Max | Aggregate::Min | Aggregate::Sum)
    }
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Type {
    /// Known only when the probes are placed: from debug information, or from the command line.
    #[default]
    Unknown,
    /// No value.
    Void,
    /// `true` or `false`.
    Bool,
    /// An integer.
    Integer(Integer),
    /// A floating-point number of 4 or 8 bytes: printed and converted, not calculated with.
    Float(u8),
    /// A string.
    Text,
    /// Bytes, as `buf()` reads them.
    Bytes,
    /// A pointer.
    Pointer(Rc<Type>),
    /// An array; its length may follow from a value.
    Array(Rc<Type>, Option<u32>),
    /// A struct, union or enum by its name.
    Named(Tag, Rc<str>),
    /// A type of a program that scripts cannot calculate with, such as `__int128`: its name and
    /// size.
    Foreign(Rc<str>, u32),
    /// A tuple.
    Tuple(Rc<[Type]>),
    /// Something to keep and print.
    Opaque(Opaque),
    /// The value of a map with a function.
    Aggregate(Aggregate),
}

/// The maximum number of parts of a type: a tuple of tuples could double with each line.
pub(crate) const MAX_PARTS: usize = 256;

impl Type {
    /// `int64`.
    pub(crate) const I64: Type = Type::Integer(Integer::I64);
    /// `uint64`.
    pub const U64: Type = Type::Integer(Integer::U64);

    /// An unsigned integer of so many bytes.
    pub fn unsigned(bytes: u8) -> Type {
        Type::Integer(Integer { bytes, signed: false })
    }

    /// A signed integer of so many bytes.
    pub fn signed(bytes: u8) -> Type {
        Type::Integer(Integer { bytes, signed: true })
    }

    pub(crate) fn pointer(self) -> Type {
        Type::Pointer(Rc::new(self))
    }

    /// The number of its parts; not more than is needed to see that it is too many.
    pub(crate) fn count_parts(&self) -> usize {
        match self {
            Type::Tuple(members) => members
                .iter()
                .fold(1, |sum, member| if sum > MAX_PARTS { sum } else { sum + member.count_parts() }),
            Type::Pointer(inner) | Type::Array(inner, _) => 1 + inner.count_parts(),
            _ => 1,
        }
    }

    /// The integer type that stands for it in a calculation.
    pub(crate) fn as_integer(&self) -> Option<Integer> {
        match self {
            Type::Integer(integer) => Some(*integer),
            Type::Bool => Some(Integer { bytes: 1, signed: false }),
            Type::Named(Tag::Enum, _) => Some(Integer { bytes: 4, signed: false }),
            Type::Aggregate(Aggregate::Count) => Some(Integer::U64),
            Type::Aggregate(aggregate) if aggregate.is_number() => Some(Integer::I64),
            _ => None,
        }
    }

    /// The integer type names: those of the language, of C, and of the kernel.
    pub(crate) fn named(name: &str) -> Option<Type> {
        let unsigned = |bytes| Some(Type::unsigned(bytes));
        let signed = |bytes| Some(Type::signed(bytes));
        match name {
            "bool" | "_Bool" => Some(Type::Bool),
            "void" => Some(Type::Void),
            "string" => Some(Type::Text),
            "buffer" => Some(Type::Bytes),
            "float" => Some(Type::Float(4)),
            "double" => Some(Type::Float(8)),
            "char" | "int8" | "int8_t" | "s8" | "__s8" => signed(1),
            "short" | "int16" | "int16_t" | "s16" | "__s16" => signed(2),
            "int" | "int32" | "int32_t" | "s32" | "__s32" | "pid_t" => signed(4),
            "long" | "int64" | "int64_t" | "s64" | "__s64" | "ssize_t" | "off_t" | "loff_t" | "time_t"
            | "intptr_t" | "ptrdiff_t" => signed(8),
            "uint8" | "uint8_t" | "u8" | "__u8" => unsigned(1),
            "uint16" | "uint16_t" | "u16" | "__u16" => unsigned(2),
            "uint32" | "uint32_t" | "u32" | "__u32" | "uid_t" | "gid_t" | "mode_t" | "dev_t" => unsigned(4),
            "uint64" | "uint64_t" | "u64" | "__u64" | "size_t" | "uintptr_t" => unsigned(8),
            _ => opaque(name),
        }
    }
}

/// The names of types that functions give.
const OPAQUE: &[(&str, Type)] = &[
    ("inet", Type::Opaque(Opaque::Inet)),
    ("macaddr_t", Type::Opaque(Opaque::Mac)),
    ("timestamp", Type::Opaque(Opaque::Timestamp)),
    ("cgroup_path_t", Type::Opaque(Opaque::CgroupPath)),
    ("username_t", Type::Opaque(Opaque::User)),
    ("comm_t", Type::Opaque(Opaque::Process)),
    ("kstack_t", Type::Opaque(Opaque::KernelStack)),
    ("ustack_t", Type::Opaque(Opaque::UserStack)),
    ("ksym_t", Type::Opaque(Opaque::KernelSymbol)),
    ("usym_t", Type::Opaque(Opaque::UserSymbol)),
    ("avg_t", Type::Aggregate(Aggregate::Avg)),
    ("count_t", Type::Aggregate(Aggregate::Count)),
    ("hist_t", Type::Aggregate(Aggregate::Hist)),
    ("lhist_t", Type::Aggregate(Aggregate::Lhist)),
    ("max_t", Type::Aggregate(Aggregate::Max)),
    ("min_t", Type::Aggregate(Aggregate::Min)),
    ("stats_t", Type::Aggregate(Aggregate::Stats)),
    ("sum_t", Type::Aggregate(Aggregate::Sum)),
    ("tseries_t", Type::Aggregate(Aggregate::Tseries)),
];

fn opaque(name: &str) -> Option<Type> {
    OPAQUE.iter().find(|(each, _)| *each == name).map(|(_, found)| found.clone())
}

impl Display for Type {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Type::Unknown => out.write_str("unknown"),
            Type::Void => out.write_str("void"),
            Type::Bool => out.write_str("bool"),
            Type::Integer(Integer { bytes, signed }) => {
                write!(out, "{}int{}", if *signed { "" } else { "u" }, u32::from(*bytes) * 8)
            }
            Type::Float(4) => out.write_str("float"),
            Type::Float(_) => out.write_str("double"),
            Type::Text => out.write_str("string"),
            Type::Bytes => out.write_str("buffer"),
            Type::Pointer(inner) => {
                write!(out, "{inner}{}*", if matches!(**inner, Type::Pointer(_)) { "" } else { " " })
            }
            Type::Array(inner, length) => {
                // C's order: the outer length first.
                let mut lengths = String::new();
                let mut inner = inner;
                let mut length = length;
                loop {
                    lengths.push('[');
                    lengths.push_str(&length.map_or(String::new(), |length| length.to_string()));
                    lengths.push(']');
                    match &**inner {
                        Type::Array(next, more) => (inner, length) = (next, more),
                        _ => break write!(out, "{inner}{lengths}"),
                    }
                }
            }
            Type::Named(Tag::Alias, name) | Type::Foreign(name, _) => out.write_str(name),
            Type::Named(tag, name) => write!(out, "{} {}", tag.word(), crate::type_key::shown(name)),
            Type::Tuple(members) => {
                out.write_str("(")?;
                for (index, member) in members.iter().enumerate() {
                    write!(out, "{}{member}", if index == 0 { "" } else { ", " })?;
                }
                out.write_str(if members.len() == 1 { ",)" } else { ")" })
            }
            Type::Opaque(_) | Type::Aggregate(_) => {
                let found = OPAQUE.iter().find(|(_, each)| each == self);
                out.write_str(found.map_or("", |(name, _)| name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_type_has_all_values_of_both() {
        let of = |bytes, signed| Integer { bytes, signed };
        assert_eq!(of(1, false).common(of(2, false)), Some(of(2, false)));
        assert_eq!(of(1, false).common(of(1, true)), Some(of(2, true)));
        assert_eq!(of(4, false).common(of(1, true)), Some(of(8, true)));
        assert_eq!(of(8, false).common(of(8, true)), None);
        assert_eq!(Integer::of(255), of(1, false));
        assert_eq!(Integer::of(256), of(2, false));
        assert_eq!(Integer::of_negative(128), of(1, true));
        assert_eq!(Integer::of_negative(129), of(2, true));
        assert!(of(1, true).holds(127) && !of(1, true).holds(128));
    }

    #[test]
    fn a_type_is_shown_as_it_is_written() {
        let array = Type::Array(Rc::new(Type::Array(Rc::new(Type::signed(4)), Some(3))), Some(2));
        assert_eq!(array.to_string(), "int32[2][3]");
        assert_eq!(Type::unsigned(1).pointer().pointer().to_string(), "uint8 **");
        assert_eq!(Type::Tuple([Type::Text].into()).to_string(), "(string,)");
        assert_eq!(Type::named("count_t").map(|it| it.to_string()).as_deref(), Some("count_t"));
    }
}
