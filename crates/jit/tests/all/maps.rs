//! Maps that several threads use at once, from processors between which they move.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::support;
use crate::support::arena::{Arena, mark_thread};
use crate::support::interpreter::{CALLS, LEFT};
use crate::support::native::{Registers, enter_raw, exclusive};
use crate::support::script_pieces::processors;
use crate::support::tables::Tables;
use dprobes_jit::{Environment, compile};
use maps::{Kind, MapInfo, Value};
use vm::{Constants, Maps, Op, Register};

const THREADS: u64 = 8;
const HITS: u64 = 4000;

/// Instructions of a handler.
#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn op(mut self, op: Op) -> Code {
        self.0.push(op as u8);
        self
    }

    fn short(mut self, op: Op, operand: u16) -> Code {
        self.0.push(op as u8);
        self.0.extend(operand.to_le_bytes());
        self
    }

    fn push(mut self, value: u64) -> Code {
        self.0.push(Op::Push as u8);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn register(self, register: Register) -> Code {
        self.short(Op::PushR, register as u16)
    }

    /// An instruction on map 0 with the word at the frame's beginning as its key.
    fn keyed(self, op: Op) -> Code {
        self.push(8).push(0).short(op, 0)
    }
}

/// A site with a map.
struct Site {
    arena: Arena,
    environment: Environment<'static>,
    infos: Vec<MapInfo>,
    tables: Tables,
    target: u64,
}

impl Site {
    fn new(code: &Code, info: MapInfo) -> Site {
        Site::with_constants(code, info, &[])
    }

    fn with_constants(code: &Code, info: MapInfo, constants: &'static [u8]) -> Site {
        let mut infos = vec![info];
        let count = maps::plan(&mut infos, processors(), usize::MAX).expect("it is small");
        let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let mut arena = Arena::new();
        let tables = arena.put_tables(&Maps { infos: &infos, words: &words }, Constants(constants));
        let environment = Environment {
            maps: Vec::leak(infos.clone()),
            constants: Constants(constants),
            tables: tables.address(),
            processors: processors() as u32,
            ..arena.environment()
        };
        let handler = support::handler(&code.0);
        let info = arena.info(&handler, &environment, |info| tables.describe(info));
        let environment = Environment { info, ..environment };
        let compiled = compile(&handler, &environment).expect("compiles");
        let target = arena.place(&compiled, &[]) + u64::from(compiled.entry());
        Site { arena, environment, infos, tables, target }
    }

    /// Hits it from several threads, which move between processors, with these in rdi and rsi.
    /// Returns the calls of the agent.
    fn hit(&self, arguments: impl Fn(u64, u64) -> [u64; 2] + Sync) -> u64 {
        let calls = CALLS.load(Relaxed);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let arguments = &arguments;
                scope.spawn(move || {
                    mark_thread();
                    for hit in 0..HITS {
                        if hit % 500 == 0 {
                            move_to((thread + hit / 500) as usize % processors());
                        }
                        let mut registers = Registers::default();
                        [registers.general[7], registers.general[6]] = arguments(thread, hit);
                        // SAFETY: it is compiled code, with the way back behind it.
                        unsafe { enter_raw(self.target, &mut registers) };
                    }
                });
            }
        });
        assert!(self.arena.all_free());
        assert_eq!(self.arena.sum(self.environment.hits), THREADS * HITS);
        assert_eq!(self.arena.at(self.environment.missed).load(Relaxed), 0);
        CALLS.load(Relaxed) - calls
    }

    fn maps(&self) -> Maps<'_> {
        Maps { infos: &self.infos, words: self.tables.words() }
    }
}

/// Moves the thread to a processor, if it may be there.
fn move_to(processor: usize) {
    // SAFETY: the set is a valid one, of this size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// A map with keys of so many bytes.
fn map(kind: Kind, key: u32, entries: u32) -> MapInfo {
    MapInfo { kind: kind as u32, key, value: 8, entries, ..MapInfo::default() }
}

#[test]
fn a_count_is_the_number_of_hits_also_of_a_full_map() {
    let _one = exclusive();
    let code = Code::default().push(1).register(Register::Rdi).short(Op::PopF, 0);
    let code = code.keyed(Op::Update).op(Op::Abort);
    for (entries, is_full) in [(64, false), (4, true)] {
        let site = Site::new(&code, map(Kind::Count, 8, entries));
        let calls = site.hit(|thread, hit| [(thread * 7 + hit * hit) % 40, 0]);
        let entries = site.maps().view(0);
        let counts = entries.iter().map(|entry| match entry.value {
            Value::Number(count) => count,
            ref other => panic!("{other:?}"),
        });
        assert_eq!(counts.sum::<u64>() + site.maps().lost(0), THREADS * HITS);
        assert_eq!(site.maps().lost(0) > 0, is_full);
        assert!(calls > 0);
        // In a map that is not full, most entries are found at the first look.
        assert!(is_full || calls < THREADS * HITS / 2, "{calls} calls");
    }
}

#[test]
fn each_thread_has_an_entry_of_its_own() {
    let _one = exclusive();
    // Is there one? Set it to rsi, and add 5 to it; get it; remove it, and again.
    let code = Code::default().op(Op::PushTid).short(Op::PopF, 0).keyed(Op::Has);
    let code = code.register(Register::Rsi).keyed(Op::Put).push(5).keyed(Op::Bump).keyed(Op::Load);
    let code = code.keyed(Op::Erase).keyed(Op::Erase).short(Op::LogImm, 5).op(Op::Exit);
    let site = Site::new(&code, map(Kind::Plain, 8, 64));
    site.hit(|thread, hit| [0, thread << 32 | hit]);
    let records = site.arena.records();
    let dropped = site.arena.at(site.environment.dropped).load(Relaxed);
    assert_eq!(records.len() as u64 + dropped, THREADS * HITS);
    for record in records {
        let words: Vec<u64> =
            record.log.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [again, erased, value, before, was_there] = words[..] else { panic!("{words:?}") };
        assert_eq!([again, erased, value, was_there], [0, 1, before + 5, 0], "{words:?}");
    }
    assert_eq!(site.maps().entries(0), 0);
}

#[test]
fn strings_are_logged_without_the_interpreter() {
    let _one = exclusive();
    let code = Code::default().push(24).register(Register::Rdi).push(16).op(Op::StrF).short(Op::PopF, 8);
    let code = code.push(7).short(Op::LogImm, 1).short(Op::PushF, 8).push(16).op(Op::LogTextF);
    let site = Site::new(&code.op(Op::Exit), map(Kind::Count, 24, 64));
    for length in 0..40_u8 {
        LEFT.with(|left| *left.borrow_mut() = None);
        let text = [vec![b'a' + length % 7; length.into()], vec![0; 9]].concat();
        let mut registers = Registers::default();
        registers.general[7] = text.as_ptr() as u64;
        // SAFETY: it is compiled code, with the way back behind it.
        unsafe { enter_raw(site.target, &mut registers) };
        assert!(LEFT.with(|left| left.borrow_mut().take().is_none()));
        let records = site.arena.records();
        let [record] = &records[..] else { panic!("{records:?}") };
        let mut text = text[..usize::from(length).min(24)].to_vec();
        let words = [7, text.len() as u64].into_iter().flat_map(u64::to_le_bytes);
        text.resize(text.len().next_multiple_of(8), 0);
        assert_eq!(record.log, words.chain(text).collect::<Vec<u8>>());
    }
}

#[test]
fn strings_are_keys() {
    let _one = exclusive();
    let texts: Vec<Vec<u8>> =
        (0..40).map(|length| [vec![b'a' + length % 7; length.into()], vec![0; 9]].concat()).collect();
    let code = Code::default().push(1).push(24).register(Register::Rdi).push(16).op(Op::StrF);
    let code = code.push(7).op(Op::Add).push(!7).op(Op::And).push(16).short(Op::Update, 0).op(Op::Abort);
    let site = Site::new(&code, map(Kind::Count, 24, 64));
    site.hit(|thread, hit| [texts[((thread + hit) % 40) as usize].as_ptr() as u64, 0]);
    let mut expected = std::collections::BTreeMap::new();
    for text in &texts {
        let mut key = text[..text.len() - 9].to_vec();
        key.resize(24, 0);
        *expected.entry(key).or_insert(0) += THREADS * HITS / 40;
    }
    let counts = site.maps().view(0).into_iter().map(|entry| match entry.value {
        Value::Number(count) => (entry.key, count),
        ref other => panic!("{other:?}"),
    });
    assert_eq!(counts.collect::<std::collections::BTreeMap<_, _>>(), expected);
}

/// A constant of class 0, as [`vm::Constants`] lays it out.
const NAME: &[u8] = b"\x01\0\0\0\0\0\0\0\0\0\0\0\x14\0\0\0\x12\0\0\0malloc_usable_size";

#[test]
fn constants_are_keys_and_are_logged_without_the_interpreter() {
    let _one = exclusive();
    let code = Code::default().push(0).push(16).op(Op::TextF).short(Op::PopF, 8).push(7);
    let code = code.short(Op::LogImm, 1).short(Op::PushF, 8).push(16).op(Op::LogTextF);
    let code = code.push(1).short(Op::PushF, 8).push(7).op(Op::Add).push(!7).op(Op::And).push(16);
    let code = code.short(Op::Update, 0).op(Op::Exit);
    let site = Site::with_constants(&code, map(Kind::Count, 24, 64), NAME);
    const TIMES: u64 = 3;
    for _ in 0..TIMES {
        LEFT.with(|left| *left.borrow_mut() = None);
        // SAFETY: it is compiled code, with the way back behind it.
        unsafe { enter_raw(site.target, &mut Registers::default()) };
        assert!(LEFT.with(|left| left.borrow_mut().take().is_none()));
    }
    let name = b"malloc_usable_size\0\0\0\0\0\0".to_vec();
    let words: Vec<u8> = [7, 18].into_iter().flat_map(u64::to_le_bytes).collect();
    let logged = [words, name.clone()].concat();
    assert_eq!(site.arena.records().iter().filter(|record| record.log == logged).count() as u64, TIMES);
    let [entry] = &site.maps().view(0)[..] else { panic!("one entry") };
    assert_eq!(entry.key, name);
    assert!(matches!(entry.value, Value::Number(TIMES)), "{:?}", entry.value);
}
