//! `dprobes serve`: what it answers, and to whom; and the page in a browser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, dprobes, find_program, need, run, start_server, target};

/// A server, and the address that it has printed.
struct Server {
    child: Child,
    /// `127.0.0.1:PORT`.
    address: String,
    key: String,
}

impl Server {
    fn start(scratch: &Scratch) -> Server {
        let mut command = dprobes();
        command.args(["serve", "trace.dpt"]).current_dir(scratch.path()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("an address");
        let url = line.trim().strip_prefix("http://").expect("an address");
        let (address, key) = url.split_once("/?key=").expect("a key");
        Server { child, address: address.to_owned(), key: key.to_owned() }
    }

    /// Sends a request; gives the head of the answer and its body.
    fn ask(&self, head: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }

    /// Asks for a path with parameters, and the key.
    fn get(&self, path: &str, parameters: &str) -> (String, String) {
        self.ask(&format!("GET {path}?key={}&{parameters} HTTP/1.1\r\nHost: x\r\n\r\n", self.key))
    }

    #[track_caller]
    fn json(&self, path: &str, parameters: &str) -> serde_json::Value {
        let (head, body) = self.get(path, parameters);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A name that would be markup if a page took it for that.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";

/// A trace of `store`, which reads ten times and writes twenty times, under a hostile name.
fn trace(scratch: &Scratch) -> Option<()> {
    let module = target("store")?;
    let hostile = scratch.path().join(HOSTILE);
    std::fs::copy(&module, &hostile).ok()?;
    let mut command = dprobes();
    command.arg("run");
    for point in ["store_read", "store_read:return", "store_write", "main", "main:return"] {
        command.args(["--at", &format!("a.out:{point}")]);
    }
    command.args(["-o", "trace.dpt", "--"]).arg(&hostile).current_dir(scratch.path());
    let (status, _, stderr) = run(&mut command);
    assert_eq!(status.code(), Some(3), "{stderr}");
    Some(())
}

#[test]
fn a_store_is_answered_as_json_with_filters() {
    let scratch = Scratch::new();
    need!("serve", trace(&scratch), "gcc");
    let server = Server::start(&scratch);
    let answer = server.json("/data", "");
    let overview = &answer["overview"];
    assert_eq!((&overview["records"], &overview["complete"]), (&42.into(), &true.into()), "{overview}");
    assert!(overview["command"].as_str().is_some_and(|command| command.contains("<img src=x")), "{overview}");
    let functions = overview["functions"].as_array().expect("an array");
    let calls = |name: &str| functions.iter().find(|each| each["name"] == name).map(|each| &each["calls"]);
    assert_eq!((calls("store_read"), calls("main")), (Some(&10.into()), Some(&1.into())), "{overview}");
    let heat = functions.iter().flat_map(|each| each["heat"].as_array().expect("cells"));
    assert_eq!(heat.filter_map(|cell| cell[2].as_u64()).sum::<u64>(), 11);
    let graph = overview["graph"].as_array().expect("ways");
    assert_eq!(
        (&graph[0][0], &graph[0][1], &graph[1][0], &graph[1][1]),
        (&(-1).into(), &"main".into(), &0.into(), &"store_read".into())
    );
    let timeline = overview["probes"]
        .as_array()
        .expect("probes")
        .iter()
        .flat_map(|probe| probe["timeline"].as_array().expect("counts"));
    assert_eq!(timeline.filter_map(serde_json::Value::as_u64).sum::<u64>(), 42);
    // Nothing new was written.
    let seen = answer["seen"].as_str().expect("a state");
    assert!(server.json("/data", &format!("seen={seen}"))["overview"].is_null());
    // Filters are those of `show`.
    let chosen = server.json("/data", "probe=store_write:entry");
    assert_eq!(chosen["overview"]["records"], 20);
    let records = server.json("/records", "probe=store_read*&text=STORE_READ&skip=3");
    assert_eq!((records["records"].as_array().map(Vec::len), &records["more"]), (Some(17), &false.into()));
    assert!(records["records"][0]["comm"].as_str().is_some_and(|name| name.starts_with("<img src=x")));
    let (head, why) = server.get("/data", "probe=nothing");
    assert!(head.contains(" 400 ") && why.contains("no probe `nothing`"), "{head}{why}");
    // A store that was replaced is read anew.
    std::fs::write(scratch.path().join("trace.dpt"), "no store").expect("written");
    let (head, why) = server.get("/data", &format!("seen={seen}"));
    assert!(head.contains(" 500 ") && why.contains("not a trace store"), "{head}{why}");
}

/// Waits for something; how long is of no matter.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_store_that_is_still_written_is_followed() {
    let program = need!("serve", target("server"), "gcc");
    let scratch = Scratch::new();
    let mut program = start_server(&program);
    let mut command = dprobes();
    command.args(["attach", "-p", &program.pid().to_string(), "--at", "a.out:server_work"]);
    command.args(["-o", "trace.dpt"]).current_dir(scratch.path()).stderr(Stdio::piped());
    let mut tracer = Tracer(command.spawn().expect("it starts"));
    let mut said = BufReader::new(tracer.0.stderr.take().expect("a pipe")).lines();
    let armed = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("armed")));
    assert!(armed.is_some(), "it is armed");
    assert_eq!(program.ask("call 100"), "done 100");
    let path = scratch.path().join("trace.dpt");
    until(|| std::fs::metadata(&path).is_ok_and(|about| about.len() > 0));
    let server = Server::start(&scratch);
    let overview = || server.json("/data", "")["overview"].take();
    until(|| overview()["records"] == 100);
    assert_eq!(program.ask("call 51"), "done 51");
    until(|| overview()["records"] == 151);
    assert_eq!(overview()["complete"], false);
    // SAFETY: a plain system call on a child that has not been waited for.
    unsafe { libc::kill(tracer.0.id() as i32, libc::SIGINT) };
    said.for_each(drop);
    assert!(tracer.0.wait().expect("it ends").success());
    let whole = overview();
    assert_eq!((&whole["records"], &whole["complete"]), (&151.into(), &true.into()));
}

/// The bytes that a server has read so far.
fn bytes_read(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/io", server.child.id())).expect("it lives");
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("the kernel counts");
    line.parse().expect("a number")
}

#[test]
fn pages_of_a_store_are_read_on_and_what_was_read_is_kept() {
    let program = need!("serve", target("server"), "gcc");
    let scratch = Scratch::new();
    const CALLS: usize = 20_000;
    let mut command = dprobes();
    command.args(["run", "--at", "a.out:server_work", "--at", "a.out:server_work:return", "-o", "trace.dpt"]);
    command.arg("--").arg(program).args(["leaf", &CALLS.to_string()]).current_dir(scratch.path());
    let (status, _, stderr) = run(&mut command);
    assert_eq!(status.code(), Some(5), "{stderr}");
    let length = std::fs::metadata(scratch.path().join("trace.dpt")).expect("it is there").len();
    let server = Server::start(&scratch);
    let overview = server.json("/data", "")["overview"].take();
    assert_eq!(overview["records"], 2 * CALLS);
    let before = bytes_read(&server);
    assert!(before > length, "{before} of {length} bytes");
    assert_eq!(server.json("/data", "")["overview"], overview);
    let again = bytes_read(&server) - before;
    assert!(again < length / 4, "{again} of {length} bytes");
    // All pages take what reading once takes.
    let before = bytes_read(&server);
    let (mut numbers, mut more) = (Vec::new(), true);
    while more {
        let page = server.json("/records", &format!("skip={}", numbers.len()));
        let records = page["records"].as_array().expect("an array");
        numbers.extend(records.iter().map(|record| record["number"].as_u64().expect("a number")));
        more = page["more"] == true;
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..2 * CALLS as u64).collect::<Vec<_>>());
    let pages = bytes_read(&server) - before;
    assert!(pages < 3 * length, "{pages} of {length} bytes");
    // Another order of pages has the same records, and those of a filter are apart.
    let first = |parameters: &str| server.json("/records", parameters)["records"][0]["number"].as_u64();
    let (one, two) = (first("skip=500"), first("skip=1000"));
    assert!(one.is_some() && two.is_some() && one != two && first("skip=500") == one, "{one:?} {two:?}");
    assert!(server.json("/records", "skip=19999&probe=server_work:return")["more"] == false);
}

/// A tracer that is ended with its owner.
struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn only_who_knows_the_key_is_answered() {
    let scratch = Scratch::new();
    need!("serve", trace(&scratch), "gcc");
    let server = Server::start(&scratch);
    let status = |head: &str| server.ask(head).0.split(' ').nth(1).map(str::to_owned);
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "403"),
        ("GET /data?key=0 HTTP/1.1\r\n\r\n", "403"),
        ("POST / HTTP/1.1\r\n\r\n", "405"),
        ("\u{ff}\r\n\r\n", "400"),
        (&format!("GET /etc/passwd?key={} HTTP/1.1\r\n\r\n", server.key), "404"),
    ] {
        assert_eq!(status(request).as_deref(), Some(expected), "{request}");
    }
    let (head, page) = server.get("/", "");
    let policy =
        head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: ")).expect("a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
    for never in ["unsafe-inline", "unsafe-eval", "*", "http"] {
        assert!(!policy.contains(never), "{policy}");
    }
    assert!(!page.contains("<img") && !page.contains(&server.key), "nothing of the trace is in the page");
    let other = server.get("/", "").0;
    assert_ne!(
        other.lines().find(|line| line.contains("nonce")),
        head.lines().find(|line| line.contains("nonce"))
    );
    // Many at a time neither end it nor stop it for the others.
    let idle: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(&server.address).expect("it listens")).collect();
    assert!(server.get("/", "").0.contains(" 200 "));
    drop(idle);
}

#[test]
fn a_browser_shows_it_as_text() {
    let scratch = Scratch::new();
    need!("serve", trace(&scratch), "gcc");
    let chromium = need!("serve", find_program("chromium"), "chromium");
    let server = Server::start(&scratch);
    let mut command = Command::new(chromium);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]);
    command.args(["--virtual-time-budget=5000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", scratch.path().join("browser").display()));
    command.arg(format!("http://{}/?key={}", server.address, server.key));
    let (_, page, stderr) = run(command.current_dir(scratch.path()));
    let complaints: Vec<&str> = stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(page.contains("data-shown=\"yes\""), "{page}\n{stderr}");
    // The name of the program is that of the process, and in the command.
    assert!(page.contains("&lt;img src=x") && !page.contains("<img"), "{page}");
    for shown in
        ["<td>store_read</td>", "a.out:store_write", ">42</b>", "aria-label=\"calls\"", "fill-opacity"]
    {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(page.matches("<tr><td>20").count() >= 42, "the records: {page}");
}

#[test]
fn what_cannot_be_served_is_refused() {
    let scratch = Scratch::new();
    need!("serve", trace(&scratch), "gcc");
    scratch.file("none.dpt", "no store");
    for (words, why) in [
        (&["none.dpt"][..], "not a trace store"),
        (&["trace.dpt", "--listen", "localhost"], "an address and a port are expected"),
        (&["trace.dpt", "--listen", "192.0.2.1:1"], "--listen takes another address"),
    ] {
        let mut command = dprobes();
        let (status, stdout, stderr) = run(command.arg("serve").args(words).current_dir(scratch.path()));
        assert!(
            !status.success() && stdout.is_empty() && stderr.contains(why),
            "{words:?}: {stdout}{stderr}"
        );
    }
}
