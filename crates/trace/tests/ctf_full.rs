//! Tests a CTF trace on a disk that is full for a while. A limit of the whole process stands for
//! the disk, so this is the only test in its file.

mod ctf_support;
mod full_disk;

use dprobes_trace::ctf::Writer;
use dprobes_trace::{Items, Record};

use ctf_support::{about, babeltrace, record};
use full_disk::limit_file_size;

/// A disk that is full and gets room again: what could be written is read, and the rest is reported
/// as discarded.
#[test]
fn packets_that_could_not_be_written_are_discarded_records() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut writer = Writer::create(scratch.path(), &about()).expect("a new directory");
    writer.probe(0, 3, "full", Items::NONE);
    let mut failed = 0;
    let mut fill = |writer: &mut Writer, numbers: std::ops::Range<u64>| {
        for number in numbers {
            failed += u64::from(writer.record(0, &Record { cpu: 0, ..record(number) }).is_err());
        }
    };
    fill(&mut writer, 0..30_000);
    limit_file_size(1 << 20);
    fill(&mut writer, 30_000..60_000);
    limit_file_size(libc::RLIM_INFINITY);
    fill(&mut writer, 60_000..90_000);
    let summary = writer.finish().expect("there is room again");
    assert!(failed > 0 && summary.lost > 0, "{summary:?}");
    assert_eq!((summary.records + summary.lost, summary.discarded), (90_000, summary.lost));
    let Some((text, told)) = babeltrace(scratch.path(), &[]) else { return };
    assert_eq!(text.lines().count() as u64, summary.records);
    assert!(told.contains(&format!("Tracer discarded {} events", summary.lost)), "{told}");
}
