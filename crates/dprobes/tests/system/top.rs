//! `dprobes top` in a terminal: its counts equal the program's own, keys work, and the terminal is
//! restored; and without one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, dprobes, need, start_server, target};

/// How long anything may take.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(60);

/// A terminal, and a command in it.
struct Pty {
    screen: File,
    /// The other side, kept open to read its settings.
    terminal: File,
    child: Child,
    text: String,
}

impl Pty {
    fn start(mut command: Command) -> Pty {
        let (mut screen, mut terminal) = (-1, -1);
        let size = libc::winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: all pointers are valid for the call or null, as it allows; on success both
        // descriptors are new and ours.
        let (screen, terminal) = unsafe {
            let made =
                libc::openpty(&mut screen, &mut terminal, std::ptr::null_mut(), std::ptr::null(), &size);
            assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
            (File::from(OwnedFd::from_raw_fd(screen)), File::from(OwnedFd::from_raw_fd(terminal)))
        };
        // SAFETY: a plain call on a descriptor that is ours.
        unsafe { libc::fcntl(screen.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let own = || Stdio::from(terminal.try_clone().expect("a descriptor"));
        command.stdin(own()).stdout(own()).stderr(own()).env("TERM", "xterm-256color");
        // SAFETY: only system calls that may be made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("it starts");
        Pty { screen, terminal, child, text: String::new() }
    }

    /// Reads the available output.
    fn read(&mut self) {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = self.screen.read(&mut bytes) {
            self.text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    /// Waits until the output since the last call contains a text.
    #[track_caller]
    fn shows(&mut self, what: &str) {
        let start = Instant::now();
        while !self.text.contains(what) {
            assert!(start.elapsed() < SCREEN_TIMEOUT, "no {what:?} in {:?}", self.text);
            std::thread::sleep(Duration::from_millis(20));
            self.read();
        }
        self.text.clear();
    }

    fn press(&mut self, key: &str) {
        self.screen.write_all(key.as_bytes()).expect("the terminal takes it");
    }

    /// Waits for the end; returns the status and the output since the last call.
    #[track_caller]
    fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let status = loop {
            self.read();
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(start.elapsed() < SCREEN_TIMEOUT, "it does not end: {:?}", self.text);
            std::thread::sleep(Duration::from_millis(20));
        };
        self.read();
        assert!(is_cooked(&self.terminal), "the terminal is still raw");
        (status.code(), std::mem::take(&mut self.text))
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a terminal echoes and is line-buffered, as a shell leaves it.
fn is_cooked(terminal: &File) -> bool {
    // SAFETY: the structure is filled by the call, and all zeros is a value of it.
    let settings = unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut settings), 0);
        settings
    };
    let wanted = libc::ECHO | libc::ICANON | libc::ISIG;
    settings.c_lflag & wanted == wanted
}

/// The escape sequence that leaves the alternate screen.
const GIVEN_BACK: &str = "\u{1b}[?1049l";

#[test]
fn a_command_is_watched_to_its_end() {
    let tight = need!("top", target("tight"), "gcc");
    let mut command = dprobes();
    command.args(["top", "--interval", "100ms", "--at", "a.out:work:entry", "--"]);
    command.arg(&tight).args(["1000000", "1"]);
    let mut pty = Pty::start(command);
    pty.shows("hits/s");
    assert!(!is_cooked(&pty.terminal), "keys come one by one");
    let (status, text) = pty.end();
    assert_eq!(status, Some(0), "{text}");
    let (_, after) = text.split_once(GIVEN_BACK).expect("the screen is given back");
    assert!(after.contains("a.out:work:entry") && after.contains("1000000"), "the summary follows: {after}");
    assert!(!text.contains("total"), "what the command says does not disturb the screen");
}

#[test]
fn keys_work_and_the_process_lives_on() {
    let scratch = Scratch::new();
    let server = need!("top", target("server"), "gcc");
    let mut server = start_server(&server);
    let mut command = dprobes();
    command.current_dir(scratch.path()).args(["top", "--interval", "100ms", "-p", &server.pid().to_string()]);
    command.args(["--at", "a.out:server_work:entry", "--stats", "stats.json"]);
    let mut pty = Pty::start(command);
    pty.shows("armed");
    assert_eq!(server.ask("call 251"), "done 251");
    // Unchanged characters are not written again: no digit of this number was there before.
    pty.shows("251");
    pty.press("ss");
    pty.shows("lost");
    // Single words: blanks that were blanks before are not written again.
    pty.press("?");
    pty.shows("around");
    pty.press("x");
    pty.shows("server_work");
    pty.press("/WORX\u{7f}K\r");
    pty.shows("(WORK)");
    pty.press("/nothing");
    pty.shows("drops");
    pty.press("\u{1b}");
    // What comes together with Esc is a key with Alt.
    pty.shows("quit");
    pty.press("p");
    pty.shows("PAUSED");
    pty.press("q");
    let (status, text) = pty.end();
    assert!(status == Some(0) && text.contains(GIVEN_BACK), "{text}");
    let stats = std::fs::read_to_string(scratch.path().join("stats.json")).expect("written");
    assert!(stats.contains("\"hits\": 251"), "{stats}");
    assert_eq!(server.ask("call 3"), "done 3", "it lives on");
}

#[test]
fn records_go_where_a_target_says() {
    let scratch = Scratch::new();
    let server = need!("top", target("server"), "gcc");
    let mut server = start_server(&server);
    let pid = server.pid().to_string();
    let top = |target: &str| {
        let mut command = dprobes();
        command.current_dir(scratch.path()).args([
            "top",
            "--log-format=klog",
            "-p",
            &pid,
            "--log-target",
            target,
        ]);
        command.args(["--at", "a.out:server_work:entry", "--do", "push arg, 0; log 1; exit"]);
        Pty::start(command)
    };
    let mut pty = top("file:records,ltt");
    pty.shows("armed");
    assert_eq!(server.ask("call 251"), "done 251");
    pty.shows("251");
    pty.press("q");
    let (status, text) = pty.end();
    assert_eq!(status, Some(0), "{text}");
    let records = std::fs::read_to_string(scratch.path().join("records")).expect("written");
    assert_eq!(records.lines().filter(|line| line.contains(" cpu=")).count(), 251);
    assert!(scratch.path().join("dprobes.ltt").metadata().expect("written").len() > 251 * 8);
    let (status, text) = top("stderr").end();
    assert!(status == Some(1) && text.contains("no place beside the screen"), "{text}");
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let server = need!("top", target("server"), "gcc");
    let server = start_server(&server);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut command = dprobes();
        command.args(["top", "-p", &server.pid().to_string(), "--at", "a.out:server_work:entry"]);
        let mut pty = Pty::start(command);
        pty.shows("armed");
        // SAFETY: a plain system call on a child that has not been waited for.
        unsafe { libc::kill(pty.child.id() as i32, signal) };
        let (_, text) = pty.end();
        assert!(text.contains(GIVEN_BACK), "signal {signal}: {text}");
    }
}

/// A command without a terminal of its own.
fn without_terminal(mut command: Command) -> Command {
    // SAFETY: one system call, which may be made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    command.stdin(Stdio::null());
    command
}

/// The hits of a probe in each table, and the whole output.
fn tables(text: &str, probe: &str) -> Vec<u64> {
    assert!(!text.contains('\u{1b}'), "it controls a terminal: {text:?}");
    let rows = text.lines().filter(|line| line.ends_with(probe));
    let hits = rows.filter_map(|row| row.split("  ").filter(|word| !word.is_empty()).nth(1));
    hits.map(|hits| hits.trim().replace(',', "").parse().expect("a count")).collect()
}

#[test]
fn batches_are_tables_of_plain_text() {
    let server = need!("top", target("server"), "gcc");
    let mut server = start_server(&server);
    let mut command = dprobes();
    command.args(["top", "-b", "-n", "3", "-d", "0.2", "-p", &server.pid().to_string()]);
    command.args(["--at", "a.out:server_work:entry", "--at", "a.out:server_work:return", "--sort", "name"]);
    command.args(["--filter", "ENTRY"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = without_terminal(command).spawn().expect("it starts");
    // Whenever it is armed: these calls come before the last table or after it.
    assert_eq!(server.ask("call 1000"), "done 1000");
    let said = child.wait_with_output().expect("it ends");
    let (text, stderr) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success() && !stderr.contains('\u{1b}'), "{stderr}");
    let hits = tables(&text, " a.out:server_work:entry");
    assert!(hits.len() == 3 && hits.is_sorted(), "{text}");
    assert!(!text.contains(":return"), "the filter: {text}");
    assert_eq!(server.ask("call 3"), "done 3", "it lives on");
}

#[test]
fn without_a_terminal_tables_are_printed_until_the_end() {
    let tight = need!("top", target("tight"), "gcc");
    let mut command = dprobes();
    command.args(["top", "-d", "50ms", "--at", "a.out:work:entry", "--"]);
    command.arg(&tight).args(["30000000", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = without_terminal(command).output().expect("it starts");
    let (text, stderr) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{stderr}");
    assert!(stderr.contains("30000000"), "the summary follows: {stderr}");
    let hits = tables(&text, " a.out:work:entry");
    assert!(!hits.is_empty() && hits.is_sorted() && hits.iter().all(|hits| *hits <= 30_000_000), "{text}");
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let server = need!("top", target("server"), "gcc");
    let mut server = start_server(&server);
    let mut command = dprobes();
    command.args(["top", "-d", "50ms", "-p", &server.pid().to_string(), "--at", "a.out:server_work:entry"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = without_terminal(command).spawn().expect("it starts");
    let mut output = child.stdout.take().expect("a pipe");
    let mut first = [0; 10];
    output.read_exact(&mut first).expect("a table");
    drop(output);
    assert!(child.wait().expect("it ends").success());
    assert_eq!(server.ask("call 3"), "done 3", "it lives on");
}
