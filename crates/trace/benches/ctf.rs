//! Measures the nanoseconds to write a record to a CTF trace and the bytes that it takes: two
//! logged words, with and without a template. Also the time that babeltrace2 takes to read it, if
//! it is installed.
//!
//!     cargo bench -p dprobes-trace --bench ctf

use std::process::{Command, Stdio};
use std::time::Instant;

use dprobes_trace::ctf::Writer;
use dprobes_trace::store::About;
use dprobes_trace::template::Templates;
use dprobes_trace::{Items, Record};

/// Records of a repetition.
const RECORDS: u64 = 2_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let home = scratch.path().join("templates");
    std::fs::create_dir(&home)?;
    std::fs::write(home.join("bench.fmt"), "major=1 minor=1 desc=\"bench\" fmt=\"size=%8u address=%8x\"\n")?;
    let templates = Templates::open(&home)?;
    for (what, is_typed) in [("bytes", false), ("two fields of a template", true)] {
        let mut figures = Vec::new();
        let mut size = 0;
        let trace = scratch.path().join("trace");
        for _ in 0..7 {
            if trace.exists() {
                std::fs::remove_dir_all(&trace)?;
            }
            let mut writer = Writer::create(&trace, &About::default())?;
            if is_typed {
                templates.templates().for_each(|(_, template)| writer.template(template.clone()));
            }
            for probe in 0..100 {
                writer.probe(0, probe, &format!("libc.so.6:function{probe}:entry"), Items::ALL);
            }
            let mut record = Record {
                major: 1,
                minor: 1,
                pid: 4711,
                tid: 4711,
                name: "worker".to_owned(),
                word: 8,
                data: vec![0; 16],
                ..Record::default()
            };
            let start = Instant::now();
            for number in 0..RECORDS {
                record.probe = (number % 100) as u32;
                record.cpu = (number >> 6 & 3) as u32;
                record.eip = 0x7f00_1234_0000 + u64::from(record.probe) * 37;
                // A little disorder, as in the engine's output.
                record.time = 1_700_000_000_000_000_000 + (number ^ 0x3f) * 300;
                record.data[..8].copy_from_slice(&number.to_le_bytes());
                writer.record(0, &record)?;
            }
            writer.finish()?;
            figures.push(start.elapsed().as_nanos() as f64 / RECORDS as f64);
            size = 0;
            for file in std::fs::read_dir(&trace)? {
                size += file?.metadata()?.len();
            }
        }
        figures.sort_by(f64::total_cmp);
        println!(
            "{what:32} {:7.1} ns a record ({:.1}-{:.1}), {:.2} million a second, {:.1} bytes a record",
            figures[3],
            figures[0],
            figures[6],
            1000.0 / figures[3],
            size as f64 / RECORDS as f64
        );
        let start = Instant::now();
        let mut reader = Command::new("babeltrace2");
        reader.arg("--component=sink.utils.dummy").arg(&trace).stdout(Stdio::null());
        match reader.status() {
            Ok(status) if status.success() => {
                let each = start.elapsed().as_nanos() as f64 / RECORDS as f64;
                println!("{:32} {each:7.1} ns a record: babeltrace2 reads it", "");
            }
            _ => println!("{:32} babeltrace2 is not installed", ""),
        }
    }
    Ok(())
}
