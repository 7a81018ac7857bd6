//! Makes records of what programs in the kernel have written: the one place where that happens.

use kernel::RawRecord;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use rpn::Object;
use trace::{Items, Record};
use vm::End;

/// Converts the kernel's time stamps, which are of `CLOCK_BOOTTIME`, to the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// What is added to a time stamp.
    offset: i64,
}

impl Clock {
    /// The conversion as of now; the wall clock may be set later.
    pub(super) fn now() -> Clock {
        let read = |clock| clock_gettime(clock).map_or(0, |time| time.num_nanoseconds());
        let (before, wall, after) =
            (read(ClockId::CLOCK_BOOTTIME), read(ClockId::CLOCK_REALTIME), read(ClockId::CLOCK_BOOTTIME));
        Clock { offset: wall.wrapping_sub(before.midpoint(after)) }
    }

    /// A time stamp of now, as the kernel makes them.
    pub(super) fn stamp() -> u64 {
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| time.num_nanoseconds() as u64)
    }

    /// Nanoseconds since 1970.
    pub(super) fn time(self, stamp: u64) -> u64 {
        stamp.wrapping_add_signed(self.offset)
    }
}

/// The program and the place of a hit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit<'a> {
    /// The version of the program that ran.
    pub(super) object: &'a Object,
    /// The probe's index in it.
    pub(super) probe: usize,
    /// The items of its records' headers.
    pub(super) items: Items,
}

/// The records of one run of a handler: that of its log, which counts as the hit's, and that of its
/// stack traces.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) log: Option<Record>,
    pub(super) traces: Option<Record>,
}

/// Records that were handed over, whose memory is used again.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Record>);

/// As many are kept, at most.
const SPARE: usize = 4096;

impl Spare {
    /// Keeps the memory of a record.
    pub(super) fn keep(&mut self, record: Record) {
        if self.0.len() < SPARE {
            self.0.push(record);
        }
    }

    /// An empty record.
    fn empty(&mut self) -> Record {
        let Some(Record { mut name, mut data, .. }) = self.0.pop() else { return Record::default() };
        name.clear();
        data.clear();
        Record { name, data, ..Record::default() }
    }
}

/// Makes the records of a run.
pub(super) fn records(raw: &RawRecord<'_>, hit: Hit<'_>, clock: Clock, spare: &mut Spare) -> Records {
    let mut record = |major: u32, minor: u32, data: &[u8]| {
        let mut record = header(raw, hit.items, clock, spare.empty());
        (record.major, record.minor) = (major, minor);
        (record.probe, record.word) = (hit.probe as u32, hit.object.word().bytes());
        record.data.extend_from_slice(data);
        record
    };
    let minor = hit.object.probes.get(hit.probe).map_or(0, |definition| definition.minor);
    // With `logmax = 0` nothing is logged at all.
    let kept = raw.end != End::Abort && hit.object.logmax > 0;
    Records {
        log: kept.then(|| record(raw.major.unwrap_or(hit.object.major), raw.minor.unwrap_or(minor), raw.log)),
        traces: (!raw.trace.is_empty()).then(|| record(0, 0, raw.trace)),
    }
}

/// Fills in the header of an empty record, with the items that are wanted.
fn header(raw: &RawRecord<'_>, items: Items, clock: Clock, mut record: Record) -> Record {
    (record.cpu, record.pid, record.tid) = (raw.cpu, raw.tgid, raw.tid);
    if items.contains(Items::UID) {
        record.uid = raw.uid;
    }
    if items.contains(Items::CSEIP) {
        (record.cs, record.eip) = (raw.cs, raw.ip);
    }
    if items.contains(Items::SSESP) {
        (record.ss, record.esp) = (raw.ss, raw.sp);
    }
    if items.contains(Items::TSC) {
        record.time = clock.time(raw.time);
    }
    if items.contains(Items::PROCNAME) {
        record.name.push_str(&String::from_utf8_lossy(raw.comm));
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        rpn::compile_text("test.rpn", text, &rpn::Options::default()).expect("it compiles").object
    }

    const TEXT: &str = "name = a\nmodtype = user\nmajor = 7\noffset = f\nminor = 3\nexit\n";

    fn raw(log: &'static [u8], trace: &'static [u8]) -> RawRecord<'static> {
        RawRecord {
            probe: 0,
            site: 0,
            time: 5,
            cpu: 1,
            tgid: 10,
            tid: 11,
            uid: 12,
            comm: b"name",
            ip: 0x1000,
            sp: 0x2000,
            cs: 0x33,
            ss: 0x2b,
            address: 0,
            major: None,
            minor: Some(9),
            end: End::Exit,
            over_limit: false,
            log,
            trace,
        }
    }

    #[test]
    fn a_record_has_the_items_that_are_wanted_and_the_codes_that_were_set() {
        let object = object(TEXT);
        let clock = Clock { offset: 100 };
        let hit = Hit { object: &object, probe: 0, items: Items::ALL };
        let made = records(&raw(b"log", b"trace"), hit, clock, &mut Spare::default());
        let log = made.log.expect("it is kept");
        assert_eq!((log.major, log.minor, log.data.as_slice(), log.time), (7, 9, &b"log"[..], 105));
        assert_eq!((log.uid, log.cs, log.eip, log.ss, log.esp), (12, 0x33, 0x1000, 0x2b, 0x2000));
        assert_eq!((log.name.as_str(), log.pid, log.tid, log.word), ("name", 10, 11, 8));
        let traces = made.traces.expect("there are some");
        assert_eq!((traces.major, traces.minor, traces.data.as_slice()), (0, 0, &b"trace"[..]));
        let mut spare = Spare::default();
        spare.keep(log);
        let log = records(&raw(b"", b""), Hit { items: Items::DEFAULT, ..hit }, clock, &mut spare).log;
        let log = log.expect("a log without bytes is one, too");
        assert_eq!((log.uid, log.eip, log.esp, log.time, log.name.as_str()), (0, 0, 0, 0, ""));
        assert!(log.data.is_empty() && log.data.capacity() > 0, "the memory is that of the first");
    }

    #[test]
    fn nothing_is_kept_of_an_abort_or_without_room_for_a_log() {
        let (some, none) = (object(TEXT), object(&format!("logmax = 0\n{TEXT}")));
        let hit = Hit { object: &some, probe: 0, items: Items::DEFAULT };
        let aborted = RawRecord { end: End::Abort, ..raw(b"log", b"") };
        let mut spare = Spare::default();
        assert!(records(&aborted, hit, Clock { offset: 0 }, &mut spare).log.is_none());
        let made = records(&raw(b"", b"t"), Hit { object: &none, ..hit }, Clock { offset: 0 }, &mut spare);
        assert!(made.log.is_none() && made.traces.is_some());
    }

    #[test]
    fn the_clocks_agree_with_the_systems() {
        let stamp = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("it has one");
        let stamp = stamp.num_nanoseconds() as u64;
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later");
        let apart = Clock::now().time(stamp).abs_diff(wall.as_nanos() as u64);
        // Generous: the machine may be busy between the two readings.
        assert!(apart < 10_000_000_000, "{apart}");
    }
}
