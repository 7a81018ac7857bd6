//! The servers: started in a directory of their own, reachable only from this machine, under
//! constant load.

use super::client::{self, Clients, Pgbench};
use crate::cleanup::Started;
use crate::family::family;
use nix::sys::signal::Signal;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The names of the servers.
pub const SERVERS: [&str; 3] = ["redis", "nginx", "postgres"];

/// How many log lines to show of a server that has died.
const LOG_TAIL_LINES: usize = 30;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);

/// A running server and its clients.
#[derive(Debug)]
pub struct Server {
    started: Started,
    clients: Clients,
    /// Its log.
    log: PathBuf,
    /// Signals that none of its processes reacts to.
    pub(super) signals: &'static [Signal],
}

fn program(name: &str) -> io::Result<PathBuf> {
    let elsewhere = ["/usr/sbin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin"];
    testing::find_program(name)
        .or_else(|| elsewhere.iter().map(|at| Path::new(at).join(name)).find(|path| path.exists()))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} is not installed")))
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Waits for a condition.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) -> io::Result<()> {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > START {
            return Err(io::Error::other(format!("{what} does not answer")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn spawn(command: &mut Command, log: &Path) -> io::Result<Started> {
    let log = std::fs::File::create(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Started::gently(command.spawn()?))
}

impl Server {
    /// Starts a server and its clients.
    ///
    /// # Errors
    /// With kind `NotFound` if it is not installed; otherwise if it does not start.
    pub fn start(name: &str, directory: &Path) -> io::Result<Server> {
        match name {
            "redis" => redis(directory),
            "nginx" => nginx(directory),
            "postgres" => postgres(directory),
            _ => Err(io::Error::other(format!(
                "unknown server `{name}`; the servers are {}",
                SERVERS.join(", ")
            ))),
        }
    }

    /// Its processes.
    pub(super) fn processes(&self) -> Vec<u32> {
        family(self.started.pid())
    }

    /// The number of answered requests.
    pub(super) fn requests(&self) -> u64 {
        self.clients.requests()
    }

    /// What went wrong for clients since the last call.
    pub(super) fn trouble(&self) -> Vec<String> {
        self.clients.trouble()
    }

    /// Whether it is still running.
    pub(super) fn lives(&mut self) -> bool {
        matches!(self.started.ended(), Ok(None))
    }

    /// How it ended, and its last output.
    pub(super) fn last_words(&mut self) -> String {
        let log = String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join(" / ");
        format!("{:?}, {last}", self.started.ended())
    }

    /// Ends the clients, then the server; returns what went wrong.
    pub(super) fn stop(&mut self) -> Vec<String> {
        let mut trouble = self.clients.stop();
        self.started.signal(Signal::SIGINT);
        let start = Instant::now();
        while self.lives() {
            if start.elapsed() > START {
                trouble.push("the server does not end when it is asked to".to_owned());
                crate::family::kill(self.started.pid());
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        trouble
    }
}

fn redis(directory: &Path) -> io::Result<Server> {
    let program = program("redis-server")?;
    let socket = directory.join("redis.sock");
    let _ = std::fs::remove_file(&socket);
    let mut command = Command::new(program);
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"]).arg(directory);
    command.arg("--unixsocket").arg(&socket);
    let log = directory.join("redis.log");
    let started = spawn(&mut command, &log)?;
    wait("redis", || UnixStream::connect(&socket).is_ok())?;
    let clients = Clients::start(2, move |seen, number| client::redis(seen, number, &socket));
    Ok(Server { started, clients, log, signals: &[Signal::SIGCONT, Signal::SIGURG, Signal::SIGHUP] })
}

fn nginx(directory: &Path) -> io::Result<Server> {
    let program = program("nginx")?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let page: Vec<u8> = (0..20_000_u32).map(|place| b"0123456789abcdef\n"[place as usize % 17]).collect();
    std::fs::write(directory.join("page"), &page)?;
    let configuration = directory.join("nginx.conf");
    let here = directory.display();
    let user = if is_root() { "user root;\n" } else { "" };
    let text = format!(
        "{user}daemon off;\nworker_processes 2;\npid {here}/nginx.pid;\nerror_log {here}/nginx.log;\nevents {{}}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {here}/body;\nproxy_temp_path {here}/proxy;\nfastcgi_temp_path {here}/fastcgi;\n\
         uwsgi_temp_path {here}/uwsgi;\nscgi_temp_path {here}/scgi;\nserver {{ listen 127.0.0.1:{port}; root {here}; }}\n}}\n"
    );
    std::fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-c").arg(&configuration).arg("-e").arg(directory.join("nginx.log"));
    let log = directory.join("nginx.log");
    let started = spawn(&mut command, &directory.join("nginx.out"))?;
    wait("nginx", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    let clients = Clients::start(2, move |seen, _| client::http(seen, port, &page));
    Ok(Server { started, clients, log, signals: &[Signal::SIGCONT, Signal::SIGURG] })
}

/// The user and group that run a server that must not run as root, as PostgreSQL.
fn unprivileged() -> io::Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut words = line.split(':').skip(2);
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody")).ok_or_else(|| io::Error::other("there is no user to run it as"))
}

fn postgres(directory: &Path) -> io::Result<Server> {
    use std::os::unix::process::CommandExt;
    let (initdb, server) = (program("initdb")?.canonicalize()?, program("postgres")?.canonicalize()?);
    let pgbench = program("pgbench")?;
    // Beside the real program, which `initdb` looks for, without symbolic links.
    let home = directory.join("postgres");
    std::fs::create_dir_all(&home)?;
    let ids = if is_root() { Some(unprivileged()?) } else { None };
    if let Some((user, group)) = ids {
        chown(&home, Some(user), Some(group))?;
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
    }
    let as_user = |command: &mut Command| {
        command.current_dir(&home);
        if let Some((user, group)) = ids {
            command.uid(user).gid(group);
        }
    };
    let data = home.join("data");
    let mut command = Command::new(initdb);
    command.args(["-U", "soak", "-A", "trust", "--no-sync", "-D"]).arg(&data);
    as_user(&mut command);
    let made = command.stdin(Stdio::null()).output()?;
    if !made.status.success() {
        return Err(io::Error::other(format!("initdb: {}", String::from_utf8_lossy(&made.stderr))));
    }
    let mut command = Command::new(server);
    command.arg("-D").arg(&data).arg("-k").arg(&home).args(["-h", "", "-F"]);
    as_user(&mut command);
    let log = directory.join("postgres.log");
    let started = spawn(&mut command, &log)?;
    let bench = Pgbench { command: pgbench, socket: home.clone(), user: "soak".to_owned() };
    let socket = home.join(".s.PGSQL.5432");
    wait("postgres", || UnixStream::connect(&socket).is_ok())?;
    let mut filled = false;
    wait("postgres", || {
        let said = bench.command().args(["-i", "-q", "-s", "2", "postgres"]).stdin(Stdio::null()).output();
        filled = said.is_ok_and(|said| said.status.success());
        filled
    })?;
    let clients = Clients::start(1, move |seen, _| client::postgres(seen, &bench));
    Ok(Server { started, clients, log, signals: &[Signal::SIGCONT, Signal::SIGURG, Signal::SIGHUP] })
}
