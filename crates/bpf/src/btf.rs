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

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const PROTOTYPE: u32 = 13;
    pub(super) const VARIABLE: u32 = 14;
    pub(super) const SECTION: u32 = 15;
    pub(super) const DECLARATION_TAG: u32 = 17;
    pub(super) const ENUM64: u32 = 19;
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

/// The number of a function's type in a BTF file.
fn find_function(file: &[u8], name: &str) -> Option<u32> {
    let word = |offset: usize| {
        let bytes = file.get(offset..offset.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let header = word(4)? as usize;
    let (types, types_size) = (header + word(8)? as usize, word(12)? as usize);
    let strings = file.get(header + word(16)? as usize..)?;
    let named = |offset: u32| {
        let rest = strings.get(offset as usize..)?;
        rest.get(..name.len())
            .zip(rest.get(name.len()))
            .map(|(text, end)| text == name.as_bytes() && *end == 0)
    };
    let mut at = types;
    let mut number = 1;
    while at < types + types_size {
        let info = word(at + 4)?;
        let (kind, length) = (info >> 24 & 31, (info & 0xffff) as usize);
        if kind == kind::FUNCTION && named(word(at)?) == Some(true) {
            return Some(number);
        }
        at += 12
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

    #[test]
    fn a_broken_file_has_no_functions() {
        let file = of_functions(2);
        for length in 0..file.len() {
            assert_eq!(find_function(&file[..length], "f1"), None, "{length} bytes");
        }
    }
}
