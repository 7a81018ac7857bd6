//! How the commands of a section run: in a directory of their own that has the repository's examples,
//! one after another, by a shell that finds `dprobes` first. Standard output and standard error are
//! one, as on a terminal.
//!
//! A command that ends in ` &` runs until the section ends. A later `-p NAME` means it, even if
//! others of that name run on the machine.

use std::collections::HashMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use testing::{Scratch, find_program, is_root, repository};

use crate::document::Section;

/// How long a command may take, on a machine with other work.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long a command that is silent until its end goes on.
const SILENCE: Duration = Duration::from_secs(4);

/// How often to look whether a service has started.
const STEP: Duration = Duration::from_millis(10);

/// What a command did.
pub(crate) struct Outcome {
    pub(crate) succeeded: bool,
    /// What it wrote to standard output and standard error.
    pub(crate) text: String,
}

/// The commands of one section.
pub(crate) struct Session {
    scratch: Scratch,
    /// The services, by the names of their programs.
    services: HashMap<String, Child>,
}

impl Session {
    /// Begins one, in a directory with the repository's examples.
    pub(crate) fn new() -> Session {
        let scratch = Scratch::new();
        let examples = repository().join("examples");
        std::os::unix::fs::symlink(&examples, scratch.path().join("examples")).expect("a link can be made");
        let services = std::fs::read_dir(examples.join("services")).expect("there are services");
        for service in services.map(|entry| entry.expect("a directory can be read")) {
            std::fs::copy(service.path(), scratch.path().join(service.file_name()))
                .expect("a source can be copied");
        }
        let home = scratch.path().join("home");
        std::fs::create_dir(&home).expect("a fresh directory");
        std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .expect("it is this process's");
        Session { scratch, services: HashMap::new() }
    }

    /// Where its commands run.
    pub(crate) fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// The process of a service.
    pub(crate) fn process(&self, name: &str) -> u32 {
        self.services[name].id()
    }

    fn shell(&self, words: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_dprobes"));
        let directory = program.parent().expect("it is in a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command.arg("-c").arg(words).current_dir(self.scratch.path()).stdin(Stdio::null());
        // Programs of the distribution are before others of their names, as for `find_program`.
        command.env("PATH", format!("{}:/usr/bin:/bin:{path}", directory.display())).env("LC_ALL", "C.UTF-8");
        // A background session of its own.
        command.env("DPROBES_SESSION_DIR", self.scratch.path().join("home"));
        command
    }

    /// Runs a command as shown behind a prompt.
    pub(crate) fn run(&mut self, words: &str) -> Outcome {
        if let Some(service) = words.trim().strip_suffix('&') {
            return self.start(service.trim());
        }
        let words = self.with_processes(words);
        let command = format!("exec 2>&1; {words}");
        let seconds = TIMEOUT.as_secs().to_string();
        let mut shell = Command::new("timeout");
        let inner = self.shell(&command);
        shell.args(["-k", "5", &seconds]).arg(inner.get_program()).args(inner.get_args());
        shell.current_dir(self.scratch.path()).stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let output = shell.output().expect("a shell can be started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Outcome { succeeded: output.status.success(), text }
    }

    /// Runs a command of dprobes that goes on until it is ended: a moment after it has printed
    /// something, or after some seconds if it `is_silent` until then. `may_be_killed`: the signal
    /// need not be handled.
    pub(crate) fn run_until_ended(&mut self, words: &str, is_silent: bool, may_be_killed: bool) -> Outcome {
        let words = self.with_processes(words);
        let said = self.scratch.path().join("home/said");
        let mut command = self.shell(&format!("exec 2>&1; exec {words}"));
        command.stdout(std::fs::File::create(&said).expect("it can be made"));
        let mut child = testing::spawn(&mut command).expect("a shell can be started");
        let has_said = || std::fs::metadata(&said).is_ok_and(|file| file.len() > 0);
        let patience = if is_silent { SILENCE } else { TIMEOUT };
        let early = waited(&mut child, patience, has_said);
        let ended = early.or_else(|| {
            std::thread::sleep(STEP * 50);
            // SAFETY: a system call on a child that has not been waited for. (Jobs of a shell in
            // the background ignore SIGINT.)
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            waited(&mut child, TIMEOUT, || false)
        });
        // If it does not end by itself.
        let _ = child.kill();
        let _ = child.wait();
        let text = std::fs::read(&said).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_killed = |status: ExitStatus| status.signal() == Some(libc::SIGTERM);
        let succeeded = ended.is_some_and(|it| it.success() || may_be_killed && is_killed(it));
        Outcome { succeeded, text }
    }

    /// Starts a service, and waits until it executes its program: a shell does so first.
    fn start(&mut self, words: &str) -> Outcome {
        let program = words.split_whitespace().next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or(program).to_string();
        let mut command = self.shell(&format!("exec {words}"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = testing::spawn(&mut command).expect("a shell can be started");
        let file = format!("/proc/{}/comm", child.id());
        let begin = Instant::now();
        let is_there = || {
            let comm = std::fs::read_to_string(&file).unwrap_or_default();
            name.starts_with(comm.trim_end()) && !comm.is_empty()
        };
        while !is_there() && begin.elapsed() < TIMEOUT {
            std::thread::sleep(STEP);
        }
        let succeeded = is_there();
        // Some time to begin its work in.
        std::thread::sleep(STEP * 20);
        self.services.insert(name, child);
        Outcome { succeeded, text: String::new() }
    }

    /// A command with the names of the section's services as their process ids.
    fn with_processes(&self, words: &str) -> String {
        let mut words = words.to_string();
        for (name, child) in &self.services {
            for option in ["-p", "--pid"] {
                words = words.replace(&format!("{option} {name} "), &format!("{option} {} ", child.id()));
                if let Some(rest) = words.strip_suffix(&format!("{option} {name}")) {
                    words = format!("{rest}{option} {}", child.id());
                }
            }
        }
        words
    }
}

/// Waits for the end of a child, for so long, or until something else has come.
fn waited(child: &mut Child, patience: Duration, has_come: impl Fn() -> bool) -> Option<ExitStatus> {
    let begin = Instant::now();
    loop {
        let ended = child.try_wait().expect("it is a child");
        if ended.is_some() || has_come() || begin.elapsed() > patience {
            return ended;
        }
        std::thread::sleep(STEP);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for child in self.services.values_mut() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a machine lacks to run sections: the name of the test to be skipped, and what it needs.
///
/// The programs are those that the commands begin with, and those behind ` -- `. A command of the
/// kernel's engine is one of those that need it, without a process and without a command.
pub(crate) fn lacks(test: &str, sections: &[&Section]) -> Option<(String, String)> {
    let commands = || sections.iter().flat_map(|section| &section.commands);
    for shown in commands() {
        let first = |words: &str| words.split_whitespace().next().unwrap_or_default().to_string();
        let behind = shown.words.split_once(" -- ").map(|(_, behind)| first(behind));
        for program in [Some(first(&shown.words)), behind].into_iter().flatten() {
            let is_elsewhere = program.contains('/') || program == "dprobes" || program.contains('=');
            let is_of_shell = ["cd", "echo", "kill", "wait"].contains(&&*program);
            if !is_elsewhere && !is_of_shell && find_program(&program).is_none() {
                return Some((format!("documents: {test}"), program));
            }
        }
    }
    if commands().any(|shown| needs_kernel(&shown.words)) && !(is_root() && allows_bpf()) {
        return Some((format!("bpf: documents: {test}"), "root, and a kernel that runs eBPF".to_string()));
    }
    None
}

/// Whether a command is one that the kernel's engine runs: without a process and without a
/// command.
pub(crate) fn needs_kernel(words: &str) -> bool {
    let words = format!("{words} ");
    let mut ones = ["trace", "count", "latency", "stacks", "attach", "top", "insert", "tools run"].iter();
    let has = |each: &str| words.contains(each);
    ones.any(|each| words.starts_with(&format!("dprobes {each} ")))
        && ![" -p ", " --pid ", " -- ", " -l ", " -lv ", " -c "].iter().any(|each| has(each))
}

/// Whether commands of the kernel's engine run here; if not, a test says so.
pub(crate) fn runs_kernel_engine(test: &str) -> bool {
    let runs = is_root() && allows_bpf();
    if !runs {
        testing::skipped(test, "root, and a kernel that runs eBPF");
    }
    runs
}

/// Whether this kernel lets root load eBPF programs.
fn allows_bpf() -> bool {
    bpf::Feature::RingBuffer.is_available()
        && bpf::Feature::Loop.is_available()
        && Path::new("/sys/bus/event_source/devices/uprobe/type").exists()
}
