//! A background session of the test's own, whose programs the kernel runs.

use std::process::Command;

use super::{Scratch, Server, copy, dprobes, mount_tracefs, run, target};

/// A session, which the first insert starts and which is stopped when this is dropped.
pub(crate) struct Background {
    scratch: Scratch,
}

impl Background {
    pub(crate) fn new() -> Background {
        let scratch = Scratch::new();
        let home = scratch.path().join("home");
        std::fs::create_dir(&home).expect("a fresh directory");
        std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .expect("our own");
        Background { scratch }
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// A command of this session. One that starts it sees tracefs, as the session does then.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = dprobes();
        command.env("DPROBES_SESSION_DIR", self.scratch.path().join("home")).args(words);
        mount_tracefs(&mut command);
        command
    }

    /// Runs a command: status, standard output, standard error.
    pub(crate) fn say(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let (status, out, err) = run(&mut self.command(words));
        (status.code(), out, err)
    }

    /// The same for a command that succeeds; returns standard output.
    #[track_caller]
    pub(crate) fn done(&self, words: &[&str]) -> String {
        let (status, out, err) = self.say(words);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{words:?}: {out}");
        out
    }

    /// The same for a command that fails; returns standard error.
    #[track_caller]
    pub(crate) fn fails(&self, words: &[&str]) -> String {
        let (status, out, err) = self.say(words);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{words:?}: {err}");
        err
    }

    /// Inserts a program with records in the usual file: what is printed.
    #[track_caller]
    pub(crate) fn insert(&self, text: &str, options: &[&str]) -> String {
        let file = self.program("program.rpn", text);
        self.done(&[&["insert", "--log-format=klog", &file], options].concat())
    }

    /// Writes a file: its path.
    pub(crate) fn program(&self, name: &str, text: &str) -> String {
        self.scratch.file(name, text).to_str().expect("text").to_owned()
    }

    /// A copy of the server of the test's own: its path, and two processes that run it.
    pub(crate) fn servers(&self) -> Option<(String, Server, Server)> {
        let program = copy(&self.scratch, &target("server")?, "server");
        let start = || {
            let server = Server::start(&program, [] as [&str; 0]);
            server.line();
            server
        };
        Some((program.display().to_string(), start(), start()))
    }

    /// The process id of the session.
    #[track_caller]
    pub(crate) fn pid(&self) -> i32 {
        let status = self.done(&["session", "status"]);
        let pid = status.strip_prefix("session ").and_then(|rest| rest.split(':').next());
        pid.and_then(|pid| pid.parse().ok()).expect("it says its number")
    }

    /// How many probes its process has attached: links and events of the kernel.
    pub(crate) fn attached(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("the session runs");
        let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let is_one = |path: &std::path::PathBuf| {
            let name = path.to_string_lossy();
            name.contains("[perf_event]") || name.contains("bpf_link") || name.contains("bpf-link")
        };
        links.filter(is_one).count()
    }

    /// The records in the usual file.
    pub(crate) fn records(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("home/records")).unwrap_or_default()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.say(&["session", "stop"]);
    }
}
