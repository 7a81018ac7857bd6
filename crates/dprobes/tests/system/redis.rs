//! A real server under load: redis-server, probed by attaching to its command dispatcher while
//! redis-benchmark runs.

use crate::support::{
    Scratch, attach, counting, file_offset, find_program, is_traced, need, run, text_differences,
};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server. It is killed when dropped.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(server: &Path, socket: &Path) -> Redis {
    let mut command = Command::new(server);
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(socket);
    command.current_dir(socket.parent().expect("the socket is in a directory"));
    let redis =
        Redis(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("redis-server starts"));
    let began = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    redis
}

/// A number of `INFO`.
fn info(text: &str, key: &str) -> u64 {
    let found = text.lines().find_map(|line| line.trim_end().strip_prefix(key)?.strip_prefix(':'));
    found.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in {text}"))
}

#[test]
fn hits_on_the_dispatcher_equal_the_commands_sent() {
    let server = need!("redis", find_program("redis-server"), "redis-server");
    let benchmark = need!("redis", find_program("redis-benchmark"), "redis-benchmark");
    let client = need!("redis", find_program("redis-cli"), "redis-cli");
    // The server's path may be a symbolic link to a program with several names: it is started and
    // probed under this one. The path of a socket is limited in length, so it cannot be below
    // target/.
    let scratch = Scratch::new();
    let short = std::env::temp_dir().join(format!("dprobes-redis-{}", std::process::id()));
    let socket = short.join("s");
    std::fs::create_dir_all(&short).expect("a directory for the socket can be made");
    let redis = start(&server, &socket);
    let pid = redis.0.id();

    // `call` executes every command; it is exported for modules, and so has a symbol in the
    // stripped program.
    let points = ["call", "processCommand"].into_iter().filter(|name| file_offset(&server, name).is_some());
    let points: Vec<&str> = points.collect();
    assert_eq!(points.first(), Some(&"call"), "redis-server exports no dispatcher");
    let mut attached = attach(pid, &counting(&server, &points), &[]);
    attached.wait_for(pid, &server, "call");

    let mut load = Command::new(&benchmark);
    load.arg("-s").arg(&socket).args(["-n", "3000", "-c", "20", "-t", "set,get,lpush", "-q"]);
    let (status, stdout, stderr) = run(load.current_dir(scratch.path()));
    assert!(status.success(), "{stdout}{stderr}");
    let said = format!("{stdout}{stderr}").to_lowercase();
    assert!(!said.contains("error") && !said.contains("warning"), "{said}");

    let (_, text, _) = run(Command::new(&client).arg("-s").arg(&socket).args(["INFO", "everything"]));
    let processed = info(&text, "total_commands_processed");
    for command in ["set", "get", "lpush"] {
        assert!(
            text.contains(&format!("cmdstat_{command}:calls=3000,")),
            "{command} was not called 3000 times: {text}"
        );
    }
    let outcome = attached.stop(libc::SIGINT).ended_with(0);
    // INFO does not count itself, but is a command too.
    for minor in 1..=points.len() as u32 {
        assert_eq!(outcome.stats.hits(minor), processed + 1, "{}: {outcome:#?}", points[minor as usize - 1]);
    }
    assert!(!is_traced(pid));
    assert_eq!(text_differences(pid), [""; 0]);
    let (_, pong, _) = run(Command::new(&client).arg("-s").arg(&socket).arg("PING"));
    assert_eq!(pong, "PONG\n");
    drop(redis);
    let _ = std::fs::remove_dir_all(&short);
}
