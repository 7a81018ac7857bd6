//! Probes servers under load at random for any time, and checks whether a client notices.
//!
//! A *round* takes one process of a server, some random instructions of its program or its libc, an
//! engine and a handler, and attaches. While the probes are in, processes of the server get signals
//! that they ignore; then the session ends: by timeout, by SIGINT, or because its tracer or its
//! front is killed. Afterwards the text of all processes must equal their files, the counts must
//! balance, and no client may have seen an error.
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

/// How to probe a server.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The command `dprobes`.
    pub dprobes: PathBuf,
    /// The duration.
    pub time: Duration,
    /// The seed of random choices.
    pub seed: u64,
    /// The engines to choose from.
    pub engines: Vec<&'static str>,
    /// Whether to kill tracers and fronts.
    pub kills: bool,
    /// A directory for files.
    pub directory: PathBuf,
}

/// The results of one server.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Its name.
    pub name: String,
    /// The number of rounds by engine and by how they ended.
    pub rounds: HashMap<(&'static str, End), u64>,
    /// Rounds that probed nothing: the process had ended, or all sites were refused.
    pub empty: u64,
    /// Counted hits.
    pub hits: u64,
    /// Kept records.
    pub records: u64,
    /// Signals sent.
    pub signals: u64,
    /// Requests answered.
    pub requests: u64,
    /// What went wrong, and in which round.
    pub wrong: Vec<String>,
}

/// The instructions of modules, each listed once.
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

/// Probes one server until the time is over, or the server is dead. `progress` receives each round
/// that went wrong, and regular status messages.
///
/// # Errors
/// With kind `NotFound` if the server is not installed; otherwise if it does not start, or dprobes
/// cannot be started.
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
