//! Walks that were done before. Most hits of a probe come from few stacks.
//!
//! A walk depends on the registers, on the tables, and on the words of memory that it reads. So if
//! registers and tables are those of an earlier walk, and the words that this one has read are as
//! they were, then its frames are those of this one: to compare twenty words takes less time than
//! to find ten rules.
//!
//! Not remembered is a walk that needs registers beside rip, rsp and rbp, that has met memory which
//! cannot be read, or that is long.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use super::lookup::Lookup;
use super::registers::Registers;
use super::row::{Cfa, Rule};
use super::walk::walk;

/// The sets: a walk is in that of its rip and rsp.
const SETS: usize = 4;
/// The walks of a set.
const WAYS: usize = 2;
/// The most words that a remembered walk has read.
const READS: usize = 64;
/// Its most frames.
const FRAMES: usize = 32;

/// The last walks. Memory of zeros is one without any.
#[repr(C)]
#[derive(Debug)]
pub struct Memos {
    sets: [Set; SETS],
}

#[repr(C)]
#[derive(Debug)]
struct Set {
    walks: [Memo; WAYS],
    /// Counts what is remembered, so that each way is replaced in turn.
    turn: u64,
}

/// A walk.
#[repr(C)]
#[derive(Debug)]
struct Memo {
    /// The version of the tables.
    version: u64,
    rip: u64,
    rsp: u64,
    rbp: u64,
    /// The frames for which there was room.
    most: u64,
    /// The frames found; 0: there is no walk here. A thread that ends while it writes one leaves 0.
    count: AtomicU32,
    /// The words read.
    read: u32,
    frames: [u64; FRAMES],
    /// Their addresses and values, in the order in which they were read.
    reads: [[u64; 2]; READS],
}

impl Memos {
    /// The frames of a walk that was done before: those that [`walk`](Self::walk) would find now,
    /// with room for `most`.
    #[inline]
    pub fn recall(
        &self,
        version: u64,
        registers: &Registers<'_>,
        most: usize,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> Option<&[u64]> {
        let mut walks = self.sets[set(registers)].walks.iter();
        let memo = walks.find(|memo| memo.is_of(version, registers, most) && memo.is_unchanged(&mut read))?;
        memo.frames.get(..memo.count.load(Ordering::Relaxed) as usize)
    }

    /// As [`walk`], with tables that have a version: those of one version are equal. Remembers what
    /// it finds.
    pub fn walk<L: Lookup + ?Sized>(
        &mut self,
        version: u64,
        registers: &Registers<'_>,
        modules: &L,
        read: impl FnMut(u64) -> Option<u64>,
        frames: &mut [u64],
    ) -> usize {
        let Set { walks, turn } = &mut self.sets[set(registers)];
        let memo = &mut walks[*turn as usize % WAYS];
        *turn = turn.wrapping_add(1);
        memo.walk(version, registers, modules, read, frames)
    }
}

/// The set of a walk.
fn set(registers: &Registers<'_>) -> usize {
    let mixed = (registers.rip ^ registers.rsp.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 62) as usize % SETS
}

impl Memo {
    /// Whether the walk began where this one did.
    #[inline]
    fn is_of(&self, version: u64, registers: &Registers<'_>, most: usize) -> bool {
        self.rip == registers.rip
            && self.rsp == registers.rsp
            && self.rbp == registers.rbp
            && self.most == most as u64
            && self.version == version
            && self.count.load(Ordering::Relaxed) != 0
    }

    /// Whether all that it has read is as it was.
    #[inline]
    fn is_unchanged(&self, mut read: impl FnMut(u64) -> Option<u64>) -> bool {
        let reads = self.reads.get(..self.read as usize).unwrap_or_default();
        reads.iter().all(|[address, value]| read(*address) == Some(*value))
    }

    /// Walks, and becomes the memo of this walk if it can be remembered.
    #[inline(never)]
    fn walk<L: Lookup + ?Sized>(
        &mut self,
        version: u64,
        registers: &Registers<'_>,
        modules: &L,
        mut read: impl FnMut(u64) -> Option<u64>,
        frames: &mut [u64],
    ) -> usize {
        self.count.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let modules = Watched { modules, needs_others: Cell::new(false) };
        let (mut done, mut fits) = (0, true);
        let record = |address| {
            let value = read(address);
            match (self.reads.get_mut(done), value) {
                (Some(slot), Some(value)) => *slot = [address, value],
                _ => fits = false,
            }
            done += 1;
            value
        };
        let count = walk(registers, &modules, record, frames);
        if !fits || modules.needs_others.get() || count > FRAMES {
            return count;
        }
        (self.version, self.most, self.read) = (version, frames.len() as u64, done as u32);
        (self.rip, self.rsp, self.rbp) = (registers.rip, registers.rsp, registers.rbp);
        self.frames[..count].copy_from_slice(&frames[..count]);
        compiler_fence(Ordering::SeqCst);
        self.count.store(count as u32, Ordering::Relaxed);
        count
    }
}

/// Modules, and whether a rule found there needs registers beside rip, rsp and rbp.
struct Watched<'a, L: ?Sized> {
    modules: &'a L,
    needs_others: Cell<bool>,
}

impl<L: Lookup + ?Sized> Lookup for Watched<'_, L> {
    #[inline]
    fn rule(&self, address: u64, is_return_address: bool) -> Option<Rule> {
        let rule = self.modules.rule(address, is_return_address);
        if let Some(
            Rule::Return { .. } | Rule::Frame { cfa: Cfa::Register { .. } | Cfa::Indexed { .. }, .. },
        ) = rule
        {
            self.needs_others.set(true);
        }
        rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Module;
    use crate::row::{Base, Row, Saved};

    const STACK: u64 = 0x7fff_0000_0000;
    const WORDS: usize = 24;

    fn memos() -> Memos {
        let memo = || Memo {
            version: 0,
            rip: 0,
            rsp: 0,
            rbp: 0,
            most: 0,
            count: AtomicU32::new(0),
            read: 0,
            frames: [0; FRAMES],
            reads: [[0; 2]; READS],
        };
        Memos { sets: core::array::from_fn(|_| Set { walks: core::array::from_fn(|_| memo()), turn: 0 }) }
    }

    /// Pseudo-random numbers (Marsaglia's xorshift64).
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % end
        }
    }

    fn rule(random: &mut Random) -> Rule {
        let saved = |random: &mut Random| match random.below(5) {
            0 => Saved::AtRbp,
            1 => Saved::Below(16),
            2 => Saved::Below(24),
            3 => Saved::Lost,
            _ => Saved::No,
        };
        let (rbp, rbx) = (saved(random), saved(random));
        let offset = 8 * random.below(4) as u32;
        let cfa = match random.below(10) {
            0 => Cfa::Register { register: 3, offset },
            1 => Cfa::Indexed { register: 0, displacement: 8, addend: offset },
            2 => Cfa::Memory { base: Base::Rsp, displacement: 8, addend: offset },
            3 => Cfa::Memory { base: Base::Rbp, displacement: -8, addend: offset },
            4 => Cfa::Plt(11),
            5 | 6 => Cfa::Rbp(8 + offset),
            _ => Cfa::Rsp(8 + offset),
        };
        match random.below(24) {
            0 => Rule::End,
            1 => Rule::Unsupported,
            2 => Rule::Signal,
            3 => Rule::Return { register: 0, offset: 8 + offset, rbp, rbx },
            _ => Rule::Frame { cfa, rbp, rbx },
        }
    }

    /// A word of a stack: a return address, an address in the stack, or anything.
    fn word(random: &mut Random) -> u64 {
        match random.below(8) {
            0 => random.below(u64::MAX),
            1..4 => STACK + 8 * random.below(WORDS as u64 + 2),
            _ => 0x1000 + random.below(8 * 16),
        }
    }

    /// Tables, registers and stacks that change a little between walks: each walk finds what one
    /// without memory of those before finds.
    #[test]
    fn a_walk_finds_what_it_would_without_memos() {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let (mut recalled, mut walks) = (0, 0);
        for _ in 0..2000 {
            let mut memos = memos();
            let table: [Row; 8] =
                core::array::from_fn(|at| Row { address: 16 * at as u32, rule: rule(&mut random).pack() });
            let modules = [Module { start: 0x1000, end: 0x1080, bias: 0x1000, table: &table }];
            let mut stack: [u64; WORDS] = core::array::from_fn(|_| word(&mut random));
            let mut all = [0; 16];
            let (mut rip, mut rsp, mut rbp, mut most) = (0x1000, STACK, STACK + 32, 8);
            for _ in 0..40 {
                match random.below(12) {
                    0 => rip = 0x1000 + random.below(8 * 16),
                    1 => rsp = STACK + 8 * random.below(4),
                    2 => rbp = word(&mut random),
                    3 => all[random.below(16) as usize] = word(&mut random),
                    4 => most = 1 + random.below(10) as usize,
                    5 => stack[random.below(WORDS as u64) as usize] = word(&mut random),
                    _ => {}
                }
                let registers = Registers { rip, rsp, rbp, all: Some(&all) };
                let read =
                    |address: u64| stack.get(usize::try_from(address.checked_sub(STACK)? / 8).ok()?).copied();
                let [mut plain, mut found] = [[0; 10]; 2];
                let expected = walk(&registers, modules.as_slice(), read, &mut plain[..most]);
                walks += 1;
                if let Some(frames) = memos.recall(1, &registers, most, read) {
                    assert_eq!(frames, &plain[..expected], "{registers:x?} {stack:x?}");
                    recalled += 1;
                    continue;
                }
                let count = memos.walk(1, &registers, modules.as_slice(), read, &mut found[..most]);
                assert_eq!((count, found), (expected, plain), "{registers:x?} {stack:x?}");
            }
        }
        // The test is of something.
        assert!(recalled > walks / 4, "{recalled} of {walks}");
    }

    /// A process may write anything to its own contexts.
    #[test]
    fn whatever_is_remembered_does_no_harm() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let registers = Registers { rip: 0x1000, rsp: STACK, rbp: 0, all: None };
        for _ in 0..10_000 {
            let mut memos = memos();
            let (count, read) = (random.below(1 << 32) as u32, random.below(1 << 32) as u32);
            for set in &mut memos.sets {
                set.turn = random.below(u64::MAX);
                for memo in &mut set.walks {
                    (memo.version, memo.rip, memo.rsp) = (1, registers.rip, registers.rsp);
                    memo.most = 8;
                    memo.count = AtomicU32::new(count >> random.below(32));
                    memo.read = read >> random.below(32);
                }
            }
            let frames = memos.recall(1, &registers, 8, |_| Some(0));
            assert!(frames.is_none_or(|frames| frames.len() <= FRAMES));
            let mut room = [0; 8];
            assert_eq!(memos.walk(1, &registers, [].as_slice(), |_| None, &mut room), 1);
        }
    }

    #[test]
    fn a_walk_is_recalled_while_the_tables_are_of_one_version() {
        let frame = |bytes| Rule::Frame { cfa: Cfa::Rsp(bytes), rbp: Saved::No, rbx: Saved::No };
        let rows = [frame(8), frame(16), Rule::End];
        let table: [Row; 3] =
            core::array::from_fn(|at| Row { address: 16 * at as u32, rule: rows[at].pack() });
        let modules = [Module { start: 0x1000, end: 0x1030, bias: 0x1000, table: &table }];
        let stack = [0x1011, 0, 0x1021];
        let read = |address: u64| stack.get(usize::try_from(address.checked_sub(STACK)? / 8).ok()?).copied();
        let registers = Registers { rip: 0x1000, rsp: STACK, rbp: 0, all: None };
        let (mut memos, mut frames) = (memos(), [0; 8]);
        assert_eq!(memos.recall(1, &registers, 8, read), None);
        let count = memos.walk(1, &registers, modules.as_slice(), read, &mut frames);
        let expected = [0x1000, 0x1011, 0x1021];
        assert_eq!(frames[..count], expected);
        assert_eq!(memos.recall(1, &registers, 8, read), Some(&expected[..]));
        // With other tables the function that was called has no rule, and there is no more memory.
        let others = [Module { start: 0x1000, end: 0x1030, bias: 0x1000, table: &[] }];
        assert_eq!(memos.recall(2, &registers, 8, read), None);
        let count = memos.walk(2, &registers, others.as_slice(), read, &mut frames);
        assert_eq!(frames[..count], [0x1000]);
        // The other way of the set has the first one.
        assert_eq!(memos.recall(1, &registers, 8, read), Some(&expected[..]));
        // Less room, another register, another word.
        assert_eq!(memos.recall(1, &registers, 7, read), None);
        assert_eq!(memos.recall(1, &Registers { rbp: 8, ..registers }, 8, read), None);
        let other = |address: u64| read(address).map(|word| if word == 0x1021 { 0x1022 } else { word });
        assert_eq!(memos.recall(1, &registers, 8, other), None);
    }
}
