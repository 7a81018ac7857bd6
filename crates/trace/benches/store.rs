//! Measures the nanoseconds to write a record to a store and to read it, and the bytes that it
//! takes: records of four threads at a hundred sites with two logged words.
//!
//!     cargo bench -p dprobes-trace --bench store

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use dprobes_trace::Record;
use dprobes_trace::store::{About, Filter, Item, Reader, Store};

/// Records of a repetition.
const RECORDS: u32 = 2_000_000;
/// The logged bytes of a record.
const DATA: usize = 16;

/// Calls `with` with each record, in the same memory.
fn each(mut with: impl FnMut(&Record) -> io::Result<()>) -> io::Result<()> {
    let mut record =
        Record { major: 1, pid: 4711, cs: 0x33, ss: 0x2b, word: 8, data: vec![0; DATA], ..Record::default() };
    let names: Vec<String> = (0..4).map(|thread| format!("worker-{thread}")).collect();
    let mut random = 1_u64;
    for number in 0..RECORDS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let site = (random >> 33) as u32 % 100;
        if number % 8 == 0 {
            let thread = (random >> 60) as u32 % 4;
            record.tid = 4711 + thread;
            record.name.clone_from(&names[thread as usize]);
            record.cpu = thread % 2;
        }
        (record.probe, record.minor) = (site, site);
        record.eip = 0x7f00_1234_0000 + u64::from(site) * 37;
        record.esp = 0x7ffc_0000_1000 - u64::from(site) * 64;
        record.time = 1_700_000_000_000_000_000 + u64::from(number) * 300 + (random >> 57);
        record.data[..8].copy_from_slice(&(random >> 40).to_le_bytes());
        record.data[8..].copy_from_slice(&u64::from(number).to_le_bytes());
        with(&record)?;
    }
    Ok(())
}

fn median(mut once: impl FnMut() -> io::Result<f64>) -> io::Result<[f64; 3]> {
    let mut figures = (0..7).map(|_| once()).collect::<io::Result<Vec<f64>>>()?;
    figures.sort_by(f64::total_cmp);
    Ok([figures[3], figures[0], figures[6]])
}

fn show(what: &str, [median, least, greatest]: [f64; 3]) {
    println!("{what:32} {median:7.1} ns a record ({least:.1}-{greatest:.1})");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nanoseconds = |start: Instant| start.elapsed().as_nanos() as f64 / f64::from(RECORDS);
    let made = median(|| {
        let start = Instant::now();
        each(|record| {
            black_box(record);
            Ok(())
        })?;
        Ok(nanoseconds(start))
    })?;
    show("making the record itself", made);
    show(
        "writing, to nowhere",
        median(|| {
            let start = Instant::now();
            let mut store = Store::new(io::sink(), &About::default())?;
            each(|record| store.record(0, record))?;
            store.finish()?.flush()?;
            Ok(nanoseconds(start) - made[0])
        })?,
    );
    let file = tempfile::NamedTempFile::new()?;
    show(
        "writing, to a file",
        median(|| {
            let start = Instant::now();
            let mut store = Store::create(file.path(), &About::default())?;
            each(|record| store.record(0, record))?;
            store.finish()?.flush()?;
            Ok(nanoseconds(start) - made[0])
        })?,
    );
    let size = file.path().metadata()?.len() as f64 / f64::from(RECORDS);
    println!("{:32} {size:7.1} bytes a record, {:.1} beside what was logged", "", size - DATA as f64);
    let mut reader = Reader::open(file.path())?;
    let mut read = |what: &str, filter: Filter, expected: u32| -> Result<(), Box<dyn std::error::Error>> {
        let figures = median(|| {
            let start = Instant::now();
            reader.select(filter.clone()).map_err(io::Error::other)?;
            let mut count = 0;
            while let Some(item) = reader.next().map_err(io::Error::other)? {
                if let Item::Record(entry) = item {
                    black_box(entry.record);
                    count += 1;
                }
            }
            assert_eq!(count, expected);
            Ok(nanoseconds(start))
        })?;
        show(what, figures);
        Ok(())
    };
    read("reading all", Filter::default(), RECORDS)?;
    read("reading those of no process", Filter { pids: vec![1], ..Filter::default() }, 0)?;
    let late = 1_700_000_000_000_000_000 + u64::from(RECORDS) * 400;
    read("looking for a time", Filter { from: Some(late), ..Filter::default() }, 0)?;
    let opening = median(|| {
        let start = Instant::now();
        black_box(Reader::open(file.path()).map_err(io::Error::other)?.info());
        Ok(start.elapsed().as_nanos() as f64 / 1000.0)
    })?;
    println!("{:32} {:7.1} us", "opening", opening[0]);
    Ok(())
}
