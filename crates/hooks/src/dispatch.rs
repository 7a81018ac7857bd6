//! A hit of an active hook: calls its armed exits in their order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use crate::arguments::{ARGUMENTS, Arguments, Signature};
use crate::entry::{Callee, Invocation, Verdict};
use crate::head::HookHeader;
use crate::hook::Hook;
use crate::readers::{Grace, Inside};
use crate::record::{self, Kind};
use crate::state::{Armed, Chain, State};
use crate::{pause, registry, thread};

/// A hit of a site in Rust. Returns the code that the function should return, if an exit asks for
/// it.
#[doc(hidden)]
#[cold]
#[inline(never)]
pub fn hit<'a, S: Signature>(
    hook: &'static Hook<S>,
    kind: Kind,
    arguments: S::Arguments<'a>,
) -> Option<isize> {
    match dispatch(hook.head(), kind, &arguments.into_words()) {
        Verdict::Return(code) => Some(code),
        Verdict::Continue | Verdict::Terminate => None,
    }
}

/// Calls the armed exits until one ends the chain. Returns the last verdict.
pub(crate) fn dispatch(head: &HookHeader, kind: Kind, arguments: &[usize; ARGUMENTS]) -> Verdict {
    let Some(state) = head.state() else { return Verdict::Continue };
    let number = thread::number();
    // A thread inside an exit waits for no other: the holder of a gate may be waiting for it.
    let nested = thread::is_inside() || state.gate.is_held_by(number);
    let inside = loop {
        let inside = state.readers.enter();
        if state.gate.is_open_for(number) {
            break inside;
        }
        if nested {
            miss(state);
            return Verdict::Continue;
        }
        drop(inside);
        state.gate.wait();
    };
    let verdict = match state.chain() {
        Some(chain) if chain.quiesced && !nested => alone(head, kind, state, inside, arguments),
        Some(chain) => {
            let verdict = call(head, kind, chain, nested, arguments);
            drop(inside);
            verdict
        }
        None => Verdict::Continue,
    };
    registry::settle();
    verdict
}

/// Counts a hit that calls no exits, for each of them.
#[cold]
fn miss(state: &State) {
    for armed in state.chain().iter().flat_map(|chain| &chain.exits) {
        armed.entry.missed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls the exits while no other thread is inside any of them.
#[cold]
fn alone(
    head: &HookHeader,
    kind: Kind,
    state: &State,
    inside: Inside<'_>,
    arguments: &[usize; ARGUMENTS],
) -> Verdict {
    drop(inside);
    let closed = state.gate.close(thread::number());
    let mut grace = Grace::begin();
    pause::until(|| grace.is_over(&state.readers));
    let inside = state.readers.enter();
    // Exits armed or disarmed meanwhile count.
    let verdict = state.chain().map_or(Verdict::Continue, |chain| call(head, kind, chain, false, arguments));
    drop(inside);
    drop(closed);
    verdict
}

/// Calls the exits of a chain. A nested hit skips exits that require a quiesced hook.
#[inline]
fn call(
    head: &HookHeader,
    kind: Kind,
    chain: &Chain,
    nested: bool,
    arguments: &[usize; ARGUMENTS],
) -> Verdict {
    for armed in &chain.exits {
        if armed.arming.has_ended() {
            continue;
        }
        let conditions = armed.entry.conditions;
        if conditions.quiesced && nested {
            armed.entry.missed.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let blocked = conditions.signals_blocked.then(Blocked::all);
        let verdict = one(head, kind, armed, arguments);
        drop(blocked);
        if verdict != Verdict::Continue {
            return verdict;
        }
    }
    Verdict::Continue
}

/// Calls one exit. A panic does not leave it, and disarms it.
#[inline]
fn one(head: &HookHeader, kind: Kind, armed: &Armed, arguments: &[usize; ARGUMENTS]) -> Verdict {
    let run = || {
        thread::inside(|| match &armed.entry.callee {
            Callee::Rust(function) => function(&Invocation { head, arming: &armed.arming }, arguments),
            Callee::C(exit, record) => record::call(*exit, *record, head, kind, armed, arguments),
        })
    };
    // State that a panicking exit leaves half done is its own.
    let verdict = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        armed.entry.panics.fetch_add(1, Ordering::Relaxed);
        armed.arming.end();
        // Dropping the payload could panic again.
        std::mem::forget(payload);
        Verdict::Continue
    });
    if armed.arming.has_ended() {
        registry::has_to_settle();
    }
    verdict
}

/// Blocks all signals of this thread; dropping it restores the mask.
struct Blocked(libc::sigset_t);

impl Blocked {
    #[cold]
    fn all() -> Blocked {
        // SAFETY: the sets are valid for the calls.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Blocked(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one the thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut());
        }
    }
}
