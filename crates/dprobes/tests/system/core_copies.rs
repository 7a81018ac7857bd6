//! `exit 3` does not stop a service: the dump is written from a copy, while the process goes on and
//! sees nothing of it.

use crate::core::gdb;
use crate::support::{Scratch, Server, dprobes, find_program, need, target};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Enough for a dump to take a while.
const LARGE: &str = "384";

/// The program under test, and a `dprobes attach` that dumps its core when it asks.
struct Dumping {
    server: Server,
    dprobes: Child,
    scratch: Scratch,
}

/// Starts both, with these options of `attach`; the dumps go to a scratch directory.
#[track_caller]
fn start(program: PathBuf, words: &str, options: &[&str]) -> Dumping {
    let scratch = Scratch::new();
    let server = Server::start(&program, words.split(' '));
    assert_eq!(server.line(), "ready");
    let mut command = dprobes();
    command.arg("attach").args(options).current_dir(scratch.path());
    start_with(scratch, server, &program, command)
}

/// Completes a command that begins `dprobes attach`, and starts it.
#[track_caller]
fn start_with(scratch: Scratch, server: Server, program: &Path, mut command: Command) -> Dumping {
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = dumped_ask\nminor = 1\npush r, rdi\nlog 1\nexit 3\n",
        program.display()
    );
    let file = scratch.file("program.rpn", &text);
    command.arg("-p").arg(server.pid().to_string()).arg(file);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(scratch.path().join("told")).expect("it is new"))
        .process_group(0);
    let dprobes = command.spawn().expect("dprobes starts");
    let dumping = Dumping { server, dprobes, scratch };
    dumping.wait_until("armed", || dumping.told().contains("armed"));
    dumping
}

impl Dumping {
    /// What dprobes has told so far.
    fn told(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("told")).expect("it is there")
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !is() {
            assert!(Instant::now() < end, "not {what}: {}", self.told());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until so many dumps were told to be written.
    #[track_caller]
    fn wait_for_dumps(&self, count: usize) {
        self.wait_until("written", || self.told().matches(" written to core.").count() == count);
    }

    /// Other processes with the same memory at the same random addresses: the copies.
    fn copies(&self) -> Vec<i32> {
        let first = |pid: i32| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
            maps.lines().next().map(str::to_owned)
        };
        let own = self.server.pid() as i32;
        let expected = first(own).expect("it lives");
        let entries = std::fs::read_dir("/proc").expect("it is mounted");
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|&pid| pid != own && first(pid).is_some_and(|line| line == expected)).collect()
    }

    fn cores(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.scratch.path()).expect("it is there");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        paths
            .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"core.")))
            .collect()
    }

    /// The number after a word of the answer to `look`.
    fn look(&mut self, word: &str) -> u64 {
        let answer = self.server.ask("look");
        let mut words = answer.split(' ').skip_while(|other| *other != word);
        words.nth(1).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    fn signal(&self, pid: i32, signal: i32) {
        // SAFETY: a system call on integers; the process is ours and was not waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Ends both. Returns what dprobes has told.
    #[track_caller]
    fn end(mut self) -> String {
        assert_eq!(self.look("surprises"), 0, "{}", self.told());
        let parent = format!("PPid:\t{}\n", self.server.pid());
        let entries = std::fs::read_dir("/proc").expect("it is mounted");
        let statuses =
            entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("status")).ok());
        let children: Vec<String> = statuses.filter(|status| status.contains(&parent)).collect();
        assert_eq!(children, [""; 0], "no child is left, alive or dead");
        let (status, _) = self.server.end();
        assert_eq!(status.code(), Some(7));
        let _ = self.dprobes.wait().expect("a child can be waited for");
        std::fs::read_to_string(self.scratch.path().join("told")).expect("it is there")
    }
}

/// Checks that a dump has the memory of a moment, by the program's own generation of it.
#[track_caller]
fn is_of_generation(debugger: &Path, program: &Path, core: &Path, generation: u64) {
    let commands = [
        "p generation",
        "p/d memory[0]",
        "p/d memory[size / 2]",
        "p/d memory[size - 1]",
        "info threads",
        "bt",
    ];
    let said = gdb(debugger, program, core, &commands);
    for number in 1..=4 {
        assert!(said.contains(&format!("${number} = {generation}\n")), "{said}");
    }
    assert!(said.contains("#0  dumped_ask"), "{said}");
    let is_thread = |line: &&str| line.contains("Thread 0x") && line.contains("LWP");
    assert!(said.lines().filter(is_thread).count() >= 2, "{said}");
}

#[test]
fn a_large_process_goes_on_while_its_dump_is_written_and_sees_no_child() {
    let program = need!("core_copies", target("dumped"), "gcc");
    let debugger = need!("core_copies", find_program("gdb"), "gdb");
    let mut dumping = start(program.clone(), LARGE, &[]);
    // Then the program writes all its memory, and the dump has none of that.
    let asked = dumping.server.ask("ask");
    let during = asked.strip_prefix("asked ").and_then(|count| count.parse::<u64>().ok()).expect("a number");
    let was_there = !dumping.copies().is_empty();
    dumping.wait_for_dumps(1);
    assert!(was_there, "it answered when the dump was complete: {}", dumping.told());
    assert!(dumping.look("count") > during);
    dumping.wait_until("gone", || dumping.copies().is_empty());
    let cores = dumping.cores();
    let told = dumping.told();
    assert!(told.contains(" (paused for ") && !told.contains("while it was written"), "{told}");
    is_of_generation(&debugger, &program, &cores[0], 1);
    dumping.end();
}

#[test]
fn a_probe_writes_one_dump_unless_it_may_write_more() {
    let program = need!("core_copies", target("dumped"), "gcc");
    for (options, most) in [(&[][..], 1), (&["--max-dumps", "2"], 2)] {
        let mut dumping = start(program.clone(), "1", options);
        for number in 1..=4 {
            dumping.server.ask("ask");
            if number <= most {
                dumping.wait_for_dumps(number);
            }
        }
        assert_eq!(dumping.cores().len(), most);
        let told = dumping.end();
        assert_eq!(told.matches("no more core dumps").count(), 1, "{told}");
        assert!(told.contains("--max-dumps N raises"), "{told}");
        assert_eq!(told.matches(":dumped_ask ").count(), 5, "all four records, and a count: {told}");
    }
}

#[test]
fn an_exit_that_comes_while_a_dump_is_written_is_counted() {
    let program = need!("core_copies", target("dumped"), "gcc");
    let debugger = need!("core_copies", find_program("gdb"), "gdb");
    let mut dumping = start(program.clone(), LARGE, &["--max-dumps", "5"]);
    dumping.server.ask("twice");
    dumping.wait_for_dumps(1);
    is_of_generation(&debugger, &program, &dumping.cores()[0], 1);
    assert_eq!(dumping.cores().len(), 1);
    // The next one is the second.
    dumping.server.ask("ask");
    dumping.wait_for_dumps(2);
    let told = dumping.end();
    assert!(told.contains("exits to a core dump that came meanwhile: 1, which wrote none"), "{told}");
}

#[test]
fn a_dump_is_completed_at_the_end_of_the_session() {
    let program = need!("core_copies", target("dumped"), "gcc");
    let debugger = need!("core_copies", find_program("gdb"), "gdb");
    let mut dumping = start(program.clone(), LARGE, &[]);
    dumping.server.ask("ask");
    dumping.signal(dumping.dprobes.id() as i32, libc::SIGINT);
    let status = dumping.dprobes.wait().expect("a child can be waited for");
    assert!(status.success(), "{}", dumping.told());
    assert_eq!(dumping.copies(), [0; 0]);
    is_of_generation(&debugger, &program, &dumping.cores()[0], 1);
    let told = dumping.end();
    assert_eq!(told.matches(" written to core.").count(), 1, "{told}");
}

#[test]
fn a_killed_tracer_leaves_no_second_process() {
    let program = need!("core_copies", target("dumped"), "gcc");
    let mut dumping = start(program, LARGE, &[]);
    dumping.server.ask("ask");
    let front = dumping.dprobes.id() as i32;
    let children = std::fs::read_to_string(format!("/proc/{front}/task/{front}/children"));
    let tracer: i32 = children.expect("the front lives").trim().parse().expect("one child");
    dumping.signal(tracer, libc::SIGKILL);
    dumping.wait_until("gone", || dumping.copies().is_empty());
    assert_eq!(dumping.server.ask("ask").split(' ').next(), Some("asked"));
    let told = dumping.end();
    assert!(!told.contains(" written to core."), "the tracer died too late: {told}");
}

#[test]
fn a_copy_that_is_killed_leaves_no_file() {
    let program = need!("core_copies", target("dumped"), "gcc");
    let mut dumping = start(program, LARGE, &[]);
    dumping.server.ask("ask");
    let copies = dumping.copies();
    let [copy] = copies[..] else { panic!("one copy: {copies:?}") };
    dumping.signal(copy, libc::SIGKILL);
    dumping.wait_until("told", || dumping.told().contains(" failed: the copy of the process was killed"));
    assert!(dumping.cores().is_empty());
    let told = dumping.end();
    assert!(told.contains(" was removed"), "{told}");
}

#[test]
fn a_process_whose_copy_could_be_seen_is_held() {
    let program = need!("core_copies", target("dumped"), "gcc");
    let debugger = need!("core_copies", find_program("gdb"), "gdb");
    if !testing::is_root() {
        return testing::skipped("core_copies: a pid namespace", "root");
    }
    let cases = [
        ("2 adopts", "orphans become its children"),
        ("2 unshares", "its children get a pid namespace of their own"),
    ];
    for (words, reason) in cases {
        let mut dumping = start(program.clone(), words, &[]);
        dumping.server.ask("ask");
        dumping.wait_for_dumps(1);
        is_of_generation(&debugger, &program, &dumping.cores()[0], 1);
        let told = dumping.end();
        assert!(told.contains(&format!(" ms, while it was written: {reason})")), "{told}");
    }
}

#[test]
fn a_dump_for_which_there_is_no_room_is_not_begun() {
    let unshare = need!("core_copies", find_program("unshare"), "unshare");
    let program = need!("core_copies", target("dumped"), "gcc");
    if !testing::is_root() {
        return testing::skipped("core_copies: a small file system", "root");
    }
    let scratch = Scratch::new();
    let server = Server::start(&program, ["32"]);
    assert_eq!(server.line(), "ready");
    let script = "mount -t tmpfs -o size=32m none \"$0\" && cd \"$0\" && exec \"$@\"";
    let directory = scratch.path().join("small");
    std::fs::create_dir(&directory).expect("it is new");
    let mut command = Command::new(unshare);
    command.args(["-m", "sh", "-c", script]).arg(directory).arg(dprobes().get_program()).arg("attach");
    let mut dumping = start_with(scratch, server, &program, command);
    dumping.server.ask("twice");
    dumping.wait_until("told", || dumping.told().contains(" failed: "));
    dumping.server.ask("ask");
    assert_eq!(dumping.copies(), [0; 0]);
    let told = dumping.end();
    assert_eq!(told.matches(" failed: it may need ").count(), 1, "{told}");
    assert!(told.contains(" MiB are free"), "{told}");
}
