//! Translates the rows of a function's entry to rules.

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EndianSlice, LittleEndian, Reader, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};
use std::boxed::Box;

use super::elf::Sections;
use super::entries::{Bytes, CommonEntries, Entry, debug_frame, eh_frame};
use super::rows::Rows;
use crate::row::{Base, Cfa, Rule, Saved};

/// The number of general registers.
const GENERAL: u16 = 16;
/// Where the return address is, relative to the CFA.
const RETURN_ADDRESS: i64 = -8;
/// Where a `ucontext` has rip.
const CONTEXT_RIP: i64 = 168;

// Operations of expressions (DWARF 5, section 7.7.1).
const DEREF: u8 = 0x06;
const PLUS_UCONST: u8 = 0x23;
const BREG: u8 = 0x70;

/// Room for the state of one function's program: more registers than x86-64 has general ones, and
/// as many remembered rows as compilers nest.
struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 34];
    type Stack = Box<[UnwindTableRow<usize, Self>; 8]>;
}

type UnwindRow = UnwindTableRow<usize, Storage>;

/// Executes the programs of entries.
pub(super) struct Translator<'a> {
    bases: &'a BaseAddresses,
    eh_frame: (EhFrame<Bytes<'a>>, CommonEntries<'a>),
    debug_frame: (DebugFrame<Bytes<'a>>, CommonEntries<'a>),
    context: UnwindContext<usize, Storage>,
}

impl<'a> Translator<'a> {
    pub(super) fn new(sections: &'a Sections<'a>) -> Translator<'a> {
        Translator {
            bases: &sections.bases,
            eh_frame: (eh_frame(sections), CommonEntries::default()),
            debug_frame: (debug_frame(sections), CommonEntries::default()),
            context: UnwindContext::new_in(),
        }
    }

    /// Adds the rows of an entry up to an address. Where it is damaged, the rest is unsupported.
    pub(super) fn translate(&mut self, entry: &Entry, end: u64, rows: &mut Rows) {
        let (bases, context) = (self.bases, &mut self.context);
        if entry.is_debug {
            let (section, common) = &mut self.debug_frame;
            translate(section, common, bases, context, entry, end, rows);
        } else {
            let (section, common) = &mut self.eh_frame;
            translate(section, common, bases, context, entry, end, rows);
        }
    }
}

fn translate<'a, S>(
    section: &S,
    common: &mut CommonEntries<'a>,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize, Storage>,
    entry: &Entry,
    end: u64,
    rows: &mut Rows,
) where
    S: UnwindSection<Bytes<'a>>,
{
    let offset = S::Offset::from(entry.offset as usize);
    let parsed = section.fde_from_offset(bases, offset, |section, bases, at| common.get(section, bases, at));
    let Ok(parsed) = parsed else { return };
    if parsed.cie().return_address_register() != X86_64::RA {
        return;
    }
    let Ok(mut table) = parsed.rows(section, bases, context) else { return };
    let mut reached = entry.start;
    loop {
        match table.next_row() {
            Ok(Some(row)) if row.start_address() < end => {
                if row.end_address() > row.start_address() && row.start_address() >= reached {
                    rows.push(row.start_address(), rule(row, section));
                    reached = row.end_address();
                }
            }
            Ok(_) => return,
            // The row that is incomplete begins where the last one ends.
            Err(_) if reached < end => return rows.push(reached, Rule::Unsupported),
            Err(_) => return,
        }
    }
}

/// The rule that a row of the unwinding information is.
fn rule<'a, S: UnwindSection<Bytes<'a>>>(row: &UnwindRow, section: &S) -> Rule {
    let is_default = |rule: &RegisterRule<usize>| {
        matches!(rule, RegisterRule::Undefined | RegisterRule::SameValue | RegisterRule::ValOffset(0))
    };
    let (rbp, rbx) = (saved(row, X86_64::RBP, section), saved(row, X86_64::RBX, section));
    match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => return Rule::End,
        Some(RegisterRule::Expression(at))
            if register_plus(&at, section) == Some((X86_64::RSP, CONTEXT_RIP)) =>
        {
            return Rule::Signal;
        }
        // What else the caller's rsp may be is in functions that switch stacks.
        _ if !row.register(X86_64::RSP).is_none_or(|rule| is_default(&rule)) => {}
        Some(RegisterRule::Offset(RETURN_ADDRESS)) => {
            return cfa(row.cfa(), section).map_or(Rule::Unsupported, |cfa| Rule::Frame { cfa, rbp, rbx });
        }
        Some(RegisterRule::Register(register)) => {
            if let (Some(Cfa::Rsp(offset)), Some(register)) = (cfa(row.cfa(), section), general(register)) {
                return Rule::Return { register, offset, rbp, rbx };
            }
        }
        _ => {}
    }
    Rule::Unsupported
}

/// The number of a general register.
fn general(register: Register) -> Option<u8> {
    u8::try_from(register.0).ok().filter(|_| register.0 < GENERAL)
}

fn saved<'a, S: UnwindSection<Bytes<'a>>>(row: &UnwindRow, register: Register, section: &S) -> Saved {
    match row.register(register) {
        None | Some(RegisterRule::SameValue) => Saved::No,
        Some(RegisterRule::Offset(offset)) => {
            u32::try_from(offset.wrapping_neg()).map_or(Saved::Lost, Saved::Below)
        }
        Some(RegisterRule::Expression(at)) if register_plus(&at, section) == Some((X86_64::RBP, 0)) => {
            Saved::AtRbp
        }
        Some(_) => Saved::Lost,
    }
}

fn cfa<'a, S: UnwindSection<Bytes<'a>>>(rule: &CfaRule<usize>, section: &S) -> Option<Cfa> {
    match rule {
        CfaRule::RegisterAndOffset { register, offset } => {
            let offset = u32::try_from(*offset).ok()?;
            Some(match *register {
                X86_64::RSP => Cfa::Rsp(offset),
                X86_64::RBP => Cfa::Rbp(offset),
                other => Cfa::Register { register: general(other)?, offset },
            })
        }
        CfaRule::Expression(expression) => computed(expression.get(section).ok()?.0.slice()),
    }
}

/// The CFA of an expression: that of a linkage table, or from a word in memory.
fn computed(expression: &[u8]) -> Option<Cfa> {
    // breg7 8, breg16 0, lit15, and, lit(n), ge, lit3, shl, plus
    if let [0x77, 8, 0x80, 0, 0x3f, 0x1a, literal @ 0x30..0x40, 0x2a, 0x33, 0x24, 0x22] = expression {
        return Some(Cfa::Plt(literal - 0x30));
    }
    // breg7 n, breg(r) 0, lit8, mul, plus, deref, plus_uconst n
    if let [
        0x77,
        first @ 0..0x40,
        index @ BREG..0x80,
        0,
        0x38,
        0x1e,
        0x22,
        DEREF,
        PLUS_UCONST,
        last @ 0..0x80,
    ] = *expression
    {
        let (displacement, addend) = (u32::from(first), u32::from(last));
        return Some(Cfa::Indexed { register: index - BREG, displacement, addend });
    }
    let mut reader = EndianSlice::new(expression, LittleEndian);
    let (register, displacement) = read_register_plus(&mut reader)?;
    let base = match register {
        X86_64::RSP => Base::Rsp,
        X86_64::RBP => Base::Rbp,
        _ => return None,
    };
    if reader.read_u8().ok()? != DEREF {
        return None;
    }
    let addend = match reader.read_u8() {
        Ok(PLUS_UCONST) => u32::try_from(reader.read_uleb128().ok()?).ok()?,
        Ok(_) => return None,
        Err(_) => 0,
    };
    let displacement = i32::try_from(displacement).ok()?;
    reader.is_empty().then_some(Cfa::Memory { base, displacement, addend })
}

/// The register and the offset that are the whole of an expression.
fn register_plus<'a, S: UnwindSection<Bytes<'a>>>(
    expression: &UnwindExpression<usize>,
    section: &S,
) -> Option<(Register, i64)> {
    let mut reader = expression.get(section).ok()?.0;
    read_register_plus(&mut reader).filter(|_| reader.is_empty())
}

fn read_register_plus(reader: &mut Bytes<'_>) -> Option<(Register, i64)> {
    let register =
        reader.read_u8().ok()?.checked_sub(BREG).map(u16::from).filter(|number| *number < GENERAL)?;
    Some((Register(register), reader.read_sleb128().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_linkage_tables_and_of_aligned_stacks_are_known() {
        let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(computed(&plt), Some(Cfa::Plt(11)));
        assert_eq!(computed(&plt[..10]), None);
        let indexed = [0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 6, 0x23, 8];
        assert_eq!(computed(&indexed), Some(Cfa::Indexed { register: 9, displacement: 8, addend: 8 }));
        let memory = |base, displacement, addend| Some(Cfa::Memory { base, displacement, addend });
        assert_eq!(computed(&[0x76, 0x78, 6]), memory(Base::Rbp, -8, 0));
        assert_eq!(computed(&[0x77, 0xd8, 0, 6, 0x23, 8]), memory(Base::Rsp, 88, 8));
        for wrong in
            [&[][..], &[0x76], &[0x76, 0x78], &[0x76, 0x78, 6, 0x23], &[0x76, 0x78, 6, 6], &[0x75, 0, 6]]
        {
            assert_eq!(computed(wrong), None, "{wrong:x?}");
        }
    }
}
