//! The registers of each machine: names, indices in the bytecode, and what a handler may do with
//! each (manual, appendices A, B and C).
//!
//! The Intel registers come from the interpreter's table ([`vm::Register`]). The others are defined
//! only here: the interpreter does not run programs of other machines.

mod family;
mod intel;
mod ppc;
mod s390;

use std::sync::LazyLock;

use crate::arch::Arch;

use family::RegisterRange;
pub use family::{Register, Uses};

impl Arch {
    /// The registers that a program of this machine can name, in the order of their indices.
    pub fn registers(self) -> &'static [Register] {
        static I386: LazyLock<Vec<Register>> = LazyLock::new(|| intel::registers(false));
        static X86_64: LazyLock<Vec<Register>> = LazyLock::new(|| intel::registers(true));
        static S390: LazyLock<Vec<Register>> = LazyLock::new(|| all(s390::FAMILIES));
        static PPC: LazyLock<Vec<Register>> = LazyLock::new(|| all(ppc::FAMILIES));
        match self {
            Arch::I386 => &I386,
            Arch::X86_64 => &X86_64,
            Arch::S390 | Arch::S390x => &S390,
            Arch::Ppc | Arch::Ppc64 => &PPC,
        }
    }

    /// The register with this name, ignoring case.
    pub(crate) fn register(self, name: &str) -> Option<Register> {
        self.registers().iter().copied().find(|register| register.name.eq_ignore_ascii_case(name))
    }

    /// The register with this index.
    pub(crate) fn register_at(self, index: u64) -> Option<Register> {
        self.registers().iter().copied().find(|register| u64::from(register.index) == index)
    }
}

fn all(families: &[RegisterRange]) -> Vec<Register> {
    families.iter().flat_map(RegisterRange::registers).collect()
}

/// Whether some machine has a register of this name.
pub(crate) fn is_register(name: &str) -> bool {
    Arch::ALL.iter().any(|arch| arch.register(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_ascend_and_no_name_is_there_twice() {
        for arch in Arch::ALL {
            let registers = arch.registers();
            assert!(registers.windows(2).all(|pair| pair[0].index < pair[1].index), "{arch}");
            for register in registers {
                assert_eq!(arch.register(&register.name.to_uppercase()), Some(*register));
                assert_eq!(arch.register_at(register.index.into()), Some(*register));
            }
        }
    }

    /// Selected cells of the appendices: the ends of each family.
    #[test]
    fn the_tables_are_those_of_the_appendices() {
        for (arch, name, index, uses) in [
            (Arch::I386, "cs", 0x00, "yynn"),
            (Arch::I386, "ds", 0x01, "yyyy"),
            (Arch::I386, "esi", 0x0b, "yyyy"),
            (Arch::I386, "eflags", 0x0c, "yynn"),
            (Arch::I386, "ebp", 0x0f, "yyyy"),
            (Arch::I386, "ldtr", 0x21, "nynn"),
            (Arch::I386, "cr4", 0x28, "nynn"),
            (Arch::I386, "dr7", 0x33, "nynn"),
            (Arch::I386, "cpuid", 0x3c, "yynn"),
            (Arch::I386, "msr", 0x3d, "yynn"),
            (Arch::I386, "fr0", 0x3e, "ynnn"),
            (Arch::I386, "fds", 0x4c, "ynnn"),
            (Arch::I386, "xmm7", 0x54, "ynnn"),
            (Arch::X86_64, "mxcsr", 0x55, "ynnn"),
            (Arch::X86_64, "eax", 0x06, "yyyy"),
            (Arch::X86_64, "xmm15", 0x11b, "ynnn"),
            (Arch::S390, "pswmask", 0x00, "yynn"),
            (Arch::S390, "pswaddr", 0x01, "yynn"),
            (Arch::S390x, "fpc", 0x03, "ynnn"),
            (Arch::S390, "gpr0", 0x10, "yyyy"),
            (Arch::S390x, "gpr15", 0x1f, "yyyy"),
            (Arch::S390, "acr15", 0x2f, "yynn"),
            (Arch::S390, "fpr15", 0x3f, "ynnn"),
            (Arch::S390, "cr_15", 0x4f, "nynn"),
            (Arch::Ppc, "nip", 0x01, "yynn"),
            (Arch::Ppc64, "fpc", 0x0a, "yynn"),
            (Arch::Ppc, "cpuid", 0x0b, "yynn"),
            (Arch::Ppc, "r0", 0x10, "yyyy"),
            (Arch::Ppc64, "r31", 0x2f, "yyyy"),
            (Arch::Ppc, "fpr31", 0x4f, "ynnn"),
        ] {
            let register = arch.register(name).unwrap_or_else(|| panic!("{arch} {name}"));
            assert_eq!(register.index, index, "{arch} {name}");
            let Uses { push_u, push_r, pop_u, pop_r } = register.uses;
            let cells = [push_u, push_r, pop_u, pop_r].map(|cell| if cell { 'y' } else { 'n' });
            assert_eq!(cells.into_iter().collect::<String>(), uses, "{arch} {name}");
        }
    }
}
