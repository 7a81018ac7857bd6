//! A background session, and processes for it.

use super::{Scratch, Server, dprobes, is_traced, run, text_differences};
use std::path::Path;
use std::time::Duration;

/// A session of the test's own, stopped when dropped.
pub(crate) struct Session {
    scratch: Scratch,
    /// Whether the first insert starts it with the usual limit to the cost of traps.
    is_limited: bool,
}

impl Session {
    /// Not started yet: the first insert starts it, with no limit to the cost of traps, which
    /// depends on the machine.
    pub(crate) fn new() -> Session {
        Session::made(false)
    }

    /// Not started yet: the first insert starts it as it does for everyone.
    pub(crate) fn limited() -> Session {
        Session::made(true)
    }

    fn made(is_limited: bool) -> Session {
        let scratch = Scratch::new();
        let home = scratch.path().join("home");
        std::fs::create_dir(&home).expect("a fresh directory");
        std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .expect("our own");
        Session { scratch, is_limited }
    }

    /// Runs dprobes in a shell of its own; returns exit status, standard output, standard error.
    pub(crate) fn say(&self, words: &[&str]) -> (i32, String, String) {
        Session::probes_its_own(words);
        let home = self.scratch.path().join("home");
        let new = || {
            let mut command = dprobes();
            command.env("DPROBES_SESSION_DIR", &home);
            command
        };
        let mut command = new();
        command.args(words);
        if words
            .first()
            .is_some_and(|word| word.ends_with("insert") || word.ends_with("apply-ppdf") || *word == "-i")
        {
            command.arg("--log-format=klog");
            // Root's programs for all processes would be run by the kernel.
            if !words.iter().any(|word| word.starts_with("--engine")) {
                command.arg("--engine=tracer");
            }
            if !self.is_limited && !home.join("session").exists() {
                let (started, _, said) = run(new().args(["session", "start", "--max-overhead", "none"]));
                assert!(started.success(), "{said}");
            }
        }
        let (status, out, err) = run(&mut command);
        (status.code().expect("it was not killed"), out, err)
    }

    /// A program for all processes is about a module of the test's own: the programs under test are
    /// shared, and other tests trace them at the same time.
    #[track_caller]
    fn probes_its_own(words: &[&str]) {
        if words.first() != Some(&"insert") || words.contains(&"-p") {
            return;
        }
        let programs = words.iter().filter(|word| word.ends_with(".rpn"));
        for text in programs.filter_map(|program| std::fs::read_to_string(program).ok()) {
            assert!(!text.contains("/test-targets/"), "{words:?} probes what other tests start: copy it");
        }
    }

    /// The same for a command that succeeds; returns standard output.
    #[track_caller]
    pub(crate) fn done(&self, words: &[&str]) -> String {
        let (status, out, err) = self.say(words);
        assert_eq!((status, err.as_str()), (0, ""), "{words:?}: {out}");
        out
    }

    /// The same for a command that fails; returns standard error.
    #[track_caller]
    pub(crate) fn fails(&self, words: &[&str]) -> String {
        let (status, out, err) = self.say(words);
        assert_eq!((status, out.as_str()), (1, ""), "{words:?}: {err}");
        err
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Writes a file: its path.
    pub(crate) fn program(&self, name: &str, text: &str) -> String {
        self.scratch.file(name, text).to_str().expect("text").to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.say(&["session", "stop"]);
    }
}

/// Starts a program under test, and waits for its first line.
pub(crate) fn start_server(program: &Path) -> Server {
    let server = Server::start(program, [] as [&str; 0]);
    server.line();
    server
}

/// Waits until a process is traced and its probes are in, or until it is no longer traced.
#[track_caller]
pub(crate) fn becomes_traced(pid: u32, wanted: bool) {
    let is_done = || is_traced(pid) == wanted && (!wanted || has_probes(pid));
    for _ in 0..500 {
        if is_done() {
            // The thread that was stopped for them runs again, and others are told.
            std::thread::sleep(Duration::from_millis(100));
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("traced: {}, probed: {}", is_traced(pid), has_probes(pid));
}

/// Whether the text of a process has probes, other than those at which the dynamic linker says what
/// it has loaded.
fn has_probes(pid: u32) -> bool {
    text_differences(pid).iter().any(|line| !line.contains("/ld-") && line.contains(" + "))
}
