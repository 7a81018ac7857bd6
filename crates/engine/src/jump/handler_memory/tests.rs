use std::mem::offset_of;

use super::*;

#[test]
fn a_description_is_read_as_it_is_written() {
    let info = HandlerInfo { point: 1, code: 2, mask: 3, globals: 4, over: 6, ..HandlerInfo::default() };
    let bytes = bytes_of(&info);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(bytes.len(), size_of::<HandlerInfo>());
    let fields = [
        (offset_of!(HandlerInfo, point), 1),
        (offset_of!(HandlerInfo, code), 2),
        (offset_of!(HandlerInfo, mask), 3),
        (offset_of!(HandlerInfo, globals), 4),
        (offset_of!(HandlerInfo, over), 6),
    ];
    for (at, value) in fields {
        assert_eq!(word(at), value);
    }
}

#[test]
fn programs_that_come_and_go_need_no_more_room_than_one() {
    let mut texts = Texts::default();
    texts.room.add(0x10000, PAGE);
    let stays = texts.put_for(0, &[1; 100]).expect("room");
    for program in 1..100 {
        texts.put_for(program, &[2; 1000]).expect("room for its code");
        texts.put_for(program, &[]).expect("room for nothing");
        texts.put_for(program, &[3; 1000]).expect("room for a description");
        texts.forget(program);
    }
    assert_eq!(texts.pending.keys().copied().collect::<Vec<_>>(), [u64::from(stays)]);
    texts.forget(0);
    assert_eq!(texts.put(&[4; PAGE as usize]).map(u64::from), Ok(0x10000), "all is one piece again");
}

#[test]
fn what_is_taken_is_no_gap() {
    let gaps = || vec![10..20, 30..40];
    assert_eq!(without(gaps(), 0..10), gaps());
    assert_eq!(without(gaps(), 12..15), [10..12, 15..20, 30..40]);
    assert_eq!(without(gaps(), 15..35), [10..15, 35..40]);
    assert_eq!(without(gaps(), 10..20), gaps()[1..]);
    assert!(without(gaps(), 0..100).is_empty());
}

#[test]
fn what_is_needed_finds_room_in_an_empty_process() {
    let places = places(&[], None, 40 << 20, 80 << 20).expect("room");
    assert!(places.contexts.is_multiple_of(CONTEXT_SIZE));
    for place in [places.identity, places.cells, places.contexts, places.agent] {
        assert!((PAGE..LOW_END).contains(&place));
    }
}
