//! Type information (BTF): what the verifier demands of programs that pass functions to helpers,
//! and the types of the kernel's functions.
//!
//! A program with several functions is given the least that is accepted: each is a static function
//! `int fN(void *)`. Source: the kernel's `Documentation/bpf/btf.rst`.

use std::os::fd::OwnedFd;

use nix::errno::Errno;

use crate::sys::{self, BtfLoad, Command, address};

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;

/// The number of the type of the first function: the types before it are `int`, `void *` and the
/// prototype.
pub(crate) const FIRST_FUNCTION: u32 = 4;

pub(crate) mod kind {
    pub(crate) const INT: u32 = 1;
    pub(crate) const POINTER: u32 = 2;
    pub(crate) const ARRAY: u32 = 3;
    pub(crate) const STRUCT: u32 = 4;
    pub(crate) const UNION: u32 = 5;
    pub(crate) const ENUM: u32 = 6;
    pub(crate) const FORWARD: u32 = 7;
    pub(crate) const TYPEDEF: u32 = 8;
    pub(crate) const VOLATILE: u32 = 9;
    pub(crate) const CONST: u32 = 10;
    pub(crate) const RESTRICT: u32 = 11;
    pub(crate) const FUNCTION: u32 = 12;
    pub(crate) const PROTOTYPE: u32 = 13;
    pub(crate) const VARIABLE: u32 = 14;
    pub(crate) const SECTION: u32 = 15;
    pub(crate) const FLOAT: u32 = 16;
    pub(crate) const DECLARATION_TAG: u32 = 17;
    pub(crate) const TYPE_TAG: u32 = 18;
    pub(crate) const ENUM64: u32 = 19;
}

/// Gives the kernel the types of a program with this many functions.
pub(crate) fn load(functions: usize) -> Result<OwnedFd, Errno> {
    let bytes = of_functions(functions);
    let size = bytes.len() as u32;
    let mut attribute = BtfLoad { btf: address(&bytes), btf_size: size, ..Default::default() };
    // SAFETY: the kernel reads `btf_size` bytes; the command returns a descriptor.
    unsafe { sys::bpf_open(Command::BtfLoad, &mut attribute) }
}

/// The types of a program with this many functions.
fn of_functions(functions: usize) -> Vec<u8> {
    let mut strings = vec![0];
    let mut name = |text: &str| {
        let offset = strings.len() as u32;
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        offset
    };
    let of = |kind: u32, length: u32| kind << 24 | length;
    // A signed int of 32 bits.
    let mut types = vec![name("int"), of(kind::INT, 0), 4, 1 << 24 | 32];
    types.extend([0, of(kind::POINTER, 0), 0]);
    types.extend([0, of(kind::PROTOTYPE, 1), 1, name("ctx"), 2]);
    for number in 0..functions {
        // The length of a function's type is its linkage: 0 is static.
        types.extend([name(&format!("f{number}")), of(kind::FUNCTION, 0), 3]);
    }
    let types_size = types.len() as u32 * 4;
    let mut bytes = Vec::new();
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend([1, 0]);
    for word in [HEADER as u32, 0, types_size, types_size, strings.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(types.iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(strings);
    bytes
}

/// The number of the type of a function of the kernel, to attach a
/// [`Tracing`](crate::ProgramKind::Tracing) program to; `None` if the kernel has no such function.
///
/// # Errors
/// If the kernel offers no type information.
pub fn kernel_function(name: &str) -> Result<Option<u32>, Errno> {
    Ok(find_function(&sys::read_file("/sys/kernel/btf/vmlinux")?, name))
}

/// The offsets in bytes of members of a struct of the kernel; `None` if it does not have one of
/// them, or one is no whole bytes.
///
/// # Errors
/// If the kernel offers no type information.
pub fn kernel_members<const N: usize>(name: &str, members: [&str; N]) -> Result<Option<[u32; N]>, Errno> {
    Ok(find_members(&sys::read_file("/sys/kernel/btf/vmlinux")?, name, members))
}

/// A BTF file.
struct File<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    types: std::ops::Range<usize>,
}

/// A type in it.
#[derive(Clone, Copy)]
struct Type {
    number: u32,
    /// Its number of members, or the like.
    length: usize,
    /// Whether members tell their sizes in bits beside their offsets.
    has_bits: bool,
    /// The place of what follows its first three words.
    rest: usize,
}

impl<'a> File<'a> {
    fn parse(bytes: &'a [u8]) -> Option<File<'a>> {
        let header = word(bytes, 4)? as usize;
        let start = header + word(bytes, 8)? as usize;
        let types = start..start + word(bytes, 12)? as usize;
        let strings = bytes.get(header + word(bytes, 16)? as usize..)?;
        Some(File { bytes, strings, types })
    }

    fn is_named(&self, offset: u32, name: &str) -> Option<bool> {
        let rest = self.strings.get(offset as usize..)?;
        let found = rest.get(..name.len()).zip(rest.get(name.len()));
        found.map(|(text, end)| text == name.as_bytes() && *end == 0)
    }

    /// The first type of these kinds with a name.
    fn find(&self, kinds: &[u32], name: &str) -> Option<Type> {
        let (mut at, mut number) = (self.types.start, 1);
        while at < self.types.end {
            let info = word(self.bytes, at + 4)?;
            let (kind, length) = (info >> 24 & 31, (info & 0xffff) as usize);
            let (of, rest) = (word(self.bytes, at)?, at + 12);
            if kinds.contains(&kind) && self.is_named(of, name) == Some(true) {
                return Some(Type { number, length, has_bits: info >> 31 == 1, rest });
            }
            at = rest
                + match kind {
                    kind::INT | kind::VARIABLE | kind::DECLARATION_TAG => 4,
                    kind::ARRAY => 12,
                    kind::STRUCT | kind::UNION | kind::SECTION | kind::ENUM64 => 12 * length,
                    kind::ENUM | kind::PROTOTYPE => 8 * length,
                    _ => 0,
                };
            number += 1;
        }
        None
    }

    /// The offset of a struct's own member in bytes.
    fn member(&self, of: Type, name: &str) -> Option<u32> {
        for place in (0..of.length).map(|index| of.rest + 12 * index) {
            if self.is_named(word(self.bytes, place)?, name) == Some(true) {
                let offset = word(self.bytes, place + 8)?;
                let (size, bits) = if of.has_bits { (offset >> 24, offset & 0xff_ffff) } else { (0, offset) };
                return (size == 0 && bits.is_multiple_of(8)).then_some(bits / 8);
            }
        }
        None
    }
}

pub(crate) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The number of a function's type in a BTF file.
fn find_function(file: &[u8], name: &str) -> Option<u32> {
    Some(File::parse(file)?.find(&[kind::FUNCTION], name)?.number)
}

/// The offsets of a struct's members in a BTF file.
fn find_members<const N: usize>(file: &[u8], name: &str, members: [&str; N]) -> Option<[u32; N]> {
    let file = File::parse(file)?;
    let of = file.find(&[kind::STRUCT], name)?;
    let mut offsets = [0; N];
    for (offset, member) in offsets.iter_mut().zip(members) {
        *offset = file.member(of, member)?;
    }
    Some(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_name() {
        let file = of_functions(3);
        let find = |name| find_function(&file, name);
        assert_eq!(find("f0"), Some(FIRST_FUNCTION));
        assert_eq!(find("f2"), Some(FIRST_FUNCTION + 2));
        assert_eq!((find("f3"), find("f"), find("int")), (None, None, None));
    }

    /// `struct s { int a; int b : 3; int c; }`, with the sizes of bit fields told or not.
    fn of_struct(has_bits: bool) -> Vec<u8> {
        let strings = b"\0s\0a\0b\0c\0";
        let told = |size: u32, bits: u32| if has_bits { size << 24 | bits } else { bits };
        let types = [
            [1, u32::from(has_bits) << 31 | kind::STRUCT << 24 | 3, 12],
            [3, 0, told(0, 0)],
            [5, 0, told(3, 33)],
            [7, 0, told(0, 64)],
        ];
        let size = 4 * types.as_flattened().len() as u32;
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0]);
        let header = [HEADER as u32, 0, size, size, strings.len() as u32];
        bytes.extend(header.iter().chain(types.as_flattened()).flat_map(|word| word.to_le_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_are_at_whole_bytes() {
        for has_bits in [false, true] {
            let file = of_struct(has_bits);
            assert_eq!(find_members(&file, "s", ["c", "a"]), Some([8, 0]));
            assert_eq!(find_members(&file, "s", ["a", "b"]), None);
            assert_eq!(find_members(&file, "s", ["d"]), None);
            assert_eq!(find_members(&file, "t", ["a"]), None);
            for length in 0..file.len() - 2 {
                assert_eq!(find_members(&file[..length], "s", ["c"]), None, "{length} bytes");
            }
        }
    }

    #[test]
    fn a_broken_file_has_no_functions() {
        let file = of_functions(2);
        for length in 0..file.len() {
            assert_eq!(find_function(&file[..length], "f1"), None, "{length} bytes");
        }
    }
}
