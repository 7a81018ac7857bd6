//! What a record from a ring becomes: its fields, from the data that its number stands for and from
//! the names of its thread.
//!
//! In: the head of a record, and what is known of its handler, site and thread. Out: the fields of
//! a `Record`. `deliver/drainer.rs` fills them in, passes the record on and counts it; most records
//! are passed on in groups (`deliver/group.rs`).

use std::time::Instant;

use layout::PROCESSOR_MASK;
use rings::Head;
use trace::{Items, Record};

use super::clock::Clock;
use super::numbers::Common;
use super::thread_names::ThreadNames;

mod drainer;
pub(super) mod group;

/// The segment selectors of 64-bit programs on Linux.
const CODE_SEGMENT: u32 = 0x33;
const STACK_SEGMENT: u32 = 0x2b;

/// The source of names for the threads of a ring.
pub(super) struct Names<'a> {
    pub(super) who: &'a mut ThreadNames,
    /// The thread whose user and name are in the record.
    pub(super) named: &'a mut Option<u32>,
    pub(super) gone: bool,
    pub(super) now: Instant,
}

/// Fills in the fields that differ in each record.
fn fill_own(record: &mut Record, head: &Head, has_time: bool, clock: &mut Clock) {
    record.cpu = head.processor & PROCESSOR_MASK;
    record.esp = head.rsp;
    if has_time {
        record.time = clock.time(head.time);
    }
}

/// Fills in the fields that the records of a thread at a site have in common, with the items that
/// the program shows.
fn fill(record: &mut Record, head: &Head, common: &Common, items: Items, names: &mut Names<'_>) {
    (record.major, record.minor) = head.codes.unwrap_or(common.codes);
    record.probe = common.probe as u32;
    (record.pid, record.tid) = names.who.ids(head.tid);
    record.cs = CODE_SEGMENT;
    record.ss = STACK_SEGMENT;
    record.word = size_of::<u64>();
    if (items.contains(Items::UID) || items.contains(Items::PROCNAME)) && *names.named != Some(record.tid) {
        let (uid, name) = names.who.look(record.tid, names.now, names.gone);
        record.uid = uid;
        name.clone_into(&mut record.name);
        *names.named = Some(record.tid);
    }
}
