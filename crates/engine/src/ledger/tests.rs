use super::*;

/// The current bytes of a static, which were written through /proc.
fn now<const N: usize>(code: &[u8]) -> [u8; N] {
    // SAFETY: reads of a static, within it.
    std::array::from_fn(|place| unsafe { std::ptr::from_ref(&code[place]).read_volatile() })
}

#[test]
fn what_was_entered_and_not_struck_out_is_restored() {
    static CODE: [u8; 64] = [0xcc; 64];
    let int3 =
        |place: usize, original| Change::new(std::ptr::from_ref(&CODE[place]) as u64, &[original], &[0xcc]);
    let pid = std::process::id() as i32;
    let ledger = Rc::new(Ledger::new().expect("memory"));
    let first = ledger.enter(pid, &int3(1, 0x55)).expect("room");
    let second = ledger.enter(pid, &int3(2, 0x90)).expect("room");
    drop(first);
    assert_eq!(ledger.restore(), Restored { restored: 1, ..Restored::default() });
    drop(second);
    assert_eq!(now(&CODE), [0xcc, 0xcc, 0x90]);
    let third = ledger.enter(pid, &int3(3, 0x55)).expect("room");
    assert!(third.number < 2, "a free entry is used again");
}

#[test]
fn a_counter_is_counted_down_and_not_restored() {
    use std::sync::atomic::AtomicU16;
    static COUNTERS: [AtomicU16; 3] = [AtomicU16::new(5), AtomicU16::new(0), AtomicU16::new(7)];
    let pid = std::process::id() as i32;
    let ledger = Rc::new(Ledger::with_capacity(8).expect("memory"));
    let mut entered: Vec<Entered> = COUNTERS
        .iter()
        .map(|counter| ledger.enter_counter(pid, std::ptr::from_ref(counter) as u64).expect("room"))
        .collect();
    let unmapped = ledger.enter_counter(pid, 0x10).expect("room");
    drop(entered.pop());
    assert!(ledger.changes().is_empty(), "a counter is no change of code");
    assert_eq!(ledger.restore(), Restored::default());
    let now = COUNTERS.each_ref().map(|counter| counter.load(Ordering::Relaxed));
    assert_eq!(now, [4, 0, 7], "one that is 0 was not counted up, and the last was struck out");
    drop(unmapped);
}

#[test]
fn a_change_of_many_bytes_is_entered_whole() {
    let ledger = Rc::new(Ledger::new().expect("memory"));
    let original: Vec<u8> = (1..=15).collect();
    let written: Vec<u8> = (101..=115).collect();
    let change = Change::new(0x7fff_1234_5678, &original, &written);
    let _entered = ledger.enter(4711, &change).expect("room");
    assert_eq!(ledger.entries()[0].read(), Some((4711, change)));
}

#[test]
fn what_is_listed_once_is_restored_in_each_process_that_has_it() {
    let ledger = Rc::new(Ledger::with_capacity(8).expect("memory"));
    let changes: Vec<Change> =
        (1..=3).map(|place| Change::new(place * 0x100, &[1, 2], &[0xe9, place as u8])).collect();
    let listed = Rc::new(ledger.list(changes.iter()).expect("room"));
    assert!(ledger.changes().is_empty(), "a list is in no process yet");
    let entered = [(7, 0x1000), (8, 0x1000_u64.wrapping_neg())]
        .map(|(process, by)| ledger.enter_list(process, &listed, by).expect("room"));
    let own = ledger.enter(9, &changes[0]).expect("room");
    let all: Vec<(i32, Change)> = [(7, 0x1000), (8, 0x1000_u64.wrapping_neg())]
        .into_iter()
        .flat_map(|(process, by)| changes.iter().map(move |change| (process, change.moved(by))))
        .chain([(9, changes[0])])
        .collect();
    assert_eq!(ledger.changes(), all);
    assert!(ledger.list(changes.iter()).is_err(), "there are two entries left");
    drop(entered);
    assert_eq!(ledger.changes(), all[6..]);
    drop((listed, own));
    assert!(ledger.changes().is_empty());
    assert!(ledger.has_room(8).is_ok() && ledger.has_room(9).is_err());
    // The entries of the last list are reused for the next one.
    let first = ledger.list(changes[..1].iter()).expect("room");
    let last = ledger.list(changes[1..].iter());
    drop(last);
    assert!(ledger.has_room(7).is_ok() && ledger.has_room(8).is_err());
    drop(first);
}

#[test]
fn nothing_is_left_to_undo_in_a_process_that_executes_another_program() {
    let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
    let pid = other.id() as i32;
    for change in [Change::new(0x10_0001, &[1], &[0xcc]), Change::new(0x10_0001, &[1, 2], &[0xe9, 0xe9])] {
        let ledger = Rc::new(Ledger::new().expect("memory"));
        let _entered = ledger.enter(pid, &change).expect("room");
        // Its program is position-independent: nothing is mapped so low.
        assert_eq!(ledger.restore(), Restored { restored: 1, ..Restored::default() }, "{change:?}");
    }
    assert!(other.try_wait().expect("an own child").is_none(), "it goes on");
    other.kill().and_then(|()| other.wait()).expect("an own child");
}

#[test]
fn nothing_is_left_to_undo_in_a_process_that_has_ended_under_the_hand() {
    let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
    let memory = Memory::open(other.id() as i32).expect("an own child");
    other.kill().and_then(|()| other.wait()).expect("an own child");
    let mut batch = Batch::default();
    batch.take_out(Change::new(0x10_0001, &[1], &[0xcc]));
    let error = batch.write_bytes(&memory, &Fixed::default()).expect_err("it has no memory any more");
    assert!(is_of_unmapped_memory(&error), "{error:?}");
    assert!(unless_unmapped(Err(error)).is_ok());
}

#[test]
fn a_jump_stays_where_its_threads_cannot_be_held() {
    static CODE: [u8; 64] = [0xe9; 64];
    let ledger = Rc::new(Ledger::new().expect("memory"));
    let change = Change::new(std::ptr::from_ref(&CODE[1]) as u64, &[1, 2], &[0xe9, 0xe9]);
    // A process cannot trace itself.
    let _entered = ledger.enter(std::process::id() as i32, &change).expect("room");
    let restored = ledger.restore();
    assert_eq!((restored.restored, restored.unknown), (0, 0));
    assert_eq!(restored.left.iter().map(|left| left.changes).collect::<Vec<_>>(), [1]);
    assert_eq!(now(&CODE), [0xe9; 3]);
}

#[test]
fn a_full_ledger_takes_nothing_and_loses_nothing() {
    let ledger = Rc::new(Ledger::with_capacity(4).expect("memory"));
    let change = |place: u64| Change::new(place, &[0x55], &[0xcc]);
    let mut entered: Vec<Entered> =
        (1..=4).map(|place| ledger.enter(4711, &change(place)).expect("room")).collect();
    assert_eq!(ledger.enter(4711, &change(5)).err(), Some(Full));
    assert_eq!(ledger.has_room(1), Err(Full));
    ledger.misses(3);
    assert_eq!(ledger.restore().unknown, 3);
    entered.pop();
    assert_eq!((ledger.has_room(1), ledger.has_room(2)), (Ok(()), Err(Full)));
    assert!(ledger.enter(4711, &change(6)).is_ok());
}

#[test]
fn a_process_that_nothing_can_be_done_with_is_left() {
    let mut done = Restored::default();
    let failed = |errno| process::Error::Refused {
        what: "tracing",
        pid: 7,
        cause: io::Error::from_raw_os_error(errno),
    };
    done.note(7, 3, Err(failed(libc::EPERM)));
    done.note(8, 3, Err(process::Error::Gone { pid: 8 }));
    done.note(9, 2, Ok(()));
    assert_eq!((done.restored, done.left.len(), done.left[0].pid, done.left[0].changes), (2, 1, 7, 3));
}
