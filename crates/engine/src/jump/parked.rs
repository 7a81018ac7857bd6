//! Keeps threads stopped that wait for room in a ring (`--lossless`): they are *parked*.
//!
//! A thread whose ring is full makes no system call to sleep, which its process may be forbidden:
//! it polls, and says in the ring's [`Control`](layout::Control) that it waits. After the tracer
//! has looked into the rings, it stops the waiting threads, and resumes each when half of its ring
//! is free, when nobody is to wait any more, and in any case after a while. So a waiting thread
//! takes no processor from the reader, and does not poll for ever if nobody takes the records. If
//! the tracer dies, the kernel resumes parked threads.
//!
//! A thread for which no context is free has no place to say who it is; it sets a flag in the
//! identity page. If the threads that hold the contexts wait for room themselves, the tracer stops
//! all threads of the process, and parks those that are in handlers.
//!
//! A parked thread counts as a waiting one: it is resumed before anything else is done with it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use layout::ABANDONED;
use process::Stopped;

use super::rings::Rings;
use crate::tracked::Tracked;

mod followed;

mod space;

mod drainer;

/// The longest time for which a thread is parked; then it checks by itself whether to wait on.
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For room in the ring with this number.
    Room(u32),
    /// For a context, perhaps: those who hold them wait for room.
    Context,
}

/// A thread that is kept stopped while it waits.
#[derive(Debug)]
pub(crate) struct Parked {
    thread: Stopped,
    wait: Wait,
    since: Instant,
}

impl Tracked {
    fn is_parked_for_room(&self) -> bool {
        self.parked().is_some_and(|parked| matches!(parked.wait, Wait::Room(_)))
    }
}

/// Whether so much of a ring is free that a waiting thread may go on for a while; or nobody reads
/// the ring any more.
fn has_room(rings: &Rc<Rings>, ring: u32) -> bool {
    let tail = rings.told(ring);
    tail == ABANDONED || rings.head(ring).wrapping_sub(tail) <= rings.size() / 2
}
