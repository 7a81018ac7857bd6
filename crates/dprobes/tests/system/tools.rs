//! The tools, each on a program that does what it shows.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Scratch, dprobes, find_program, need, target};

/// What a tool prints about a command.
#[track_caller]
fn tool(name: &str, command: &mut Command) -> String {
    let scratch = Scratch::new();
    let printed = scratch.path().join("printed");
    let mut whole = dprobes();
    whole.args(["tools", "run", name, "-o"]).arg(&printed).arg("--");
    whole.arg(command.get_program()).args(command.get_args());
    let output = whole.stdin(Stdio::null()).output().expect("dprobes starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(printed).expect("the tool prints")
}

/// What follows the last stack with this function.
#[track_caller]
fn of_stack<'t>(printed: &'t str, map: &str, function: &str) -> &'t str {
    let begin = format!("@{map}[");
    let entries = printed.split(begin.as_str());
    let entry = entries.filter(|entry| entry.contains(function)).last();
    let entry = entry.unwrap_or_else(|| panic!("{function} has no stack: {printed}"));
    entry.split_once("]: ").expect("a value").1.lines().next().expect("a line")
}

/// A time with its unit, in nanoseconds.
#[track_caller]
fn duration(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').expect("a number and its unit");
    let factor = match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        other => panic!("no unit: {other}"),
    };
    number.parse::<f64>().expect("a number") * factor
}

#[test]
fn memory_and_who_asks_for_it() {
    let program = need!("tools", target("tooled"), "gcc");
    let printed = tool("memleak", &mut Command::new(&program));
    assert_eq!(of_stack(&printed, "bytes", "leaks+"), "21000", "{printed}");
    assert_eq!(printed.matches("leaks+").count(), 8, "{printed}");
    // 7 turns: 4 blocks are kept, and one is asked for, exchanged for another, and given back. The
    // C library asks for some itself.
    let (_, counts) = printed.split_once("blocks asked for: ").expect("the counts");
    let (asked, back) = counts.split_once(", given back: ").expect("two");
    let number = |text: &str| text.lines().next().and_then(|text| text.parse::<u64>().ok()).expect("a count");
    assert!(number(back) >= 14 && number(asked) >= number(back) + 28, "{printed}");
    assert!(!printed.contains("cleans"), "{printed}");
    let printed = tool("mallocs", &mut Command::new(&program));
    let line = printed.lines().find(|line| line.starts_with("[32K, 64K)")).expect("50000 bytes");
    assert_eq!(line.split_whitespace().nth(2), Some("7"), "{printed}");
    assert_eq!(of_stack(&printed, "stacks", "cleans+"), "350000", "{printed}");
}

#[test]
fn threads_locks_and_sleeps() {
    let program = need!("tools", target("tooled"), "gcc");
    let printed = tool("threads", &mut Command::new(&program));
    assert!(printed.contains("@started[locks]: 3"), "{printed}");
    let printed = tool("locks", &mut Command::new(&program));
    let (_, held) = printed.split_once("\nholding mutexes, ").expect("the second part");
    let holds = held.lines().filter(|line| line.starts_with("@held_ns[mutex]: count 60, average "));
    assert_eq!(holds.count(), 1, "{printed}");
    let (_, histogram) = held.split_once("@holding_ns:\n").expect("a histogram");
    let buckets = histogram.lines().take_while(|line| line.starts_with('['));
    let count = |line: &str| line.split_once(')')?.1.split_whitespace().next()?.parse::<u64>().ok();
    assert!(buckets.clone().all(|line| line.contains("s, ") && line.contains("s) ")), "{printed}");
    assert!(buckets.filter_map(count).sum::<u64>() >= 60, "{printed}");
    // Three threads that hold it nearly all the time wait for one another.
    let nanoseconds = |map| duration(of_stack(&printed, map, "locks+"));
    assert!(nanoseconds("waiters_ns") > 1e6 && nanoseconds("holders_ns") > 60e6, "{printed}");
    let printed = tool("plockstat", &mut Command::new(&program));
    let (blocks, holds) = printed.split_once("\nMutex hold\n").expect("two tables");
    let line = |table: &str| {
        let mut lines = table.lines().filter(|line| line.ends_with(" locks"));
        let line = lines.next().unwrap_or_else(|| panic!("no line of `locks`: {printed}"));
        assert_eq!(lines.next(), None, "{printed}");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.len() == 4 && words[2] == "mutex", "{printed}");
        (words[0].parse::<u64>().expect("a count"), words[1].parse::<u64>().expect("nanoseconds"))
    };
    let ((waits, waited), (count, held)) = (line(blocks), line(holds));
    assert!(blocks.starts_with("Mutex block\n") && (1..=60).contains(&waits) && waited > 0, "{printed}");
    assert!(count == 60 && held >= 1_000_000, "{printed}");
    let printed = tool("sleeps", &mut Command::new(&program));
    let (_, slept) = printed.split_once("@us[clock_nanosleep]:\n").expect("usleep");
    let slept = slept.lines().take_while(|line| !line.is_empty());
    let counts = slept
        .filter_map(|line| line.split_once([')', ']'])?.1.split_whitespace().next()?.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 60, "{printed}");
    // Each sleeps for a millisecond at least.
    let slept = duration(of_stack(&printed, "slept_us", "locks+"));
    assert!(slept >= 60e6, "{printed}");
}

#[test]
fn files_and_hosts() {
    let program = need!("tools", target("tooled"), "gcc");
    let printed = tool("opens", &mut Command::new(&program));
    assert!(printed.contains("@failed[/nowhere/at/all]: 4\n"), "{printed}");
    let opened = printed.lines().filter(|line| line.ends_with("/dev/null"));
    assert!(opened.clone().count() == 1 && opened.clone().all(|line| !line.contains(" -1 ")), "{printed}");
    let printed = tool("hosts", &mut Command::new(&program));
    assert_eq!(printed.lines().filter(|line| line.ends_with(" 127.0.0.1")).count(), 1, "{printed}");
}

#[test]
fn collections_and_imports_of_python() {
    let python = need!("tools", Some("/usr/bin/python3").filter(|path| Path::new(path).exists()), "python3");
    let listed = dprobes().args(["list", "-u", python, "gc__start"]).output().expect("dprobes starts");
    if !listed.status.success() {
        return testing::skipped("optional: tools: a Python with static probes", "one");
    }
    let program = "import gc\nfor _ in range(5): gc.collect()\nimport colorsys";
    let mut command = Command::new(python);
    command.args(["-c", program]);
    let printed = tool("pygc", &mut command);
    let (_, full) = printed.split_once("@us[2]:\n").expect("full collections");
    let counts = full.lines().take_while(|line| !line.is_empty());
    let counts = counts
        .filter_map(|line| line.split_once([')', ']'])?.1.split_whitespace().next()?.parse::<u64>().ok());
    assert!(counts.sum::<u64>() >= 5, "{printed}");
    let printed = tool("pyimports", &mut command);
    assert!(printed.contains("@us[colorsys]: "), "{printed}");
}

/// A child that is killed with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client and a server of TLS in one Python program.
const TLS: &str = r#"
import socket, ssl, sys, threading
server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server.load_cert_chain(sys.argv[1], sys.argv[2])
client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
near, far = socket.socketpair()
def serve():
    with server.wrap_socket(far, server_side=True) as channel:
        channel.sendall(channel.recv(100).upper())
thread = threading.Thread(target=serve)
thread.start()
with client.wrap_socket(near) as channel:
    channel.sendall(b"what is said")
    print(channel.recv(100))
thread.join()
"#;

#[test]
fn what_is_said_through_tls() {
    let openssl = need!("tools", find_program("openssl"), "openssl");
    let python = need!("tools", Some("/usr/bin/python3").filter(|path| Path::new(path).exists()), "python3");
    let scratch = Scratch::new();
    let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| scratch.path().join(name));
    let mut command = Command::new(openssl);
    command
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x", "-keyout"]);
    let made = command.arg(&key).arg("-out").arg(&certificate).output().expect("openssl starts");
    assert!(made.status.success());
    let mut command = Command::new(python);
    command.args(["-c", TLS]).arg(&certificate).arg(&key);
    let printed = tool("tls", &mut command);
    for (way, said) in [("write", "what is said"), ("read", "WHAT IS SAID")] {
        let found = |line: &&str| line.contains(way) && line.contains(" 12 ") && line.ends_with(said);
        assert_eq!(printed.lines().filter(found).count(), 1, "{printed}");
    }
}

#[test]
fn lines_that_are_typed() {
    let bash = need!("tools", find_program("bash"), "bash");
    let shell = Command::new(bash)
        .args(["--norc", "-i"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut shell = Server(shell.expect("bash starts"));
    let mut tool = dprobes();
    tool.args(["tools", "run", "readlines", "-p", &shell.0.id().to_string()]);
    let mut tool =
        Server(tool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("dprobes starts"));
    let told = BufReader::new(tool.0.stderr.take().expect("a pipe"));
    let armed = told.lines().map_while(Result::ok).find(|line| line.contains("armed"));
    assert!(armed.is_some());
    let mut typed = shell.0.stdin.take().expect("a pipe");
    typed.write_all(b"echo one line\necho and another\nexit\n").expect("bash reads");
    drop(typed);
    let output = BufReader::new(tool.0.stdout.take().expect("a pipe"));
    let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
    for line in ["echo one line", "echo and another"] {
        assert_eq!(lines.iter().filter(|printed| printed.ends_with(line)).count(), 1, "{lines:?}");
    }
}
