//! A background session, and processes for it.

use super::{Scratch, Server, dprobes, is_traced, run};
use std::path::Path;
use std::time::Duration;

/// A session of the test's own, stopped when dropped.
pub(crate) struct Session {
    scratch: Scratch,
}

impl Session {
    /// Not started yet: the first insert starts it.
    pub(crate) fn new() -> Session {
        let scratch = Scratch::new();
        let home = scratch.path().join("home");
        std::fs::create_dir(&home).expect("a fresh directory");
        std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .expect("our own");
        Session { scratch }
    }

    /// Runs dprobes in a shell of its own; returns exit status, standard output, standard error.
    pub(crate) fn say(&self, words: &[&str]) -> (i32, String, String) {
        Session::probes_its_own(words);
        let mut command = dprobes();
        command.env("DPROBES_SESSION_DIR", self.scratch.path().join("home")).args(words);
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

/// Waits until a process is traced, or no longer.
#[track_caller]
pub(crate) fn becomes_traced(pid: u32, wanted: bool) {
    for _ in 0..500 {
        if is_traced(pid) == wanted {
            // The probes are in once the thread stopped for them runs again.
            std::thread::sleep(Duration::from_millis(100));
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("traced: {}", !wanted);
}
