//! Runs a workload to its end, and drives it if needed.

use super::outcome::{Outcome, timeless};
use super::workload::{Driver, Workload};
use crate::cleanup::Started;
use crate::family::kill;
use nix::sys::personality::{self, Persona};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The results of one run.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    /// The results that must not change.
    pub(super) outcome: Outcome,
    /// The exit status, if any.
    pub(super) code: Option<i32>,
    /// Standard error, including a tracer's.
    pub(super) stderr: String,
    /// The duration.
    pub(super) took: Duration,
}

/// How to run a workload.
#[derive(Clone, Debug)]
pub(super) struct Conditions<'a> {
    /// A command in front of the workload's own, which runs it.
    pub(super) before: Vec<OsString>,
    /// Additional environment.
    pub(super) environment: Vec<(&'a str, String)>,
    /// Whether addresses are the same every time.
    pub(super) fixed: bool,
    /// The time after which it is killed.
    pub(super) limit: Duration,
    /// The working directory, which also keeps its output.
    pub(super) directory: &'a Path,
}

fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}

/// Runs a workload.
///
/// # Errors
/// If it cannot be started. Its failure is not an error.
pub(super) fn run(workload: &Workload, conditions: &Conditions) -> io::Result<Ran> {
    let words: Vec<&OsString> = conditions.before.iter().chain(&workload.command).collect();
    let (first, rest) = words.split_first().ok_or_else(|| io::Error::other("no command"))?;
    let directory = conditions.directory;
    let (stdout, stderr) = (directory.join("stdout"), directory.join("stderr"));
    let mut command = Command::new(first);
    command.args(rest).current_dir(directory).env_clear();
    let path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
    command.env("PATH", path).env("HOME", directory).env("LC_ALL", "C.UTF-8").env("TZ", "UTC0");
    command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
    command.envs(conditions.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(match &workload.input {
        Some(input) => File::open(input)?.into(),
        None => Stdio::null(),
    });
    command.stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
    if conditions.fixed {
        // SAFETY: personality is a plain system call, allowed between fork and exec.
        unsafe { command.pre_exec(|| Ok(personality::set(Persona::ADDR_NO_RANDOMIZE).map(drop)?)) };
    }
    if let Driver::Redis { socket, .. } = &workload.driver {
        // Left by a server that was killed.
        let _ = std::fs::remove_file(socket);
    }
    let began = Instant::now();
    let mut started = Started::new(command.spawn()?);
    let mut driven = Vec::new();
    if let Driver::Redis { socket, requests } = &workload.driver {
        driven = redis(&mut started, socket, *requests, conditions.limit)?;
    }
    let status = loop {
        if let Some(status) = started.ended()? {
            break told(status);
        }
        if began.elapsed() > conditions.limit {
            kill(started.pid());
            drop(started);
            break format!("killed after {} s", conditions.limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = String::from_utf8_lossy(&std::fs::read(&stdout)?).into_owned();
    // A server's own output depends on process id and time; only its clients' output counts.
    let output = if workload.driver == Driver::None { timeless(&text) } else { driven };
    Ok(Ran {
        code: status.strip_prefix("exit ").and_then(|code| code.parse().ok()),
        outcome: Outcome { status, output },
        stderr: String::from_utf8_lossy(&std::fs::read(&stderr)?).into_owned(),
        took: began.elapsed(),
    })
}

/// Drives a redis-server: load from several clients at once, then single commands whose answers are
/// compared.
fn redis(server: &mut Started, socket: &Path, requests: u64, limit: Duration) -> io::Result<Vec<String>> {
    let began = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        if server.ended()?.is_some() || began.elapsed() > limit {
            return Ok(vec!["the server does not listen".to_owned()]);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut seen = Vec::new();
    let client = |name: &str, words: &[&str], input: &str| -> io::Result<String> {
        let mut command = Command::new(name);
        command.arg("-s").arg(socket).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // It may have ended; its status shows that.
            let _ = io::Write::write_all(&mut pipe, input.as_bytes());
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let pid = child.id();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let output = receiver.recv_timeout(limit.saturating_sub(began.elapsed()));
        let Ok(output) = output else {
            kill(pid);
            return Ok(format!("{name} gets no answer"));
        };
        let output = output?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(format!("{} {text}", told(output.status)))
    };
    let number = requests.to_string();
    let tests = "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset";
    let load = client("redis-benchmark", &["-n", &number, "-c", "20", "-t", tests, "-q"], "")?;
    // Its figures vary, but it must report no errors.
    let complaints = load.lines().filter(|line| line.to_lowercase().contains("err"));
    seen.push(load.split(' ').take(2).collect::<Vec<_>>().join(" "));
    seen.extend(complaints.map(str::to_owned));
    seen.extend(client("redis-cli", &[], &script(requests))?.lines().map(str::to_owned));
    let info = client("redis-cli", &["INFO", "commandstats"], "")?;
    let calls = info.lines().filter_map(|line| line.split_once(",usec").map(|(calls, _)| calls.to_owned()));
    let mut calls: Vec<String> = calls.filter(|line| line.starts_with("cmdstat_")).collect();
    // They come in the order of a hash table with a random seed.
    calls.sort_unstable();
    seen.append(&mut calls);
    client("redis-cli", &["SHUTDOWN", "NOSAVE"], "")?;
    Ok(seen)
}

/// Commands with deterministic answers.
fn script(requests: u64) -> String {
    let mut text = String::from("FLUSHALL\n");
    for i in 0..requests / 10 {
        text += &format!(
            "SET key:{i} value{i}\nAPPEND key:{i} more\nGETRANGE key:{i} 2 9\nINCRBY n {i}\nSETBIT bits {i} 1\n\
             HSET h f{i} {i}\nHINCRBYFLOAT h f{i} 1.5\nZADD z {} m{i}\nRPUSH l {i}\nSADD s {}\nPFADD p {i}\n",
            i * 7 % 50,
            i % 13
        );
    }
    text + "MGET key:1 key:2 nothing\nDBSIZE\nGET n\nBITCOUNT bits\nSTRLEN key:3\nHGET h f3\nHLEN h\nZRANGE z 0 9 WITHSCORES\n\
        ZRANGEBYSCORE z 10 20\nZRANK z m5\nLRANGE l 0 9\nLLEN l\nSORT l LIMIT 0 5 DESC\nSCARD s\nSISMEMBER s 5\nPFCOUNT p\n\
        SETEX t 100 x\nTYPE z\nOBJECT ENCODING l\nRENAME t u\nEXISTS t u\nMULTI\nINCR n\nDECR n\nEXEC\n\
        EVAL \"local s=0 for i=1,200 do s=s+i*i end return {s, redis.call('get', 'n'), string.format('%5.2f', s/7)}\" 0\n\
        GEOADD g 13.361389 38.115556 a 15.087269 37.502669 b\nGEODIST g a b\nXADD x 1-1 f v\nXLEN x\nBITOP NOT q bits\n\
        DUMP key:1\nLPOS l 4\nSINTERCARD 1 s\nGETDEL u\nWRONG command\nHGET key:1 f\nLCS key:1 key:2\nCLUSTER INFO\n"
}
