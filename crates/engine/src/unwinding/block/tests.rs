use unwind::{Index, Lookup, Row, Rule};

use super::*;

/// A block in this process's memory, accessed as the tracer does.
struct Own {
    block: Block,
    directory: Box<Directory>,
    memory: Memory,
    words: Vec<u64>,
}

impl Own {
    fn new(words: usize) -> Own {
        let page = layout::PAGE as usize / 8;
        let words = vec![0; words.next_multiple_of(page) + page];
        let base = (words.as_ptr().addr() as u64).next_multiple_of(layout::PAGE);
        let size = (words.len() - page) as u64 * 8;
        let slots = [const { std::sync::atomic::AtomicU64::new(0) }; SLOTS];
        Own {
            block: Block::new(base, size, None),
            directory: Box::new(Directory { current: 0.into(), slots, version: 0.into() }),
            memory: Memory::open(std::process::id() as i32).expect("own memory"),
            words,
        }
    }

    fn directory(&self) -> u64 {
        std::ptr::from_ref(&*self.directory).addr() as u64
    }

    fn add(&mut self, modules: &[Unwound]) -> bool {
        let added = self.block.add(&self.memory, modules).expect("own memory");
        self.block.publish(&self.memory, self.directory()).expect("own memory");
        added
    }

    /// The rule at an address, as a handler finds it.
    fn rule(&self, address: u64) -> Option<u32> {
        let (block, list) = self.directory.block()?;
        assert_eq!(block, self.block.base);
        let first = (block - self.words.as_ptr().addr() as u64) as usize / 8;
        let words = &self.words[first..first + self.words[first] as usize];
        Index::new(words, list).rule(address, false).map(Rule::pack)
    }
}

fn module(start: u64, table: &Rc<FileTable>) -> Unwound {
    Unwound { start, end: start + 100, bias: start, table: Rc::clone(table) }
}

fn table(rule: u32, rows: u32) -> Rc<FileTable> {
    FileTable::of((0..rows).map(|at| Row { address: at, rule: rule + 0x8000 * at }).collect())
}

#[test]
fn handlers_find_the_modules_as_they_come_and_go() {
    let mut own = Own::new(512);
    let (first, second) = (table(2, 1), table(3, 2));
    assert_eq!(own.rule(1000), None);
    assert!(own.add(&[module(1000, &first)]));
    assert_eq!([1000, 1099, 1100, 2000].map(|address| own.rule(address)), [Some(2), Some(2), None, None]);
    assert!(own.add(&[module(1000, &first), module(2000, &second)]));
    assert_eq!([1000, 2000, 2001].map(|address| own.rule(address)), [Some(2), Some(3), Some(0x8003)]);
    // The same file at another address: its rows are there.
    let before = own.block.words;
    assert!(own.add(&[module(3000, &second)]));
    assert_eq!(own.block.words - before, list_words(1));
    assert_eq!([1000, 2000, 3001].map(|address| own.rule(address)), [None, None, Some(0x8003)]);
    // Nothing is new.
    let (before, slot) = (own.block.words, own.block.slot);
    assert!(own.add(&[module(3000, &second)]));
    assert_eq!((own.block.words, own.block.slot), (before, slot));
}

#[test]
fn more_changes_than_there_are_slots() {
    let mut own = Own::new(1 << 14);
    let only = table(2, 1);
    for round in 1..1000 {
        assert!(own.add(&[module(1000 * round, &only)]));
        assert_eq!(own.rule(1000 * round), Some(2));
        assert_eq!(own.rule(1000 * round - 1000), None);
    }
}

#[test]
fn a_full_block_stays_as_it_is() {
    let mut own = Own::new(512);
    assert!(own.add(&[module(1000, &table(2, 400))]));
    assert!(!own.add(&[module(1000, &table(3, 400))]));
    assert_eq!(own.rule(1000), Some(2));
    let next = Block::new(own.block.base, own.block.size, Some(&own.block));
    assert_eq!(next.slot, own.block.slot, "a thread may be reading that slot");
}

#[test]
fn a_child_gets_what_it_may_lack() {
    let mut own = Own::new(512);
    assert!(own.add(&[module(1000, &table(2, 7)), module(2000, &table(3, 9))]));
    let (whole, current) = (own.words.clone(), own.directory.block());
    own.words.fill(0);
    own.directory.current.store(0, std::sync::atomic::Ordering::Relaxed);
    let directory = own.directory();
    own.block.write_again(&own.memory, Some(directory)).expect("own memory");
    assert_eq!((&own.words, own.directory.block()), (&whole, current));
}

#[test]
fn sizes_have_room_for_more_up_to_a_limit() {
    let (small, large) = (table(2, 10), FileTable::of(vec![Row { address: 0, rule: 2 }; 3 << 20]));
    assert_eq!(Block::size_for(&[module(0, &small)]).0, LEAST);
    let (size, least) = Block::size_for(&[module(0, &large), module(1000, &large)]);
    assert!((24 << 20..25 << 20).contains(&least) && size == 2 * least, "{size} {least}");
}

#[test]
fn a_replaced_block_is_unused_once_each_context_was_free() {
    let own = Own::new(512);
    let mut replaced = Replaced::new(&own.block);
    assert!(!replaced.look(4, |context| context != 0));
    assert!(!replaced.look(4, |context| context < 3));
    assert!(!replaced.look(4, |context| context == 1));
    assert!(replaced.look(4, |context| context != 1), "2 and 3 run later handlers");
    let mut replaced = Replaced::new(&own.block);
    replaced.is_unused();
    assert!(replaced.look(4, |_| true));
}
