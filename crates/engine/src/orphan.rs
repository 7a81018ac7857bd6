//! A process whose tracer has died is held for a moment, by somebody who is not its tracer.
//!
//! A thread may be at a jump that is about to be taken out: at a site, or on its way from one, where the program has other
//! instructions. Both are sent to where the jump leads; the trampolines stay.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use process::{Error, Event, Memory, Running, Status, Stop, Stopped};

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use crate::change::Change;
use crate::hold::Held;
use crate::restart;
use crate::window::Window;

/// How long the dying tracer may take to let a thread go, and a thread to stop.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Jumps that a thread follows, one after another: there are never more than two or three.
const HOPS: usize = 8;

/// Stops all threads of a process, takes those off these changes that are at one, does something with its memory, and lets them go as they
/// were.
///
/// # Errors
/// They cannot be stopped: then nothing was done. Or what was to be done has failed.
pub(crate) fn held(
    pid: i32,
    changes: &[Change],
    action: impl FnOnce(&Memory, &Held) -> io::Result<()>,
) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    let mut threads = HashMap::new();
    let result = stop_all(pid, &mut threads, end)
        .and_then(|()| Memory::open(pid))
        .inspect(|memory| {
            let jumps = Jumps::of(changes, memory);
            threads.values_mut().flatten().for_each(|(thread, _)| jumps.take_off(thread));
        })
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

/// The jumps that stand in a process.
struct Jumps(HashMap<u64, Vec<u8>>);

impl Jumps {
    fn of(changes: &[Change], memory: &Memory) -> Jumps {
        let window = Window::new(memory);
        let there = changes.iter().filter(|change| change.written().len() > 1 && change.is_in(&window));
        Jumps(there.map(|change| (change.address(), change.written().to_vec())).collect())
    }

    /// Where a jump leads that stands at an address.
    fn from(&self, address: u64) -> Option<u64> {
        let bytes = self.0.get(&address)?;
        let jump = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        (jump.mnemonic() == Mnemonic::Jmp && jump.is_jmp_short_or_near()).then(|| jump.near_branch_target())
    }

    /// Sends a thread that is at one to where it leads.
    fn take_off(&self, thread: &mut Stopped) {
        let Ok(mut registers) = thread.registers() else { return };
        let rip = registers.rip();
        let mut place = rip;
        for _ in 0..HOPS {
            match self.from(place) {
                Some(next) => place = next,
                None => break,
            }
        }
        if place != rip {
            registers.set_rip(place);
            // It fails only if the thread was killed.
            let _ = thread.set_registers(&registers);
        }
    }
}

/// Lets a thread go as if nobody had stopped it.
fn let_go(mut thread: Stopped, stop: Stop) {
    // The tracer may have left a watched address behind. It fails where there are no debug registers.
    let _ = thread.stop_at([]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_followed_where_it_stands() {
        let mut code = vec![0x90u8; 4096];
        let base = code.as_mut_ptr() as u64;
        // A short jump to a long one; one that was never written; a trap.
        let short = Change::new(base + 16, &[0x90, 0x90], &[0xeb, 0x0e]);
        let long = Change::new(base + 32, &[0x90; 5], &[0xe9, 0x00, 0x10, 0, 0]);
        let planned = Change::new(base + 64, &[0x90; 5], &[0xe9, 0x00, 0x10, 0, 0]);
        let trap = Change::new(base + 96, &[0x90], &[0xcc]);
        code[16..18].copy_from_slice(short.written());
        code[32..37].copy_from_slice(long.written());
        code[96] = 0xcc;
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let jumps = Jumps::of(&[short, long, planned, trap], &memory);
        assert_eq!(jumps.from(base + 16), Some(base + 32));
        assert_eq!(jumps.from(base + 32), Some(base + 37 + 0x1000));
        assert_eq!((jumps.from(base + 64), jumps.from(base + 96)), (None, None));
    }
}
