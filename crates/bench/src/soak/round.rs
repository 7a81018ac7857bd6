//! One round: random probes in a process of a server, until the session ends in one of several
//! ways.

use super::{Known, Plan, Server, text};
use crate::cleanup::Started;
use crate::family::send;
use crate::soundness::Site;
use crate::soundness::batch::reasons;
use crate::soundness::random::Random;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// By timeout.
    Time,
    /// By SIGINT.
    Interrupt,
    /// Its tracer is killed.
    KillTracer,
    /// Its front is killed.
    KillFront,
}

/// Handlers to choose from, and whether every run makes a record.
const HANDLERS: [(&str, bool); 5] = [
    ("inc lv, 0\nabort\n", false),
    ("push r, rsp\npush r, rdi\nlog 2\nexit\n", true),
    ("inc lv, 0\npush r, rax\njz none\npush r, rax\nlog 1\nnone: exit\n", true),
    ("push 8\npush r, rsp\nlog mrf\nexit\n", true),
    // Not compiled: the interpreter runs the rest.
    ("push 64\nmalloc\nfree\npush r, rip\nlog 1\nexit\n", true),
];

/// How long a session may take to end, and a process to get its text back.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Hits after which a trap is removed, so that a server survives.
const TRAPS: u64 = 30;

/// The results of a round.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// A description of the round.
    pub what: String,
    /// The engine.
    pub engine: &'static str,
    /// How it ended; `None` if nothing was probed.
    pub end: Option<End>,
    /// Counted hits.
    pub hits: u64,
    /// Kept records.
    pub records: u64,
    /// Signals sent.
    pub signals: u64,
    /// What is wrong.
    pub wrong: Vec<String>,
}

fn below(random: &mut Random, limit: usize) -> usize {
    (random.number() % limit.max(1) as u64) as usize
}

/// A random module of a process: its program or its libc.
fn module(pid: u32, random: &mut Random) -> Option<PathBuf> {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    if below(random, 2) == 0 {
        return Some(program);
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let libc = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
    let mut libc =
        libc.filter(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("libc.so")));
    Some(libc.next().map_or(program, PathBuf::from))
}

/// Runs one round.
///
/// # Errors
/// If dprobes cannot be started, or a file cannot be written.
pub(super) fn round(
    server: &Server,
    plan: &Plan,
    number: u64,
    random: &mut Random,
    known: &mut Known,
) -> io::Result<Shown> {
    let processes = server.processes();
    let pid = choose(&processes, random);
    let Some(module) = module(pid, random) else { return Ok(Shown::default()) };
    let engine = plan.engines[below(random, plan.engines.len())];
    let most = if engine == "trap" { 60 } else { 400 };
    let count = 1 + below(random, most);
    let sites = known.of(&module)?;
    // Function entries are hit more often than other instructions.
    let entries: Vec<&Site> = match below(random, 2) {
        0 => sites.iter().filter(|site| site.entry).collect(),
        _ => Vec::new(),
    };
    let offset = |random: &mut Random| match &entries[..] {
        [] => sites[below(random, sites.len())].offset,
        entries => entries[below(random, entries.len())].offset,
    };
    let offsets: HashSet<u64> = (0..count).map(|_| offset(random)).collect();
    let handler = HANDLERS[below(random, HANDLERS.len())];
    let ends = [End::Time, End::Interrupt, End::KillTracer, End::KillFront];
    let end = ends[below(random, if plan.kills { 4 } else { 2 })];
    let time = Duration::from_millis(100 + random.number() % 1500);
    let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let count = offsets.len();
    let what = format!("{engine}, {count} sites of {name} in {pid}, {end:?} after {} ms", time.as_millis());
    let mut session = Session { plan, number, pid, module, engine, handler, end, time };
    let mut shown = Shown { what, engine, ..Shown::default() };
    let ran = session.run(server, offsets, random, &mut shown);
    FILES.iter().for_each(|name| drop(std::fs::remove_file(session.file(name))));
    ran?;
    // Even a session that probed nothing may still be detaching; the next round must not meet it.
    shown.wrong.extend(untraced(server));
    if shown.end.is_some() {
        shown.wrong.extend(restored(server));
    }
    Ok(shown)
}

/// Waits until the server's processes are not traced any more; returns who still is after the
/// timeout.
fn untraced(server: &Server) -> Option<String> {
    let start = Instant::now();
    loop {
        let pid = server.processes().into_iter().find(|&pid| is_traced(pid))?;
        if start.elapsed() > SETTLE_TIMEOUT {
            return Some(format!("process {pid} is still traced"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the code of the server's processes is restored; returns what still differs after the
/// timeout.
fn restored(server: &Server) -> Option<String> {
    let start = Instant::now();
    loop {
        let mut processes = server.processes().into_iter();
        let (pid, text) = processes.find_map(|pid| text::difference(pid).map(|text| (pid, text)))?;
        if start.elapsed() > SETTLE_TIMEOUT {
            return Some(format!("in process {pid}, {text}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The files of a session.
const FILES: [&str; 4] = ["soak.rpn", "soak.stats", "soak.dpt", "soak.err"];

struct Session<'a> {
    plan: &'a Plan,
    number: u64,
    pid: u32,
    module: PathBuf,
    engine: &'static str,
    handler: (&'static str, bool),
    end: End,
    time: Duration,
}

impl Session<'_> {
    fn file(&self, name: &str) -> PathBuf {
        // A name of its own, since a tracer whose front was killed may still be writing.
        self.plan.directory.join(format!("{}.{name}", self.number))
    }

    /// The program's text. Trapping probes are removed after some hits.
    fn text(&self, offsets: &HashSet<u64>) -> String {
        let mut text = format!("name = \"{}\"\nmodtype = user\nmajor = 1\nvars = 1\n", self.module.display());
        let mut offsets: Vec<&u64> = offsets.iter().collect();
        offsets.sort_unstable();
        for (minor, offset) in offsets.into_iter().enumerate() {
            let _ = writeln!(text, "offset = {offset:#x}\nminor = {minor}");
            if self.engine == "trap" {
                let _ = writeln!(text, "maxhits = {TRAPS}");
            }
            // Labels are global in the program.
            text += &self.handler.0.replace("none", &format!("none{minor}"));
        }
        text
    }

    /// Attaches, leaving out refused sites.
    fn run(
        &mut self,
        server: &Server,
        mut offsets: HashSet<u64>,
        random: &mut Random,
        shown: &mut Shown,
    ) -> io::Result<()> {
        for _ in 0..4 {
            shown.wrong.extend(untraced(server));
            std::fs::write(self.file("soak.rpn"), self.text(&offsets))?;
            let stderr = self.attach(server, random, shown)?;
            if shown.end.is_some() {
                return Ok(());
            }
            let refused = reasons(&stderr, &self.module);
            let before = offsets.len();
            offsets.retain(|offset| !refused.contains_key(offset));
            if stderr.is_empty() {
                return Ok(());
            }
            if offsets.is_empty() || offsets.len() == before {
                // The process has ended, or is about to.
                if !is_gone(self.pid) && !stderr.contains("no process") {
                    let first: Vec<&str> = stderr.lines().take(2).collect();
                    shown.wrong.push(format!("dprobes does not attach: {}", first.join(" / ")));
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs one session; returns its standard error. Sets `shown.end` if it has probed.
    fn attach(&self, server: &Server, random: &mut Random, shown: &mut Shown) -> io::Result<String> {
        let (stats, records, errors) =
            (self.file("soak.stats"), self.file("soak.dpt"), self.file("soak.err"));
        for file in [&stats, &records] {
            let _ = std::fs::remove_file(file);
        }
        let mut command = Command::new(&self.plan.dprobes);
        command.args(["attach", "-p", &self.pid.to_string(), "--engine", self.engine]);
        command
            .arg("--stats")
            .arg(&stats)
            .arg("--log-format=klog")
            .arg("-o")
            .arg(&records)
            .arg(self.file("soak.rpn"));
        if self.end == End::Time {
            command.arg("--for").arg(format!("{}ms", self.time.as_millis()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&errors)?);
        let mut started = Started::gently(command.spawn()?);
        let start = Instant::now();
        let mut ended = None;
        while start.elapsed() < self.time && ended.is_none() {
            std::thread::sleep(Duration::from_millis(random.number() % 20));
            let processes = server.processes();
            let to = processes[below(random, processes.len())];
            let signal = server.signals[below(random, server.signals.len())];
            send(to, signal);
            if random.number().is_multiple_of(8) {
                send(to, Signal::SIGSTOP);
                std::thread::sleep(Duration::from_millis(random.number() % 10));
                send(to, Signal::SIGCONT);
            }
            shown.signals += 1;
            ended = started.ended()?;
        }
        let front = started.pid();
        // If the front is killed, its tracer detaches by itself, and may not even have attached
        // yet.
        let tracers = children(front);
        match self.end {
            End::Interrupt if ended.is_none() => send(front, Signal::SIGINT),
            End::KillFront if ended.is_none() => send(front, Signal::SIGKILL),
            _ => {}
        }
        let end = Instant::now();
        while ended.is_none() {
            if self.end == End::KillTracer {
                // On a busy machine it may not exist yet.
                children(front).into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
            }
            ended = started.ended()?;
            if end.elapsed() > SETTLE_TIMEOUT {
                shown.wrong.push("dprobes does not end".to_owned());
                return Ok(String::new());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        while tracers.iter().any(|&pid| !is_gone(pid)) {
            if end.elapsed() > SETTLE_TIMEOUT {
                shown.wrong.push("the tracer does not end".to_owned());
                return Ok(String::new());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = String::from_utf8_lossy(&std::fs::read(&errors)?).into_owned();
        let killed = matches!(self.end, End::KillTracer | End::KillFront);
        let code = ended.and_then(|status| status.code());
        // It was interrupted before it did anything.
        let early = ended.and_then(|status| status.signal()) == Some(Signal::SIGINT as i32);
        if self.end == End::Interrupt && early && said.is_empty() {
            return Ok(said);
        }
        // All sites were refused, or the process has ended: nothing was probed.
        if code == Some(1) && (!reasons(&said, &self.module).is_empty() || is_gone(self.pid)) {
            return Ok(said);
        }
        shown.end = Some(self.end);
        if said.contains("panicked") {
            shown.wrong.push(format!("dprobes panics: {said}"));
        }
        if !killed {
            if code != Some(0) {
                let told: Vec<&str> =
                    said.lines().filter(|line| !line.starts_with("dprobes: summary")).collect();
                shown.wrong.push(format!("dprobes ends with {code:?}: {}", told.join(" / ")));
            }
            self.account(&stats, &records, shown)?;
        }
        Ok(said)
    }

    /// Sums up the counts and checks that they balance.
    fn account(&self, stats: &Path, records: &Path, shown: &mut Shown) -> io::Result<()> {
        let Ok(bytes) = std::fs::read(stats) else {
            shown.wrong.push("dprobes has left no counts".to_owned());
            return Ok(());
        };
        let stats: Value = serde_json::from_slice(&bytes)?;
        let mut logged = 0;
        for probe in stats["probes"].as_array().map_or(&[][..], Vec::as_slice) {
            let number = |name: &str| probe[name].as_u64().unwrap_or(0);
            let (hits, runs) = (number("hits"), number("runs"));
            if hits != runs + number("ignored") + number("missed") {
                shown.wrong.push(format!("hits are not runs + ignored + missed: {probe}"));
            }
            if self.handler.1 && runs != number("logged") + number("dropped") {
                shown.wrong.push(format!("runs are not logged + dropped: {probe}"));
            }
            shown.hits += hits;
            logged += number("logged");
        }
        if logged > 0 {
            let read = Command::new(&self.plan.dprobes).args(["show", "--info"]).arg(records).output()?;
            let text = String::from_utf8_lossy(&read.stdout).into_owned();
            // `file        NAME, N bytes, N records`
            let first = text.lines().next();
            let first = first.and_then(|line| line.strip_suffix(" records").or(line.strip_suffix(" record")));
            let kept = first.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            if kept != Some(logged) {
                shown.wrong.push(format!("{logged} records were logged, {kept:?} are in the store"));
            }
        }
        shown.records += logged;
        Ok(())
    }
}

/// Whether any thread of a process is traced.
fn is_traced(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status"));
        status.is_ok_and(|status| !status.contains("TracerPid:\t0\n"))
    })
}

/// Whether a process has ended.
fn is_gone(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_err()
}

/// The processor time of a process, in kernel ticks.
fn used(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain anything.
    let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    after.split(' ').skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// A random process: any, or a busy one.
fn choose(processes: &[u32], random: &mut Random) -> u32 {
    if below(random, 2) == 0 {
        return processes[below(random, processes.len())];
    }
    let before: Vec<u64> = processes.iter().map(|&pid| used(pid)).collect();
    std::thread::sleep(Duration::from_millis(50));
    let busy = processes.iter().zip(before).filter(|&(&pid, before)| used(pid) > before);
    let busy: Vec<u32> = busy.map(|(&pid, _)| pid).collect();
    let from = if busy.is_empty() { processes } else { &busy };
    from[below(random, from.len())]
}

/// The children of a process, if its first thread created them.
fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}
