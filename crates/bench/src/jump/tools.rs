//! Tracers that are installed commands: bpftrace, uftrace, LTTng-UST, Frida, gdb.

use super::subject::{Program, Subject};
use super::tracer::{Attached, Process, Seen, TracedFunction, Tracer};
use crate::cleanup::{Guard, Started};
use nix::sys::signal::Signal;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn number_after(text: &str, prefix: &str) -> Option<u64> {
    let after = &text[text.find(prefix)? + prefix.len()..];
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn no_account(said: &str) -> io::Error {
    let last: Vec<&str> = said.lines().rev().take(3).collect();
    io::Error::other(format!("gives no count: {}", last.join(" / ")))
}

/// Runs a command to its end and returns its output.
fn said(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => {
            Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())))
        }
    }
}

/// The size of all files below a directory.
fn bytes_in(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { bytes_in(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// The process ids of processes with this name.
fn processes(name: &'static str) -> impl Iterator<Item = String> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(move |pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
    })
}

/// The processor time of a process, in hundredths of a second.
fn ticks(pid: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// bpftrace: counts hits, or prints a line for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bpftrace {
    /// Whether it logs.
    pub(super) logs: bool,
}

struct BpftraceRunning {
    process: Process,
    output: Option<PathBuf>,
}

impl Tracer for Bpftrace {
    fn attach(&self, place: &TracedFunction) -> io::Result<Box<dyn Attached>> {
        let TracedFunction { pid, program, function, .. } = place;
        let action = match self.logs {
            false => "{ @hits = count(); }",
            true => "{ printf(\"r %d %d %d %llu %d %d\\n\", cpu, pid, tid, nsecs, arg0, arg1); }",
        };
        let output = self.logs.then(|| place.directory.join("bpftrace.records"));
        let mut command = Command::new("bpftrace");
        command
            .args(["-p", &pid.to_string(), "-e"])
            .arg(format!("uprobe:{}:{function} {action}", program.display()));
        if let Some(output) = &output {
            command.arg("-o").arg(output);
        }
        Ok(Box::new(BpftraceRunning { process: Process::start(&mut command)?, output }))
    }
}

impl Attached for BpftraceRunning {
    fn check(&mut self) -> io::Result<()> {
        self.process.check()
    }

    fn stop(self: Box<Self>) -> io::Result<Seen> {
        let (stdout, stderr) = self.process.interrupt()?;
        let Some(output) = self.output else {
            let hits = number_after(&stdout, "@hits: ").ok_or_else(|| no_account(&(stdout + &stderr)))?;
            return Ok(Seen { hits, ..Seen::default() });
        };
        let (mut records, mut lost) = (0, 0);
        for line in BufReader::with_capacity(1 << 20, std::fs::File::open(&output)?).split(b'\n') {
            let line = line?;
            records += u64::from(line.starts_with(b"r "));
            lost += number_after(&String::from_utf8_lossy(&line), "Lost ").unwrap_or(0);
        }
        for line in stderr.lines() {
            lost += number_after(line, "Lost ").unwrap_or(0);
        }
        std::fs::remove_file(&output)?;
        Ok(Seen { hits: records + lost, records: Some(records), lost, ..Seen::default() })
    }
}

/// uftrace, which starts the program: traces entry and exit of one function, patched at run time,
/// with two arguments.
#[derive(Clone, Debug)]
pub(super) struct Uftrace {
    /// The subject.
    pub(super) program: Program,
    /// The directory for its output.
    pub(super) directory: PathBuf,
}

struct Recorded(PathBuf);

impl Tracer for Uftrace {
    fn attach(&self, _: &TracedFunction) -> io::Result<Box<dyn Attached>> {
        Ok(Box::new(Recorded(self.directory.join("uftrace.data"))))
    }

    fn changes_code(&self) -> bool {
        false
    }

    fn launch(&self) -> io::Result<Option<Subject>> {
        let data = self.directory.join("uftrace.data");
        let _ = std::fs::remove_dir_all(&data);
        let mut command = Command::new("uftrace");
        command.args(["record", "--no-libcall", "-P", "work", "-A", "work@arg1,arg2", "-d"]).arg(&data);
        command.arg(self.program.path()).stderr(Stdio::null());
        self.program.start_by(&mut command).map(Some)
    }
}

impl Attached for Recorded {
    fn stop(self: Box<Self>) -> io::Result<Seen> {
        let text = said(Command::new("uftrace").args(["report", "-f", "call", "-d"]).arg(&self.0))?;
        let line = text.lines().find(|line| line.split_whitespace().last() == Some("work"));
        let hits = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        let bytes = bytes_in(&self.0)?;
        let _ = std::fs::remove_dir_all(&self.0);
        Ok(Seen { hits, records: Some(hits), bytes, ..Seen::default() })
    }
}

/// LTTng-UST: a static tracepoint in the subject, logged to files.
#[derive(Debug)]
pub(super) struct Lttng {
    program: Program,
    session: String,
    output: PathBuf,
    // The session daemon, if none was running before.
    daemon: Option<Started>,
    _output: Guard,
}

struct LttngRunning {
    session: String,
    output: PathBuf,
}

impl Lttng {
    /// Starts its daemon if none is running, and builds the subject with a tracepoint; `None` if it
    /// is not installed.
    ///
    /// # Errors
    /// If the subject does not build.
    pub(super) fn new(directory: &Path) -> io::Result<Option<Lttng>> {
        let tools = ["lttng-sessiond", "lttng", "babeltrace2"].map(testing::find_program);
        let [Some(daemon), Some(_), Some(_)] = tools else { return Ok(None) };
        let header = ["-include", "lttng/tracepoint.h", "-fsyntax-only", "-x", "c", "/dev/null"];
        if said(Command::new("gcc").args(header)).is_err() {
            return Ok(None);
        }
        let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("subject").display());
        let flags =
            ["-DLTTNG", "-DLTTNG_UST_TRACEPOINT_CREATE_PROBES", "-DLTTNG_UST_TRACEPOINT_DEFINE", &include];
        let program = Program::build(directory, "hits-lttng", &flags, &["-llttng-ust", "-ldl"])?;
        let mut started = None;
        if said(Command::new("lttng").args(["--no-sessiond", "list"])).is_err() {
            let mut command = Command::new(daemon);
            command
                .args(["--no-kernel", "--quiet"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            // It ends its own child daemons when asked to end.
            started = Some(Started::gently(command.spawn()?));
            let began = std::time::Instant::now();
            while said(Command::new("lttng").args(["--no-sessiond", "list"])).is_err() {
                if began.elapsed().as_secs() > 10 {
                    return Err(io::Error::other("lttng-sessiond does not answer"));
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        let output = directory.join("lttng.data");
        let guard = Guard::remove_all(output.clone());
        let session = format!("dprobes_bench_{}", std::process::id());
        Ok(Some(Lttng { program, session, output, daemon: started, _output: guard }))
    }

    fn lttng(&self, words: &[&str]) -> io::Result<String> {
        said(Command::new("lttng").arg("--no-sessiond").args(words))
    }
}

impl Tracer for Lttng {
    fn attach(&self, _: &TracedFunction) -> io::Result<Box<dyn Attached>> {
        Ok(Box::new(LttngRunning { session: self.session.clone(), output: self.output.clone() }))
    }

    fn changes_code(&self) -> bool {
        false
    }

    fn daemon_time(&self) -> Duration {
        let ticks: u64 = processes("lttng-consumerd").filter_map(|pid| ticks(&pid)).sum();
        Duration::from_millis(ticks * 10)
    }

    fn launch(&self) -> io::Result<Option<Subject>> {
        let session = &*self.session;
        let _ = std::fs::remove_dir_all(&self.output);
        let output = format!("--output={}", self.output.display());
        self.lttng(&["create", session, &output])?;
        let buffers =
            ["enable-channel", "-u", "-s", session, "--subbuf-size=1M", "--num-subbuf=8", "channel"];
        self.lttng(&buffers)?;
        self.lttng(&["enable-event", "-u", "-s", session, "-c", "channel", "dprobes_bench:work"])?;
        self.lttng(&["add-context", "-u", "-s", session, "-c", "channel", "-t", "vpid", "-t", "vtid"])?;
        self.lttng(&["start", session])?;
        self.program.start().map(Some)
    }
}

impl Attached for LttngRunning {
    fn stop(self: Box<Self>) -> io::Result<Seen> {
        let session = &*self.session;
        said(Command::new("lttng").args(["--no-sessiond", "stop", session]))?;
        let text = said(Command::new("lttng").args(["--no-sessiond", "list", session]))?;
        let lost = number_after(&text, "Discarded events: ").unwrap_or(0);
        said(Command::new("lttng").args(["--no-sessiond", "destroy", session]))?;
        let mut seen = Seen { lost, bytes: bytes_in(&self.output)?, ..Seen::default() };
        if testing::find_program("babeltrace2").is_some() {
            let mut command = Command::new("babeltrace2");
            let counter = ["--component=sink.utils.counter", "--params=step=+0"];
            let text = said(command.arg(&self.output).args(counter))?;
            let line = text.lines().find(|line| line.contains("Event message"));
            let records = line.and_then(|line| line.split_whitespace().next()?.replace(',', "").parse().ok());
            seen.records = records;
            seen.hits = records.ok_or_else(|| no_account(&text))? + lost;
        }
        let _ = std::fs::remove_dir_all(&self.output);
        Ok(seen)
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        // After a measurement that failed half-way.
        let _ = self.lttng(&["destroy", &self.session]);
        if let Some(mut daemon) = self.daemon.take() {
            daemon.signal(Signal::SIGTERM);
            let began = std::time::Instant::now();
            while matches!(daemon.ended(), Ok(None)) && began.elapsed().as_secs() < 5 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

/// Frida's Interceptor with a C callback.
#[derive(Clone, Debug)]
pub(super) struct Frida {
    /// A Python that has the module.
    pub(super) python: PathBuf,
    /// Whether it logs.
    pub(super) logs: bool,
}

struct FridaRunning {
    process: Process,
    stdin: Option<std::process::ChildStdin>,
}

impl Frida {
    /// An installed Python that has Frida: `python3`, or the one that the environment variable
    /// `FRIDA_PYTHON` names.
    pub(super) fn python() -> Option<PathBuf> {
        let named = std::env::var_os("FRIDA_PYTHON").map(PathBuf::from);
        let python = named.or_else(|| testing::find_program("python3"))?;
        said(Command::new(&python).args(["-c", "import frida"])).ok().map(|_| python)
    }
}

impl Tracer for Frida {
    fn attach(&self, place: &TracedFunction) -> io::Result<Box<dyn Attached>> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("subject/interceptor.py");
        let mut command = Command::new(&self.python);
        let task = if self.logs { "log" } else { "count" };
        command.arg(script).args([&place.pid.to_string(), &format!("{:#x}", place.address), task]);
        let mut process = Process::start(&mut command)?;
        let stdin = process.started.child().stdin.take();
        Ok(Box::new(FridaRunning { process, stdin }))
    }
}

impl Attached for FridaRunning {
    fn check(&mut self) -> io::Result<()> {
        self.process.check()
    }

    fn stop(self: Box<Self>) -> io::Result<Seen> {
        let FridaRunning { process, stdin } = *self;
        drop(stdin);
        let (stdout, stderr) = process.finish()?;
        let hits = number_after(&stdout, "hits ").ok_or_else(|| no_account(&(stdout + &stderr)))?;
        // Its log stays in a ring.
        Ok(Seen { hits, ..Seen::default() })
    }
}

/// gdb: an ignored breakpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gdb;

struct GdbRunning(Process);

impl Tracer for Gdb {
    fn attach(&self, place: &TracedFunction) -> io::Result<Box<dyn Attached>> {
        let mut command = Command::new("gdb");
        command.args(["-q", "-nx", "-p", &place.pid.to_string()]);
        let breakpoint = format!("break *{:#x}", place.address);
        for line in ["set confirm off", "set pagination off", &*breakpoint, "ignore 1 1000000000", "continue"]
        {
            command.args(["-ex", line]);
        }
        Ok(Box::new(GdbRunning(Process::start(&mut command)?)))
    }
}

impl Attached for GdbRunning {
    fn check(&mut self) -> io::Result<()> {
        self.0.check()
    }

    fn stop(mut self: Box<Self>) -> io::Result<Seen> {
        self.0.started.signal(Signal::SIGINT);
        std::thread::sleep(std::time::Duration::from_millis(300));
        if let Some(mut pipe) = self.0.started.child().stdin.take() {
            pipe.write_all(b"info breakpoints\ndetach\nquit\n")?;
        }
        let (stdout, stderr) = self.0.finish()?;
        let hits = number_after(&stdout, "breakpoint already hit ")
            .ok_or_else(|| no_account(&(stdout + &stderr)))?;
        Ok(Seen { hits, ..Seen::default() })
    }
}
