//! A finished program, and how it prints.

use std::fmt;

use crate::helper::Helper;
use crate::insn::{Insn, Size};
use crate::opcode::{alu, class, jump, mode, pseudo, source};

/// The instructions of a program. Maps are named by their index in the list that
/// [`ProgramSpec`](crate::ProgramSpec) gives.
///
/// It prints as text, one instruction a line, with its number as the verifier's log has it:
///
/// ```text
///    0: r1 = map[0]
///    2: call map_lookup_elem
///    3: if r0 == 0 goto 5
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    insns: Vec<Insn>,
    functions: Vec<u32>,
    /// From which place in its source the code from an instruction on comes; ascending.
    sources: Vec<(u32, Option<u32>)>,
}

impl Code {
    pub(crate) fn new(insns: Vec<Insn>, functions: Vec<u32>, sources: Vec<(u32, Option<u32>)>) -> Self {
        Self { insns, functions, sources }
    }

    /// The instructions. A 64-bit load counts as two.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// The numbers of the first instructions of the functions, in ascending order. The first is 0,
    /// the program's entry.
    pub fn functions(&self) -> &[u32] {
        &self.functions
    }

    /// The place in its source that an instruction comes from: what
    /// [`crate::Assembler::source`] was told before it.
    pub fn source(&self, insn: u32) -> Option<u32> {
        let before = self.sources.partition_point(|&(first, _)| first <= insn);
        self.sources.get(before.checked_sub(1)?)?.1
    }

    /// The highest index of a map that an instruction names, plus one.
    pub fn map_count(&self) -> usize {
        let indexes = self.insns.iter().filter(|insn| names_map(**insn)).map(|insn| insn.imm as usize + 1);
        indexes.max().unwrap_or(0)
    }
}

/// Whether an instruction is the first half of a load of a map or of its value.
pub(crate) fn names_map(insn: Insn) -> bool {
    insn.is_load64() && matches!(insn.src(), pseudo::MAP_INDEX | pseudo::MAP_INDEX_VALUE)
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut second_half = false;
        for (number, &insn) in self.insns.iter().enumerate() {
            if second_half {
                second_half = false;
                continue;
            }
            if number > 0 && self.functions.binary_search(&(number as u32)).is_ok() {
                writeln!(f)?;
            }
            let next = self.insns.get(number + 1).map_or(0, |next| next.imm);
            writeln!(f, "{number:4}: {}", Text { insn, next, number: number as i64 })?;
            second_half = insn.is_load64();
        }
        Ok(())
    }
}

impl fmt::Debug for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", Text { insn: *self, next: 0, number: 0 })
    }
}

/// Prints one instruction. A jump's target is a number of an instruction.
struct Text {
    insn: Insn,
    /// The immediate of the next one: the upper half of a 64-bit load.
    next: i32,
    number: i64,
}

impl Text {
    fn target(&self, distance: i64) -> i64 {
        self.number + 1 + distance
    }

    fn memory(&self, base: u8) -> String {
        format!("*(u{} *)(r{base} {:+})", self.bits(), self.insn.offset)
    }

    fn bits(&self) -> usize {
        let sizes = [Size::Byte, Size::Half, Size::Word, Size::Double];
        let size = sizes.into_iter().find(|size| *size as u8 == self.insn.code & 0x18);
        size.map_or(0, Size::bytes) * 8
    }

    /// The second operand of arithmetic or a comparison.
    fn operand(&self, letter: char) -> String {
        if self.insn.code & source::REG != 0 {
            format!("{letter}{}", self.insn.src())
        } else {
            self.insn.imm.to_string()
        }
    }

    fn alu(&self, f: &mut fmt::Formatter<'_>, letter: char) -> fmt::Result {
        let dst = self.insn.dst();
        let operator = match self.insn.code & 0xf0 {
            0x00 => "+=",
            0x10 => "-=",
            0x20 => "*=",
            0x30 => "/=",
            0x40 => "|=",
            0x50 => "&=",
            0x60 => "<<=",
            0x70 => ">>=",
            alu::NEG => return write!(f, "{letter}{dst} = -{letter}{dst}"),
            0x90 => "%=",
            0xa0 => "^=",
            0xb0 => "=",
            0xc0 => "s>>=",
            alu::END => return write!(f, "r{dst} = be{} r{dst}", self.insn.imm),
            _ => return self.unknown(f),
        };
        write!(f, "{letter}{dst} {operator} {}", self.operand(letter))
    }

    fn jump(&self, f: &mut fmt::Formatter<'_>, letter: char) -> fmt::Result {
        let insn = self.insn;
        let target = self.target(i64::from(insn.offset));
        let comparison = match insn.code & 0xf0 {
            jump::JA => return write!(f, "goto {target}"),
            0x10 => "==",
            0x20 => ">",
            0x30 => ">=",
            0x40 => "&",
            0x50 => "!=",
            0x60 => "s>",
            0x70 => "s>=",
            jump::CALL if insn.src() == pseudo::CALL => {
                return write!(f, "call {}", self.target(i64::from(insn.imm)));
            }
            jump::CALL => {
                return match Helper::new(insn.imm).name() {
                    Some(name) => write!(f, "call {name}"),
                    None => write!(f, "call helper {}", insn.imm),
                };
            }
            jump::EXIT => return f.write_str("exit"),
            0xa0 => "<",
            0xb0 => "<=",
            0xc0 => "s<",
            0xd0 => "s<=",
            _ => return self.unknown(f),
        };
        write!(f, "if {letter}{} {comparison} {} goto {target}", insn.dst(), self.operand(letter))
    }

    fn load64(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dst, low) = (self.insn.dst(), self.insn.imm);
        match self.insn.src() {
            0 => {
                let number = u64::from(low as u32) | u64::from(self.next as u32) << 32;
                write!(f, "r{dst} = {number:#x}")
            }
            pseudo::FUNCTION => write!(f, "r{dst} = function {}", self.target(i64::from(low))),
            pseudo::MAP_INDEX => write!(f, "r{dst} = map[{low}]"),
            pseudo::MAP_INDEX_VALUE => write!(f, "r{dst} = map[{low}].value + {}", self.next),
            _ => self.unknown(f),
        }
    }

    fn atomic(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (memory, src) = (self.memory(self.insn.dst()), self.insn.src());
        match self.insn.imm {
            0x00 => write!(f, "lock {memory} += r{src}"),
            0x40 => write!(f, "lock {memory} |= r{src}"),
            0x50 => write!(f, "lock {memory} &= r{src}"),
            0xa0 => write!(f, "lock {memory} ^= r{src}"),
            0x01 => write!(f, "r{src} = fetch_add({memory}, r{src})"),
            0x41 => write!(f, "r{src} = fetch_or({memory}, r{src})"),
            0x51 => write!(f, "r{src} = fetch_and({memory}, r{src})"),
            0xa1 => write!(f, "r{src} = fetch_xor({memory}, r{src})"),
            0xe1 => write!(f, "r{src} = exchange({memory}, r{src})"),
            0xf1 => write!(f, "r0 = compare_exchange({memory}, r0, r{src})"),
            _ => self.unknown(f),
        }
    }

    fn unknown(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.insn.bytes())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let insn = self.insn;
        match insn.code & 7 {
            class::LD if insn.is_load64() => self.load64(f),
            class::LDX => write!(f, "r{} = {}", insn.dst(), self.memory(insn.src())),
            class::ST => write!(f, "{} = {}", self.memory(insn.dst()), insn.imm),
            class::STX if insn.code & 0xe0 == mode::ATOMIC => self.atomic(f),
            class::STX => write!(f, "{} = r{}", self.memory(insn.dst()), insn.src()),
            class::ALU => self.alu(f, 'w'),
            class::ALU64 => self.alu(f, 'r'),
            class::JMP => self.jump(f, 'r'),
            class::JMP32 => self.jump(f, 'w'),
            _ => self.unknown(f),
        }
    }
}
