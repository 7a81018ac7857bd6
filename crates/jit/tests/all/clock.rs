//! What compiled code computes of the time.

use std::sync::atomic::Ordering::Relaxed;

use crate::support;
use crate::support::arena::Arena;
use crate::support::interpreter::LEFT;
use crate::support::native::{Registers, enter, exclusive};
use crate::support::tables::Tables;
use dprobes_jit::{Compiled, compile};
use layout::ClockWords;
use proptest::prelude::*;
use vm::{Clock, Constants, Maps, Op};

const CLOCKS: [Clock; 4] = [Clock::Monotonic, Clock::Elapsed, Clock::Boot, Clock::Real];

/// A site whose handler logs the time by each clock, the last one first.
struct Site {
    arena: Arena,
    tables: Tables,
    compiled: Compiled,
    at: u64,
}

impl Site {
    fn new() -> Site {
        let mut code: Vec<u8> = (0..4).flat_map(|clock| [Op::PushNsecs as u8, clock]).collect();
        code.extend([Op::LogImm as u8, 4, 0, Op::Exit as u8]);
        let handler = support::handler(&code);
        let mut arena = Arena::new();
        let tables = arena.put_tables(&Maps::default(), Constants(&[]));
        let mut environment = arena.environment();
        environment.tables = tables.address();
        environment.info = arena.info(&handler, &environment, |info| tables.describe(info));
        let compiled = compile(&handler, &environment).expect("compiles");
        let at = arena.place(&compiled, &[]);
        Site { arena, tables, compiled, at }
    }

    /// The times of a hit, and whether the interpreter took over.
    fn hit(&self) -> (Vec<u64>, bool) {
        LEFT.with(|left| *left.borrow_mut() = None);
        enter(&self.compiled, self.at, &mut Registers::default());
        let records = self.arena.records();
        let [record] = &records[..] else { panic!("{records:?}") };
        let times = record.log.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).rev();
        (times.collect(), LEFT.with(|left| left.borrow_mut().take()).is_some())
    }

    /// What they are at a value of the counter.
    fn at(&self, counter: u64) -> Vec<u64> {
        CLOCKS.map(|clock| ClockWords(self.tables.clock()).time(counter, clock)).to_vec()
    }

    /// Sets the clock's words behind the version.
    fn set(&self, words: &[u64]) {
        self.tables.clock()[1..].iter().zip(words).for_each(|(word, value)| word.store(*value, Relaxed));
    }
}

fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[test]
fn compiled_code_computes_times_as_the_agent_does() {
    let _one = exclusive();
    let site = Site::new();
    // Where threads may not read the counter, it is the identity's.
    site.arena.identity().no_rdtsc.store(1, Relaxed);
    let word = prop_oneof![any::<u64>(), 0..10_000_u64, Just(u64::MAX), Just(1 << 32)];
    proptest!(ProptestConfig::with_cases(2000), |(words in proptest::collection::vec(word.clone(), 6), now in word)| {
        site.set(&words);
        site.arena.identity().time.store(now, Relaxed);
        prop_assert_eq!(site.hit(), (site.at(now), false));
    });
    site.arena.identity().no_rdtsc.store(0, Relaxed);
    site.set(&[counter(), 5_000_000_000, 3 << 30, 4_000_000_000, 7, 1 << 60]);
    for _ in 0..1000 {
        let before = site.at(counter());
        let (times, left) = site.hit();
        let after = site.at(counter());
        assert!(!left);
        assert!(times.iter().zip(before).all(|(time, before)| *time >= before));
        assert!(times.iter().zip(after).all(|(time, after)| *time <= after));
    }
}

#[test]
fn while_the_clock_is_set_the_interpreter_computes_the_time() {
    let _one = exclusive();
    let site = Site::new();
    site.tables.clock()[0].store(1, Relaxed);
    assert_eq!(site.hit(), (support::script_pieces::TIMES.to_vec(), true));
    site.tables.clock()[0].store(2, Relaxed);
    assert_eq!(site.hit(), (support::script_pieces::TIMES.to_vec(), false));
    assert!(site.arena.all_free());
}
