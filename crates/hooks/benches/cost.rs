//! What a hook costs: a loop that calls a function, the same with a dormant site in the function, and with one and three exits
//! armed. `cargo bench -p dprobes-hooks`; nanoseconds per call.

use std::hint::black_box;
use std::time::Instant;

use hooks::{Verdict, declare_hook, hook};

const CALLS: u64 = 20_000_000;
const ROUNDS: usize = 15;

declare_hook! {
    /// The hook that is measured.
    MEASURED(number: u64, from: usize)
}

#[inline(never)]
fn bare(number: u64) -> u64 {
    number.rotate_left(7) ^ 0x9e37
}

#[inline(never)]
fn hooked(number: u64) -> u64 {
    hook!(MEASURED, number, 1);
    number.rotate_left(7) ^ 0x9e37
}

/// What else a dormant site could be: a byte that is loaded and tested, and a jump that is not taken.
static TESTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

#[inline(never)]
fn tested(number: u64) -> u64 {
    if TESTED.load(std::sync::atomic::Ordering::Relaxed) != 0 {
        rare(number);
    }
    number.rotate_left(7) ^ 0x9e37
}

#[cold]
#[inline(never)]
fn rare(number: u64) {
    black_box(number);
}

/// Nanoseconds per call: the least, the median, the most of the rounds.
fn measure(calls: u64, function: fn(u64) -> u64) -> [f64; 3] {
    let function = black_box(function);
    let mut times: Vec<f64> = (0..=ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let mut number = 1;
            for _ in 0..calls {
                number = function(number);
            }
            black_box(number);
            start.elapsed().as_secs_f64() * 1e9 / calls as f64
        })
        // The first round warms up.
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    [times[0], times[ROUNDS / 2], times[ROUNDS - 1]]
}

fn main() {
    let count = || {
        MEASURED.exit(|_, (number, _)| {
            black_box(number);
            Verdict::Continue
        })
    };
    println!("{:<34} {:>8} {:>8} {:>8} {:>8}", "ns per call", "min", "median", "max", "ratio");
    let plain = measure(CALLS, bare);
    let show = |what: &str, times: [f64; 3]| {
        let [least, median, most] = times;
        println!("{what:<34} {least:>8.2} {median:>8.2} {most:>8.2} {:>7.2}x", median / plain[1]);
    };
    show("a function", plain);
    show("with a dormant site", measure(CALLS, hooked));
    show("with a byte that is tested", measure(CALLS, tested));
    let exits: Vec<_> = (0..3).map(|_| count().register().expect("the hook is free")).collect();
    show("with a site, 3 exits not armed", measure(CALLS, hooked));
    exits[0].arm().expect("text can be written");
    show("1 exit armed", measure(CALLS / 10, hooked));
    hooks::arm_all(&exits.iter().collect::<Vec<_>>()).expect("text can be written");
    show("3 exits armed", measure(CALLS / 10, hooked));
    drop(exits);
    show("dormant again", measure(CALLS, hooked));

    let exit = count().register().expect("the hook is free");
    let times = 2000;
    let start = Instant::now();
    for _ in 0..times {
        exit.arm().expect("text can be written");
        exit.disarm().expect("registered");
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(times);
    println!("arming and disarming one site: {each:.1} us");
}
