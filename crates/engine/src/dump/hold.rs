//! The other threads of a process are stopped, and what they have to say is kept until it can be answered.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use process::{Event, Status, Stop};

use crate::hold::tid_of;
use crate::tracer::Tracer;

/// How long a thread may take to stop: it has to get a processor.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long one may take that is in an uninterruptible wait.
const PATIENCE_IN_WAIT: Duration = Duration::from_millis(200);
/// The pause between two looks: first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

impl Tracer<'_> {
    /// Stops all threads of process `pid` but `tid`, which is stopped. Their events are kept, to be answered in their
    /// turn. Gives the threads that did not stop: they stop as soon as they can, and are answered then.
    ///
    /// # Errors
    /// The process ends or replaces its program just now.
    pub(super) fn hold_others(&mut self, tid: i32, pid: i32) -> Result<Vec<i32>, String> {
        let start = Instant::now();
        let mut pause = PAUSE.0;
        let mut asked = HashSet::new();
        // Threads that run no more: held here, or ended.
        let mut still: HashSet<i32> = self.holds.events.iter().map(tid_of).collect();
        still.extend(self.births.newborn.keys());
        still.insert(tid);
        loop {
            let mut moving = Vec::new();
            let mut news = false;
            for other in process::threads(pid).map_err(|error| error.to_string())? {
                if still.contains(&other) {
                    continue;
                }
                // One that is not known yet is new, and stops by itself.
                if asked.insert(other) {
                    self.ask(other);
                }
                match process::look_at(other) {
                    Ok(Some(event)) => {
                        let replaced = matches!(event, Event::Stopped(_, Stop::Exec { .. }));
                        news = true;
                        still.insert(other);
                        self.holds.events.push_back(event);
                        if replaced {
                            return Err("the process has replaced its program".to_owned());
                        }
                    }
                    Ok(None) => moving.push(other),
                    // Nobody's to wait for: it is gone.
                    Err(_) => {
                        still.insert(other);
                    }
                }
            }
            if moving.is_empty() && !news {
                // Nobody was left who could have created another thread since they were listed.
                return Ok(Vec::new());
            }
            if !news {
                // The first thread of a process stays as a zombie until the last one ends.
                moving.retain(|&other| state_of(other) != 'Z');
                let waits = moving.iter().all(|&other| state_of(other) == 'D');
                if start.elapsed() > if waits { PATIENCE_IN_WAIT } else { PATIENCE } || moving.is_empty() {
                    return Ok(moving);
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

/// The state of a thread; one that is gone counts as a zombie.
fn state_of(tid: i32) -> char {
    Status::read(tid).map_or('Z', |status| status.state)
}
