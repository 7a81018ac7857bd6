//! Converted traces hold the records of the store, as read by the tools for each form.

mod objects;

use crate::support::{Collector, Scratch, dprobes, find_program, need, python, run, script, target};

/// Reads of `store`, the program under test; it writes twice as often.
const READS: u64 = 300;

const TEMPLATES: &str =
    "major=7\nminor=1 desc=\"read\" fmt=\"at=%8u, counter=%8d\"\nminor=2 desc=\"read's end\" fmt=\"%8x\"\n";

/// A trace of calls and returns made by a real run; its templates are in `templates`.
fn trace(scratch: &Scratch) -> Option<()> {
    let module = target("store")?;
    let name = module.to_str()?;
    let program = scratch.file(
        "program.rpn",
        &format!(
            "name = \"{name}\"\nmodtype = user\nmajor = 7\nvars = 1\n\
             offset = store_read\nminor = 1\ninc lv, 0\npush 7\npush r, rdi\nlog 2\nexit\n\
             offset = \"store_read\":return\nminor = 2\npush r, rax\nlog 1\nexit\n\
             offset = store_write\nminor = 3\npush r, rdi\nlog 1\nexit\n"
        ),
    );
    std::fs::create_dir_all(scratch.path().join("templates")).ok()?;
    scratch.file("templates/seven.fmt", TEMPLATES);
    let mut command = dprobes();
    command.args(["run", "-o", "trace.dpt"]).arg(program).arg("--").arg(&module).arg(READS.to_string());
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(3), "{stderr}");
    Some(())
}

#[track_caller]
fn convert(scratch: &Scratch, words: &[&str]) -> (String, String) {
    let mut command = dprobes();
    command.args(["convert", "trace.dpt", "--to"]).args(words);
    let (status, stdout, stderr) = run(command.current_dir(scratch.path()));
    assert!(status.success(), "{words:?}: {stderr}");
    (stdout, stderr)
}

#[test]
fn json_lines_have_all_records_with_their_values() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    let (text, _) = convert(&scratch, &["json", "--templates", "templates"]);
    let records: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(records.len() as u64, 4 * READS);
    let of = |minor: u64| records.iter().filter(move |record| record["minor"] == minor);
    let ats: Vec<u64> = of(1).map(|record| record["fields"]["at"].as_u64().expect("a number")).collect();
    assert_eq!(ats, (0..READS).collect::<Vec<_>>(), "in the order of time");
    let first = of(1).next().expect("there are some");
    assert_eq!((&first["event"], &first["symbol"]), (&"read".into(), &"store_read".into()));
    assert_eq!(first["fields"]["counter"], 7);
    assert_eq!(first["data"], "00000000000000000700000000000000");
    assert!(of(3).all(|record| record["fields"].is_null() && record["pid"].is_u64()));
    let times: Vec<u64> = records.iter().map(|record| record["time"].as_u64().expect("a number")).collect();
    assert!(times.is_sorted());
    // The same filters as those of `show`.
    let (some, _) = convert(&scratch, &["json", "--probe", "7,3", "--until", "1h"]);
    assert_eq!(some.lines().count() as u64, 2 * READS);
    let (none, _) = convert(&scratch, &["json", "--pid", "1"]);
    assert_eq!(none, "");
}

#[test]
fn csv_has_a_row_for_each_record_and_a_column_for_each_value() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    let (text, _) = convert(&scratch, &["csv", "--templates", "templates"]);
    let rows: Vec<Vec<&str>> = text.split_terminator("\r\n").map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len() as u64, 4 * READS + 1);
    let column = |name: &str| rows[0].iter().position(|head| *head == name).expect("it is there");
    let (at, minor) = (column("at"), column("minor"));
    let ats: Vec<u64> =
        rows.iter().filter(|row| row[minor] == "1").map(|row| row[at].parse().expect("a number")).collect();
    assert_eq!(ats, (0..READS).collect::<Vec<_>>());
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
}

#[test]
fn babeltrace2_counts_the_same_records() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    convert(&scratch, &["ctf", "--templates", "templates"]);
    let babeltrace = need!("convert: ctf", find_program("babeltrace2"), "babeltrace2");
    let mut command = std::process::Command::new(babeltrace);
    let (status, stdout, stderr) = run(command.arg(scratch.path().join("trace.ctf")));
    assert!(status.success() && stderr.is_empty(), "{stderr}");
    assert_eq!(stdout.lines().count() as u64, 4 * READS);
    assert_eq!(stdout.matches(" at = ").count() as u64, READS);
}

/// Reads the file with the published definitions; an unknown field is an error.
const PERFETTO: &str = r#"
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as published
from google.protobuf.unknown_fields import UnknownFieldSet
def check(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type:
            [check(each) for each in ([value] if hasattr(value, 'ListFields') else value)]
trace = published.Trace()
trace.ParseFromString(open('trace.pftrace', 'rb').read())
check(trace)
counts, names, tracks, stack, slices, counters = {}, {}, {}, [], 0, []
for packet in trace.packet:
    for name in packet.interned_data.event_names:
        names[name.iid] = name.name
    if packet.HasField('track_descriptor'):
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor
    if not packet.HasField('track_event'):
        continue
    event = packet.track_event
    assert packet.timestamp and event.track_uuid in tracks, packet
    kind = published.TrackEvent.Type.Name(event.type)
    counts[kind] = counts.get(kind, 0) + 1
    if kind == 'TYPE_SLICE_BEGIN':
        assert names[event.name_iid] == 'store_read'
        stack.append(packet.timestamp)
    if kind == 'TYPE_SLICE_END':
        assert stack.pop() <= packet.timestamp
    if kind == 'TYPE_COUNTER':
        counters.append((tracks[event.track_uuid].name, event.counter_value))
print(counts['TYPE_SLICE_BEGIN'], counts['TYPE_SLICE_END'], counts['TYPE_INSTANT'], len(stack),
      counters.count(('read: counter', 7)), [value for name, value in counters if 'lv[0]' in name])
"#;

#[test]
fn perfetto_has_slices_instants_and_counters_as_its_definitions_have_them() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    convert(&scratch, &["perfetto", "--templates", "templates"]);
    let python =
        need!("convert: perfetto", python("perfetto"), "the Python module perfetto (DPROBES_PYTHON)");
    let said = script(&python, &scratch, PERFETTO);
    assert_eq!(said.trim(), format!("{READS} {READS} {} 0 {READS} [{READS}]", 2 * READS));
}

#[test]
fn parquet_is_read_by_duckdb() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    convert(&scratch, &["parquet", "--templates", "templates"]);
    let python = need!("convert: parquet", python("duckdb"), "the Python module duckdb (DPROBES_PYTHON)");
    // `at` is a keyword of DuckDB.
    let query = r#"import duckdb
print(*duckdb.sql("""select count(*), sum("at"), count("at"), sum(counter), min(comm), count(distinct number), min(event),
    sum(octet_length(data)) from 'trace.parquet'""").fetchall()[0])"#;
    let sum = READS * (READS - 1) / 2;
    assert_eq!(
        script(&python, &scratch, query).trim(),
        format!("{} {sum} {READS} {} store {} read {}", 4 * READS, 7 * READS, 4 * READS, 8 * 5 * READS)
    );
}

#[test]
fn traces_of_many_machines_are_one_table() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    // Twice for one machine: the second time replaces the first.
    for host in ["db/1", "db2", "db2"] {
        convert(&scratch, &["parquet", "--partition", "--host", host, "-o", "all"]);
    }
    let hosts = || {
        let hosts = std::fs::read_dir(scratch.path().join("all")).expect("a directory");
        let mut hosts: Vec<_> = hosts.map(|host| host.expect("a file").file_name()).collect();
        hosts.sort();
        hosts
    };
    assert_eq!(hosts(), ["host=db%2F1", "host=db2"]);
    // What cannot be written leaves nothing.
    std::fs::write(scratch.path().join("all/host=db3"), "").expect("room");
    let mut command = dprobes();
    command.args(["convert", "trace.dpt", "--to", "parquet", "--partition", "--host", "db3", "-o", "all"]);
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert!(status.code() == Some(1) && stderr.contains("all: "), "{stderr}");
    std::fs::remove_file(scratch.path().join("all/host=db3")).expect("it is there");
    assert_eq!(hosts().len(), 2);
    let python = need!("convert: parquet", python("duckdb"), "the Python module duckdb (DPROBES_PYTHON)");
    let query = r#"
import duckdb
print(duckdb.sql("""select host, count(*), count(distinct number), min(strftime(time, '%Y-%m-%dT%H') = hour)
    from read_parquet('all/*/*/*.parquet', hive_partitioning = true) group by 1 order by 1""").fetchall())"#;
    let all = 4 * READS;
    let expected = format!("[('db/1', {all}, {all}, True), ('db2', {all}, {all}, True)]\n");
    assert_eq!(script(&python, &scratch, query), expected);
}

#[test]
fn what_partition_is_not_for_is_refused() {
    let scratch = Scratch::new();
    for (words, said) in [
        (&["--to", "json", "--partition"][..], "--partition is for --to parquet"),
        (&["--to", "parquet", "--host", "a"], "--partition"),
    ] {
        let mut command = dprobes();
        let (status, _, stderr) =
            run(command.args(["convert", "none.dpt"]).args(words).current_dir(scratch.path()));
        assert!(status.code() == Some(2) && stderr.contains(said), "{stderr}");
    }
}

#[test]
fn parquet_is_read_by_spark() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    convert(&scratch, &["parquet", "--templates", "templates"]);
    need!("convert: spark", find_program("java"), "java");
    let python = need!("convert: spark", python("pyspark"), "the Python module pyspark (DPROBES_PYTHON)");
    let mut command = std::process::Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/subject/spark.py")).arg("trace.parquet");
    command.args(["count(*)", "sum(at)", "count(at)", "sum(counter)"]);
    let (status, said, stderr) = run(command.current_dir(scratch.path()));
    assert!(status.success(), "{stderr}");
    let sum = READS * (READS - 1) / 2;
    assert!(said.contains(&format!("said {} {sum} {READS} {}", 4 * READS, 7 * READS)), "{said}");
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    for (words, reason) in [
        (&["json", "-o", "trace.dpt"][..], "this is the trace itself"),
        (&["ctf", "-o", "-"], "is a directory"),
        (&["csv", "--probe", "nothing"], "no probe `nothing` is in it"),
        (&["json", "--templates", "nowhere"], "nowhere"),
    ] {
        let mut command = dprobes();
        command.args(["convert", "trace.dpt", "--to"]).args(words);
        let (status, _, stderr) = run(command.current_dir(scratch.path()));
        assert!(status.code() == Some(1) && stderr.contains(reason), "{words:?}: {stderr}");
    }
    // A truncated trace is converted as far as possible, and the truncation is reported.
    let path = scratch.path().join("trace.dpt");
    let whole = std::fs::read(&path).expect("it is there");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    let mut command = dprobes();
    let (status, _, stderr) =
        run(command.args(["convert", "trace.dpt", "--to", "json"]).current_dir(scratch.path()));
    assert!(status.code() == Some(1) && stderr.contains("offset 0x"), "{stderr}");
}

#[test]
fn a_report_counts_and_times_and_names() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    let mut command = dprobes();
    command.args(["report", "trace.dpt", "--html", "report.html"]);
    command.args(["--between", "store_read", "store_write"]);
    let (status, text, stderr) = run(command.current_dir(scratch.path()));
    assert!(status.success(), "{stderr}");
    assert!(text.contains("1,200 records"), "{text}");
    assert!(text.contains("store_read, entry to return: 300 times"), "{text}");
    assert!(text.contains("store_read to store_write: 300 times"), "{text}");
    assert!(text.contains("lv[0] = 300"), "{text}");
    let counted: u64 = text
        .lines()
        .skip_while(|line| !line.starts_with("store_read, entry to return"))
        .skip(2)
        .take_while(|line| line.contains(" .."))
        .filter_map(|line| line.split('|').next()?.split_whitespace().last()?.parse::<u64>().ok())
        .sum();
    assert_eq!(counted, READS, "{text}");
    let page = std::fs::read_to_string(scratch.path().join("report.html")).expect("written");
    for never in ["<script", "http:", "https:", "@import", "url("] {
        assert!(!page.contains(never), "{never}");
    }
    let chromium = need!("report", find_program("chromium"), "chromium");
    let mut command = std::process::Command::new(chromium);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1200,1600",
    ]);
    command.args(["--enable-logging=stderr", "--screenshot=report.png"]);
    command.arg(format!("--user-data-dir={}", scratch.path().join("browser").display()));
    command.arg(format!("file://{}", scratch.path().join("report.html").display()));
    let (_, _, stderr) = run(command.current_dir(scratch.path()));
    let complaints: Vec<&str> = stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    // A page of one colour would be a few kilobytes.
    let picture = std::fs::metadata(scratch.path().join("report.png")).expect("a picture").len();
    assert!(picture > 40_000, "{picture} bytes: {stderr}");
}

/// Reads requests with the published definitions; an unknown field is an error. Prints the spans.
const OTLP: &str = r#"
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
import base64, json
def ids(value):
    # In OTLP's JSON, these are digits; in that of protocol buffers, base 64.
    if isinstance(value, dict):
        return {key: base64.b64encode(bytes.fromhex(item)).decode() if key in ('traceId', 'spanId', 'parentSpanId')
                else ids(item) for key, item in value.items()}
    return [ids(item) for item in value] if isinstance(value, list) else value
for line in open('spans'):
    request = json_format.ParseDict(ids(json.loads(line)), ExportTraceServiceRequest())
    for of_process in request.resource_spans:
        resource = {it.key: it.value.string_value or it.value.int_value for it in of_process.resource.attributes}
        assert resource['host.name'] and resource['process.pid'] > 0, resource
        for scope in of_process.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8 and not span.parent_span_id
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
                values = {it.key: it.value.int_value for it in span.attributes if it.value.HasField('int_value')}
                print(span.name, values['entry.at'], values['entry.counter'], span.kind, resource['service.name'])
"#;

#[test]
fn calls_are_spans_of_opentelemetry() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    let (text, said) = convert(&scratch, &["otlp", "--templates", "templates"]);
    assert!(said.contains(&format!("{} records are no calls, and left out", 2 * READS)), "{said}");
    assert_eq!(text.matches("\"spanId\"").count() as u64, READS);
    // The same trace gives the same spans.
    assert_eq!(convert(&scratch, &["otlp", "--templates", "templates"]).0, text);
    let python = need!(
        "convert: otlp",
        python("opentelemetry.proto.collector.trace.v1.trace_service_pb2"),
        "the Python module opentelemetry-proto (DPROBES_PYTHON)"
    );
    std::fs::write(scratch.path().join("spans"), &text).expect("room");
    let read = script(&python, &scratch, OTLP);
    let expected: String = (0..READS).map(|at| format!("store_read {at} 7 1 store\n")).collect();
    assert_eq!(read, expected);
}

#[test]
fn spans_are_sent_to_a_collector() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    let (text, _) = convert(&scratch, &["otlp"]);
    let collector = Collector::start();
    convert(&scratch, &["otlp", "--export", &collector.target()]);
    let requests = collector.requests();
    let (paths, bodies): (Vec<String>, Vec<String>) = requests.into_iter().unzip();
    assert!(paths.iter().all(|path| path == "/v1/traces"), "{paths:?}");
    assert_eq!(bodies, text.lines().collect::<Vec<_>>());
    let mut command = dprobes();
    command.args(["convert", "trace.dpt", "--to", "json", "--export", &collector.target()]);
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert!(status.code() == Some(2) && stderr.contains("--export is for --to otlp"), "{stderr}");
    let mut command = dprobes();
    command.args(["convert", "trace.dpt", "--to", "otlp", "--export", "otlp:https://localhost"]);
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert!(status.code() == Some(2) && stderr.contains("there is no TLS here"), "{stderr}");
}
