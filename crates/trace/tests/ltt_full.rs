//! Tests a stream of raw events on a disk that is full for a while. A limit of the whole process
//! stands for the disk, so this is the only test in its file. only test in it.

mod full_disk;

use std::fs::File;

use dprobes_trace::Record;
use dprobes_trace::sink::ltt::{Event, Events};
use dprobes_trace::sink::{Ltt, Sink, View};

use full_disk::limit_file_size;

#[test]
fn a_stream_on_a_full_disk_stays_readable() {
    let scratch = tempfile::NamedTempFile::new().expect("a file");
    let events = || {
        let bytes = std::fs::read(scratch.path()).expect("it is there");
        Events::of(&bytes).collect::<Result<Vec<Event>, _>>().expect("whole events")
    };
    let mut sink = Ltt::new(File::options().append(true).open(scratch.path()).expect("it is there"));
    sink.show(0, &View::default());
    let mut refused = 0;
    let mut fill = |sink: &mut Ltt, count: u64| {
        for number in 0..count {
            let record = Record { data: number.to_le_bytes().to_vec(), ..Record::default() };
            refused += u64::from(sink.record(0, &record).is_err());
        }
    };
    // Not a multiple of the size of an event.
    limit_file_size(100_001);
    fill(&mut sink, 20_000);
    assert!(sink.idle().is_err());
    assert!(events().len() > 1000);
    limit_file_size(libc::RLIM_INFINITY);
    fill(&mut sink, 20_000);
    sink.finish().expect("there is room again");
    let events = events();
    let records = events.iter().filter(|event| matches!(event, Event::Record(..))).count() as u64;
    let told = events.iter().map(|event| if let Event::Lost(0 | 1, lost) = event { *lost } else { 0 });
    assert!(refused > 0);
    assert_eq!((records, told.sum::<u64>(), sink.lost()), (40_000 - refused, refused, refused));
}
