//! Rings and contexts that are full, taken or not there: what is dropped, waited for and counted.

use super::support::arena::{CONTEXTS, RING_SIZE};
use super::support::interpreter::DEAD;
use super::support::native::exclusive;
use super::{Site, handlers};
use dprobes_jit::Waiting;
use layout::claim::{FREE, TAKEN, UNUSABLE};
use std::sync::atomic::Ordering::Relaxed;

/// Runs something on each processor that this thread may use.
fn on_each_processor(action: impl Fn()) {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: zeros are an empty set of processors.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is of this size, and written by the call.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size, &mut allowed) }, 0);
    let set = |set: &libc::cpu_set_t| {
        // SAFETY: the set is of this size, and read by the call.
        assert_eq!(unsafe { libc::sched_setaffinity(0, size, set) }, 0);
    };
    for processor in 0..libc::CPU_SETSIZE as usize {
        // SAFETY: the number is below that of the processors in a set.
        if unsafe { libc::CPU_ISSET(processor, &allowed) } {
            // SAFETY: zeros are an empty set of processors.
            let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: as before.
            unsafe { libc::CPU_SET(processor, &mut one) };
            set(&one);
            action();
        }
    }
    set(&allowed);
}

#[test]
fn a_full_ring_drops_and_counts_and_is_not_overrun() {
    let _one = exclusive();
    let site = Site::new(&handlers()[2], |_, _| {});
    let hits = 400_000;
    // The thread may move between processors: each has its own ring.
    (0..hits).for_each(|_| site.hit());
    let kept = site.arena.records().len() as u64;
    assert_eq!(kept + site.value(site.environment.dropped), hits);
    assert!(site.value(site.environment.dropped) > 0 && kept > 40_000);
    // After they are read there is room again, also across the end of the ring.
    let before = site.value(site.environment.dropped);
    for _ in 0..100 {
        (0..3_000).for_each(|_| site.hit());
        let records = site.arena.records();
        assert_eq!(records.len(), 3_000);
        assert!(records.iter().all(|record| record.log.len() == 16 && record.number == 77));
    }
    assert_eq!(site.value(site.environment.dropped), before);
    // The next record in a ring marks its losses: one on each processor, wherever the losses were.
    on_each_processor(|| site.hit());
    site.arena.records();
    // All losses are marked, except those after which their ring had no record.
    let sum = |of: &dyn Fn(u32) -> u64| (0..CONTEXTS).map(of).sum::<u64>();
    let marked = sum(&|number| site.arena.context(number).marked.load(Relaxed));
    assert_eq!(sum(&|number| site.arena.control(number).lost.0.load(Relaxed)), before);
    assert_eq!(site.arena.lost.load(Relaxed), marked);
    assert!(marked > 0);
}

#[test]
fn without_loss_a_full_ring_is_waited_for() {
    let _one = exclusive();
    let site = lossless();
    let hits = 400_000;
    (0..hits).for_each(|_| site.hit());
    assert_eq!(site.value(site.environment.dropped), 0);
    // The test's wait removes everything: more was removed than is left.
    let head: u64 = (0..CONTEXTS).map(|number| site.arena.context(number).head.load(Relaxed)).sum();
    assert!(head >= hits * RECORD, "{head}");
    // A dead reader removes nothing: records without room are dropped.
    DEAD.store(true, Relaxed);
    (0..hits).for_each(|_| site.hit());
    DEAD.store(false, Relaxed);
    let dropped = site.value(site.environment.dropped);
    assert!((1..hits).contains(&dropped), "{dropped}");
    let after: u64 = (0..CONTEXTS).map(|number| site.arena.context(number).head.load(Relaxed)).sum();
    assert!(after - head <= (hits - dropped) * RECORD + u64::from(CONTEXTS) * RECORD, "{head} {after}");
    // When it lives again, losses are marked, as without waiting.
    site.arena.records();
    let lost: u64 = (0..CONTEXTS).map(|number| site.arena.control(number).lost.0.load(Relaxed)).sum();
    assert_eq!(lost, dropped);
    let before = site.arena.lost.load(Relaxed);
    // The next record in a ring marks its losses: one on each processor, wherever the losses were.
    on_each_processor(|| site.hit());
    site.arena.records();
    assert!(site.arena.lost.load(Relaxed) > before);
    assert!(site.arena.all_free());
}

/// Bytes of a record of two words.
const RECORD: u64 = layout::record_size(16, None) as u64;

/// A site whose handler logs two arguments and waits if there is no room.
fn lossless() -> Site<'static> {
    Site::new(&handlers()[2], |arena, environment| {
        environment.lossless = Some(Waiting { reader: arena.word() });
    })
}

#[test]
fn without_loss_a_context_is_waited_for_while_there_is_a_reader() {
    let _one = exclusive();
    let site = lossless();
    let claim = |number: u32| &site.arena.context(number).claim;
    (0..CONTEXTS).for_each(|number| claim(number).store(TAKEN, Relaxed));
    let began = std::time::Instant::now();
    let pause = std::time::Duration::from_millis(300);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(pause);
            claim(CONTEXTS - 1).store(FREE, Relaxed);
        });
        site.hit();
    });
    assert!(began.elapsed() >= pause, "far longer than a hit waits that may be missed");
    assert_eq!(site.value(site.environment.missed), 0);
    assert_eq!(site.arena.records_of(CONTEXTS - 1).len(), 1);
    // All are taken for good, and the tracer says that no thread is to wait now.
    claim(CONTEXTS - 1).store(TAKEN, Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(pause);
            site.arena.identity().must_not_wait.store(1, Relaxed);
        });
        site.hit();
    });
    assert_eq!(site.value(site.environment.missed), 1);
    site.arena.identity().must_not_wait.store(0, Relaxed);
    // The reader is dead.
    let reader = site.environment.lossless.expect("it is set").reader;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(pause);
            site.arena.at(reader).store(layout::ABANDONED, Relaxed);
        });
        site.hit();
    });
    assert_eq!(site.value(site.environment.missed), 2);
}

#[test]
fn where_no_context_has_a_ring_a_hit_is_missed_at_once() {
    let _one = exclusive();
    // As in a forked child; handlers that otherwise wait do not wait here.
    for site in [Site::new(&handlers()[2], |_, _| {}), lossless()] {
        (0..CONTEXTS).for_each(|number| site.arena.context(number).claim.store(UNUSABLE, Relaxed));
        (0..100).for_each(|_| site.hit());
        assert_eq!(site.value(site.environment.missed), 100);
        assert!(site.arena.records().is_empty());
        let claim = |number: u32| site.arena.context(number).claim.load(Relaxed);
        assert!((0..CONTEXTS).all(|number| claim(number) == UNUSABLE));
    }
}

#[test]
fn no_number_of_the_readers_leads_out_of_the_ring() {
    let _one = exclusive();
    let site = Site::new(&handlers()[2], |_, _| {});
    for tail in [u64::MAX, 1, 8, 1 << 63, u64::MAX - 7, RING_SIZE * 3 + 8] {
        (0..CONTEXTS).for_each(|number| {
            let context = site.arena.context(number);
            site.arena.control(number).tail.0.store(tail, Relaxed);
            context.seen_tail.store(tail, Relaxed);
        });
        // Twice around the ring: writing beyond it would overwrite its surroundings and the arena's
        // numbers.
        (0..2 * RING_SIZE / RECORD).for_each(|_| site.hit());
    }
    assert!(site.arena.all_free());
    for number in 0..CONTEXTS {
        let first = site.arena.context(0).ring.load(Relaxed);
        assert_eq!(site.arena.context(number).ring.load(Relaxed), first + u64::from(number) * RING_SIZE);
    }
}
