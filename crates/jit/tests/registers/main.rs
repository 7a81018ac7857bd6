//! What the program must not notice: registers, flags and the red zone after a hit, and a stack
//! without room. Its programs take all of the low addresses, so it is a program of its own.

mod rings;
#[path = "../support/mod.rs"]
mod support;

use dprobes_jit::{Compiled, Environment, Limits, Variable, compile};
use layout::claim::{FREE, TAKEN};
use layout::thread_id;
use proptest::prelude::*;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use support::arena::{Arena, CONTEXTS, OWN};
use support::handler;
use support::native::{self, Registers, enter, exclusive};
use vm::{Op, Register};

fn push(value: u64) -> Vec<u8> {
    [&[Op::Push as u8][..], &value.to_le_bytes()].concat()
}

fn push_register(register: Register) -> Vec<u8> {
    [&[Op::PushR as u8][..], &(register as u16).to_le_bytes()].concat()
}

/// Handlers that cover each path through compiled code.
fn handlers() -> Vec<Vec<u8>> {
    let log = |count: u8| vec![Op::LogImm as u8, count, 0];
    let inc = vec![Op::IncLvImm as u8, 0, 0];
    let exit = vec![Op::Exit as u8];
    let many = [Register::Rax, Register::Rcx, Register::Rdx, Register::R8, Register::R9, Register::R15];
    let named: Vec<u8> = many.iter().flat_map(|it| push_register(*it)).collect();
    vec![
        [inc.clone(), vec![Op::Abort as u8]].concat(),
        exit.clone(),
        [push_register(Register::Rdi), push_register(Register::Rsi), log(2), exit.clone()].concat(),
        [named.clone(), log(6), exit.clone()].concat(),
        [named, vec![Op::Mul as u8, Op::Div as u8, Op::Rol as u8], log(3), exit.clone()].concat(),
        [push(16), vec![Op::PushMem64 as u8], log(1), exit.clone()].concat(),
        [push(7), vec![Op::Malloc as u8], log(1), exit].concat(),
    ]
}

/// Counts hits of compiled code.
struct Site<'a> {
    arena: Arena,
    environment: Environment<'a>,
    compiled: Compiled,
    at: u64,
}

impl<'a> Site<'a> {
    fn new(code: &[u8], change: impl FnOnce(&mut Arena, &mut Environment<'a>)) -> Site<'a> {
        let mut arena = Arena::new();
        let mut environment = arena.environment();
        change(&mut arena, &mut environment);
        let handler = handler(code);
        environment.info = arena.info(&handler, &environment, |_| {});
        let compiled = compile(&handler, &environment).expect("compiles");
        let at = arena.place(&compiled, &[]);
        Site { arena, environment, compiled, at }
    }

    fn hit(&self) {
        enter(&self.compiled, self.at, &mut Registers::default());
    }

    fn value(&self, address: u32) -> u64 {
        self.arena.at(address).load(Relaxed)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn all_of_them_are_what_they_were(
        general in any::<[u64; 16]>(),
        flags in any::<u64>(),
        red_zone in any::<[u64; 16]>(),
        number in 0..7_usize,
        tentative in any::<bool>(),
        flags_live in any::<bool>(),
    ) {
        let _one = exclusive();
        thread_local! {
            static ARENA: std::cell::RefCell<Arena> = std::cell::RefCell::new(Arena::new());
        }
        ARENA.with_borrow_mut(|arena| {
            arena.clear_code();
            arena.forget();
            let code = &handlers()[number];
            let handler = handler(code);
            let mut environment = arena.environment();
            (environment.tentative, environment.flags_live) = (tentative, flags_live);
            environment.info = arena.info(&handler, &environment, |_| {});
            let compiled = compile(&handler, &environment).expect("compiles");
            // The displaced instruction pushes nothing here, so the record is committed as it is.
            let commit = if tentative { Compiled::commit(0) } else { Vec::new() };
            let at = arena.place(&compiled, &commit);
            let mut registers = Registers { general, flags, red_zone, ..Registers::default() };
            enter(&compiled, at, &mut registers);
            prop_assert_eq!(registers.general[..4].to_vec(), general[..4].to_vec());
            prop_assert_eq!(registers.general[5..].to_vec(), general[5..].to_vec());
            prop_assert_eq!(registers.red_zone, red_zone);
            if flags_live {
                prop_assert_eq!((registers.flags ^ flags) & Registers::FLAGS, 0);
            }
            // All are committed by now; no commit went to the dummy state instead.
            for record in arena.records() {
                prop_assert_eq!(record.state, layout::state::COMMITTED);
            }
            Ok(())
        })?;
    }
}

#[test]
fn a_commit_finds_its_record_whatever_the_instruction_did_to_the_stack_pointer() {
    let _one = exclusive();
    let code = handlers()[2].clone();
    for delta in [0_i8, 8, -8, 64] {
        let site = Site::new(&code, |_, environment| environment.tentative = true);
        // lea delta(%rsp), %rsp; the commit; and back.
        let there = [0x48, 0x8d, 0x64, 0x24, delta as u8];
        let back = [0x48, 0x8d, 0x64, 0x24, delta.wrapping_neg() as u8];
        let behind = [&there[..], &Compiled::commit(delta.into()), &back].concat();
        let Site { mut arena, compiled, .. } = site;
        let at = arena.place(&compiled, &behind);
        let mut registers = Registers { flags: Registers::FLAGS, ..Registers::default() };
        registers.general[0] = 77;
        enter(&compiled, at, &mut registers);
        assert_eq!(registers.general[0], 77);
        assert_eq!(registers.flags & Registers::FLAGS, Registers::FLAGS);
        let records = arena.records();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].state, layout::state::COMMITTED, "moved by {delta}");
    }
}

#[test]
fn a_stack_without_room_leaves_the_registers_as_they_were() {
    let _one = exclusive();
    // SAFETY: a fresh mapping; its first page is made inaccessible, and a stack lies in the others.
    let stack = unsafe {
        let all = libc::PROT_READ | libc::PROT_WRITE;
        let at =
            libc::mmap(std::ptr::null_mut(), 1 << 20, all, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_eq!(libc::mprotect(at, 4096, libc::PROT_NONE), 0);
        at as u64
    };
    let alternate = vec![0_u8; 64 << 10];
    // SAFETY: an all-zero stack_t is a valid one.
    let mut old: libc::stack_t = unsafe { std::mem::zeroed() };
    let new = libc::stack_t { ss_sp: alternate.as_ptr() as *mut _, ss_flags: 0, ss_size: alternate.len() };
    // SAFETY: the memory outlives its use, and the old one is set again.
    assert_eq!(unsafe { libc::sigaltstack(&new, &mut old) }, 0);
    for (number, code) in handlers().iter().enumerate() {
        let site = Site::new(code, |_, environment| environment.tentative = number % 2 == 1);
        let frame = site.compiled.stack as u64;
        let mut overflowed = 0;
        // With ever less room, from enough to none.
        for room in (0..frame / 8 + 40).map(|words| 8 * words) {
            let mut registers =
                Registers { red_zone: [9; 16], flags: Registers::FLAGS, ..Registers::default() };
            for place in 0..16 {
                registers.general[place] = 1000 + place as u64;
            }
            let before = registers.clone();
            native::OVERFLOWED.store(false, SeqCst);
            // The red zone is mapped, and `room` more.
            native::enter_on(&site.compiled, site.at, &mut registers, stack + 4096 + 128 + room);
            if native::OVERFLOWED.load(SeqCst) {
                overflowed += 1;
                assert_eq!(registers.red_zone, before.red_zone);
                assert_eq!(registers.flags & Registers::FLAGS, before.flags & Registers::FLAGS);
            }
            assert_eq!(registers.general[..4], before.general[..4]);
            assert_eq!(registers.general[5..], before.general[5..]);
            site.arena.forget();
        }
        assert!(overflowed > 0, "handler {number} of {frame} bytes");
    }
    // SAFETY: it is what was there before.
    assert_eq!(unsafe { libc::sigaltstack(&old, std::ptr::null_mut()) }, 0);
}

#[test]
fn hits_are_passed_over_taken_and_refused_by_their_number() {
    let _one = exclusive();
    let mut cell = 0;
    let site = Site::new(&[Op::IncLvImm as u8, 0, 0, Op::Exit as u8], |arena, environment| {
        cell = arena.word();
        environment.limits = Some(Limits { hits: cell, ignore: 3, maxhits: 4 });
    });
    for hit in 1..=10_u64 {
        site.hit();
        let runs = hit.saturating_sub(3).min(4);
        assert_eq!(site.value(site.environment.locals), runs, "runs after {hit} hits");
        assert_eq!(site.value(site.environment.over) != 0, hit >= 7, "over after {hit} hits");
    }
    assert_eq!(site.value(cell), 7, "hits that came later are not counted");
    assert_eq!(site.arena.records().len(), 4);
}

#[test]
fn a_probe_removes_itself_once() {
    let _one = exclusive();
    let site = Site::new(&[Op::IncLvImm as u8, 0, 0, Op::Remove as u8], |_, _| {});
    (0..5).for_each(|_| site.hit());
    assert_eq!(site.value(site.environment.locals), 1);
    assert_eq!(site.arena.sum(site.environment.hits), 1);
    assert_eq!(site.arena.records().len(), 1);
    assert!(site.arena.all_free());
}

#[test]
fn a_probe_that_somebody_else_disables_takes_no_hit_any_more() {
    let _one = exclusive();
    let site = Site::new(&handlers()[2], |_, environment| environment.removable = true);
    (0..3).for_each(|_| site.hit());
    site.arena.at(site.environment.over).store(1, Relaxed);
    (0..3).for_each(|_| site.hit());
    assert_eq!(site.arena.sum(site.environment.hits), 3);
    assert_eq!(site.arena.records().len(), 3);
    assert!(site.arena.all_free());
}

#[test]
fn hits_of_many_threads_are_all_counted_and_logged() {
    let _one = exclusive();
    let mut counters = Vec::new();
    let site =
        Site::new(&[&[Op::IncLvImm as u8, 1, 0][..], &handlers()[2]].concat(), |arena, environment| {
            counters.push((Variable::Local(1), arena.counter()));
            environment.counted = Vec::leak(counters.clone());
            arena.identity().pid.store(0, Relaxed);
        });
    let (threads, hits) = (8, 5_000);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                support::arena::mark_thread();
                for _ in 0..hits {
                    let target = site.at + u64::from(site.compiled.entry());
                    // SAFETY: it is compiled code, with the way back behind it.
                    unsafe { native::enter_raw(target, &mut Registers::default()) };
                }
            });
        }
    });
    let all = threads * hits;
    assert_eq!(site.arena.sum(site.environment.hits), all);
    assert_eq!(site.arena.sum(counters[0].1), all);
    assert_eq!(site.value(site.environment.missed), 0);
    let records = site.arena.records();
    assert_eq!(records.len() as u64 + site.value(site.environment.dropped), all);
    let mut tids: Vec<u32> = records.iter().map(|record| record.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids.len() as u64, threads);
}

/// Stores a number in one of the thread's own segments, as a tracer does: by set_thread_area, a
/// 32-bit system call. Returns whether the kernel supports that.
fn tell(arena: &mut Arena, place: u16, number: u32) -> bool {
    let (limit, flags) = thread_id::describe(number);
    let at = arena.word();
    arena.word();
    arena.at(at).store(u64::from(place), Relaxed);
    arena.at(at + 8).store(u64::from(flags) << 32 | u64::from(limit), Relaxed);
    let mut result = 243_u64;
    // SAFETY: the kernel reads 16 bytes there. The call may clear r8 to r11.
    unsafe {
        std::arch::asm!("xchg rbx, {at}", "int 0x80", "xchg rbx, {at}", at = inout(reg) u64::from(at) => _,
            inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result == 0
}

#[test]
fn a_thread_that_nobody_knows_reads_its_numbers_where_it_was_told() {
    let _one = exclusive();
    // Before a context is claimed, and after.
    let code = [
        vec![Op::PushTid as u8, Op::PushPid as u8, Op::LogImm as u8, 2, 0],
        vec![Op::PushTid as u8, Op::LogImm as u8, 1, 0, Op::Exit as u8],
    ]
    .concat();
    let site = &mut Site::new(&code, |arena, _| {
        let identity = arena.identity();
        identity.tid_offset.store(0, Relaxed);
        identity.rseq_offset.store(0, Relaxed);
        identity.pid.store(0, Relaxed);
        identity.owner.store(4242, Relaxed);
    });
    let ids = |site: &Site<'_>| {
        site.hit();
        let records = site.arena.records();
        let [record] = &records[..] else { panic!("{records:?}") };
        let words = record.log.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let [pid, tid, same] = words.collect::<Vec<_>>()[..] else { panic!("{record:?}") };
        assert_eq!((tid, same), (record.tid.into(), record.tid.into()));
        (record.tid, pid)
    };
    assert_eq!(ids(site), (0, 4242), "it was told nothing");
    for number in [1, 0xf_fbff, 0xf_ffff, 0x10_0000, 0x1f_ffff, 0x20_0000, 0x35_5555, 0x3f_ffff] {
        let places = [(thread_id::THREAD, number), (thread_id::PROCESS, number ^ 1)];
        if !places.into_iter().all(|(place, number)| tell(&mut site.arena, place, number)) {
            return testing::skipped("segments", "a kernel that makes them for 64-bit processes");
        }
        assert_eq!(ids(site), (number, u64::from(number ^ 1)));
    }
}

#[test]
fn a_context_that_is_taken_is_passed_by() {
    let _one = exclusive();
    let site = Site::new(&handlers()[2], |_, _| {});
    // The thread may move in between: a processor's own context may be taken, the shared one is
    // not.
    for free in OWN..CONTEXTS {
        for number in 0..CONTEXTS {
            let value = if number == free { FREE } else { TAKEN };
            site.arena.context(number).claim.store(value, Relaxed);
        }
        site.hit();
        assert_eq!(site.arena.records_of(free).len(), 1);
        assert_eq!(site.arena.context(free).claim.load(Relaxed), FREE);
    }
    // Nor does a thread without the mark, whatever is at its rseq address; and it counts on the
    // spill counter.
    support::arena::unmark_thread();
    site.arena.forget();
    let spilled = site.value(site.environment.hits.spill);
    (0..100).for_each(|_| site.hit());
    let shared: usize = (OWN..CONTEXTS).map(|number| site.arena.records_of(number).len()).sum();
    assert_eq!((shared, site.value(site.environment.hits.spill) - spilled), (100, 100));
    support::arena::mark_thread();
    // A thread without restartable sequences takes no per-processor context.
    let rseq = site.arena.identity().rseq_offset.swap(0, Relaxed);
    site.arena.forget();
    (0..100).for_each(|_| site.hit());
    let shared: usize = (OWN..CONTEXTS).map(|number| site.arena.records_of(number).len()).sum();
    assert_eq!(shared, 100);
    site.arena.identity().rseq_offset.store(rseq, Relaxed);
    // No free context at all: the hit is counted as missed.
    (0..CONTEXTS).for_each(|number| site.arena.context(number).claim.store(TAKEN, Relaxed));
    site.hit();
    assert_eq!(site.value(site.environment.missed), 1);
    assert_eq!(site.arena.sum(site.environment.hits), u64::from(CONTEXTS - OWN) + 201);
}
