//! Finds an entry with a key of 8 bytes at the first look, as `maps` does: the first lane of the
//! key's first bucket whose tag is the key's.
//!
//! ```text
//!             the hash: two products, whose halves are folded -> %rax
//!             first bucket -> %at ; tag -> %rax
//!             mov   control(%at), %rdx
//!             the first ready lane with this tag -> %lane          jmp slow, if there is none
//!             cmpq  $8, length(%at,%lane) ; jne slow
//!             cmp   %key, key(%at,%lane) ; jne slow
//!             cmp   control(%at), %rdx ; jne slow
//! ```
//!
//! Whatever is in the table, what is found is in the map: the bucket is one of those that there
//! are, and so is the lane. That a control word is as before shows that key and tag belong
//! together.

use maps::{HASH_FACTORS, MapInfo};

use layout::PROCESSOR_MASK;

use crate::emit::Label;
use crate::operands::{Alu, Condition, RAX, RDX, Reg, Rm, Shift};
use crate::path::Path;

/// The low bits of the bytes of a control word's lanes.
const ONES: u64 = 0x01_0101_0101_0101;
/// The bits of a lane's byte below the highest.
const LOW: u64 = ONES * 0x7f;
/// The bit of a ready lane.
const READY: i32 = 0x80;

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Registers whose sum is the entry's distance from the first.
    pub(crate) at: Reg,
    pub(crate) lane: Reg,
    /// The register with the bit of the control word that says that the lane is ready.
    ready: Reg,
    /// The address of the first bucket, and of the first value.
    control: i32,
    pub(crate) value: i32,
}

impl Found {
    /// A word of the value.
    pub(crate) fn value(self, word: i32) -> Rm {
        Rm::Indexed(self.at, self.lane, 0, self.value + 8 * word)
    }
}

/// The entries of a map with keys in copy 0: addresses, and distances in bytes.
#[derive(Clone, Copy, Debug)]
struct Places {
    layout: maps::Places,
    first: i32,
    copy: i32,
    bucket: i32,
    entry: i32,
}

impl Path<'_> {
    /// Whether a map's entries can be found. Those of a map that evicts note when they are used:
    /// the agent does that.
    pub(crate) fn can_find(&self, info: &MapInfo) -> bool {
        info.key >= 8 && !info.is_evicting() && self.places_of(info).is_some()
    }

    fn places_of(&self, info: &MapInfo) -> Option<Places> {
        let layout = info.places();
        let bytes = |words: usize| i32::try_from(words.checked_mul(8)?).ok();
        let first = i32::try_from(self.out.environment.tables)
            .ok()?
            .checked_add(bytes(info.place as usize + layout.table)?)?;
        i32::try_from(layout.buckets).ok()?;
        Some(Places {
            layout,
            first,
            copy: bytes(info.words as usize)?,
            bucket: bytes(layout.bucket_words)?,
            entry: bytes(layout.entry_words)?,
        })
    }

    /// Finds the entry with the key in a register, in this processor's copy, or goes to `slow`.
    /// Changes rax and rdx, which must be taken, and takes three registers.
    pub(crate) fn find(&mut self, info: &MapInfo, key: Reg, slow: Label) -> Option<Found> {
        let places = self.places_of(info)?;
        let [at, lane, scratch] = [(); 3].map(|()| self.take());
        let found = Found {
            at,
            lane,
            ready: scratch,
            control: places.first,
            value: places.first + 8 * (2 + places.layout.key_words as i32),
        };
        let [first, second, third] = HASH_FACTORS;
        self.out.with_rax().number(RAX, first);
        let emitter = &mut self.out.emitter;
        emitter.number(RDX, second);
        emitter.alu(Alu::Xor, RAX, key);
        emitter.multiply_wide(RDX);
        emitter.alu(Alu::Xor, RAX, RDX);
        emitter.number(RDX, third);
        emitter.alu(Alu::Xor, RAX, RDX);
        emitter.number(RDX, first);
        emitter.multiply_wide(RDX);
        emitter.alu(Alu::Xor, RAX, RDX);
        // The bucket.
        emitter.load32(at, RAX);
        emitter.multiply_number(at, at, places.layout.buckets as i32);
        emitter.shift(Shift::Right, at, 32);
        emitter.multiply_number(at, at, places.bucket);
        // The tag: at least 1.
        emitter.shift(Shift::Right, RAX, 57);
        emitter.alu32_number(Alu::Cmp, RAX, 1);
        emitter.alu32_number(Alu::AddCarry, RAX, 0);
        emitter.alu32_number(Alu::Or, RAX, READY);
        if info.copies > 1 {
            self.out.processor(lane);
            let emitter = &mut self.out.emitter;
            emitter.alu32_number(Alu::And, lane, PROCESSOR_MASK as i32);
            emitter.alu32_number(Alu::Cmp, lane, info.copies as i32);
            emitter.jump_if(Condition::AboveOrEqual, slow);
            emitter.multiply_number(lane, lane, places.copy);
            emitter.alu(Alu::Add, at, lane);
        }
        self.first_lane(&found, places, scratch, slow);
        let emitter = &mut self.out.emitter;
        emitter.alu_number(Alu::Cmp, Rm::Indexed(at, lane, 0, places.first + 8), 8);
        emitter.jump_if(Condition::NotEqual, slow);
        emitter.alu(Alu::Cmp, key, Rm::Indexed(at, lane, 0, places.first + 16));
        emitter.jump_if(Condition::NotEqual, slow);
        self.unchanged(&found, slow);
        Some(found)
    }

    /// The control word to rdx; the distance of the first lane in it with the tag in rax.
    fn first_lane(&mut self, found: &Found, places: Places, scratch: Reg, slow: Label) {
        let (at, lane) = (found.at, found.lane);
        let emitter = &mut self.out.emitter;
        emitter.load(RDX, Rm::At(at, found.control));
        emitter.number(lane, ONES);
        emitter.multiply(RAX, lane);
        // Bytes that are equal become 0. A byte plus 0x7f has its high bit exactly if one of its
        // low bits is set.
        emitter.alu(Alu::Xor, RAX, RDX);
        emitter.number(lane, LOW);
        emitter.alu(Alu::And, lane, RAX);
        emitter.number(scratch, LOW);
        emitter.alu(Alu::Add, lane, scratch);
        emitter.alu(Alu::Or, lane, RAX);
        emitter.not(lane);
        // The high bits of lanes: all but the version's.
        emitter.number(RAX, ONES << 7);
        emitter.alu(Alu::And, lane, RAX);
        emitter.jump_if(Condition::Equal, slow);
        emitter.load(scratch, lane);
        emitter.negate(scratch);
        emitter.alu(Alu::And, scratch, lane);
        emitter.lowest_bit(lane, lane);
        emitter.shift32(Shift::Right, lane, 3);
        emitter.multiply_number(lane, lane, places.entry);
    }

    /// Removes the entry that was found, or goes to `slow`. Changes rax and the registers of the
    /// entry.
    ///
    /// ```text
    ///             the byte of the lane -> %lane
    ///             not   %lane ; and %rdx, %lane ; add $1 << 56, %lane     without it, and changed
    ///             mov   %rdx, %rax ; lock cmpxchg %lane, control(%at) ; jne slow
    /// ```
    pub(crate) fn remove(&mut self, found: &Found, slow: Label) {
        let (lane, ready) = (found.lane, found.ready);
        let emitter = &mut self.out.emitter;
        emitter.address(lane, Rm::Indexed(ready, ready, 0, 0));
        emitter.shift(Shift::Right, ready, 7);
        emitter.alu(Alu::Sub, lane, ready);
        emitter.not(lane);
        emitter.alu(Alu::And, lane, RDX);
        emitter.number(ready, 1 << 56);
        emitter.alu(Alu::Add, lane, ready);
        emitter.load(RAX, RDX);
        emitter.exchange_if_rax(Rm::At(found.at, found.control), lane);
        emitter.jump_if(Condition::NotEqual, slow);
    }

    /// Goes to `slow` unless the control word is what rdx is.
    pub(crate) fn unchanged(&mut self, found: &Found, slow: Label) {
        self.out.emitter.alu(Alu::Cmp, RDX, Rm::At(found.at, found.control));
        self.out.emitter.jump_if(Condition::NotEqual, slow);
    }
}
