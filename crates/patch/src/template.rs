//! A template is a slot without an address, made from the displaced instruction.
//!
//! Its fixups determine where the slot can be ([`Template::reach`]) and its bytes there
//! ([`Template::at`]).

use std::ops::RangeInclusive;

use iced_x86::{ConditionCode, Register};

use crate::Mode;
use crate::classify::{Class, Count, Decoded};
use crate::fixup::{Fixup, Target};
use crate::slot::{Continuation, SLOT_CAPACITY, Slot};
use crate::slot_position::SlotPosition;
use crate::substituted_argument::{Argument, SubstitutedArgument};

/// A slot whose address is not chosen yet.
#[derive(Debug)]
pub(crate) struct Template {
    mode: Mode,
    site: u64,
    /// The address after the original.
    next: u64,
    onward: Continuation,
    bytes: Vec<u8>,
    fixups: Vec<Fixup>,
    places: Vec<(usize, SlotPosition)>,
    absolute: Vec<usize>,
    instruction_length: usize,
}

impl Template {
    /// The slot of an instruction whose bytes are `original`.
    pub(crate) fn of(
        decoded: &Decoded,
        original: &[u8],
        onward: Continuation,
        lent: Option<SubstitutedArgument>,
    ) -> Template {
        let site = decoded.instruction.ip();
        let mut template = Template {
            mode: decoded.mode,
            site,
            next: decoded.mode.cut(decoded.instruction.next_ip()),
            onward,
            bytes: Vec::with_capacity(SLOT_CAPACITY),
            fixups: Vec::new(),
            places: vec![(0, SlotPosition::Before)],
            absolute: Vec::new(),
            instruction_length: 0,
        };
        match decoded.class {
            Class::SystemCall => match lent {
                Some(lent) => template.lending(original, lent),
                None => template.system_call(original),
            },
            Class::Transaction { target } => template.transaction(decoded, original, target),
            Class::Jump { target } => template.jump(target),
            Class::Branch { condition, target } => template.branch(condition, target),
            Class::Count { count, bytes, target } => template.count(count, bytes, target),
            Class::Call { target } => template.call(target),
            Class::CallRegister { .. } | Class::CallMemory => template.call_indirect(decoded, original),
            Class::Copied
            | Class::PopFlags { .. }
            | Class::Nothing
            | Class::JumpRegister { .. }
            | Class::PushRegister { .. }
            | Class::PushValue { .. }
            | Class::Return { .. } => template.copy(decoded, original),
        }
        template
    }

    /// The slot addresses from which every fixup reaches its target.
    pub(crate) fn reach(&self) -> RangeInclusive<u64> {
        let last = i128::from(self.mode.last()) - self.bytes.len() as i128;
        let (low, high) = self
            .fixups
            .iter()
            .map(|fixup| fixup.reach())
            .fold((0, last), |(low, high), (from, to)| (low.max(from), high.min(to)));
        // Both fit in u64 unless no address is in reach; then the range is empty.
        match (u64::try_from(low), u64::try_from(high)) {
            (Ok(low), Ok(high)) => low..=high,
            _ => RangeInclusive::new(1, 0),
        }
    }

    /// The slot at `slot`, or `None` if that is out of reach.
    pub(crate) fn at(mut self, slot: u64) -> Option<Slot> {
        if !self.reach().contains(&slot) {
            return None;
        }
        for fixup in &self.fixups {
            self.bytes[fixup.at..fixup.at + 4].copy_from_slice(&fixup.value(slot)?.to_le_bytes());
        }
        Some(Slot {
            address: slot,
            bytes: self.bytes,
            instruction_length: self.instruction_length,
            site: self.site,
            places: self.places,
            absolute: self.absolute,
        })
    }

    /// ```text
    ///   <the instruction>      its bytes, the displacement of an operand relative to rip computed anew
    ///   e9 rel32               jmp next                as everywhere below: or to where the caller wants, or nothing
    /// ```
    fn copy(&mut self, decoded: &Decoded, original: &[u8]) {
        self.relocated(decoded, original, &[]);
        self.instruction_length = self.bytes.len();
        self.go_on();
    }

    /// ```text
    ///   0f 05                  syscall                the processor puts this slot's next address in rcx
    ///   48 b9 imm64            mov rcx, next          where the original would have put its own
    ///   e9 rel32               jmp next
    /// ```
    /// An ignored prefix of the original is kept. The kernel restarts a system call by moving rip
    /// back by two bytes, the length of the plain instruction.
    fn system_call(&mut self, original: &[u8]) {
        self.bytes.extend_from_slice(original);
        self.instruction_length = self.bytes.len();
        self.places.push((self.bytes.len() - 2, SlotPosition::Before));
        self.after(self.next, Some(self.next));
        self.bytes.extend_from_slice(&[0x48, 0xb9]);
        self.absolute_next();
        self.go_on();
    }

    /// A `syscall` with a substituted second argument, a pointer to eight bytes:
    /// ```text
    ///   48 8d 35 rel32         lea rsi, [rip+data]    the eight bytes at the end
    ///   0f 05                  syscall
    ///   48 8d 35 rel32         lea rsi, [rip+...]     the program's own argument, as it has computed it
    ///   48 b9 imm64            mov rcx, next
    ///   e9 rel32               jmp next
    ///   <8 bytes>              what the call reads
    /// ```
    fn lending(&mut self, original: &[u8], lent: SubstitutedArgument) {
        let argument = lent.argument;
        self.bytes.extend_from_slice(&[0x48, 0x8d, 0x35]);
        let data = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.instruction_length = self.bytes.len();
        self.places.push((self.bytes.len(), SlotPosition::Prepared { argument }));
        self.bytes.extend_from_slice(original);
        self.places.push((self.bytes.len() - 2, SlotPosition::Prepared { argument }));
        self.places.push((self.bytes.len(), SlotPosition::Done { rip: self.next, rcx: self.next, argument }));
        match argument {
            Argument::Address(address) => {
                self.bytes.extend_from_slice(&[0x48, 0x8d, 0x35]);
                self.field(self.to(address));
            }
            Argument::Sum { .. } => self.bytes.extend_from_slice(&argument.load()),
        }
        self.after(self.next, Some(self.next));
        self.bytes.extend_from_slice(&[0x48, 0xb9]);
        self.absolute_next();
        self.go_on();
        let target = Target::Own(self.bytes.len());
        self.fixups.push(Fixup { at: data, end: data + 4, target });
        self.bytes.extend_from_slice(&lent.bytes.to_le_bytes());
    }

    /// ```text
    ///   c7 f8 rel32            xbegin target          the original's target
    ///   e9 rel32               jmp next
    /// ```
    fn transaction(&mut self, decoded: &Decoded, original: &[u8], target: u64) {
        self.bytes.extend_from_slice(original);
        let at = decoded.offsets.immediate_offset();
        let target = self.to(target);
        self.fixups.push(Fixup { at, end: original.len(), target });
        self.instruction_length = self.bytes.len();
        self.go_on();
    }

    /// ```text
    ///   e9 rel32               jmp target
    /// ```
    fn jump(&mut self, target: u64) {
        self.jump_to(target);
        self.instruction_length = self.bytes.len();
    }

    /// ```text
    ///   0f 8x rel32            jcc target             the long form, whichever the original is
    ///   e9 rel32               jmp next
    /// ```
    fn branch(&mut self, condition: ConditionCode, target: u64) {
        self.bytes.extend_from_slice(&[0x0f, 0x80 | condition_number(condition)]);
        self.field(self.to(target));
        self.instruction_length = self.bytes.len();
        self.go_on();
    }

    /// ```text
    ///   [67] e0..e3 05         loop/jrcxz taken       67 where the original has it: it counts in half of the register
    ///   e9 rel32               jmp next
    /// taken:
    ///   e9 rel32               jmp target
    /// ```
    /// With [`Continuation::Behind`]:
    /// ```text
    ///   [67] e0..e3 02         loop/jrcxz taken
    ///   eb 05                  jmp behind
    /// taken:
    ///   e9 rel32               jmp target
    /// behind:
    /// ```
    fn count(&mut self, count: Count, bytes: u64, target: u64) {
        if bytes < self.mode.word() {
            self.bytes.push(0x67);
        }
        let opcode = match count {
            Count::LoopNotEqual => 0xe0,
            Count::LoopEqual => 0xe1,
            Count::Loop => 0xe2,
            Count::IsZero => 0xe3,
        };
        let behind = self.onward == Continuation::Behind;
        self.bytes.extend_from_slice(&[opcode, if behind { 2 } else { 5 }]);
        self.instruction_length = self.bytes.len();
        self.go_on();
        if behind {
            self.bytes.extend_from_slice(&[0xeb, 5]);
        }
        self.after(target, None);
        self.jump_to(target);
        if behind {
            self.after(self.next, None);
        }
    }

    /// ```text
    ///   ff 35 05 00 00 00      push qword [rip+5]     the original's return address
    ///   e9 rel32               jmp target
    ///   <8 bytes>              next
    /// ```
    /// In 32-bit code:
    /// ```text
    ///   68 imm32               push next
    ///   e9 rel32               jmp target
    /// ```
    fn call(&mut self, target: u64) {
        self.push_next(11);
        self.instruction_length = self.bytes.len();
        self.after(target, None);
        self.jump_to(target);
        self.store_next();
    }

    /// ```text
    ///   [41] ff /6 ...         push <operand>         the operand of the call: where it goes
    ///   ff 34 24               push qword [rsp]
    ///   ff 35 05 00 00 00      push qword [rip+5]     the original's return address
    ///   8f 44 24 08            pop qword [rsp+8]      goes below the target, where a call puts it
    ///   c3                     ret                    takes the target
    ///   <8 bytes>              next
    /// ```
    /// In 32-bit code `68 imm32` pushes the return address, and all words are 4 bytes wide.
    ///
    /// No register or flag is used. The operand means the same to a push as to a call (rsp too: its
    /// value before the instruction). An access that would fault in the call faults at the first
    /// instruction, with nothing done.
    fn call_indirect(&mut self, decoded: &Decoded, original: &[u8]) {
        // 66 occurs only beside REX.W, which overrides it; f2 and f3 may affect a push, unlike a
        // call.
        self.relocated(decoded, original, &[0x66, 0xf2, 0xf3]);
        let opcode = self.bytes.iter().position(|byte| *byte == 0xff).unwrap_or(0);
        if let Some(operand) = self.bytes.get_mut(opcode + 1) {
            *operand ^= (2 ^ 6) << 3;
        }
        self.instruction_length = self.bytes.len();
        let word = self.mode.word();
        self.places.push((self.bytes.len(), SlotPosition::Pushed { bytes: word }));
        self.bytes.extend_from_slice(&[0xff, 0x34, 0x24]);
        self.places.push((self.bytes.len(), SlotPosition::Pushed { bytes: 2 * word }));
        self.push_next(self.bytes.len() + 11);
        self.places.push((self.bytes.len(), SlotPosition::Pushed { bytes: 3 * word }));
        self.bytes.extend_from_slice(&[0x8f, 0x44, 0x24, word as u8]);
        self.places.push((self.bytes.len(), SlotPosition::Pushed { bytes: 2 * word }));
        self.bytes.push(0xc3);
        self.store_next();
    }

    /// Appends the original without the prefixes in `dropped`, and a fixup if it is rip-relative.
    fn relocated(&mut self, decoded: &Decoded, original: &[u8], dropped: &[u8]) {
        let prefixes = original.iter().take_while(|byte| is_legacy_prefix(**byte)).count();
        self.bytes.extend(original[..prefixes].iter().filter(|byte| !dropped.contains(byte)));
        let shorter = prefixes - self.bytes.len();
        self.bytes.extend_from_slice(&original[prefixes..]);
        let instruction = &decoded.instruction;
        if !instruction.is_ip_rel_memory_operand() || !decoded.offsets.has_displacement() {
            return;
        }
        let place = decoded.offsets.displacement_offset();
        let mut field = [0; 4];
        field.copy_from_slice(&original[place..place + 4]);
        let displacement = i32::from_le_bytes(field);
        let target = if instruction.memory_base() == Register::EIP {
            Target::Narrow((self.next as u32).wrapping_add_signed(displacement))
        } else {
            Target::Far(i128::from(self.next) + i128::from(displacement))
        };
        self.fixups.push(Fixup { at: place - shorter, end: self.bytes.len(), target });
    }

    /// Pushes the original's return address; in 64-bit code by `push qword [rip+distance]` of the
    /// data at offset `data` (see [`Template::store_next`]).
    fn push_next(&mut self, data: usize) {
        match self.mode {
            Mode::Bits64 => {
                self.bytes.extend_from_slice(&[0xff, 0x35]);
                self.field(Target::Own(data));
            }
            Mode::Bits32 => {
                self.bytes.push(0x68);
                self.bytes.extend_from_slice(&(self.next as u32).to_le_bytes());
            }
        }
    }

    /// Appends the data that [`Template::push_next`] reads in 64-bit code.
    fn store_next(&mut self) {
        if self.mode == Mode::Bits64 {
            self.absolute_next();
        }
    }

    /// Appends the address after the original as a 64-bit word.
    fn absolute_next(&mut self) {
        self.absolute.push(self.bytes.len());
        self.bytes.extend_from_slice(&self.next.to_le_bytes());
    }

    /// Appends the way on after the instruction has fallen through.
    fn go_on(&mut self) {
        self.after(self.next, None);
        match self.onward {
            Continuation::Next => self.jump_to(self.next),
            Continuation::To(address) => self.jump_to(self.mode.cut(address)),
            Continuation::Behind => {}
        }
    }

    /// The fixup target for an address of the program.
    fn to(&self, target: u64) -> Target {
        match self.mode {
            Mode::Bits64 => Target::Far(target.into()),
            Mode::Bits32 => Target::Narrow(target as u32),
        }
    }

    /// `jmp target`, with 32 bits of displacement.
    fn jump_to(&mut self, target: u64) {
        self.bytes.push(0xe9);
        self.field(self.to(target));
    }

    /// Appends a 32-bit field that ends its instruction.
    fn field(&mut self, target: Target) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.fixups.push(Fixup { at, end: at + 4, target });
    }

    /// Notes that at this offset the instruction has completed and the program continues at `rip`.
    fn after(&mut self, rip: u64, rcx: Option<u64>) {
        self.places.push((self.bytes.len(), SlotPosition::After { rip, rcx }));
    }
}

/// Whether a byte is a prefix that may precede REX.
fn is_legacy_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3)
}

/// A condition's number in a conditional jump's opcode (Intel's manual, volume 2, B.1.4.7).
fn condition_number(condition: ConditionCode) -> u8 {
    match condition {
        ConditionCode::o | ConditionCode::None => 0x0,
        ConditionCode::no => 0x1,
        ConditionCode::b => 0x2,
        ConditionCode::ae => 0x3,
        ConditionCode::e => 0x4,
        ConditionCode::ne => 0x5,
        ConditionCode::be => 0x6,
        ConditionCode::a => 0x7,
        ConditionCode::s => 0x8,
        ConditionCode::ns => 0x9,
        ConditionCode::p => 0xa,
        ConditionCode::np => 0xb,
        ConditionCode::l => 0xc,
        ConditionCode::ge => 0xd,
        ConditionCode::le => 0xe,
        ConditionCode::g => 0xf,
    }
}
