//! Maps as metrics, while a script runs.

use super::live::{is_whole, serve};
use super::support::{
    Collector, Metrics, READ, Scratch, dprobes, python, run, script, target, text_differences, value,
};
use super::tracing::{Tracing, send};
use std::path::Path;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut both = |name: &str, test: fn(&Path, &str)| {
        for engine in ["jump", "trap"] {
            trials.add(format!("export: {name} ({engine})"), move || match target("scripted") {
                Some(program) => test(&program, engine),
                None => testing::skipped("trace: export", "gcc"),
            });
        }
    };
    both("maps are metrics while the program runs", live);
    both("Prometheus' own library reads them", read_by_prometheus);
    both("what is beyond the limit is counted", limited);
    both("metrics are sent to a collector, the last ones at the end", sent);
    trials.add("export: a collector that is not there harms nobody", nobody_there);
    trials.add("export: an address that is taken is refused before anything starts", taken);
    trials.add("export: what is no target is refused", refused);
    trials.add("export: maps of a script without probes", without_probes);
}

/// Traces a process with metrics.
fn export(pid: u32, engine: &str, words: &[&str]) -> (Tracing, Metrics) {
    let pid = pid.to_string();
    let first = ["--engine", engine, "-p", &pid, "--export", "prometheus:0"];
    let tracing = Tracing::start(&[&first[..], words].concat());
    let metrics = Metrics::announced(&tracing.says("metrics are at"));
    tracing.says("armed");
    (tracing, metrics)
}

fn live(program: &Path, engine: &str) {
    let mut server = serve(program);
    let text = "uprobe:a.out:scripted_size { @ = count(); @total[comm] = sum((uint64)arg0); @last = (int64)arg0; \
                @mean = avg(arg0); @text = \"a\"; @sizes[probe] = lhist(arg0, 0, 20, 10); }";
    let (tracing, metrics) = export(server.pid(), engine, &[text]);
    let before = metrics.text();
    assert_eq!(value(&before, "dprobes_map_total"), 0.0);
    assert!(!before.contains("dprobes_map_sizes_bucket"), "{before}");
    for turn in 1..=3 {
        server.ask("x");
        let count = f64::from(turn);
        let after = metrics.once(|text| value(text, "dprobes_map_total") >= count);
        let of = |sample: &str| value(&after, sample);
        assert_eq!(of("dprobes_map_total"), f64::from(turn), "{after}");
        // The sizes are 0, 1, 2.
        let sum = count * (count - 1.0) / 2.0;
        assert_eq!(of("dprobes_map_last"), count - 1.0, "{after}");
        assert_eq!(of("dprobes_map_total_2_total{comm=\"scripted\"}"), sum, "{after}");
        assert_eq!((of("dprobes_map_mean_count"), of("dprobes_map_mean_sum")), (count, sum));
        let bucket = "dprobes_map_sizes_bucket{probe=\"uprobe:a.out:scripted_size\",le=\"+Inf\"}";
        assert_eq!(of(bucket), f64::from(turn), "{after}");
        assert_eq!(
            of("dprobes_export_left_out_entries{metric=\"dprobes_map_text\",reason=\"no number\"}"),
            1.0
        );
    }
    assert!(metrics.answer("GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!(status.code(), Some(0));
    assert!(stdout.contains("\n@: 3\n"), "{stdout}");
    assert!(!metrics.is_there());
    is_whole(server);
}

fn read_by_prometheus(program: &Path, engine: &str) {
    let Some(python) = python("prometheus_client") else {
        return testing::skipped(
            "trace: export: prometheus",
            "the Python module prometheus_client (DPROBES_PYTHON)",
        );
    };
    let scratch = Scratch::new();
    let mut server = serve(program);
    let text = r#"uprobe:a.out:scripted_size {
        @names[str("a \"b\" \\ \n c"), tid] = count(); @h[comm] = hist(3); @h[comm] = hist(1000); @n = -5; @s = stats(7);
    }"#;
    let (tracing, metrics) = export(server.pid(), engine, &[text]);
    server.ask("x");
    let text = metrics.once(|text| text.contains("dprobes_map_names_total{"));
    std::fs::write(scratch.path().join("metrics"), text).expect("room");
    let read = script(&python, &scratch, &READ.replace("sys.argv[1]", "'metrics'"));
    let tid = server.pid();
    let below = |le: u32| if le < 1000 { "1.0" } else { "2.0" };
    let bucket =
        |le: u32| format!("histogram dprobes_map_h_bucket comm='scripted' le='{le}' {}\n", below(le));
    let mut expected = [3, 7, 15, 31, 63, 127, 255, 511, 1023].map(bucket).concat();
    expected.push_str("histogram dprobes_map_h_bucket comm='scripted' le='+Inf' 2.0\n");
    // The middles of the buckets: (2 + 3) / 2, (512 + 1023) / 2.
    expected.push_str("histogram dprobes_map_h_sum comm='scripted' 770.0\n");
    expected.push_str("histogram dprobes_map_h_count comm='scripted' 2.0\n");
    assert!(read.contains(&expected), "{read}");
    for line in [
        &*format!(r#"counter dprobes_map_names_total str='a "b" \\ \\x0a c' tid='{tid}' 1.0"#),
        "gauge dprobes_map_n -5.0",
        "summary dprobes_map_s_sum 7.0",
        "summary dprobes_map_s_count 1.0",
        "counter dprobes_lost_events_total 0.0",
        "counter dprobes_map_lost_updates_total map='@h' 0.0",
    ] {
        assert!(read.lines().any(|read| read == line), "{line}\n{read}");
    }
    assert_eq!(tracing.stop(libc::SIGINT).0.code(), Some(0));
    is_whole(server);
}

/// Reads a request with the published definitions; an unknown field is an error. Prints the points.
const OTLP: &str = r#"
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
[metrics] = json_format.Parse(open('metrics').read(), ExportMetricsServiceRequest()).resource_metrics
names = {it.key for it in metrics.resource.attributes}
assert {'host.name', 'service.name', 'process.pid'} <= names, names
for metric in metrics.scope_metrics[0].metrics:
    kind = metric.WhichOneof('data')
    data = getattr(metric, kind)
    for point in data.data_points:
        assert point.time_unix_nano > 0 and (kind == 'gauge' or 0 < point.start_time_unix_nano <= point.time_unix_nano)
        labels = ','.join(f'{it.key}={it.value.string_value}' for it in point.attributes)
        if kind == 'sum':
            print(metric.name, labels, kind, data.aggregation_temporality, data.is_monotonic, point.as_int)
        elif kind == 'gauge':
            print(metric.name, labels, kind, point.as_int)
        elif kind == 'summary':
            print(metric.name, labels, kind, point.count, point.sum)
        else:
            print(metric.name, labels, kind, data.aggregation_temporality, point.count, *point.bucket_counts, *point.explicit_bounds)
"#;

fn sent(program: &Path, engine: &str) {
    let collector = Collector::start();
    let mut server = serve(program);
    let text = "uprobe:a.out:scripted_size { @[comm] = count(); @s = sum((int64)-2); @a = stats((uint64)7); \
                @b = avg((int64)-7); @h = lhist(15, 0, 20, 10); } end { clear(@); }";
    let pid = server.pid().to_string();
    let words =
        ["--engine", engine, "-p", &pid, "--export", &collector.target(), "--export-every", "100ms", text];
    let tracing = Tracing::start(&words);
    tracing.says("metrics are sent to http://127.0.0.1:");
    tracing.says("armed");
    server.ask("x");
    server.ask("x");
    // While it runs, too.
    let end = std::time::Instant::now() + super::tracing::LIMIT;
    while !collector.requests().iter().any(|(_, request)| request.contains("\"asInt\":\"2\"")) {
        assert!(std::time::Instant::now() < end, "{:?}", collector.requests());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(collector.requests().iter().all(|(path, _)| path == "/v1/metrics"));
    server.ask("x");
    assert_eq!(tracing.stop(libc::SIGINT).0.code(), Some(0));
    is_whole(server);
    let requests = collector.requests();
    let (_, last) = requests.last().expect("some");
    let Some(python) = python("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2") else {
        return testing::skipped(
            "trace: export: otlp",
            "the Python module opentelemetry-proto (DPROBES_PYTHON)",
        );
    };
    let scratch = Scratch::new();
    let read = |request: &str| {
        std::fs::write(scratch.path().join("metrics"), request).expect("room");
        script(&python, &scratch, OTLP)
    };
    let shown = read(last);
    for line in [
        "dprobes_map comm=scripted sum 2 True 3",
        "dprobes_map_s  gauge -6",
        "dprobes_map_a  summary 3 21.0",
        "dprobes_map_b.count  sum 2 True 3",
        "dprobes_map_b.sum  sum 2 False -21",
        "dprobes_map_h  histogram 2 3 3 0 19.0",
    ] {
        assert!(shown.lines().any(|read| read == line), "{line}\n{shown}");
    }
}

/// It is told once, and tracing ends in time.
fn nobody_there() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("it listens")
    };
    let mut command = dprobes();
    let to = format!("otlp:http://{address}");
    command.args(["trace", "--export", &to, "--export-every", "100ms", "-e"]);
    let (status, stdout, stderr) = run(command.args(["begin { @ = 7; } interval:s:3 { exit(); }"]));
    assert_eq!((status.code(), stdout.trim()), (Some(0), "@: 7"), "{stderr}");
    assert_eq!(stderr.matches("metrics are not taken by").count(), 1, "{stderr}");
}

fn limited(program: &Path, engine: &str) {
    let mut server = serve(program);
    let text = "uprobe:a.out:scripted_size { $i = 0; while ($i < 50) { @m[$i] = $i; $i++; } }";
    let (tracing, metrics) = export(server.pid(), engine, &["--export-series", "12", text]);
    server.ask("x");
    let text = metrics.once(|text| text.contains("dprobes_map_m{"));
    // Two are of the script itself: the greatest ten of fifty are left.
    let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("dprobes_map_m{")).collect();
    let expected: Vec<String> =
        (40..50).rev().map(|key| format!("dprobes_map_m{{i=\"{key}\"}} {key}")).collect();
    assert_eq!(shown, expected, "{text}");
    assert_eq!(
        value(&text, "dprobes_export_left_out_entries{metric=\"dprobes_map_m\",reason=\"limit\"}"),
        40.0
    );
    assert_eq!(tracing.stop(libc::SIGINT).0.code(), Some(0));
    is_whole(server);
}

fn taken() {
    let Some(program) = target("scripted") else { return testing::skipped("trace: export", "gcc") };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let mut server = serve(&program);
    let (pid, to) = (server.pid().to_string(), format!("prometheus:{address}"));
    let mut command = dprobes();
    let words = ["trace", "-p", &pid, "--export", &to, "uprobe:a.out:scripted_size { @ = count(); }"];
    let (status, stdout, stderr) = run(command.args(words));
    assert_eq!((status.code(), &*stdout), (Some(1), ""), "{stderr}");
    assert!(stderr.contains(&format!("--export {to}: ")) && !stderr.contains("armed"), "{stderr}");
    assert_eq!(text_differences(server.pid()), [""; 0]);
    assert_eq!(server.ask("on"), "on");
}

fn refused() {
    for bad in ["statsd:1", "prometheus:", "prometheus:host:1"] {
        let mut command = dprobes();
        let (status, _, stderr) = run(command.args(["trace", "--export", bad, "begin { exit(); }"]));
        assert!(status.code() == Some(2) && stderr.contains("prometheus:9464"), "{stderr}");
    }
}

fn without_probes() {
    let tracing =
        Tracing::start(&["--export", "prometheus:0", "-e", "begin { @a = 1; @b[1, 2] = count(); }"]);
    let metrics = Metrics::announced(&tracing.says("metrics are at"));
    let text = metrics.text();
    assert_eq!(value(&text, "dprobes_map_a"), 1.0);
    assert_eq!(value(&text, "dprobes_map_b_total{key1=\"1\",key2=\"2\"}"), 1.0);
    send(tracing.pid(), libc::SIGINT);
    assert_eq!(tracing.end().0.code(), Some(0));
}
