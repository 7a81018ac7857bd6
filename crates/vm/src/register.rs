//! The registers a probe program can name.
//!
//! Indices 0x00-0x0f are those of the manual's appendix A (IA32). x86-64 adds the 64-bit names, from 0x100 on.
//! In a 64-bit probe an i386 name means the low 32 bits of its register.

/// The registers that a word's processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterSet {
    /// Named in probes of i386 and x86-64 programs.
    Both,
    /// Named in probes of x86-64 programs only.
    Long,
}

macro_rules! registers {
    ($($index:literal $register:ident $name:literal $set:ident $pop:literal;)*) => {
        /// A register, by its index in the bytecode.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Register {
            $(#[doc = concat!("`", $name, "`")] $register = $index,)*
        }

        impl Register {
            /// Every register, in the order of the indices.
            pub const ALL: &[Register] = &[$(Register::$register,)*];

            /// The register with this index.
            #[inline]
            pub const fn from_index(index: u16) -> Option<Register> {
                match index {
                    $($index => Some(Register::$register),)*
                    _ => None,
                }
            }

            /// Its name, in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Register::$register => $name,)*
                }
            }

            /// Which processors have it.
            #[inline]
            pub const fn set(self) -> RegisterSet {
                match self {
                    $(Register::$register => RegisterSet::$set,)*
                }
            }

            /// Whether a handler may change it (`pop r`, `pop u`).
            #[inline]
            pub const fn can_pop(self) -> bool {
                match self {
                    $(Register::$register => $pop,)*
                }
            }
        }
    };
}

// Index, name in code, name in the source, processors, whether it may be popped.
registers! {
    0x00 Cs "cs" Both false;
    0x01 Ds "ds" Both true;
    0x02 Es "es" Both true;
    0x03 Fs "fs" Both true;
    0x04 Gs "gs" Both true;
    0x05 Ss "ss" Both false;
    0x06 Eax "eax" Both true;
    0x07 Ebx "ebx" Both true;
    0x08 Ecx "ecx" Both true;
    0x09 Edx "edx" Both true;
    0x0a Edi "edi" Both true;
    0x0b Esi "esi" Both true;
    0x0c Eflags "eflags" Both false;
    0x0d Eip "eip" Both false;
    0x0e Esp "esp" Both false;
    0x0f Ebp "ebp" Both true;
    0x100 Rax "rax" Long true;
    0x101 Rbx "rbx" Long true;
    0x102 Rcx "rcx" Long true;
    0x103 Rdx "rdx" Long true;
    0x104 Rdi "rdi" Long true;
    0x105 Rsi "rsi" Long true;
    0x106 Rbp "rbp" Long true;
    0x107 R8 "r8" Long true;
    0x108 R9 "r9" Long true;
    0x109 R10 "r10" Long true;
    0x10a R11 "r11" Long true;
    0x10b R12 "r12" Long true;
    0x10c R13 "r13" Long true;
    0x10d R14 "r14" Long true;
    0x10e R15 "r15" Long true;
    0x10f Rsp "rsp" Long false;
    0x110 Rip "rip" Long false;
    0x111 Rflags "rflags" Long false;
    0x112 FsBase "fs_base" Long false;
    0x113 GsBase "gs_base" Long false;
}

impl Register {
    /// The register of this name; case does not matter.
    pub fn from_name(name: &str) -> Option<Register> {
        Register::ALL.iter().copied().find(|register| register.name().eq_ignore_ascii_case(name))
    }
}
