//! Interrupts a sequence that counts a hit and claims its context at each memory access: by a
//! fault, whose signal the kernel delivers after it has moved the thread to the abort address.

mod support;

use dprobes_jit::{Compiled, Environment, compile};
use layout::claim::{FREE, TAKEN};
use layout::{CONTEXT_SIZE, PAGE};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use support::arena::{Arena, CONTEXTS, OWN};
use support::native::{self, Registers, exclusive};
use vm::Op;

/// Pages that fault on first access: first address, size, and the number of faults.
static CLOSED: AtomicU64 = AtomicU64::new(0);
static SIZE: AtomicU64 = AtomicU64::new(0);
static OPENED: AtomicU64 = AtomicU64::new(0);
/// What else the signal handler does.
static MEANWHILE: AtomicPtr<fn()> = AtomicPtr::new(std::ptr::null_mut());
/// Where a hit begins.
static ENTRY: AtomicU64 = AtomicU64::new(0);

/// Makes the closed pages accessible again.
extern "C" fn open(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let (first, size) = (CLOSED.load(SeqCst), SIZE.load(SeqCst));
    // SAFETY: the kernel gives a siginfo_t of a fault.
    let at = unsafe { (*info).si_addr() } as u64;
    if !(first..first + size).contains(&at) {
        // SAFETY: abort may be called in a signal handler.
        unsafe { libc::abort() };
    }
    protect(first, size, libc::PROT_READ | libc::PROT_WRITE);
    OPENED.fetch_add(1, SeqCst);
    // SAFETY: `interrupted` sets it to a function that lives until it is set to null again.
    if let Some(meanwhile) = unsafe { MEANWHILE.load(SeqCst).as_ref() } {
        meanwhile();
    }
}

fn protect(first: u64, size: u64, protection: i32) {
    // SAFETY: pages of the arena, in which there is no Rust object but words that are atomic.
    let result = unsafe { libc::mprotect(first as *mut _, size as usize, protection) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Closes pages for the next access.
fn close(first: u64, size: u64) {
    CLOSED.store(first, SeqCst);
    SIZE.store(size, SeqCst);
    protect(first, size, libc::PROT_NONE);
}

fn hit() {
    // SAFETY: it is compiled code, with the way back behind it.
    unsafe { native::enter_raw(ENTRY.load(SeqCst), &mut Registers::default()) };
}

/// Installs the fault handler while it lives.
struct Handler(libc::sigaction);

impl Handler {
    fn install() -> Handler {
        // SAFETY: an all-zero sigaction is valid, and `open` is a handler of SA_SIGINFO. A nested
        // hit needs no fault.
        unsafe {
            let (mut action, mut before): (libc::sigaction, libc::sigaction) =
                (std::mem::zeroed(), std::mem::zeroed());
            action.sa_sigaction = open as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut before), 0);
            Handler(before)
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: it was there before.
        unsafe { libc::sigaction(libc::SIGSEGV, &self.0, std::ptr::null_mut()) };
    }
}

/// Pins the thread to a processor that has its own context. False if there is none for this
/// process.
fn stay() -> bool {
    (0..OWN as usize).any(|processor| {
        // SAFETY: an all-zero set is an empty one, and the kernel reads one of its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
        }
    })
}

/// A site that logs a word, whose counter has pages of its own.
struct Site {
    arena: Arena,
    environment: Environment<'static>,
    /// The counter's words.
    counter: u64,
    _compiled: Compiled,
}

impl Site {
    fn new() -> Site {
        /// More than the words of all processors, with padding to whole pages.
        const ROOM: u64 = 4 * PAGE;
        let mut arena = Arena::new();
        let room = arena.put(&vec![0; ROOM as usize]);
        let counter = room.next_multiple_of(PAGE);
        let mut environment = arena.environment();
        environment.hits.address = counter as u32;
        let code = [&[Op::PushLvImm as u8, 1, 0][..], &[Op::LogImm as u8, 1, 0], &[Op::Exit as u8]].concat();
        let compiled = compile(&support::handler(&code), &environment).expect("compiles");
        let at = arena.place(&compiled, &[]);
        ENTRY.store(at + u64::from(compiled.entry()), SeqCst);
        Site { arena, environment, counter, _compiled: compiled }
    }

    /// Removes the records of per-processor contexts, and of shared ones.
    fn records(&self) -> (usize, usize) {
        let of = |numbers: std::ops::Range<u32>| numbers.map(|it| self.arena.records_of(it).len()).sum();
        (of(0..OWN), of(OWN..CONTEXTS))
    }

    /// Hits counted on a processor's word, and on the spill counter.
    fn hits(&self) -> (u64, u64) {
        let spill = self.arena.at(self.environment.hits.spill).load(Relaxed);
        (self.arena.sum(self.environment.hits) - spill, spill)
    }

    /// Closes pages, hits once, and returns where the records and hits have gone.
    fn interrupted(&self, first: u64, size: u64, mut meanwhile: fn()) -> ((usize, usize), (u64, u64)) {
        let (hits, opened) = (self.hits(), OPENED.load(SeqCst));
        MEANWHILE.store(&mut meanwhile, SeqCst);
        close(first, size);
        hit();
        MEANWHILE.store(std::ptr::null_mut(), SeqCst);
        assert_eq!(OPENED.load(SeqCst), opened + 1, "it was interrupted");
        let counted = self.hits();
        (self.records(), (counted.0 - hits.0, counted.1 - hits.1))
    }
}

/// Where the contexts are, for [`another_claims`].
static CONTEXT_AREA: AtomicU64 = AtomicU64::new(0);

/// A state that is impossible if the sequence is sound: another thread has a context that this one
/// had found free.
fn another_claims() {
    for number in 0..u64::from(OWN) {
        let context = (CONTEXT_AREA.load(SeqCst) + number * CONTEXT_SIZE) as *const layout::Context;
        // SAFETY: the arena's, all of whose fields are atomic.
        let context = unsafe { &*context };
        if context.claim.load(Relaxed) == TAKEN {
            context.holder.fetch_xor(1, Relaxed);
        }
    }
}

#[test]
fn an_interrupted_sequence_counts_once_and_has_one_context() {
    let _one = exclusive();
    if !stay() {
        eprintln!("skipped: an_interrupted_sequence...: no processor below {OWN} is for this process");
        return;
    }
    let _handler = Handler::install();
    let site = Site::new();
    hit();
    assert_eq!((site.records(), site.hits()), ((1, 0), (1, 0)));
    let contexts = u64::from(site.environment.contexts);
    CONTEXT_AREA.store(contexts, SeqCst);
    // Before the claim: it has no context and takes a shared one.
    assert_eq!(site.interrupted(contexts, u64::from(OWN) * CONTEXT_SIZE, || ()), ((0, 1), (0, 1)));
    // Between claim and count: it keeps the claimed context.
    assert_eq!(site.interrupted(site.counter, PAGE, || ()), ((1, 0), (0, 1)));
    // The same, with another hit in the signal handler, which finds the processor's context taken.
    assert_eq!(site.interrupted(site.counter, PAGE, hit), ((1, 1), (0, 2)));
    assert!(site.arena.all_free());
    // It keeps a context only if that names this thread.
    assert_eq!(site.interrupted(site.counter, PAGE, another_claims), ((0, 1), (0, 1)));
    let taken = (0..CONTEXTS).filter(|it| site.arena.context(*it).claim.load(Relaxed) != FREE).count();
    assert_eq!(taken, 1, "the other one's");
}
