//! Servers under load, probed at random for as long as one likes: can a client tell?
//!
//! A *round* takes one process of a server, some random instructions of its program or of its libc, an engine and a handler, and
//! attaches. While the probes are in, processes of the server get signals that mean nothing to them; then the session ends: when its time is
//! over, by SIGINT, or because its tracer or its front is killed. Afterwards the text of all processes is to be that of their files,
//! the accounts are to balance, and no client is to have seen an error.
//!
//! ```text
//! server   redis, nginx, PostgreSQL: started, and asked without end     client   what asks them
//! round    one round                                                    text     is the code as in the file?
//! report   what is told in the end
//! ```

mod client;
mod report;
mod round;
mod server;
mod text;

pub use report::{Head, report};
pub use round::{End, Shown};
pub use server::{SERVERS, Server};

use crate::soundness::random::Random;
use crate::soundness::{Site, Sites};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How a server is probed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The command `dprobes`.
    pub dprobes: PathBuf,
    /// For how long.
    pub time: Duration,
    /// What random choices begin with.
    pub seed: u64,
    /// The engines to choose from.
    pub engines: Vec<&'static str>,
    /// Whether tracers and fronts are killed.
    pub kills: bool,
    /// For files.
    pub directory: PathBuf,
}

/// What one server has shown.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Its name.
    pub name: String,
    /// Rounds, by engine and by how they ended.
    pub rounds: HashMap<(&'static str, End), u64>,
    /// Rounds in which nothing was probed: the process had ended, or all sites were refused.
    pub empty: u64,
    /// Hits that were counted.
    pub hits: u64,
    /// Records that were kept.
    pub records: u64,
    /// Signals that were sent.
    pub signals: u64,
    /// Requests that clients have had answered.
    pub requests: u64,
    /// What went wrong, with the round.
    pub wrong: Vec<String>,
}

/// The instructions of modules, which are listed once.
#[derive(Debug, Default)]
struct Known(HashMap<PathBuf, Vec<Site>>);

impl Known {
    fn of(&mut self, module: &Path) -> io::Result<&[Site]> {
        if !self.0.contains_key(module) {
            let sites = Sites::of(module)?.sites;
            self.0.insert(module.to_owned(), sites);
        }
        Ok(&self.0[module])
    }
}

/// Probes one server until the time is over, or it is dead. `progress` is told each round that went wrong, and now and then how far it is.
///
/// # Errors
/// With the kind `NotFound`: the server is not on this machine. Others: it does not start, or dprobes cannot be started.
pub fn run(name: &str, plan: &Plan, mut progress: impl FnMut(&str)) -> io::Result<Tally> {
    let mut server = Server::start(name, &plan.directory)?;
    let mut tally = Tally { name: name.to_owned(), ..Tally::default() };
    let mut random = Random::new(plan.seed);
    let mut known = Known::default();
    let start = Instant::now();
    let mut told = start;
    for number in 0_u64.. {
        if start.elapsed() > plan.time {
            break;
        }
        let shown = round::round(&server, plan, number, &mut random, &mut known)?;
        let mut wrong = shown.wrong.clone();
        wrong.extend(server.trouble());
        for wrong in &wrong {
            let text = format!("round {number} ({}): {wrong}", shown.what);
            progress(&format!("{name}: {text}"));
            tally.wrong.push(text);
        }
        tally.add(&shown);
        if !server.lives() {
            let words = server.last_words();
            let text = format!("round {number} ({}): the server has ended: {words}", shown.what);
            progress(&format!("{name}: {text}"));
            tally.wrong.push(text);
            break;
        }
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            let minutes = start.elapsed().as_secs() / 60;
            let (hits, asked) = (tally.hits, server.requests());
            progress(&format!("{name}: {minutes} min, {} rounds, {hits} hits, {asked} requests", number + 1));
        }
    }
    tally.requests = server.requests();
    tally.wrong.extend(server.stop());
    Ok(tally)
}

impl Tally {
    fn add(&mut self, shown: &Shown) {
        match shown.end {
            Some(end) => *self.rounds.entry((shown.engine, end)).or_default() += 1,
            None => self.empty += 1,
        }
        self.hits += shown.hits;
        self.records += shown.records;
        self.signals += shown.signals;
    }
}
