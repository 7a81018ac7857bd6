//! Waits for other threads to leave: briefly at first, since exits are short, then longer.

use std::time::Duration;

/// How often to spin, and then to yield, before sleeping.
const SPINS_BEFORE_YIELD: u32 = 64;
/// The longest pause.
const LONGEST: Duration = Duration::from_millis(1);

/// Waits until `done` returns true.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let mut pause = Duration::from_micros(20);
    for look in 0_u32.. {
        if done() {
            return;
        }
        if look < SPINS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else if look < 2 * SPINS_BEFORE_YIELD {
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause);
            pause = LONGEST.min(pause * 2);
        }
    }
}
