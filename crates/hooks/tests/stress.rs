//! Exits come and go while threads hit the sites: no hit is lost or sees half of a list.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hooks::{Verdict, declare_hook, hook};

/// How often exits are armed and disarmed.
const TIMES: usize = 10_000;
const THREADS: usize = 4;

declare_hook! {
    /// Hit by all threads.
    BUSY<'a>(thread: usize, seen: &'a [u64; 3])
}

#[test]
fn counts_are_exact_while_exits_are_armed_and_disarmed() {
    static ALWAYS: AtomicU64 = AtomicU64::new(0);
    static PAIRS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    let always = BUSY.exit(|_, _| {
        ALWAYS.fetch_add(1, Ordering::Relaxed);
        Verdict::Continue
    });
    let always = always.register().expect("free");
    let pair = [0, 1].map(|which| {
        let exit = BUSY.exit(move |_, _| {
            PAIRS[which].fetch_add(1, Ordering::Relaxed);
            Verdict::Continue
        });
        exit.register().expect("free")
    });
    always.arm().expect("text can be written");
    let stop = AtomicBool::new(false);
    let hits = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut hits = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        hook!(BUSY, thread, &[hits; 3]);
                        hits += 1;
                    }
                    hits
                })
            })
            .collect();
        for _ in 0..TIMES {
            hooks::arm_all(&[&pair[0], &pair[1]]).expect("text can be written");
            hooks::disarm_all(&[&pair[0], &pair[1]]).expect("registered");
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u64>()
    });
    assert_eq!(ALWAYS.load(Ordering::Relaxed), hits, "the exit that was armed all the time saw every hit");
    let [one, other] = PAIRS.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert_eq!(one, other, "every hit saw both of the pair or none");
    assert!(hits > 0);
}

declare_hook! {
    /// Its site is changed all the time.
    PATCHED(number: u64)
}

#[test]
fn the_text_is_changed_while_threads_execute_it() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    static BAD: AtomicU64 = AtomicU64::new(0);
    let exit = PATCHED.exit(|_, (number,)| {
        SUM.fetch_add(1, Ordering::Relaxed);
        if number != 0x1234_5678_9abc_def0 {
            BAD.fetch_add(1, Ordering::Relaxed);
        }
        Verdict::Continue
    });
    let exit = exit.register().expect("free");
    let (stop, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut least, mut rounds) = (0, 0_u64);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    hook!(PATCHED, 0x1234_5678_9abc_def0);
                    hits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..TIMES {
            exit.arm().expect("text can be written");
            // This thread's own hit is between arming and disarming, so it is always seen.
            hook!(PATCHED, 0x1234_5678_9abc_def0);
            least += 1;
            exit.disarm().expect("registered");
            hook!(PATCHED, 0);
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    let seen = SUM.load(Ordering::Relaxed);
    assert_eq!((BAD.load(Ordering::Relaxed), rounds), (0, TIMES as u64));
    assert!((least..=least + hits.load(Ordering::Relaxed)).contains(&seen), "{seen} of {hits:?} hits");
    assert!(!PATCHED.is_active());
}

declare_hook! {
    /// The first of a list.
    LEFT()
}

declare_hook! {
    /// The second of a list.
    RIGHT()
}

#[test]
fn a_list_over_two_hooks_is_armed_at_once() {
    thread_local! {
        static SEEN: std::cell::Cell<[bool; 2]> = const { std::cell::Cell::new([false; 2]) };
    }
    let left = LEFT.exit(|_, ()| {
        SEEN.set([true, SEEN.get()[1]]);
        Verdict::Continue
    });
    let right = RIGHT.exit(|_, ()| {
        SEEN.set([SEEN.get()[0], true]);
        Verdict::Continue
    });
    let (left, right) = (left.register().expect("free"), right.register().expect("free"));
    let rounds = 500;
    let barrier = std::sync::Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut wrong = 0;
                    for _ in 0..rounds {
                        barrier.wait();
                        loop {
                            SEEN.set([false; 2]);
                            hook!(LEFT);
                            hook!(RIGHT);
                            // Nothing is disarmed meanwhile: a thread that reaches the left exit
                            // reaches the right one.
                            match SEEN.get() {
                                [_, true] => break,
                                [true, false] => wrong += 1,
                                [false, false] => {}
                            }
                        }
                        barrier.wait();
                    }
                    wrong
                })
            })
            .collect();
        for _ in 0..rounds {
            barrier.wait();
            hooks::arm_all(&[&left, &right]).expect("text can be written");
            barrier.wait();
            hooks::disarm_all(&[&right, &left]).expect("registered");
        }
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), 0);
        }
    });
}

declare_hook! {
    /// Exits are registered and deregistered here.
    COMING()
}

#[test]
fn what_a_deregistered_exit_owned_is_used_by_nobody() {
    // Calls of registered exits, and of deregistered ones. Counted, since a panic inside an exit is
    // caught.
    static CALLS: AtomicU64 = AtomicU64::new(0);
    static LATE: AtomicU64 = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    hook!(COMING);
                }
            });
        }
        for round in 0..500_u64 {
            // Holds `round` as long as the exit may be called, then another value.
            let alive: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(round)));
            let exit = COMING.exit(move |_, ()| {
                // Lets others run while this thread is inside: a deregistration that does not wait
                // completes before this thread continues.
                std::thread::yield_now();
                let is_late = alive.load(Ordering::SeqCst) == u64::MAX;
                if is_late { &LATE } else { &CALLS }.fetch_add(1, Ordering::SeqCst);
                Verdict::Continue
            });
            let exit = exit.register().expect("free");
            exit.arm().expect("text can be written");
            std::thread::yield_now();
            exit.deregister();
            alive.store(u64::MAX, Ordering::SeqCst);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(LATE.load(Ordering::SeqCst), 0, "called after it was taken away");
    assert_ne!(CALLS.load(Ordering::SeqCst), 0, "exits are called");
}
