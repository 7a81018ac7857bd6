//! The registers that a probe program can name.
//!
//! Indices 0x00-0x55 are those of the manual's appendix A (IA32), without the reserved ones. x86-64
//! adds the 64-bit names and the other SSE registers, from 0x100 on. In a 64-bit probe the i386
//! name of a general register means its low 32 bits.

use crate::{Context, Word};

/// The word sizes whose processor has a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterSet {
    /// Named in probes of i386 and x86-64 programs.
    Both,
    /// Named in probes of x86-64 programs only.
    Long,
}

/// What a register holds, which determines what `push` pops and pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A general or segment register, the flags, the instruction pointer or a segment's base: one
    /// element, from [`crate::Machine::register`].
    General,
    /// At most a word: one element.
    Word,
    /// 80 bits: three elements of 4 bytes or two of 8, the least significant on top.
    Float,
    /// 128 bits: four elements of 4 bytes or two of 8, the least significant on top.
    Vector,
    /// The base of a descriptor table and its limit: two elements, the limit on top.
    DescriptorTable,
    /// The result of the `cpuid` instruction: pops a leaf, pushes edx, ecx, ebx and eax (on top).
    Cpuid,
    /// A 64-bit model-specific register: pops its number, pushes one element of 8 bytes or two of
    /// 4, low on top.
    ModelSpecific,
}

/// The contexts from which a kernel probe may push a register (manual, appendix A). A user probe
/// has only one context: a register that either instruction may push, both may push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Push {
    /// `push r` and `push u`.
    Both,
    /// `push r` only.
    Current,
    /// `push u` only.
    User,
}

macro_rules! context {
    () => {
        Context::Both
    };
    ($context:ident) => {
        Context::$context
    };
}

macro_rules! registers {
    ($($index:literal $register:ident $name:literal $set:ident $shape:ident $push:ident $pop:literal $($context:ident)?;)*) => {
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

            /// The processors that have it.
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

            /// What it holds.
            #[inline]
            pub const fn shape(self) -> Shape {
                match self {
                    $(Register::$register => Shape::$shape,)*
                }
            }

            /// The contexts from which a kernel probe may push it.
            pub const fn push(self) -> Push {
                match self {
                    $(Register::$register => Push::$push,)*
                }
            }

            /// The probes in which it can be used.
            pub const fn context(self) -> Context {
                match self {
                    $(Register::$register => context!($($context)?),)*
                }
            }
        }
    };
}

// Index, name in code, name in the source, processors, shape, contexts from which it may be pushed,
// whether it may be popped, and `Kernel` if it is for kernel probes only.
registers! {
    0x00 Cs "cs" Both General Both false;
    0x01 Ds "ds" Both General Both true;
    0x02 Es "es" Both General Both true;
    0x03 Fs "fs" Both General Both true;
    0x04 Gs "gs" Both General Both true;
    0x05 Ss "ss" Both General Both false;
    0x06 Eax "eax" Both General Both true;
    0x07 Ebx "ebx" Both General Both true;
    0x08 Ecx "ecx" Both General Both true;
    0x09 Edx "edx" Both General Both true;
    0x0a Edi "edi" Both General Both true;
    0x0b Esi "esi" Both General Both true;
    0x0c Eflags "eflags" Both General Both false;
    0x0d Eip "eip" Both General Both false;
    0x0e Esp "esp" Both General Both false;
    0x0f Ebp "ebp" Both General Both true;
    0x20 Tr "tr" Both Word Current false Kernel;
    0x21 Ldtr "ldtr" Both Word Current false Kernel;
    0x22 Gdtr "gdtr" Both DescriptorTable Current false Kernel;
    0x23 Idtr "idtr" Both DescriptorTable Current false Kernel;
    0x24 Cr0 "cr0" Both Word Current false Kernel;
    0x26 Cr2 "cr2" Both Word Current false Kernel;
    0x27 Cr3 "cr3" Both Word Current false Kernel;
    0x28 Cr4 "cr4" Both Word Current false Kernel;
    0x2c Dr0 "dr0" Both Word Current false Kernel;
    0x2d Dr1 "dr1" Both Word Current false Kernel;
    0x2e Dr2 "dr2" Both Word Current false Kernel;
    0x2f Dr3 "dr3" Both Word Current false Kernel;
    0x32 Dr6 "dr6" Both Word Current false Kernel;
    0x33 Dr7 "dr7" Both Word Current false Kernel;
    0x3c Cpuid "cpuid" Both Cpuid Both false;
    0x3d Msr "msr" Both ModelSpecific Both false Kernel;
    0x3e Fr0 "fr0" Both Float User false;
    0x3f Fr1 "fr1" Both Float User false;
    0x40 Fr2 "fr2" Both Float User false;
    0x41 Fr3 "fr3" Both Float User false;
    0x42 Fr4 "fr4" Both Float User false;
    0x43 Fr5 "fr5" Both Float User false;
    0x44 Fr6 "fr6" Both Float User false;
    0x45 Fr7 "fr7" Both Float User false;
    0x46 Fcw "fcw" Both Word User false;
    0x47 Fsw "fsw" Both Word User false;
    0x48 Ftw "ftw" Both Word User false;
    0x49 Fip "fip" Both Word User false;
    0x4a Fcs "fcs" Both Word User false;
    0x4b Fdp "fdp" Both Word User false;
    0x4c Fds "fds" Both Word User false;
    0x4d Xmm0 "xmm0" Both Vector User false;
    0x4e Xmm1 "xmm1" Both Vector User false;
    0x4f Xmm2 "xmm2" Both Vector User false;
    0x50 Xmm3 "xmm3" Both Vector User false;
    0x51 Xmm4 "xmm4" Both Vector User false;
    0x52 Xmm5 "xmm5" Both Vector User false;
    0x53 Xmm6 "xmm6" Both Vector User false;
    0x54 Xmm7 "xmm7" Both Vector User false;
    0x55 Mxcsr "mxcsr" Both Word User false;
    0x100 Rax "rax" Long General Both true;
    0x101 Rbx "rbx" Long General Both true;
    0x102 Rcx "rcx" Long General Both true;
    0x103 Rdx "rdx" Long General Both true;
    0x104 Rdi "rdi" Long General Both true;
    0x105 Rsi "rsi" Long General Both true;
    0x106 Rbp "rbp" Long General Both true;
    0x107 R8 "r8" Long General Both true;
    0x108 R9 "r9" Long General Both true;
    0x109 R10 "r10" Long General Both true;
    0x10a R11 "r11" Long General Both true;
    0x10b R12 "r12" Long General Both true;
    0x10c R13 "r13" Long General Both true;
    0x10d R14 "r14" Long General Both true;
    0x10e R15 "r15" Long General Both true;
    0x10f Rsp "rsp" Long General Both false;
    0x110 Rip "rip" Long General Both false;
    0x111 Rflags "rflags" Long General Both false;
    0x112 FsBase "fs_base" Long General Both false;
    0x113 GsBase "gs_base" Long General Both false;
    0x114 Xmm8 "xmm8" Long Vector User false;
    0x115 Xmm9 "xmm9" Long Vector User false;
    0x116 Xmm10 "xmm10" Long Vector User false;
    0x117 Xmm11 "xmm11" Long Vector User false;
    0x118 Xmm12 "xmm12" Long Vector User false;
    0x119 Xmm13 "xmm13" Long Vector User false;
    0x11a Xmm14 "xmm14" Long Vector User false;
    0x11b Xmm15 "xmm15" Long Vector User false;
}

impl Register {
    /// Whether its shape is [`Shape::General`]. Decided by index, since every hit asks.
    #[inline(always)]
    pub(crate) const fn is_general(self) -> bool {
        matches!(self as u16, 0x00..=0x0f | 0x100..=0x113)
    }

    /// Elements that a `push` of it pops: the leaf of `cpuid`, the number of `msr`.
    pub const fn pops(self) -> usize {
        match self.shape() {
            Shape::Cpuid | Shape::ModelSpecific => 1,
            _ => 0,
        }
    }

    /// Elements that a `push` of it pushes.
    pub const fn pushes(self, word: Word) -> usize {
        match self.shape() {
            Shape::General | Shape::Word => 1,
            Shape::Float => 10_usize.div_ceil(word.bytes()),
            Shape::Vector => 16 / word.bytes(),
            Shape::DescriptorTable => 2,
            Shape::Cpuid => 4,
            Shape::ModelSpecific => 8 / word.bytes(),
        }
    }

    /// The register with this name, in any case.
    pub fn from_name(name: &str) -> Option<Register> {
        Register::ALL.iter().copied().find(|register| register.name().eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_registers_are_told_by_their_indices_and_no_name_is_there_twice() {
        for (place, &register) in Register::ALL.iter().enumerate() {
            assert_eq!(register.is_general(), register.shape() == Shape::General, "{register:?}");
            assert_eq!(Register::from_index(register as u16), Some(register));
            assert_eq!(Register::from_name(register.name()), Some(register));
            assert!(Register::ALL[..place].iter().all(|other| (*other as u16) < register as u16));
            assert!(register.shape() == Shape::General || !register.can_pop());
        }
    }

    #[test]
    fn a_register_takes_the_elements_that_its_bits_need() {
        let pushes = |register: Register| (register.pushes(Word::W4), register.pushes(Word::W8));
        assert_eq!(pushes(Register::Eax), (1, 1));
        assert_eq!(pushes(Register::Fr7), (3, 2));
        assert_eq!(pushes(Register::Xmm0), (4, 2));
        assert_eq!(pushes(Register::Msr), (2, 1));
        assert_eq!(pushes(Register::Gdtr), (2, 2));
        assert_eq!(pushes(Register::Cpuid), (4, 4));
    }
}
