//! Stops the other threads of a process, and keeps their events until they can be handled.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use process::{Event, Status, Stop};

use crate::followed::Followed;
use crate::hold::tid_of;
use crate::messages::Messages;
use crate::reason::NotDumped;

/// How long a thread may take to stop: it has to get a processor.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a thread in an uninterruptible wait may take.
const UNINTERRUPTIBLE_STOP_TIMEOUT: Duration = Duration::from_millis(200);
/// The pause between two polls: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// Stops all threads of process `pid` except `tid`, which is stopped. Their events are kept, to
/// be handled later. Returns the threads that did not stop: they stop as soon as they can.
///
/// # Errors
/// The process ends or executes a new program meanwhile.
pub(super) fn hold_others(
    followed: &mut Followed,
    messages: &mut Messages<'_>,
    tid: i32,
    pid: i32,
) -> Result<Vec<i32>, NotDumped> {
    let start = Instant::now();
    let mut pause = PAUSE.0;
    let mut asked = HashSet::new();
    // Threads that do not run: held here, or ended.
    let mut still: HashSet<i32> = followed.holds.events.iter().map(tid_of).collect();
    still.extend(followed.new_threads.newborn.keys());
    still.insert(tid);
    loop {
        let mut moving = Vec::new();
        let mut news = false;
        for other in process::threads(pid).map_err(|error| NotDumped::Read(error.into()))? {
            if still.contains(&other) {
                continue;
            }
            // An unknown thread is new, and stops by itself.
            if asked.insert(other) {
                followed.ask(messages, other);
            }
            match process::look_at(other) {
                Ok(Some(event)) => {
                    let replaced = matches!(event, Event::Stopped(_, Stop::Exec { .. }));
                    news = true;
                    still.insert(other);
                    followed.holds.events.push_back(event);
                    if replaced {
                        return Err(NotDumped::Replaced);
                    }
                }
                Ok(None) => moving.push(other),
                // It cannot be waited for: it is gone.
                Err(_) => {
                    still.insert(other);
                }
            }
        }
        if moving.is_empty() && !news {
            // No thread was left that could have created another since the listing.
            return Ok(Vec::new());
        }
        if !news {
            // The main thread of a process stays as a zombie until the last thread ends.
            moving.retain(|&other| state_of(other) != 'Z');
            let waits = moving.iter().all(|&other| state_of(other) == 'D');
            if start.elapsed() > if waits { UNINTERRUPTIBLE_STOP_TIMEOUT } else { STOP_TIMEOUT }
                || moving.is_empty()
            {
                return Ok(moving);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// The state of a thread; `Z` if it is gone.
fn state_of(tid: i32) -> char {
    Status::read(tid).map_or('Z', |status| status.state)
}
