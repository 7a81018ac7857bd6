//! The ways to count calls: tracers that attach, count, and report.

use crate::{Subject, family};
use nix::sys::signal::Signal;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One way.
#[derive(Debug)]
pub struct Way {
    /// Its name in the table.
    pub name: &'static str,
    /// The symbol in the subject where it counts.
    pub symbol: &'static str,
    /// Calls per repetition: enough to measure, few enough to wait for.
    pub calls: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Dprobes { command: PathBuf, directory: PathBuf },
    Classic { command: PathBuf },
    Gdb,
}

/// All ways available on this machine, and the names of the missing ones.
pub fn ways(dprobes: &Path, itself: &Path, directory: &Path) -> (Vec<Way>, Vec<&'static str>) {
    let ours = || Kind::Dprobes { command: dprobes.to_path_buf(), directory: directory.to_path_buf() };
    let mut ways = vec![
        Way { name: "dprobes, trap, push %rbp", symbol: "work", calls: 30_000, kind: ours() },
        Way { name: "dprobes, trap, imul in its slot", symbol: "work_slot", calls: 30_000, kind: ours() },
        Way {
            name: "ptrace: restore, single-step, re-insert",
            symbol: "work",
            calls: 10_000,
            kind: Kind::Classic { command: itself.to_path_buf() },
        },
    ];
    let mut missing = Vec::new();
    match Command::new("gdb").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => {
            ways.push(Way { name: "gdb, ignored breakpoint", symbol: "work", calls: 5_000, kind: Kind::Gdb });
        }
        _ => missing.push("gdb"),
    }
    (ways, missing)
}

impl Way {
    /// Whether its tracer is dprobes.
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Dprobes { .. })
    }

    /// Attaches, runs one round, detaches; returns the nanoseconds per call and the tracer's count.
    ///
    /// # Errors
    /// If the tracer does not attach, or ends without a count.
    pub fn measure(&self, subject: &mut Subject) -> io::Result<(f64, u64)> {
        let address = subject.address(self.symbol)?;
        let original = subject.byte(address)?;
        let mut tracer = self.start(subject, address)?;
        let result = self.round(subject, &mut tracer, address, original);
        if result.is_err() {
            let _ = tracer.kill();
        }
        let said = self.stop(tracer)?;
        let round = result?;
        let hits = self.hits(&said)?;
        if subject.byte(address)? != original {
            return Err(io::Error::other(format!("{} left its breakpoint behind", self.name)));
        }
        Ok((round.nanoseconds, hits))
    }

    fn round(
        &self,
        subject: &mut Subject,
        tracer: &mut Child,
        address: u64,
        original: u8,
    ) -> io::Result<crate::Round> {
        let start = Instant::now();
        while subject.byte(address)? == original {
            if tracer.try_wait()?.is_some() || start.elapsed() > Duration::from_secs(30) {
                return Err(io::Error::other(format!("{} does not attach", self.name)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // gdb inserts its breakpoint before it lets the process run, so the round starts after
        // that.
        subject.round(self.calls, 1)
    }

    fn start(&self, subject: &Subject, address: u64) -> io::Result<Child> {
        let pid = subject.pid().to_string();
        let mut command = match &self.kind {
            Kind::Dprobes { command, directory } => {
                let program = directory.join("bench.rpn");
                let text = format!(
                    "name = \"{}\"\nmodtype = user\nvars = 1\noffset = {}\ninc lv, 0\nabort\n",
                    subject.program().display(),
                    self.symbol
                );
                std::fs::write(&program, text)?;
                let mut ours = Command::new(command);
                ours.args(["attach", "-p", &pid, "--stats", "/dev/stdout", "-o", "/dev/null"]).arg(program);
                ours.stderr(Stdio::null());
                ours
            }
            Kind::Classic { command } => {
                let mut classic = Command::new(command);
                classic.args(["--classic", &pid, &address.to_string()]);
                classic
            }
            Kind::Gdb => {
                let mut gdb = Command::new("gdb");
                gdb.args(["-q", "-nx", "-p", &pid]).args([
                    "-ex",
                    "set confirm off",
                    "-ex",
                    "set pagination off",
                ]);
                gdb.args([
                    "-ex",
                    &format!("break *{address:#x}"),
                    "-ex",
                    "ignore 1 100000000",
                    "-ex",
                    "continue",
                ]);
                gdb.stderr(Stdio::null());
                gdb
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    }

    /// Interrupts the tracer until it ends, and returns its output.
    fn stop(&self, mut tracer: Child) -> io::Result<String> {
        let mut stdout = tracer.stdout.take().ok_or_else(|| io::Error::other("no pipe from the tracer"))?;
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let mut stdin = tracer.stdin.take();
        let start = Instant::now();
        loop {
            // The tracer was not reaped, so the number is still its own.
            family::send(tracer.id(), Signal::SIGINT);
            if let (Kind::Gdb, Some(mut pipe)) = (&self.kind, stdin.take()) {
                std::thread::sleep(Duration::from_millis(200));
                let _ = pipe.write_all(b"info breakpoints\ndetach\nquit\n");
            }
            for _ in 0..100 {
                if tracer.try_wait()?.is_some() {
                    return reader.join().map_err(|_| io::Error::other("the reader panicked"));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            if start.elapsed() > Duration::from_secs(30) {
                let _ = tracer.kill();
            }
        }
    }

    /// The count in a tracer's output.
    fn hits(&self, said: &str) -> io::Result<u64> {
        let found = match &self.kind {
            Kind::Dprobes { .. } => {
                let stats: serde_json::Value = serde_json::from_str(said)?;
                stats["probes"][0]["hits"].as_u64()
            }
            Kind::Classic { .. } => said.trim().parse().ok(),
            Kind::Gdb => said.lines().find_map(|line| {
                line.trim().strip_prefix("breakpoint already hit ")?.split(' ').next()?.parse().ok()
            }),
        };
        found.ok_or_else(|| io::Error::other(format!("{} gives no count: {said}", self.name)))
    }
}
