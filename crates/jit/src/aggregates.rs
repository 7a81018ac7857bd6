//! `update` of maps without keys: counts, sums and histograms.
//!
//! As for counters ([`crate::count`]), a restartable sequence adds to a word that only this
//! processor writes. A thread that cannot use one adds to the value of copy 0, with a lock.
//!
//! ```text
//!     start:  mov %fs:4(%t), %eax ; shl $shift, %eax
//!             inc counted(%rax)                        a count
//!             add %amount, counted(%rax)               a sum
//!             inc counted(%rax,%bucket,8)              a histogram
//! ```

use crate::emit::Stream;
use crate::operands::{Alu, Condition, RAX, Reg, Rm};
use crate::output::{Operand, Output};
use crate::path::Path;
use layout::{RSEQ_SECTION, RSEQ_SIGNATURE};
use maps::{Kind, MapInfo};

/// What is added, and where.
#[derive(Clone, Copy)]
enum Added {
    /// 1, to the first word.
    One,
    /// A register, to the first word.
    Amount(Reg),
    /// 1, to the word with the number in a register.
    Bucket(Reg),
}

/// The addresses of the words of processor 0, and the distance of the processors' words as a power
/// of 2.
#[derive(Clone, Copy)]
struct Places {
    counted: u32,
    value: u32,
    shift: u8,
}

impl Path<'_> {
    /// Emits `update`. Returns false if it is not compiled.
    pub(crate) fn update(&mut self, map: usize) -> bool {
        let Some(places) = self.places(map) else { return false };
        // The place of a key of no bytes must be in the frame, too.
        let is_inside = |place| matches!(place, Operand::Number(at) if at <= vm::FRAME_LIMIT as u64);
        if self.operand(1) != Operand::Number(0) || !is_inside(self.operand(0)) {
            return false;
        }
        let info = &self.out.environment.maps[map];
        let added = match info.kind() {
            Kind::Hist => Added::Bucket(self.bucket()),
            _ if self.operand(2) == Operand::Number(1) => Added::One,
            _ => Added::Amount(self.in_register(2)),
        };
        let scratch = self.take();
        self.out.add_on_processor(places, added, scratch);
        (0..3).for_each(|_| self.pop());
        true
    }

    /// The places of a map, if it is one of these and each processor has a copy.
    fn places(&self, map: usize) -> Option<Places> {
        let environment = self.out.environment;
        let info: &MapInfo = environment.maps.get(map)?;
        let bytes = info.words.checked_mul(8)?;
        let fits = info.is_counted()
            && info.copies >= environment.processors
            && bytes.is_power_of_two()
            && (info.kind() != Kind::Hist || info.a == 0);
        let address = |place: usize| environment.tables.checked_add(u32::try_from(8 * place).ok()?);
        let places = Places {
            counted: address(info.counted())?,
            value: address(info.value_place())?,
            shift: bytes.trailing_zeros() as u8,
        };
        fits.then_some(places)
    }

    /// A register with the bucket of the value: 0 if it is negative, 1 for 0, then one for each
    /// power of 2.
    pub(crate) fn bucket(&mut self) -> Reg {
        let value = self.in_register(2);
        let to = self.take();
        let emitter = &mut self.out.emitter;
        let done = emitter.label();
        emitter.test(value);
        emitter.number(to, 0);
        emitter.jump_if(Condition::Less, done);
        emitter.number(to, 1);
        emitter.jump_if(Condition::Equal, done);
        emitter.highest_bit(to, value);
        emitter.alu_number(Alu::Add, to, 2);
        emitter.bind(done);
        to
    }
}

impl Output<'_> {
    /// Adds on this processor. Changes rax and `scratch`.
    fn add_on_processor(&mut self, places: Places, added: Added, scratch: Reg) {
        self.frame.change(scratch);
        let section = Rm::Thread(scratch, RSEQ_SECTION);
        let [none, done, start, end, abort] = [(); 5].map(|()| self.emitter.label());
        self.with_rax();
        self.registered(scratch, none);
        self.runs_there(scratch, None, none);
        self.enter_sequence(scratch, [start, end, abort]);
        self.emitter.shift32(crate::operands::Shift::Left, RAX, places.shift);
        let counted = places.counted as i32;
        match added {
            Added::One => self.emitter.step(false, false, Rm::At(RAX, counted)),
            Added::Amount(amount) => self.emitter.alu_store(Alu::Add, Rm::At(RAX, counted), amount),
            Added::Bucket(bucket) => {
                self.emitter.step(false, false, Rm::Indexed(RAX, bucket, 3, counted));
            }
        }
        self.emitter.bind(end);
        self.guard(done);
        self.emitter.store_number(section, 0);
        self.emitter.bind(done);
        let before = self.emitter.aside(Stream::Cold);
        self.emitter.bytes(&RSEQ_SIGNATURE.to_le_bytes());
        self.emitter.bind(abort);
        self.add_locked(places, added);
        self.emitter.jump(end);
        self.emitter.bind(none);
        self.add_locked(places, added);
        self.emitter.jump(done);
        self.emitter.end_detour(before);
    }

    /// Adds to the value of copy 0, which everybody may.
    fn add_locked(&mut self, places: Places, added: Added) {
        let value = Rm::Absolute(places.value);
        match added {
            Added::One => self.emitter.step(true, false, value),
            Added::Amount(amount) => self.emitter.add_locked(value, amount),
            Added::Bucket(bucket) => {
                self.emitter.step(true, false, Rm::Scaled(bucket, 3, places.value as i32));
            }
        }
    }
}
