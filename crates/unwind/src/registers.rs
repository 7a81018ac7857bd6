//! The registers of a frame. Most of those of a caller are in memory, and are not read before a
//! rule needs them.

use super::row::Saved;

/// The DWARF number of rbx.
const RBX: u8 = 3;
/// The DWARF number of rbp.
const RBP: u8 = 6;
/// The DWARF number of rsp.
const RSP: u8 = 7;

/// Where a `ucontext` has the registers, by DWARF number; then rip (Linux, `sys/ucontext.h`).
const CONTEXT: [u64; 17] = [144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168];

/// The registers of the innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers<'a> {
    /// The address of the instruction.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The frame pointer.
    pub rbp: u64,
    /// All, by their DWARF numbers: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15. Few
    /// functions need more than the three above: those written in assembler, and those that align
    /// their stack, at their first and last instructions.
    pub all: Option<&'a [u64; 16]>,
}

/// Where a register of a frame is.
#[derive(Clone, Copy)]
pub(crate) enum RegisterLocation {
    Value(u64),
    Memory(u64),
    Lost,
}

/// Where the registers are that a row says nothing of.
#[derive(Clone, Copy)]
enum Others<'a> {
    Known(&'a [u64; 16]),
    /// In the `ucontext` at this address.
    Context(u64),
    Lost,
}

/// A frame: its registers, as far as they are known.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) rip: u64,
    pub(crate) rsp: u64,
    rbp: RegisterLocation,
    rbx: RegisterLocation,
    others: Others<'a>,
    /// Whether `rip` is a return address, not an instruction that is executed next.
    pub(crate) is_caller: bool,
}

impl<'a> Frame<'a> {
    pub(crate) fn innermost(registers: &Registers<'a>) -> Frame<'a> {
        let others = registers.all.map_or(Others::Lost, Others::Known);
        let rbx = registers
            .all
            .map_or(RegisterLocation::Lost, |all| RegisterLocation::Value(all[usize::from(RBX)]));
        let rbp = RegisterLocation::Value(registers.rbp);
        Frame { rip: registers.rip, rsp: registers.rsp, rbp, rbx, others, is_caller: false }
    }

    /// The frame that a signal has interrupted, from its `ucontext`.
    pub(crate) fn interrupted(context: u64, mut read: impl FnMut(u64) -> Option<u64>) -> Option<Frame<'a>> {
        let at = |register: u8| context.wrapping_add(CONTEXT[usize::from(register)]);
        Some(Frame {
            rip: read(at(16))?,
            rsp: read(at(RSP))?,
            rbp: RegisterLocation::Memory(at(RBP)),
            rbx: RegisterLocation::Memory(at(RBX)),
            others: Others::Context(context),
            is_caller: false,
        })
    }

    /// The value of a register, by its DWARF number.
    #[inline(always)]
    pub(crate) fn register(&mut self, number: u8, mut read: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        let place = match number {
            RBP => &mut self.rbp,
            RBX => &mut self.rbx,
            RSP => return Some(self.rsp),
            _ => match self.others {
                Others::Known(all) => return all.get(usize::from(number)).copied(),
                Others::Context(at) => return read(at.wrapping_add(*CONTEXT.get(usize::from(number))?)),
                Others::Lost => return None,
            },
        };
        if let RegisterLocation::Memory(at) = *place {
            *place = RegisterLocation::Value(read(at)?);
        }
        match *place {
            RegisterLocation::Value(value) => Some(value),
            _ => None,
        }
    }

    /// The frame pointer.
    pub(crate) fn rbp(&mut self, read: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        self.register(RBP, read)
    }

    /// Makes it the frame of its caller.
    #[inline(always)]
    pub(crate) fn become_caller(&mut self, rip: u64, cfa: u64, rbp: RegisterLocation, rbx: RegisterLocation) {
        *self = Frame { rip, rsp: cfa, rbp, rbx, others: Others::Lost, is_caller: true };
    }

    /// Where the caller's rbp and rbx are.
    #[inline(always)]
    pub(crate) fn saved(
        &mut self,
        cfa: u64,
        rbp: Saved,
        rbx: Saved,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> (RegisterLocation, RegisterLocation) {
        let (own_rbp, own_rbx) = (self.rbp, self.rbx);
        let mut place = |saved, own| match saved {
            Saved::No => own,
            Saved::Below(bytes) => RegisterLocation::Memory(cfa.wrapping_sub(u64::from(bytes))),
            // Compilers do not say that the last instructions of such a function have rbp restored.
            // Then it points beyond the frame.
            Saved::AtRbp => self.rbp(&mut read).map_or(RegisterLocation::Lost, |rbp| {
                if rbp < cfa { RegisterLocation::Memory(rbp) } else { RegisterLocation::Value(rbp) }
            }),
            Saved::Lost => RegisterLocation::Lost,
        };
        (place(rbp, own_rbp), place(rbx, own_rbx))
    }
}
