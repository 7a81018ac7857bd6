//! Measures the cost of a hook: a loop that calls a function, the same with a dormant site in the
//! function, and with one and three armed exits. `cargo bench -p dprobes-hooks`; nanoseconds per
//! call.

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

/// The alternative form of a dormant site: loads and tests a byte, does not jump.
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

/// A measured function and its name.
type Measured = (&'static str, fn(u64) -> u64);

/// Nanoseconds per call in one round.
fn round(calls: u64, function: fn(u64) -> u64) -> f64 {
    let function = black_box(function);
    let start = Instant::now();
    let mut number = 1;
    for _ in 0..calls {
        number = function(number);
    }
    black_box(number);
    start.elapsed().as_secs_f64() * 1e9 / calls as f64
}

/// Measures functions in turn, so that other load on the machine affects all of them. Prints the
/// least, median and greatest time of the rounds, and the ratio of the median to the first
/// function's.
fn show(what: &str, calls: u64, functions: &[Measured]) {
    let mut times = vec![Vec::new(); functions.len()];
    for number in 0..=ROUNDS {
        for (times, &(_, function)) in times.iter_mut().zip(functions) {
            let time = round(calls, function);
            // The first round warms up.
            if number > 0 {
                times.push(time);
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    let base = times[0][ROUNDS / 2];
    println!("{what:<34} {:>8} {:>8} {:>8} {:>8}", "min", "median", "max", "ratio");
    for (times, (name, _)) in times.iter().zip(functions) {
        let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|place| times[place]);
        println!("  {name:<32} {least:>8.2} {median:>8.2} {most:>8.2} {:>7.2}x", median / base);
    }
}

fn main() {
    let count = || {
        MEASURED.exit(|_, (number, _)| {
            black_box(number);
            Verdict::Continue
        })
    };
    println!("nanoseconds per call");
    let calls: [Measured; 3] =
        [("a function", bare), ("with a site", hooked), ("with a byte that is tested", tested)];
    show("dormant", CALLS, &calls);
    let exits: Vec<_> = (0..3).map(|_| count().register().expect("the hook is free")).collect();
    exits[0].arm().expect("text can be written");
    show("1 exit armed", CALLS / 10, &calls[..2]);
    hooks::arm_all(&exits.iter().collect::<Vec<_>>()).expect("text can be written");
    show("3 exits armed", CALLS / 10, &calls[..2]);
    drop(exits);
    show("dormant again", CALLS, &calls[..2]);

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
