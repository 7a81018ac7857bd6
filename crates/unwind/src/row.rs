//! A row of a table: where a frame's caller is, for a run of instructions.
//!
//! The canonical frame address (CFA) is the stack pointer as it was before the call: the return
//! address is in the word below it. A rule says how to compute the CFA, and where the caller's rbp
//! and rbx are. Rbx is needed since the dynamic linker's resolver addresses its frame by it.
//!
//! ```text
//!   bits   0..3       3..9   9..15   15..32
//!          kind       rbp    rbx
//!          0          -      -       -                                       Unsupported
//!          1 special  -      -       0: End, 1: Signal, 16 + n: Plt, n in 0..16
//!          2 rsp      Saved  Saved   CFA = rsp + 8 * n
//!          3 rbp      Saved  Saved   CFA = rbp + 8 * n
//!          4 memory   Saved  Saved   bit 15: rsp or rbp; 16..20: addend / 8; 20..32: displacement / 8
//!          5 register Saved  Saved   15..19: its DWARF number; 19..32: n; CFA = register + 8 * n
//!          6 return   Saved  Saved   15..19: its DWARF number; 19..32: n; CFA = rsp + 8 * n
//!          7 indexed  Saved  Saved   15..19: its DWARF number; 19..23: addend / 8; 23..32: displacement / 8
//!
//!   Saved: 0: not; 1: at rbp; 2..63: at CFA - 8 * n; 63: lost
//! ```

const SPECIAL: u32 = 1;
const RSP: u32 = 2;
const RBP: u32 = 3;
const MEMORY: u32 = 4;
const REGISTER: u32 = 5;
const RETURN: u32 = 6;
const INDEXED: u32 = 7;

const END: u32 = 0;
const SIGNAL: u32 = 1;
const PLT: u32 = 16;

const AT_RBP: u32 = 1;
const LOST: u32 = 63;

/// A row: the rule for the addresses from its own to the next row's.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The first address, relative to the module.
    pub address: u32,
    /// The [`Rule`], packed.
    pub rule: u32,
}

/// How to find the caller of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Not known: the frame pointer may help.
    Unsupported,
    /// There is no caller: the outermost frame of a thread.
    End,
    /// The trampoline to which handlers of signals return: the interrupted registers are in the
    /// `ucontext` at rsp.
    Signal,
    /// The return address is below the CFA.
    Frame {
        /// Where the CFA is.
        cfa: Cfa,
        /// Where the caller's rbp is.
        rbp: Saved,
        /// Where the caller's rbx is.
        rbx: Saved,
    },
    /// The return address is in a register, as in `vfork`.
    Return {
        /// The DWARF number of the register.
        register: u8,
        /// The CFA is rsp plus this number of bytes.
        offset: u32,
        /// Where the caller's rbp is.
        rbp: Saved,
        /// Where the caller's rbx is.
        rbx: Saved,
    },
}

/// How to compute the canonical frame address. All numbers are of bytes, and multiples of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// rsp + n.
    Rsp(u32),
    /// rbp + n.
    Rbp(u32),
    /// The word at rsp or rbp + displacement, + addend. So do functions that align their stack.
    Memory {
        /// The register.
        base: Base,
        /// What is added to the register.
        displacement: i32,
        /// What is added to the word.
        addend: u32,
    },
    /// The word at rsp + displacement + 8 * another register, + addend. So do functions of
    /// OpenSSL that have an array on the stack, as long as their numbers.
    Indexed {
        /// The DWARF number of the register.
        register: u8,
        /// What is added to rsp.
        displacement: u32,
        /// What is added to the word.
        addend: u32,
    },
    /// Another register + n.
    Register {
        /// Its DWARF number.
        register: u8,
        /// The bytes that are added.
        offset: u32,
    },
    /// rsp + 8, and 8 more from this offset on in an entry of 16 bytes of the procedure linkage
    /// table.
    Plt(u8),
}

/// A register that the walker knows in each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The stack pointer.
    Rsp,
    /// The frame pointer.
    Rbp,
}

/// Where a register of the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Still in the register.
    No,
    /// At the CFA minus this number of bytes, a multiple of 8.
    Below(u32),
    /// At the address in rbp.
    AtRbp,
    /// Nowhere that a row can express.
    Lost,
}

impl Saved {
    fn pack(self) -> u32 {
        match self {
            Saved::No => 0,
            Saved::AtRbp => AT_RBP,
            Saved::Below(bytes) if bytes % 8 == 0 && (2..LOST).contains(&(bytes / 8)) => bytes / 8,
            Saved::Below(_) | Saved::Lost => LOST,
        }
    }

    fn unpack(packed: u32) -> Saved {
        match packed & 63 {
            0 => Saved::No,
            AT_RBP => Saved::AtRbp,
            LOST => Saved::Lost,
            words => Saved::Below(8 * words),
        }
    }
}

/// A number of bytes as words, if it is a multiple of 8 and fits into so many bits.
fn words(bytes: u32, bits: u32) -> Option<u32> {
    (bytes.is_multiple_of(8) && bytes / 8 < 1 << bits).then_some(bytes / 8)
}

impl Rule {
    /// The rule as 32 bits; [`Rule::Unsupported`] if its numbers do not fit. What does not fit for
    /// a saved register is [`Saved::Lost`].
    pub fn pack(self) -> u32 {
        let (kind, rest, rbp, rbx) = match self {
            Rule::Unsupported => return 0,
            Rule::End => return SPECIAL | END << 15,
            Rule::Signal => return SPECIAL | SIGNAL << 15,
            Rule::Frame { cfa: Cfa::Plt(offset), .. } if offset < 16 => {
                return SPECIAL | (PLT + u32::from(offset)) << 15;
            }
            Rule::Frame { cfa, rbp, rbx } => {
                let (kind, rest) = cfa.pack();
                (kind, rest, rbp, rbx)
            }
            Rule::Return { register, offset, rbp, rbx } => {
                (RETURN, register_and_offset(register, offset), rbp, rbx)
            }
        };
        let Some(rest) = rest else { return 0 };
        kind | rbp.pack() << 3 | rbx.pack() << 9 | rest << 15
    }

    /// The rule of 32 bits. Each value is one.
    #[inline]
    pub fn unpack(packed: u32) -> Rule {
        let rest = packed >> 15;
        let (register, words) = ((rest & 15) as u8, rest >> 4);
        let (rbp, rbx) = (Saved::unpack(packed >> 3), Saved::unpack(packed >> 9));
        let cfa = match packed & 7 {
            RSP => Cfa::Rsp(8 * rest),
            RBP => Cfa::Rbp(8 * rest),
            MEMORY => Cfa::Memory {
                base: if rest & 1 == 0 { Base::Rsp } else { Base::Rbp },
                addend: 8 * (rest >> 1 & 15),
                // The sign is the highest bit.
                displacement: (packed as i32 >> 20) * 8,
            },
            INDEXED => Cfa::Indexed { register, addend: 8 * (words & 15), displacement: 8 * (words >> 4) },
            REGISTER => Cfa::Register { register, offset: 8 * words },
            RETURN => return Rule::Return { register, offset: 8 * words, rbp, rbx },
            SPECIAL => match rest {
                END => return Rule::End,
                SIGNAL => return Rule::Signal,
                PLT..32 => {
                    let cfa = Cfa::Plt((rest - PLT) as u8);
                    return Rule::Frame { cfa, rbp: Saved::No, rbx: Saved::No };
                }
                _ => return Rule::Unsupported,
            },
            _ => return Rule::Unsupported,
        };
        Rule::Frame { cfa, rbp, rbx }
    }
}

impl Cfa {
    /// The kind, and bits 15 and up.
    fn pack(self) -> (u32, Option<u32>) {
        match self {
            Cfa::Rsp(bytes) => (RSP, words(bytes, 17)),
            Cfa::Rbp(bytes) => (RBP, words(bytes, 17)),
            Cfa::Register { register, offset } => (REGISTER, register_and_offset(register, offset)),
            Cfa::Memory { base, displacement, addend } => {
                let fits = displacement % 8 == 0 && (-2048..2048).contains(&(displacement / 8));
                let displacement = fits.then_some((displacement / 8) as u32 & 0xfff);
                let both = displacement.zip(words(addend, 4));
                (MEMORY, both.map(|(words, addend)| u32::from(base == Base::Rbp) | addend << 1 | words << 5))
            }
            Cfa::Indexed { register, displacement, addend } => {
                let both = words(addend, 4).zip(words(displacement, 9)).filter(|_| register < 16);
                (INDEXED, both.map(|(addend, words)| u32::from(register) | addend << 4 | words << 8))
            }
            Cfa::Plt(_) => (0, None),
        }
    }
}

fn register_and_offset(register: u8, offset: u32) -> Option<u32> {
    words(offset, 13).filter(|_| register < 16).map(|words| u32::from(register) | words << 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn saved() -> impl Strategy<Value = Saved> {
        prop_oneof![
            Just(Saved::No),
            Just(Saved::AtRbp),
            Just(Saved::Lost),
            (2..63u32).prop_map(|words| Saved::Below(8 * words)),
        ]
    }

    fn cfa() -> impl Strategy<Value = Cfa> {
        prop_oneof![
            (0..1u32 << 17).prop_map(|words| Cfa::Rsp(8 * words)),
            (0..1u32 << 17).prop_map(|words| Cfa::Rbp(8 * words)),
            (0..16u8, 0..1u32 << 13)
                .prop_map(|(register, words)| Cfa::Register { register, offset: 8 * words }),
            (0..16u8, 0..512u32, 0..16u32).prop_map(|(register, displacement, addend)| Cfa::Indexed {
                register,
                displacement: 8 * displacement,
                addend: 8 * addend
            }),
            (any::<bool>(), -2048..2048i32, 0..16u32).prop_map(|(rbp, displacement, addend)| Cfa::Memory {
                base: if rbp { Base::Rbp } else { Base::Rsp },
                displacement: 8 * displacement,
                addend: 8 * addend
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn frames_come_back(cfa in cfa(), rbp in saved(), rbx in saved()) {
            let rule = Rule::Frame { cfa, rbp, rbx };
            prop_assert_eq!(Rule::unpack(rule.pack()), rule);
        }

        #[test]
        fn returns_come_back(register in 0..16u8, words in 0..1u32 << 13, rbp in saved(), rbx in saved()) {
            let rule = Rule::Return { register, offset: 8 * words, rbp, rbx };
            prop_assert_eq!(Rule::unpack(rule.pack()), rule);
        }

        #[test]
        fn any_bits_are_a_rule(packed in any::<u32>()) {
            let rule = Rule::unpack(packed);
            prop_assert_eq!(Rule::unpack(rule.pack()), rule);
        }
    }

    #[test]
    fn special_rules_come_back() {
        let plt = |offset| Rule::Frame { cfa: Cfa::Plt(offset), rbp: Saved::No, rbx: Saved::No };
        for rule in [Rule::Unsupported, Rule::End, Rule::Signal, plt(0), plt(11), plt(15)] {
            assert_eq!(Rule::unpack(rule.pack()), rule);
        }
    }

    #[test]
    fn what_does_not_fit_is_not_supported() {
        let frame = |cfa| Rule::unpack(Rule::Frame { cfa, rbp: Saved::No, rbx: Saved::No }.pack());
        for cfa in [Cfa::Rsp(4), Cfa::Rsp(8 << 17), Cfa::Rbp(8 << 17), Cfa::Plt(16)] {
            assert_eq!(frame(cfa), Rule::Unsupported);
        }
        let lost = Rule::Frame { cfa: Cfa::Rsp(8), rbp: Saved::Below(8 * 63), rbx: Saved::Below(20) };
        let expected = Rule::Frame { cfa: Cfa::Rsp(8), rbp: Saved::Lost, rbx: Saved::Lost };
        assert_eq!(Rule::unpack(lost.pack()), expected);
    }
}
