//! The machines whose programs can be compiled.
//!
//! A program is compiled for one machine ([`crate::Options::arch`]), which determines its word, its
//! registers ([`Arch::registers`]), the available instructions and watchpoints, and the length of
//! an opcode. The bytecode format is otherwise the same: operands are little-endian for every
//! machine, so that one reader reads all objects.

use std::fmt;
use std::str::FromStr;

use vm::Word;

/// The machine of a probed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Arch {
    /// 32-bit programs of Intel processors (the manual's IA32).
    I386,
    /// 64-bit programs of Intel processors.
    #[default]
    X86_64,
    /// S/390: 32-bit programs.
    S390,
    /// zSeries: 64-bit programs.
    S390x,
    /// PowerPC: 32-bit programs.
    Ppc,
    /// PowerPC: 64-bit programs.
    Ppc64,
}

impl Arch {
    /// Every machine.
    pub const ALL: &[Arch] = &[Arch::I386, Arch::X86_64, Arch::S390, Arch::S390x, Arch::Ppc, Arch::Ppc64];

    /// Its name in `--arch`.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::I386 => "i386",
            Arch::X86_64 => "x86-64",
            Arch::S390 => "s390",
            Arch::S390x => "s390x",
            Arch::Ppc => "ppc",
            Arch::Ppc64 => "ppc64",
        }
    }

    /// The machine's word.
    pub const fn word(self) -> Word {
        match self {
            Arch::I386 | Arch::S390 | Arch::Ppc => Word::W4,
            Arch::X86_64 | Arch::S390x | Arch::Ppc64 => Word::W8,
        }
    }

    /// The `e_machine` of its ELF files.
    pub const fn elf_machine(self) -> u16 {
        match self {
            Arch::I386 => 3,
            Arch::X86_64 => 62,
            Arch::S390 | Arch::S390x => 22,
            Arch::Ppc => 20,
            Arch::Ppc64 => 21,
        }
    }

    /// The machine with this `e_machine` in ELF files and this word.
    pub fn of_elf(machine: u16, word: Word) -> Option<Arch> {
        Arch::ALL.iter().copied().find(|arch| arch.elf_machine() == machine && arch.word() == word)
    }

    /// Whether it is an Intel processor: only these have I/O ports, selectors and watchpoints here.
    pub const fn is_intel(self) -> bool {
        matches!(self, Arch::I386 | Arch::X86_64)
    }

    /// Number of the instruction's first bytes that `opcode =` gives, as one number, first byte
    /// most significant: one on Intel processors, two on S/390 (manual, "opcode"). On PowerPC it is
    /// the whole instruction, 4 bytes, since no part of it alone is the opcode.
    pub const fn opcode_bytes(self) -> usize {
        match self {
            Arch::I386 | Arch::X86_64 => 1,
            Arch::S390 | Arch::S390x => 2,
            Arch::Ppc | Arch::Ppc64 => 4,
        }
    }

    /// The largest value of `opcode =`.
    pub const fn largest_opcode(self) -> u32 {
        u32::MAX >> (32 - 8 * self.opcode_bytes())
    }

    /// The name of the instruction with this opcode if no probe can be placed on it (manual,
    /// "opcode"). The manual also lists `wait`, which is left out here: it is special only on a
    /// processor without a floating-point unit.
    pub(crate) const fn unprobed(self, opcode: u32) -> Option<&'static str> {
        match (self, opcode) {
            (Arch::I386 | Arch::X86_64, 0xcc) => Some("int3"),
            (Arch::I386 | Arch::X86_64, 0xcd) => Some("int"),
            (Arch::I386 | Arch::X86_64, 0xce) => Some("into"),
            (Arch::S390 | Arch::S390x, 0x0a00..=0x0aff) => Some("svc"),
            (Arch::S390 | Arch::S390x, 0x8200..=0x82ff) => Some("lpsw"),
            _ => None,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = String;

    /// The machine with this name; `_` counts as `-`, so `x86_64` is accepted.
    fn from_str(name: &str) -> Result<Arch, String> {
        let plain = name.replace('_', "-");
        let found = Arch::ALL.iter().find(|arch| arch.name().eq_ignore_ascii_case(&plain));
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = Arch::ALL.iter().map(|arch| arch.name()).collect();
            format!("`{name}` is not one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_its_machine() {
        for arch in Arch::ALL {
            assert_eq!(arch.name().parse(), Ok(*arch));
        }
        assert_eq!("X86_64".parse(), Ok(Arch::X86_64));
        assert!("ia64".parse::<Arch>().is_err_and(|error| error.contains("s390x, ppc, ppc64")));
    }
}
