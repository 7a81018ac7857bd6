//! What a scrape costs beside reading the maps: making the snapshot and its text, as processor time,
//! and the whole answer over HTTP, as time. `cargo bench -p dprobes-export`.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use export::{Bound, Builder, Family, Kind, Series, Snapshot, Target, Value};

/// A counter with two labels, and a histogram of eleven buckets for each hundredth of its series.
fn snapshot(series: usize) -> Snapshot {
    let labels = |number: usize| {
        let name = format!("process {number}");
        vec![("pid".to_owned(), number.to_string()), ("comm".to_owned(), name)]
    };
    let value = |number: usize| Value::Number(number as i128 * 1_000_003);
    let mut builder = Builder::new(1 << 20);
    let histograms = series / 100;
    let counters = series - histograms * 14;
    let counter = |number| Series { labels: labels(number), value: value(number) };
    builder.add(Family {
        name: "dprobes_map_calls".to_owned(),
        help: "@calls of the script.".to_owned(),
        kind: Kind::Counter,
        series: (0..counters).map(counter).collect(),
    });
    let counts = || (0..12).map(|bucket| bucket * 1000 + 17).collect();
    let histogram = |number| Series {
        labels: labels(number),
        value: Value::Histogram { counts: counts(), sum: 12345.5 },
    };
    builder.add(Family {
        name: "dprobes_map_ns".to_owned(),
        help: "@ns of the script; the sum is estimated by the buckets.".to_owned(),
        kind: Kind::Histogram((9..20).map(|power| (1 << power) - 1).collect()),
        series: (0..histograms).map(histogram).collect(),
    });
    builder.finish(1, 2)
}

/// The time that this thread has had a processor.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    Duration::from_nanos(text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number"))
}

/// How long a run keeps a processor busy, on average of many: the kernel counts in milliseconds.
fn cost(mut run: impl FnMut()) -> Duration {
    let (begun, end) = (busy(), Instant::now() + Duration::from_secs(3));
    let mut runs = 0;
    while Instant::now() < end || runs == 0 {
        run();
        runs += 1;
    }
    (busy() - begun) / runs
}

/// The median of the times of a hundred runs.
fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..100)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// One scrape; returns its bytes.
fn scrape(address: &str) -> usize {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    answer.len()
}

fn main() {
    println!("{:>8} {:>12} {:>12} {:>12} {:>12}", "series", "bytes", "snapshot", "text", "scrape");
    for series in [10, 1_000, 10_000] {
        let shown = export::text(&snapshot(series));
        let made = cost(|| drop(black_box(snapshot(series))));
        let given = snapshot(series);
        let text = cost(|| drop(black_box(export::text(&given))));
        let target: Target = "prometheus:0".parse().expect("a target");
        let bound = Bound::new(&[target]).expect("a free port");
        let said = bound.announcements().remove(0);
        let address =
            said.split_once("http://").and_then(|(_, rest)| rest.split_once('/')).expect("an address");
        let (exporters, mut answerer) =
            bound.start(Duration::from_secs(10), |_| {}, || {}).expect("a thread");
        let over = AtomicBool::new(false);
        let scraped = thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    answerer.answer(|| snapshot(series));
                    thread::yield_now();
                }
            });
            let scraped = median(|| {
                scrape(address.0);
            });
            over.store(true, Ordering::Relaxed);
            scraped
        });
        drop(exporters);
        println!("{series:>8} {:>12} {made:>12.1?} {text:>12.1?} {scraped:>12.1?}", shown.len());
    }
}
