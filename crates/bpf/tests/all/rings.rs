//! Records that programs put into rings.

use bpf::{
    Alu, Assembler, BrokenRing, Cond, Helper, Insn, Map, MapError, MapKind, MapSpec, Program, ProgramKind,
    Reg, RingBuffer, Size,
};

use crate::support::{end, load, permitted};

/// A program that puts its second argument, as often as its first argument's bytes divided by 8
/// say, into a ring: the address of the ring is in `R1` after `find`.
fn writer(find: impl FnOnce(&mut Assembler), maps: &[&Map]) -> Program {
    let mut assembler = Assembler::new();
    let full = assembler.label();
    assembler.push(Insn::load(Size::Double, Reg::R6, Reg::R1, 0));
    assembler.push(Insn::load(Size::Double, Reg::R7, Reg::R1, 8));
    for place in 1..=32 {
        assembler.push(Insn::store(Size::Double, Reg::R10, -8 * place, Reg::R7));
    }
    assembler.jump_if64(Cond::Gt, Reg::R6, 256, full);
    find(&mut assembler);
    assembler.push(Insn::mov(Reg::R2, Reg::R10));
    assembler.push(Insn::alu64(Alu::Add, Reg::R2, -256));
    assembler.push(Insn::mov(Reg::R3, Reg::R6));
    assembler.push(Insn::mov(Reg::R4, 0));
    assembler.call(Helper::RINGBUF_OUTPUT);
    assembler.jump_if64(Cond::Ne, Reg::R0, 0, full);
    end(&mut assembler);
    assembler.bind(full);
    assembler.push(Insn::mov(Reg::R0, 1));
    assembler.exit();
    load(ProgramKind::RawTracepoint, assembler, maps)
}

fn ring(bytes: u32) -> Map {
    Map::create(&MapSpec::ring("ring", bytes)).expect("this process may create rings")
}

fn record(length: usize, word: u64) -> Vec<u8> {
    word.to_ne_bytes().repeat(32)[..length].to_vec()
}

#[test]
fn records_arrive_in_order_also_around_the_end_of_the_ring() {
    if !permitted("records_arrive_in_order_also_around_the_end_of_the_ring") {
        return;
    }
    let map = ring(4096);
    let program = writer(|assembler| assembler.load_map(Reg::R1, 0), &[&map]);
    let mut reader = RingBuffer::new(&map).expect("the map is a ring");
    assert_eq!(reader.drain(|_| unreachable!("nothing was written")), Ok(0));
    let mut next = 0;
    for round in 0..200_u64 {
        let lengths: Vec<usize> =
            (0..round % 17).map(|n| 1 + ((round * 7 + n * 31) % 200) as usize).collect();
        for (number, &length) in lengths.iter().enumerate() {
            assert_eq!(program.test_run(&[length as u64, next + number as u64]), Ok(0), "{round}");
        }
        let mut found = Vec::new();
        let count = reader.drain(|bytes| found.push(bytes.to_vec()));
        assert_eq!(count, Ok(lengths.len()));
        let expected: Vec<Vec<u8>> = lengths.iter().zip(next..).map(|(&l, word)| record(l, word)).collect();
        assert!(found == expected, "{round}: {found:?}");
        assert_eq!(reader.unread(), 0);
        next += lengths.len() as u64;
    }
}

#[test]
fn a_full_ring_refuses_until_it_is_read() {
    if !permitted("a_full_ring_refuses_until_it_is_read") {
        return;
    }
    let map = ring(4096);
    let program = writer(|assembler| assembler.load_map(Reg::R1, 0), &[&map]);
    let mut reader = RingBuffer::new(&map).expect("the map is a ring");
    let written = (0..100).take_while(|&word| program.test_run(&[256, word]) == Ok(0)).count();
    assert_eq!(written, 4096 / 264);
    assert_eq!(reader.unread(), written as u64 * 264);
    // The third record is not wanted yet: it is the first of the next call.
    let mut found = Vec::new();
    let taken = reader.drain_while(|bytes| {
        let wanted = found.len() < 2;
        if wanted {
            found.push(bytes.to_vec());
        }
        wanted
    });
    assert_eq!((taken, &found), (Ok(2), &vec![record(256, 0), record(256, 1)]));
    let mut words = Vec::new();
    let rest = reader.drain(|bytes| words.push(bytes[0]));
    assert_eq!((rest, words), (Ok(written - 2), (2..written as u8).collect()));
    assert_eq!(program.test_run(&[256, 1]), Ok(0));
}

#[test]
fn a_ring_of_an_array_of_rings_is_found_by_index() {
    if !permitted("a_ring_of_an_array_of_rings_is_found_by_index") {
        return;
    }
    let rings = [ring(4096), ring(8192)];
    let spec =
        MapSpec { kind: MapKind::ArrayOfMaps, inner: Some(&rings[0]), ..MapSpec::array("rings", 4, 2) };
    let array = Map::create(&spec).expect("this process may create maps");
    for (index, ring) in (0..).zip(&rings) {
        array.put_map(index, ring).expect("a ring of another size is of the same kind");
    }
    let program = writer(
        |assembler| {
            let found = assembler.label();
            assembler.push(Insn::store_imm(Size::Word, Reg::R10, -264, 1));
            assembler.load_map(Reg::R1, 0);
            assembler.push(Insn::mov(Reg::R2, Reg::R10));
            assembler.push(Insn::alu64(Alu::Add, Reg::R2, -264));
            assembler.call(Helper::MAP_LOOKUP_ELEM);
            assembler.jump_if64(Cond::Ne, Reg::R0, 0, found);
            assembler.push(Insn::mov(Reg::R0, 2));
            assembler.exit();
            assembler.bind(found);
            assembler.push(Insn::mov(Reg::R1, Reg::R0));
        },
        &[&array],
    );
    assert_eq!(program.test_run(&[8, 42]), Ok(0));
    let mut found = Vec::new();
    let mut count = |map| {
        let mut reader = RingBuffer::new(map).expect("the map is a ring");
        reader.drain(|bytes| found.push(bytes.to_vec()))
    };
    let counts: [Result<usize, BrokenRing>; 2] = [count(&rings[0]), count(&rings[1])];
    assert_eq!((counts, found), ([Ok(0), Ok(1)], vec![record(8, 42)]));
}

#[test]
fn only_a_ring_is_read_as_one_and_by_one_reader() {
    if !permitted("only_a_ring_is_read_as_one_and_by_one_reader") {
        return;
    }
    let map = Map::create(&MapSpec::array("array", 8, 1)).expect("this process may create maps");
    assert_eq!(RingBuffer::new(&map).err(), Some(MapError::Kind));
    let map = ring(4096);
    let first = RingBuffer::new(&map).expect("the map is a ring");
    assert_eq!(RingBuffer::new(&map).err(), Some(MapError::HasReader));
    drop(first);
    assert!(RingBuffer::new(&map).is_ok());
}

#[test]
fn discarded_records_are_passed_over() {
    if !permitted("discarded_records_are_passed_over") {
        return;
    }
    let map = ring(4096);
    let mut assembler = Assembler::new();
    let (full, keep) = (assembler.label(), assembler.label());
    assembler.push(Insn::load(Size::Double, Reg::R6, Reg::R1, 0));
    assembler.load_map(Reg::R1, 0);
    assembler.push(Insn::mov(Reg::R2, 8));
    assembler.push(Insn::mov(Reg::R3, 0));
    assembler.call(Helper::RINGBUF_RESERVE);
    assembler.jump_if64(Cond::Eq, Reg::R0, 0, full);
    assembler.push(Insn::store(Size::Double, Reg::R0, 0, Reg::R6));
    assembler.push(Insn::mov(Reg::R1, Reg::R0));
    assembler.push(Insn::mov(Reg::R2, 0));
    assembler.jump_if64(Cond::Set, Reg::R6, 1, keep);
    assembler.call(Helper::RINGBUF_DISCARD);
    end(&mut assembler);
    assembler.bind(keep);
    assembler.call(Helper::RINGBUF_SUBMIT);
    assembler.bind(full);
    end(&mut assembler);
    let program = load(ProgramKind::RawTracepoint, assembler, &[&map]);
    let mut reader = RingBuffer::new(&map).expect("the map is a ring");
    for word in 1..=6 {
        assert_eq!(program.test_run(&[word]), Ok(0));
    }
    let mut found = Vec::new();
    let count = reader.drain(|bytes| found.push(bytes[0]));
    assert_eq!((count, found), (Ok(3), vec![1, 3, 5]));
    assert_eq!(reader.unread(), 0);
}
