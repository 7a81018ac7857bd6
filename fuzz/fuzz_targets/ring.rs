//! Any bytes as a ring: the reader comes to an end, and gives out nothing that its probe cannot have logged. The first bytes are the
//! process's number of what it has put in, the reader's of what it has taken out, the probe's bounds, and whether all is to be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rings::{Bounds, Cursor, read_to_the_end};

fuzz_target!(|data: &[u8]| {
    let Some((first, ring)) = data.split_at_checked(21) else { return };
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| first[at + byte]));
    let half = |at: usize| usize::from(u16::from_le_bytes([first[at], first[at + 1]]));
    let bounds = Bounds { log: half(16), traces: half(18) };
    read_to_the_end(ring, Cursor { head: word(0), tail: word(8) }, bounds, first[20] & 1 != 0);
});
