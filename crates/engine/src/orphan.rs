//! A process whose tracer has died is held for a moment, by somebody who is not its tracer.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use process::{Error, Event, Memory, Running, Status, Stop, Stopped};

use crate::hold::Held;
use crate::restart;

/// How long the dying tracer may take to let a thread go, and a thread to stop.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Stops all threads of a process, does something with its memory, and lets them go as they were.
///
/// # Errors
/// They cannot be stopped: then nothing was done. Or what was to be done has failed.
pub(crate) fn held(pid: i32, action: impl FnOnce(&Memory, &Held) -> io::Result<()>) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    let mut threads = HashMap::new();
    let result = stop_all(pid, &mut threads, end)
        .and_then(|()| Memory::open(pid))
        .and_then(|memory| action(&memory, &Held::of_one()).map_err(|cause| failed(pid, cause)));
    for (_, stopped) in threads {
        if let Some((thread, stop)) = stopped {
            let_go(thread, stop);
        }
    }
    result
}

fn failed(pid: i32, cause: io::Error) -> Error {
    Error::Refused { what: "putting the bytes back", pid, cause }
}

/// Stops the threads of a process, also those that are born meanwhile.
fn stop_all(
    pid: i32,
    threads: &mut HashMap<i32, Option<(Stopped, Stop)>>,
    end: Instant,
) -> Result<(), Error> {
    let mut quiet = false;
    loop {
        let mut news = false;
        for tid in process::threads(pid)? {
            if threads.contains_key(&tid) || Status::read(tid).is_ok_and(|status| status.has_ended()) {
                continue;
            }
            match Running::seize_quietly(tid).and_then(|running| running.interrupt()) {
                Ok(()) => {
                    threads.insert(tid, None);
                }
                Err(error) if error.is_gone() => {}
                // Its tracer is still about to let it go; or it may not be traced at all.
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
            news = true;
        }
        for (&tid, stopped) in threads.iter_mut().filter(|(_, stopped)| stopped.is_none()) {
            match process::look_at(tid) {
                Ok(Some(Event::Stopped(thread, stop))) => *stopped = Some((thread, stop)),
                Ok(None)
                    if Status::read(tid).is_ok_and(|status| !status.has_ended() && status.state != 'D') =>
                {
                    news = true;
                }
                _ => {}
            }
        }
        // Twice: a list that is read while threads end may lack others.
        if !news && std::mem::replace(&mut quiet, true) {
            return Ok(());
        }
        if news {
            quiet = false;
            if Instant::now() > end {
                let reason = "its threads could not be stopped".to_owned();
                return Err(Error::Unsuitable { pid, reason });
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Lets a thread go as if nobody had stopped it.
fn let_go(mut thread: Stopped, stop: Stop) {
    match stop {
        Stop::Signal(signal) => thread.detach(signal),
        _ => {
            if let Ok(mut registers) = thread.registers()
                && restart::restart(thread.tid(), &mut registers)
            {
                // It fails only if the thread was killed.
                let _ = thread.set_registers(&registers);
            }
            thread.detach(0);
        }
    }
}
