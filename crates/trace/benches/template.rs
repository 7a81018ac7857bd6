//! Measures the nanoseconds to format one record by its template (two logged words and a string,
//! the default items), and to make typed values of it, as converters do.
//!
//!     cargo bench -p dprobes-trace --bench template

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use dprobes_trace::template::Templates;
use dprobes_trace::{Items, Record};

/// Records of a repetition.
const RECORDS: u32 = 1_000_000;

const TEMPLATES: &str = "major=1 minor=2 desc=\"a request\" fmt=\"size=%8u from=0x%8x name=%ps\"";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("one.fmt"), TEMPLATES)?;
    let templates = Templates::open(directory.path())?;
    assert_eq!(templates.problems().count(), 0);
    let mut record = Record { major: 1, minor: 2, pid: 4711, word: 8, ..Record::default() };
    record.data =
        [&8192u64.to_le_bytes()[..], &0x7f00_1234_5678_u64.to_le_bytes(), b"\x01\x08\x00a string"].concat();

    let mut text = Vec::with_capacity(1 << 16);
    measure("format, with header", || {
        text.clear();
        black_box(templates.format(Items::DEFAULT, black_box(&record), &mut text));
    });
    let template = templates.get(1, 2).ok_or("the template is there")?;
    measure("format, data alone", || {
        text.clear();
        black_box(template.format(black_box(&record), &mut text));
    });
    measure("values", || template.values(black_box(&record)).for_each(|value| drop(black_box(value))));
    let mut fresh = Templates::open(Path::new(directory.path()))?;
    measure("refresh of nothing changed", || {
        black_box(fresh.refresh().is_ok());
    });
    Ok(())
}

/// Prints the median of seven repetitions, and their range.
fn measure(name: &str, mut run: impl FnMut()) {
    let mut figures = [0.0; 7];
    for figure in &mut figures {
        let start = Instant::now();
        (0..RECORDS).for_each(|_| run());
        *figure = start.elapsed().as_nanos() as f64 / f64::from(RECORDS);
    }
    figures.sort_by(f64::total_cmp);
    println!("{name:28} {:7.0} ns ({:.0}-{:.0})", figures[3], figures[0], figures[6]);
}
