//! Checks that the agent walks stacks by the tables that its directory leads to, whatever these are.

use std::sync::atomic::{AtomicU64, Ordering};

use dprobes_agent::image::Entry;
use layout::stacks::{Directory, slot};
use layout::{Context, MapCall, Registers};
use maps::{Kind, MapInfo, Maps};
use proptest::prelude::*;
use testing::conformance::assemble;
use unwind::{Cfa, Index, Listed, Module, Row, Rule, Saved, walk, walk_frame_pointers};
use vm::{Op, Program, Word};

use crate::common::{Bench, loaded, low};

const FRAMES: usize = 16;
/// Where functions of each test are: 16 bytes for each rule.
const CODE: u64 = 0x55_0000_0000;
/// Words of a test's stack, and of its block.
const STACK: usize = 64;
const BLOCK: usize = 4096 / 8;

/// A thread that is to hit a probe, and the memory that its stack is in.
struct Scene {
    bench: Bench,
    /// The address of its stack. What is around it is zeros.
    stack: u64,
    /// The address of the block of tables.
    block: u64,
    infos: [MapInfo; 1],
    words: Vec<AtomicU64>,
}

impl Scene {
    fn new() -> Scene {
        let info =
            MapInfo { kind: Kind::Stacks as u32, key: 8 * FRAMES as u32, entries: 64, ..MapInfo::default() };
        let mut infos = [info];
        let size = maps::plan(&mut infos, 1, usize::MAX).expect("a small map");
        Scene {
            bench: Bench::new(),
            stack: low(3 * 4096, 4096) + 4096,
            block: low(4096, 4096),
            infos,
            words: (0..size).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn put(&self, place: usize, word: u64) {
        assert!(place < STACK);
        // SAFETY: the stack is the test's own.
        unsafe { *((self.stack + 8 * place as u64) as *mut u64) = word };
    }

    /// The registers at a place in the stack: rip, and by their DWARF numbers.
    fn registers(&self, rip: u64, rbp: u64) -> (u64, [u64; 16]) {
        let mut all = [0; 16];
        (all[3], all[6], all[7], all[12]) = (self.stack + 8, rbp, self.stack, self.stack + 16);
        (rip, all)
    }

    /// Makes the block and a list in it current; none if the list is `None`.
    fn publish(&mut self, words: &[u64], list: Option<usize>) {
        // SAFETY: the tests of this file take turns with it, and nobody else uses it.
        let directory = unsafe { &*(loaded().stacks as *const Directory) };
        for (at, word) in words.iter().chain(std::iter::repeat(&0)).take(BLOCK).enumerate() {
            // SAFETY: the block is the test's own.
            unsafe { *((self.block + 8 * at as u64) as *mut u64) = *word };
        }
        if let Some(list) = list {
            directory.slots[1].store(slot(self.block, list).expect("it fits"), Ordering::Relaxed);
        }
        directory.current.store(list.is_some().into(), Ordering::Relaxed);
        directory.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The stack that the agent takes: when it interprets, and when compiled code asks for it, for
    /// the first time and again.
    fn taken(&mut self, (rip, all): (u64, [u64; 16])) -> Vec<u64> {
        let lines = [format!("push {FRAMES}"), "stack 0".to_owned(), "exit".to_owned()];
        let code = assemble(&lines, Word::W8).code;
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let maps = Maps { infos: &self.infos, words: &self.words };
        let program = Program { code: &code, logmax: 100, maps, ..Program::default() };
        // rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi: the order of machine code.
        let order = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
        let general = order.map(|number| all[number]);
        // SAFETY: nobody else uses the context.
        unsafe { (*(self.bench.context as *mut Context)).registers = Registers { general, rip, rflags: 2 } };
        let info = self.bench.describe(&program, 0);
        let left = self.bench.run(&info);
        self.bench.take_variables(&program);
        let number = *left.stack.first().expect("a number");
        let info = self.bench.begin(&info);
        for _ in 0..2 {
            let call = MapCall { op: Op::StackOf as u32, value: FRAMES as u64, ..MapCall::default() };
            *self.bench.map_call().0 = call;
            assert_eq!(self.bench.call_with_everything(Entry::Map, info, 0).0, number);
        }
        self.bench.take_variables(&program);
        let bytes = maps.stack(0, number).unwrap_or_default();
        bytes.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("a word"))).collect()
    }

    /// The stack as this crate's own walker finds it.
    fn expected(&self, (rip, all): (u64, [u64; 16]), index: Option<Index<'_>>) -> Vec<u64> {
        let registers = unwind::Registers { rip, rsp: all[7], rbp: all[6], all: Some(&all) };
        let read = |address: u64| {
            let mut bytes = [0; 8];
            process::read(std::process::id() as i32, address, &mut bytes).ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let mut frames = [0; FRAMES];
        let count = match index {
            Some(index) => walk(&registers, &index, read, &mut frames),
            None => walk_frame_pointers(&registers, read, &mut frames),
        };
        frames[..count].to_vec()
    }
}

/// The block with one module: 16 bytes of code for each rule.
fn block(rules: &[Rule]) -> Vec<u64> {
    let row = |(at, rule): (usize, &Rule)| Row { address: 16 * at as u32, rule: rule.pack() };
    let table: Vec<Row> = rules.iter().enumerate().map(row).collect();
    let mut words = vec![BLOCK as u64];
    let module = Module { start: CODE, end: CODE + 16 * table.len() as u64, bias: CODE, table: &table };
    // The list begins at the second word, and the table behind it.
    let length = unwind::list(vec![Listed::new(&module, 0)]).len();
    words.extend(unwind::list(vec![Listed::new(&module, 1 + length)]));
    words.extend(unwind::words(&table));
    words
}

/// One test, since there is one directory.
#[test]
fn stacks_are_walked_by_whatever_the_directory_leads_to() {
    let mut scene = Scene::new();
    by_tables(&mut scene);
    by_any_words(&mut scene);
}

fn by_tables(scene: &mut Scene) {
    let frame = |bytes| Rule::Frame { cfa: Cfa::Rsp(bytes), rbp: Saved::No, rbx: Saved::No };
    let by_r12 =
        Rule::Frame { cfa: Cfa::Register { register: 12, offset: 8 }, rbp: Saved::No, rbx: Saved::No };
    let words = block(&[frame(16), frame(24), by_r12, Rule::End]);
    // The first function's caller is the second, whose caller is the last.
    let words_there = [(1, CODE + 0x18), (2, CODE + 0x38), (4, CODE + 0x38), (21, 0x77_0000)];
    words_there.into_iter().for_each(|(place, word)| scene.put(place, word));
    let rbp = scene.stack + 8 * 20;
    let registers = scene.registers(CODE, rbp);
    scene.publish(&words, None);
    assert_eq!(scene.taken(registers), [CODE, 0x77_0000], "by frame pointers");
    scene.publish(&words, Some(1));
    assert_eq!(scene.taken(registers), [CODE, CODE + 0x18, CODE + 0x38]);
    // By a register that only the innermost frame has.
    let registers = scene.registers(CODE + 0x20, rbp);
    assert_eq!(scene.taken(registers), [CODE + 0x20, CODE + 0x38]);
}

/// Any words, on any stack, give what the walker finds in them.
fn by_any_words(scene: &mut Scene) {
    let word = |base: u64| {
        let near = (0..STACK as u64 * 8).prop_map(move |by| base + by);
        prop_oneof![2 => 0..64u64, 2 => CODE..CODE + 256, 1 => near, 1 => any::<u64>()]
    };
    let base = scene.stack;
    let words = prop::collection::vec(word(base), BLOCK - 1);
    let inputs = (words, prop::collection::vec(word(base), STACK), word(base), word(base), 0..BLOCK);
    let scene = std::cell::RefCell::new(scene);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&inputs, |(mut words, stack, rip, rbp, list)| {
        let scene = &mut *scene.borrow_mut();
        words.insert(0, BLOCK as u64);
        stack.iter().enumerate().for_each(|(place, word)| scene.put(place, *word));
        let registers = scene.registers(rip, rbp);
        scene.publish(&words, Some(list));
        let found = scene.taken(registers);
        prop_assert_eq!(found, scene.expected(registers, Some(Index::new(&words, list))));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
