//! Clients: continuously send requests to a server, check each answer, and keep the first wrong
//! one.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long an answer may take. A server whose every instruction traps is slow, but not dead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The observations of a server's clients.
#[derive(Debug, Default)]
pub(super) struct Seen {
    stop: AtomicBool,
    requests: AtomicU64,
    trouble: Mutex<Vec<String>>,
}

impl Seen {
    fn tell(&self, trouble: String) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).push(trouble);
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The clients of a server.
#[derive(Debug)]
pub(super) struct Clients {
    seen: Arc<Seen>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts this many clients, each of which repeats `ask` until told to stop. After an error it
    /// starts again.
    pub(super) fn start(
        count: u64,
        ask: impl Fn(&Seen, u64) -> io::Result<()> + Send + Sync + 'static,
    ) -> Clients {
        let seen = Arc::new(Seen::default());
        let ask = Arc::new(ask);
        let threads = (0..count)
            .map(|number| {
                let (seen, ask) = (Arc::clone(&seen), Arc::clone(&ask));
                std::thread::spawn(move || {
                    while !seen.stops() {
                        if let Err(error) = ask(&seen, number) {
                            seen.tell(format!("client {number}: {error}"));
                            // Do not flood a dead server.
                            std::thread::sleep(Duration::from_secs(1));
                        }
                    }
                })
            })
            .collect();
        Clients { seen, threads }
    }

    /// The number of answered requests.
    pub(super) fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }

    /// What went wrong since the last call.
    pub(super) fn trouble(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.trouble.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the clients, and returns what went wrong last.
    pub(super) fn stop(&mut self) -> Vec<String> {
        self.seen.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.trouble()
    }
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

/// Sets and reads keys of redis.
pub(super) fn redis(seen: &Seen, number: u64, socket: &Path) -> io::Result<()> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    for request in 0_u64.. {
        if seen.stops() {
            break;
        }
        let key = format!("key:{number}:{}", request % 1000);
        let value = format!("{:0width$}", request, width = (request % 700) as usize + 1);
        let length = value.len();
        let (keys, values) = (key.len(), value.len());
        write!(writer, "*3\r\n$3\r\nSET\r\n${keys}\r\n{key}\r\n${values}\r\n{value}\r\n")?;
        write!(writer, "*2\r\n$3\r\nGET\r\n${keys}\r\n{key}\r\n")?;
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line != "+OK\r\n" {
            return Err(wrong(format!("SET is answered {line:?}")));
        }
        line.clear();
        reader.read_line(&mut line)?;
        if line != format!("${length}\r\n") {
            return Err(wrong(format!("GET is answered {line:?}")));
        }
        let mut answer = vec![0; length + 2];
        reader.read_exact(&mut answer)?;
        if answer[..length] != *value.as_bytes() {
            return Err(wrong("GET gives another value than was set"));
        }
        seen.requests.fetch_add(2, Ordering::Relaxed);
    }
    Ok(())
}

/// Requests a page repeatedly, over connections of a hundred requests each.
pub(super) fn http(seen: &Seen, port: u16, page: &[u8]) -> io::Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    for _ in 0..100 {
        if seen.stops() {
            break;
        }
        writer.write_all(b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut length = None;
        let mut status = String::new();
        reader.read_line(&mut status)?;
        if !status.starts_with("HTTP/1.1 200") {
            return Err(wrong(format!("the page is answered {status:?}")));
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse::<usize>().ok();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length.ok_or_else(|| wrong("the answer has no length"))?];
        reader.read_exact(&mut body)?;
        if body != page {
            return Err(wrong("the page is another one"));
        }
        seen.requests.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// How to run `pgbench`, and where the server is.
#[derive(Clone, Debug)]
pub(super) struct Pgbench {
    pub(super) command: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) user: String,
}

impl Pgbench {
    /// The command with the server's address.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.command);
        command.arg("-h").arg(&self.socket).args(["-U", &self.user, "-n"]);
        command
    }
}

/// Runs `pgbench` for some seconds; it checks the server's answers itself.
pub(super) fn postgres(seen: &Seen, pgbench: &Pgbench) -> io::Result<()> {
    let mut command = pgbench.command();
    let said = command.args(["-c", "3", "-T", "8", "postgres"]).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches([':', ' ']).split([' ', '/']).next()?.parse::<u64>().ok()
    };
    let failed = number("number of failed transactions");
    if !said.status.success() || failed != Some(0) {
        let errors = String::from_utf8_lossy(&said.stderr).into_owned();
        let first: Vec<&str> = errors.lines().filter(|line| line.contains("rror")).take(3).collect();
        return Err(wrong(format!("pgbench: {}, {failed:?} failed: {}", said.status, first.join(" / "))));
    }
    let done = number("number of transactions actually processed").unwrap_or(0);
    seen.requests.fetch_add(done, Ordering::Relaxed);
    Ok(())
}
