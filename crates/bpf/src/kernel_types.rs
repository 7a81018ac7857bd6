//! The kernel's types, as its type information (BTF) tells them: of its functions, of the arguments
//! of tracepoints, and of its structs.
//!
//! The file is the kernel's own, but it is read as if it were damaged: every offset is checked, and
//! types that lead to themselves end at a depth. Source: the kernel's
//! `Documentation/bpf/btf.rst`.

mod functions;
mod text;

use std::collections::HashMap;

use nix::errno::Errno;

use crate::btf::{kind, word};
use crate::sys;
pub use functions::Prototype;

/// How many names of one type, and qualifiers, may follow each other.
const DEPTH: usize = 32;
/// The most members of a record, parameters of a function, or constants of an enum.
const MOST: usize = 1 << 16;

/// A type of the kernel, by its number. 0 is `void`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelType(u32);

/// What a type is, without names for it and without qualifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelShape {
    /// Nothing, or not known.
    Void,
    /// A truth value of one byte.
    Bool,
    /// An integer.
    Integer {
        /// Its bytes.
        bytes: u8,
        /// Whether it may be negative.
        signed: bool,
    },
    /// A floating-point number of so many bytes.
    Float(u32),
    /// An address.
    Pointer(KernelType),
    /// Elements of one type.
    Array {
        /// Their type.
        element: KernelType,
        /// Their number.
        length: u32,
    },
    /// A struct or a union.
    Record {
        /// The type itself.
        of: KernelType,
        /// Whether its members share their place.
        is_union: bool,
        /// Its name; empty if it has none.
        name: String,
    },
    /// An enum.
    Enumeration {
        /// The type itself.
        of: KernelType,
        /// Its name; empty if it has none.
        name: String,
        /// Its bytes.
        bytes: u8,
        /// Whether a constant may be negative.
        signed: bool,
    },
    /// A function.
    Function,
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMember {
    /// Its name; empty if it is a record without one.
    pub name: String,
    /// Its type.
    pub of: KernelType,
    /// Where it begins, in bits.
    pub first: u64,
    /// Its number of bits, if it is a bit field.
    pub bits: Option<u8>,
}

/// The types of the running kernel.
#[derive(Debug)]
pub struct KernelTypes {
    bytes: Vec<u8>,
    strings: usize,
    /// Where each type begins, by its number; of 0, nowhere.
    starts: Vec<usize>,
    /// The numbers of the functions. Names are looked for when they are asked for: there are more
    /// than a hundred thousand.
    functions: Vec<u32>,
}

/// A type as it is in the file.
#[derive(Clone, Copy)]
struct Raw {
    name: u32,
    kind: u32,
    length: usize,
    flag: bool,
    /// Its size, or the type that it leads to.
    third: u32,
    /// Where more of it is.
    rest: usize,
}

impl KernelTypes {
    /// Reads the types of the running kernel.
    ///
    /// # Errors
    /// The kernel offers none, or what it offers is not understood.
    pub fn read() -> Result<KernelTypes, Errno> {
        KernelTypes::parse(sys::read_file("/sys/kernel/btf/vmlinux")?).ok_or(Errno::EBADMSG)
    }

    /// Parses a file of types; `None` if it is none.
    pub fn parse(bytes: Vec<u8>) -> Option<KernelTypes> {
        let header = word(&bytes, 4)? as usize;
        let (mut at, strings) = (header + word(&bytes, 8)? as usize, header + word(&bytes, 16)? as usize);
        let end = at + word(&bytes, 12)? as usize;
        if end > bytes.len() || strings > bytes.len() {
            return None;
        }
        let mut types = KernelTypes { bytes, strings, starts: vec![0], functions: Vec::new() };
        while at < end {
            let number = types.starts.len() as u32;
            let raw = types.at(at)?;
            types.starts.push(at);
            if raw.kind == kind::FUNCTION {
                types.functions.push(number);
            }
            at = raw.rest + following(raw);
        }
        Some(types)
    }

    fn at(&self, at: usize) -> Option<Raw> {
        let info = word(&self.bytes, at + 4)?;
        Some(Raw {
            name: word(&self.bytes, at)?,
            kind: info >> 24 & 31,
            length: (info & 0xffff) as usize,
            flag: info >> 31 == 1,
            third: word(&self.bytes, at + 8)?,
            rest: at + 12,
        })
    }

    fn raw(&self, of: KernelType) -> Option<Raw> {
        let start = self.starts.get(of.0 as usize).filter(|_| of.0 > 0)?;
        self.at(*start)
    }

    fn string(&self, offset: u32) -> String {
        let rest = self.bytes.get(self.strings.saturating_add(offset as usize)..).unwrap_or(&[]);
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }

    /// The type behind its names and qualifiers.
    fn plain(&self, mut of: KernelType) -> Option<(KernelType, Raw)> {
        for _ in 0..DEPTH {
            let raw = self.raw(of)?;
            match raw.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    of = KernelType(raw.third);
                }
                _ => return Some((of, raw)),
            }
        }
        None
    }

    /// What a type is.
    pub fn shape(&self, of: KernelType) -> KernelShape {
        let Some((of, raw)) = self.plain(of) else { return KernelShape::Void };
        let bytes = u8::try_from(raw.third).unwrap_or(0);
        let name = || self.string(raw.name);
        match raw.kind {
            kind::INT => {
                let encoding = word(&self.bytes, raw.rest).unwrap_or(0) >> 24;
                match encoding & 4 {
                    // A plain `char` is not marked; on x86 it has a sign.
                    0 => KernelShape::Integer { bytes, signed: encoding & 1 == 1 || name() == "char" },
                    _ => KernelShape::Bool,
                }
            }
            kind::FLOAT => KernelShape::Float(raw.third),
            kind::POINTER => KernelShape::Pointer(KernelType(raw.third)),
            kind::ARRAY => {
                let element = KernelType(word(&self.bytes, raw.rest).unwrap_or(0));
                KernelShape::Array { element, length: word(&self.bytes, raw.rest + 8).unwrap_or(0) }
            }
            kind::STRUCT | kind::UNION => {
                KernelShape::Record { of, is_union: raw.kind == kind::UNION, name: name() }
            }
            // It is only declared: its fields are those of the definition, if there is one.
            kind::FORWARD => {
                let wanted = if raw.flag { kind::UNION } else { kind::STRUCT };
                let defined = self.of_kind(&name(), &[wanted]);
                let of = defined.unwrap_or(of);
                KernelShape::Record { of, is_union: raw.flag, name: name() }
            }
            kind::ENUM | kind::ENUM64 => {
                KernelShape::Enumeration { of, name: name(), bytes, signed: raw.flag }
            }
            kind::FUNCTION | kind::PROTOTYPE => KernelShape::Function,
            _ => KernelShape::Void,
        }
    }

    /// The bytes of a value of a type; `None` if that is not known.
    pub fn size(&self, of: KernelType) -> Option<u64> {
        self.size_within(of, DEPTH)
    }

    fn size_within(&self, of: KernelType, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        match self.shape(of) {
            KernelShape::Void | KernelShape::Function => None,
            KernelShape::Bool => Some(1),
            KernelShape::Integer { bytes, .. } | KernelShape::Enumeration { bytes, .. } => Some(bytes.into()),
            KernelShape::Float(bytes) => Some(bytes.into()),
            KernelShape::Pointer(_) => Some(8),
            KernelShape::Array { element, length } => {
                self.size_within(element, depth)?.checked_mul(length.into())
            }
            KernelShape::Record { of, .. } => {
                let raw = self.raw(of).filter(|raw| raw.kind != kind::FORWARD)?;
                Some(raw.third.into())
            }
        }
    }

    /// The members of a record; none if it is none, or only declared.
    pub fn members(&self, of: KernelType) -> Vec<KernelMember> {
        let Some((_, raw)) = self.plain(of) else { return Vec::new() };
        if !matches!(raw.kind, kind::STRUCT | kind::UNION) {
            return Vec::new();
        }
        let member = |index: usize| {
            let at = raw.rest + 12 * index;
            let offset = word(&self.bytes, at + 8)?;
            let (bits, first) = if raw.flag { (offset >> 24, offset & 0xff_ffff) } else { (0, offset) };
            Some(KernelMember {
                name: self.string(word(&self.bytes, at)?),
                of: KernelType(word(&self.bytes, at + 4)?),
                first: first.into(),
                bits: u8::try_from(bits).ok().filter(|bits| *bits > 0),
            })
        };
        (0..raw.length.min(MOST)).map_while(member).collect()
    }

    /// The constants of an enum.
    pub fn enumerators(&self, of: KernelType) -> Vec<(String, i64)> {
        let Some((_, raw)) = self.plain(of) else { return Vec::new() };
        let constant = |index: usize| match raw.kind {
            kind::ENUM => {
                let at = raw.rest + 8 * index;
                let value = word(&self.bytes, at + 4)?;
                let value = if raw.flag { i64::from(value as i32) } else { i64::from(value) };
                Some((self.string(word(&self.bytes, at)?), value))
            }
            kind::ENUM64 => {
                let at = raw.rest + 12 * index;
                let (low, high) = (word(&self.bytes, at + 4)?, word(&self.bytes, at + 8)?);
                Some((self.string(word(&self.bytes, at)?), (u64::from(high) << 32 | u64::from(low)) as i64))
            }
            _ => None,
        };
        (0..raw.length.min(MOST)).map_while(constant).collect()
    }

    /// The constants of all enums, by name; of several of one name, the first.
    pub fn constants(&self) -> HashMap<String, (KernelType, i64)> {
        let mut all = HashMap::new();
        for number in 1..self.starts.len() as u32 {
            let of = KernelType(number);
            if self.raw(of).is_some_and(|raw| matches!(raw.kind, kind::ENUM | kind::ENUM64)) {
                for (name, value) in self.enumerators(of) {
                    all.entry(name).or_insert((of, value));
                }
            }
        }
        all
    }

    /// Whether the text at an offset is a name.
    fn is_named(&self, offset: u32, name: &str) -> bool {
        let rest = self.bytes.get(self.strings.saturating_add(offset as usize)..).unwrap_or(&[]);
        rest.get(name.len()) == Some(&0) && rest.starts_with(name.as_bytes())
    }

    /// Whether the text at an offset begins so.
    fn begins(&self, offset: u32, with: &str) -> bool {
        let rest = self.bytes.get(self.strings.saturating_add(offset as usize)..).unwrap_or(&[]);
        rest.starts_with(with.as_bytes())
    }

    /// The first type of a name that is of one of these kinds.
    fn of_kind(&self, name: &str, kinds: &[u32]) -> Option<KernelType> {
        let is_it = |number: &u32| {
            let raw = self.raw(KernelType(*number));
            raw.is_some_and(|raw| kinds.contains(&raw.kind) && self.is_named(raw.name, name))
        };
        match kinds {
            _ if name.is_empty() => None,
            [kind::FUNCTION] => self.functions.iter().copied().find(is_it).map(KernelType),
            _ => (1..self.starts.len() as u32).find(is_it).map(KernelType),
        }
    }

    /// The struct, or the union, of a name.
    pub fn record(&self, is_union: bool, name: &str) -> Option<KernelType> {
        self.of_kind(name, &[if is_union { kind::UNION } else { kind::STRUCT }])
    }

    /// The enum of a name.
    pub fn enumeration(&self, name: &str) -> Option<KernelType> {
        self.of_kind(name, &[kind::ENUM, kind::ENUM64])
    }

    /// The type that a name without a keyword means: `pid_t`, `int`.
    pub fn alias(&self, name: &str) -> Option<KernelType> {
        self.of_kind(name, &[kind::TYPEDEF, kind::INT])
    }
}

/// How many bytes follow the first three words of a type.
fn following(raw: Raw) -> usize {
    match raw.kind {
        kind::INT | kind::VARIABLE | kind::DECLARATION_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::SECTION | kind::ENUM64 => 12 * raw.length,
        kind::ENUM | kind::PROTOTYPE => 8 * raw.length,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
