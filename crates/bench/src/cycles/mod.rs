//! Inserts and removes programs in a session thousands of times, while another one stays, and
//! checks that nothing is left of them.
//!
//! The process is `tests/targets/mortal.c`, which reports in the end whether all its results were
//! right. One program counts its function `mix` throughout. One *cycle* inserts a program with some
//! hundred probes in libc, or sometimes at every function of libc, and removes it. In between, the
//! resources of session and process are read ([`Taken`]).

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::other;

/// What to probe in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// `str*` and `mem*`.
    Some,
    /// Every function.
    All,
}

impl Load {
    fn text(self) -> String {
        let patterns: &[&str] = match self {
            Load::Some => &["str*", "mem*"],
            Load::All => &["*"],
        };
        let probes: String = patterns
            .iter()
            .map(|pattern| format!("offset = \"{pattern}\":entry\npush r, rdi\npush r, rsi\npop gv, 0\npop gv, 0\ninc lv, 0\nabort\n"))
            .collect();
        format!("name = \"libc.so.6\"\nmodtype = user\nvars = 1\ngvars = 1\n{probes}")
    }
}

/// The resources used by a session and a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The session's own memory, in KiB.
    pub session: u64,
    /// The process's memory, in KiB.
    pub process: u64,
    /// The number of the process's mappings, and their size in KiB.
    pub mappings: (u64, u64),
}

/// How a program's sites are probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// The number of sites.
    pub sites: u64,
    /// The number of trapped sites.
    pub traps: usize,
}

/// A session for the test.
#[derive(Debug)]
pub struct Session<'a> {
    dprobes: &'a Path,
    directory: &'a Path,
    /// The traced process.
    process: u32,
    engine: &'a str,
    /// The tracer process.
    tracer: u32,
}

impl<'a> Session<'a> {
    /// Starts a session with the program that stays. `directory` must be empty.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin(
        dprobes: &'a Path,
        directory: &'a Path,
        process: u32,
        program: &Path,
        engine: &'a str,
    ) -> io::Result<Session<'a>> {
        let home = directory.join("home");
        fs::create_dir(&home)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        let mut session = Session { dprobes, directory, process, engine, tracer: 0 };
        for load in [Load::Some, Load::All] {
            fs::write(session.file(load), load.text())?;
        }
        let stays = directory.join("stays.rpn");
        let name = program.display();
        let text = format!("name = \"{name}\"\nmodtype = user\nvars = 1\noffset = mix\ninc lv, 0\nabort\n");
        fs::write(&stays, text)?;
        session.insert_file(&stays)?;
        let status = session.say(&["session", "status"])?;
        let tracer = status.split([':', ' ']).find_map(|word| word.parse().ok());
        session.tracer = tracer.ok_or_else(|| other(format!("the session says {status:?}")))?;
        Ok(session)
    }

    fn file(&self, load: Load) -> PathBuf {
        self.directory.join(format!("{load:?}.rpn"))
    }

    fn say(&self, words: &[&str]) -> io::Result<String> {
        let mut command = Command::new(self.dprobes);
        command.env("DPROBES_SESSION_DIR", self.directory.join("home")).args(words).stdin(Stdio::null());
        let said = command.output()?;
        match said.status.success() {
            true => Ok(String::from_utf8_lossy(&said.stdout).into_owned()),
            false => Err(other(format!("{words:?}: {}", String::from_utf8_lossy(&said.stderr)))),
        }
    }

    fn insert_file(&self, file: &Path) -> io::Result<()> {
        let (pid, file) = (self.process.to_string(), file.to_string_lossy());
        self.say(&["insert", "-p", &pid, "--engine", self.engine, &file]).map(drop)
    }

    /// Inserts a program for libc.
    ///
    /// # Errors
    /// If the session refuses.
    pub fn insert(&self, load: Load) -> io::Result<()> {
        self.insert_file(&self.file(load))
    }

    /// How the sites of the program for libc are probed.
    ///
    /// # Errors
    /// If the session does not answer.
    pub fn ways(&self) -> io::Result<Ways> {
        let all = self.say(&["query", "--name", "libc.so.6"])?;
        // `N in all, at N sites`, or for each probepoint `N more without a hit`.
        let sites = all.lines().filter_map(|line| {
            let hit = line.split_once(" at ").and_then(|(_, rest)| rest.strip_suffix(" sites"));
            hit.and_then(|word| word.parse::<u64>().ok())
        });
        Ok(Ways { sites: sites.sum(), traps: traps(self.process)? })
    }

    /// Removes the program for libc.
    ///
    /// # Errors
    /// If the session does not answer.
    pub fn remove(&self) -> io::Result<()> {
        self.say(&["remove", "--name", "libc.so.6"]).map(drop)
    }

    /// Ends the session.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn end(&self) -> io::Result<()> {
        self.say(&["session", "stop"]).map(drop)
    }

    /// The resources used by the session and the process.
    ///
    /// # Errors
    /// If one of them has ended.
    pub fn taken(&self) -> io::Result<Taken> {
        let memory = |pid: u32| -> io::Result<u64> {
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            Ok(["RssAnon", "RssShmem"].iter().map(|name| number(&status, name)).sum())
        };
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.process))?;
        let sizes = maps.lines().filter_map(|line| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
        });
        let (count, bytes) = sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
        Ok(Taken {
            session: memory(self.tracer)?,
            process: memory(self.process)?,
            mappings: (count, bytes >> 10),
        })
    }

    /// The processor time of an idle session, in milliseconds per second.
    ///
    /// # Errors
    /// If it has ended.
    pub fn idle(&self, time: Duration) -> io::Result<f64> {
        let used = || -> io::Result<u64> {
            let text = fs::read_to_string(format!("/proc/{}/schedstat", self.tracer))?;
            let threads = fs::read_dir(format!("/proc/{}/task", self.tracer))?;
            let of =
                |text: &str| text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            let each = threads
                .flatten()
                .map(|task| fs::read_to_string(task.path().join("schedstat")).map_or(0, |text| of(&text)));
            Ok(each.sum::<u64>().max(of(&text)))
        };
        let before = used()?;
        std::thread::sleep(time);
        Ok((used()? - before) as f64 / 1e6 / time.as_secs_f64())
    }
}

/// The number of `int3` bytes in a process's libc that are not in its file.
fn traps(pid: u32) -> io::Result<usize> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = fs::File::open(format!("/proc/{pid}/mem"))?;
    let mut traps = 0;
    for line in maps.lines().filter(|line| line.contains(" r-xp ") && line.contains("/libc.so")) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).map_err(io::Error::other);
        let (start, end) = words[0].split_once('-').ok_or_else(|| other("no range"))?;
        let (start, end, offset) = (hexadecimal(start)?, hexadecimal(end)?, hexadecimal(words[2])?);
        let mut live = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut live, start)?;
        let file = fs::read(words[words.len() - 1])?;
        let original = file.get(offset as usize..).unwrap_or_default();
        traps +=
            live.iter().zip(original).filter(|&(&live, &original)| live == 0xcc && original != 0xcc).count();
    }
    Ok(traps)
}

/// The number in a line of /proc/PID/status.
fn number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_status_are_found_by_their_whole_name() {
        let status = "VmRSS:\t  10 kB\nRssAnon:\t  77 kB\n";
        assert_eq!((number(status, "RssAnon"), number(status, "Rss")), (77, 0));
    }

    #[test]
    fn all_functions_are_one_pattern() {
        assert_eq!(Load::All.text().matches("offset = ").count(), 1);
        assert!(Load::Some.text().contains("\"mem*\":entry"));
    }
}
