//! bpftrace's own programs for user space, unchanged, as its package installs them: on a command,
//! and in all processes by the kernel. Each line that they print is compared without times and
//! numbers of processes, with what is expected here and, where bpftrace can probe functions, with
//! what it prints of the same work.
//!
//! They probe bash, libc and libssl by name. So that no other process is hit by those in all
//! processes, they and what they watch run with a copy of each of these files in its place, in a
//! mount namespace of their own.

use super::kernel;
use super::peer;
use super::support::{Scratch, dprobes, find_program, run, target};
use super::tracing::{LIMIT, Tracing};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testing::Trials;

/// One of bpftrace's programs.
struct Program {
    /// Its name.
    name: &'static str,
    /// What a shell does while it runs, in a directory of the test's own; `{target}` is the program
    /// under test.
    work: &'static str,
    /// What the work needs beside a shell.
    needs: &'static [&'static str],
    /// The files that it probes.
    files: &'static [&'static str],
    /// What is the same in a line each time; nothing if the line is left out.
    same: fn(&str) -> Option<String>,
    /// These lines, in any order and number.
    lines: &'static [&'static str],
    /// What bpftrace 0.17 prints, if that is something else.
    theirs: Option<&'static [&'static str]>,
}

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

const TLS: &[&str] = &["/lib/x86_64-linux-gnu/libssl.so.3", "/lib/x86_64-linux-gnu/libcrypto.so.3"];

const GET: &str =
    "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | openssl s_client -unix socket -quiet >/dev/null 2>&1; true";

const PROGRAMS: [Program; 5] = [
    Program {
        name: "bashreadline",
        work: "printf 'echo probed\\nexit\\n' | script -qec 'bash --norc --noprofile -i' /dev/null >/dev/null",
        needs: &["bash", "script"],
        files: &["/bin/bash"],
        same: |line| words_from(line, 2),
        lines: &["Tracing bash commands... Hit Ctrl-C to end.", "COMMAND", "echo probed", "exit"],
        theirs: None,
    },
    Program {
        name: "gethostlatency",
        work: "/usr/bin/python3 -c 'import socket; socket.getaddrinfo(\"127.0.0.1\", 80); \
               socket.gethostbyname(\"localhost\")'",
        needs: &["/usr/bin/python3"],
        files: &[LIBC],
        // TIME PID COMM LATms HOST
        same: |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, _, comm, _, host] if !line.contains("...") => Some(format!("{comm} {host}")),
            _ => heading(line),
        },
        lines: &[
            "Tracing getaddr/gethost calls... Hit Ctrl-C to end.",
            "COMM HOST",
            "python3 127.0.0.1",
            "python3 localhost",
        ],
        theirs: None,
    },
    Program {
        name: "sslsnoop",
        work: GET,
        needs: &["openssl"],
        files: TLS,
        // TIME(us) TID COMM LAT(us) RET FUNC: a part of the data, or none of it.
        same: |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, _, comm, _, result, function] if !line.contains("...") => match result.parse::<i64>() {
                Ok(18) => Some(format!("{comm} 18 {}", named(function))),
                Ok(1..) => Some(format!("{comm} read {}", named(function))),
                Ok(_) => None,
                Err(_) => Some(format!("{comm} {result} {function}")),
            },
            _ => heading(line),
        },
        lines: &[
            "Tracing SSL/TLS handshake... Hit Ctrl-C to end.",
            "COMM RET FUNC",
            "openssl 18 SSL_write",
            "openssl read SSL_read",
        ],
        theirs: None,
    },
    Program {
        name: "ssllatency",
        work: GET,
        needs: &["openssl"],
        files: TLS,
        // Maps of what failed, and rows of histograms, are what the times make them.
        same: |line| match line.split_once(['[', ':']) {
            Some(("@hist", rest)) => Some(format!("@hist {}", named(rest.trim_end_matches("]:")))),
            Some(("@stat", rest)) => {
                let (function, rest) = rest.split_once("]: ")?;
                let words: Vec<&str> = rest.split_whitespace().step_by(2).collect();
                Some(format!("@stat {} {}", named(function), words.join(" ")))
            }
            _ => heading(line),
        },
        lines: &[
            "Tracing SSL/TLS handshake... Hit Ctrl-C to end.",
            "Latency distribution in microsecond:",
            "@hist SSL_read",
            "@hist SSL_write",
            "@stat SSL_read count average total",
            "@stat SSL_write count average total",
        ],
        theirs: None,
    },
    Program {
        name: "threadsnoop",
        // Of eight threads of a program with symbols, and one of Python, which has none here.
        work: "{target} threads 1; /usr/bin/python3 -c 'import threading; t = threading.Thread(target=int); \
               t.start(); t.join()'",
        needs: &["/usr/bin/python3"],
        files: &[LIBC],
        // TIME(ms) PID COMM FUNC
        same: |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, _, comm, function] if function.starts_with("0x") => Some(comm.to_owned()),
            [_, _, comm, function] => Some(format!("{comm} {function}")),
            _ => heading(line),
        },
        lines: &["COMM FUNC", "scripted sizes", "python3"],
        // It looks in libpthread alone, which is empty since glibc 2.34.
        theirs: Some(&["COMM FUNC"]),
    },
];

/// The words of a line from one on, if it is no heading of the whole.
fn words_from(line: &str, first: usize) -> Option<String> {
    match line.contains("...") {
        true => heading(line),
        false => heading(&line.split_whitespace().skip(first).collect::<Vec<_>>().join(" ")),
    }
}

/// A line that is text.
fn heading(line: &str) -> Option<String> {
    let is_text = line.starts_with(|first: char| first.is_ascii_alphabetic());
    is_text.then(|| line.trim_end().to_owned())
}

/// The name of a function. bpftrace 0.17 has none of a process that has ended.
fn named(function: &str) -> &str {
    if function.starts_with("0x") { "" } else { function }
}

/// A line without the names of functions.
fn unnamed(line: &str) -> String {
    line.replace("SSL_read", "").replace("SSL_write", "").trim_end().to_owned()
}

impl Program {
    /// The file, where a distribution's package or bpftrace's own `install` puts it.
    fn file(&self) -> Option<PathBuf> {
        let places = ["/usr/sbin", "/usr/share/bpftrace/tools", "/usr/local/share/bpftrace/tools"];
        places
            .map(|place| Path::new(place).join(format!("{}.bt", self.name)))
            .into_iter()
            .find(|it| it.is_file())
    }

    /// What is the same each time in what was printed.
    fn lines_of(&self, text: &str) -> BTreeSet<String> {
        text.lines().filter_map(self.same).collect()
    }

    /// What the shell does, with the program under test.
    fn work(&self) -> String {
        let program = target("scripted").unwrap_or_default();
        self.work.replace("{target}", &program.to_string_lossy())
    }

    fn expect(&self, printed: &str, lines: &[&str]) {
        let expected: BTreeSet<String> = lines.iter().map(|&line| line.to_owned()).collect();
        assert_eq!(self.lines_of(printed), expected, "{printed}");
    }
}

/// A server of TLS, where the work of a program speaks to one. It is killed when dropped.
struct Tls(Child);

impl Tls {
    /// Starts one in a directory.
    fn start(directory: &Path) -> Tls {
        let request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let names = ["-keyout", "key", "-out", "certificate", "-days", "2", "-subj", "/CN=localhost"];
        let mut make = Command::new("openssl");
        let (status, _, said) = run(make.args(request).args(names).current_dir(directory));
        assert!(status.success(), "{said}");
        let mut serve = Command::new("openssl");
        serve.args(["s_server", "-unix", "socket", "-key", "key", "-cert", "certificate", "-www"]);
        serve.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Tls(testing::spawn(&mut serve).expect("the server starts"));
        let begin = Instant::now();
        while !directory.join("socket").exists() {
            assert!(begin.elapsed() < LIMIT, "the server never listened");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    for program in &PROGRAMS {
        let mut one = |way: &str, prefix: &'static str, test: fn(&Program, &Path, &Path)| {
            let name = format!("theirs: {}, {way}", program.name);
            let skipped = format!("{prefix}trace: {name}");
            trials.add(name, move || match (program.file(), program.lacks()) {
                (None, _) => testing::skipped(&skipped, "bpftrace's programs"),
                (_, Some(needed)) => testing::skipped(&skipped, needed),
                (Some(file), None) => {
                    let scratch = Scratch::new();
                    let _server = program.work.contains("socket").then(|| Tls::start(scratch.path()));
                    test(program, &file, scratch.path());
                }
            });
        };
        one("on a command", "", on_a_command);
        // The tracer attaches to the files of a name in all processes, in other namespaces too: those
        // of the system's libc run other tests.
        if !program.files.contains(&LIBC) {
            one("in all processes", "bpf: ", in_all_processes);
        }
        one("by bpftrace", "optional: ", by_bpftrace);
    }
}

impl Program {
    /// What it needs, and is not there.
    fn lacks(&self) -> Option<&'static str> {
        let is_there = |name: &&&str| find_program(name).is_none() && !Path::new(**name).exists();
        match self.needs.iter().chain(self.files).find(is_there) {
            None if target("scripted").is_none() => Some("gcc"),
            found => found.copied(),
        }
    }
}

fn on_a_command(program: &Program, file: &Path, directory: &Path) {
    let mut command = dprobes();
    command.args(["trace", "-o", "printed"]).arg(file).args(["--", "sh", "-c", &program.work()]);
    let (status, _, said) = run(command.current_dir(directory));
    assert!(status.success() && !said.contains("error:"), "{status}: {said}");
    let printed = std::fs::read_to_string(directory.join("printed")).expect("it was written");
    program.expect(&printed, program.lines);
}

/// A command that runs where copies of the probed files are in the place of these.
fn apart(program: &Program, directory: &Path, words: &[&str]) -> Command {
    let mut script = String::new();
    for (number, file) in program.files.iter().enumerate() {
        let real = std::fs::canonicalize(file).expect("it is there");
        let copy = directory.join(format!("copy{number}"));
        if !copy.exists() {
            std::fs::copy(&real, &copy).expect("there is room");
        }
        script.push_str(&format!("mount --bind '{}' '{}' && ", copy.display(), real.display()));
    }
    script.push_str("exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh"]).args(words).current_dir(directory);
    command
}

/// Runs the tracer and then the work, both with copies of what is probed; returns what the tracer
/// printed.
fn traced(program: &Program, directory: &Path, tracer: &[&str], ready: impl Fn(&Tracing)) -> String {
    // One namespace for both. With job control, a command in the background does not ignore SIGINT.
    let both = "set -m; \"$@\" & tracer=$!; echo $tracer >pid; while [ ! -e go ]; do sleep 0.05; done; \
                sh ./work; kill -INT $tracer; wait $tracer";
    std::fs::write(directory.join("work"), program.work()).expect("there is room");
    let mut words = vec!["bash", "-c", both, "bash"];
    words.extend(tracer);
    let tracing = Tracing::of(apart(program, directory, &words));
    ready(&tracing);
    std::fs::write(directory.join("go"), "").expect("there is room");
    tracing.end();
    std::fs::read_to_string(directory.join("printed")).expect("it was written")
}

/// Waits until bpftrace has attached all probes but its own, `BEGIN` and `END`: until it has an event
/// for each, beside one for each processor.
fn attached(directory: &Path, own: usize) {
    let begin = Instant::now();
    let is_attached = || -> Option<bool> {
        let printed = std::fs::read_to_string(directory.join("printed")).ok()?;
        let probes = printed.strip_prefix("Attaching ")?.split(' ').next()?.parse::<usize>().ok()?;
        let pid = std::fs::read_to_string(directory.join("pid")).ok()?;
        let files = std::fs::read_dir(format!("/proc/{}/fd", pid.trim())).ok()?;
        let is_event = |file: &Path| {
            std::fs::read_link(file).is_ok_and(|to| to.to_string_lossy().contains("[perf_event]"))
        };
        let events = files.flatten().filter(|file| is_event(&file.path())).count();
        let processors = std::thread::available_parallelism().ok()?.get();
        Some(events + own >= probes + processors)
    };
    while is_attached() != Some(true) {
        assert!(begin.elapsed() < LIMIT, "bpftrace never attached its probes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn in_all_processes(program: &Program, file: &Path, directory: &Path) {
    if !kernel::can_run() {
        let needed = "root, and a kernel with uprobes that runs eBPF programs";
        return testing::skipped(&format!("bpf: trace: theirs: {}, in all processes", program.name), needed);
    }
    let (itself, file) = (dprobes().get_program().to_owned(), file.to_string_lossy());
    let words = [&*itself.to_string_lossy(), "trace", "-o", "printed", &*file];
    let printed = traced(program, directory, &words, |tracing| {
        program.files.iter().for_each(|_| drop(tracing.says("armed")));
    });
    program.expect(&printed, program.lines);
}

/// That what is expected is what bpftrace prints. On a busy machine bpftrace 0.17 sometimes leaves
/// its last lines out when it is interrupted, so it may try again.
fn by_bpftrace(program: &Program, file: &Path, directory: &Path) {
    if !peer::works() {
        let name = format!("optional: trace: theirs: {}, by bpftrace", program.name);
        return testing::skipped(&name, "bpftrace, and the right to load eBPF programs");
    }
    let file = file.to_string_lossy();
    let words = ["bpftrace", "-o", "printed", &*file];
    let own = std::fs::read_to_string(&*file).expect("it is there");
    let own = own.lines().filter(|line| ["BEGIN", "END"].contains(&line.trim())).count();
    let expected = program.theirs.unwrap_or(program.lines);
    let expected: BTreeSet<String> = expected.iter().map(|line| unnamed(line)).collect();
    let mut printed = String::new();
    for _ in 0..5 {
        for made in ["go", "pid", "printed"] {
            let _ = std::fs::remove_file(directory.join(made));
        }
        printed = traced(program, directory, &words, |_| attached(directory, own));
        let (_, lines) = printed.split_once('\n').expect("its first line says how many it attaches");
        let seen: BTreeSet<String> = program.lines_of(lines).iter().map(|line| unnamed(line)).collect();
        if seen == expected {
            return;
        }
    }
    panic!("not {expected:?} in five attempts; in the last: {printed}");
}
