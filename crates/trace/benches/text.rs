//! Measures the nanoseconds to write one record as text: two logged words, the default items and
//! the time. This bounds how many records a reader can take.
//!
//!     cargo bench -p dprobes-trace --bench text

use std::io::{BufWriter, Write};
use std::time::Instant;

use dprobes_trace::{Form, Items, Record, Text};

/// Records of a repetition.
const RECORDS: u32 = 2_000_000;

fn main() -> std::io::Result<()> {
    let items = Items::DEFAULT.with(Items::TSC);
    for (name, form) in [("rows", Form::Formatted), ("unformatted", Form::Unformatted)] {
        let mut figures = [0.0; 7];
        for figure in &mut figures {
            let mut out = BufWriter::with_capacity(1 << 16, std::io::sink());
            let mut text = Text::new(items, form);
            let mut record = Record { major: 1, minor: 2, pid: 4711, word: 8, ..Record::default() };
            record.data = vec![0x61; 16];
            let start = Instant::now();
            for time in 0..RECORDS {
                record.time = 1_700_000_000_000_000_000 + u64::from(time) * 1000;
                text.write(&record, &mut out)?;
            }
            out.flush()?;
            *figure = start.elapsed().as_nanos() as f64 / f64::from(RECORDS);
        }
        figures.sort_by(f64::total_cmp);
        println!("{name:12} {:7.0} ns a record ({:.0}-{:.0})", figures[3], figures[0], figures[6]);
    }
    Ok(())
}
