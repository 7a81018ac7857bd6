//! Stops a process whose tracer has died, from another process, to undo changes.
//!
//! A thread may be at a jump that is about to be removed, or inside a chain of jumps: it is moved
//! to where the jump leads; trampolines stay.
//!
//! A thread may also be on its way back from a system call made for the tracer, through a few bytes
//! lent for that. They are restored once no thread is in them. Memory mapped for probes is unmapped
//! once no thread is in it or will return to it from a signal handler.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use image::Machine;
use process::{Caller, Entrance, Error, Event, Mapping, Memory, Running, Status, Stop, Stopped};

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use crate::change::{Batch, Change};
use crate::guard;
use crate::hold::Held;
use crate::ledger::{Mapped, Piece};
use crate::mapping;
use crate::reason::NotUndone;
use crate::restart;
use crate::signal::SIGTRAP_BIT;
use crate::window::Window;

/// How long the dying tracer may take to detach from a thread, and a thread to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// How long a thread may take to leave bytes that were lent for its call.
const LEAVES: Duration = Duration::from_secs(2);
/// Bytes of a stack that are searched for signal frames.
const STACK: u64 = 256 << 10;

/// Jumps that a thread follows in a row, at most. There are never more than two or three.
const HOPS: usize = 8;

/// Stops all threads of a process, moves those at one of these changes to where it leads, calls
/// `action`, and lets the threads go as they were.
///
/// # Errors
/// The threads cannot be stopped: then nothing was done. Or `action` has failed.
pub(crate) fn held(
    pid: i32,
    changes: &[Change],
    action: impl FnOnce(&Memory, &Held) -> io::Result<()>,
) -> Result<(), Error> {
    let end = Instant::now() + STOP_TIMEOUT;
    let mut threads = HashMap::new();
    let result = stop_all(pid, &mut threads, end)
        .and_then(|()| Memory::open(pid))
        .inspect(|memory| {
            let jumps = Jumps::of(changes, memory);
            threads.values_mut().flatten().for_each(|(thread, _)| jumps.take_off(thread));
        })
        .and_then(|memory| action(&memory, &Held::of_one()).map_err(|cause| failed(pid, cause)));
    let_all_go(threads);
    result
}

/// Restores bytes lent for a call ([`process::STUB`]), if they are changed, once no thread is in
/// them or will return to them.
///
/// # Errors
/// The bytes stay: a thread does not leave them or cannot be stopped.
pub(crate) fn give_back(pid: i32, change: &Change) -> Result<(), Error> {
    let end = Instant::now() + LEAVES;
    let mut pause = PAUSE;
    loop {
        let memory = Memory::open(pid)?;
        if !change.is_in(&Window::new(&memory)) {
            return Ok(());
        }
        let mut threads = HashMap::new();
        let given = stop_all(pid, &mut threads, Instant::now() + STOP_TIMEOUT).and_then(|()| {
            let is_there = |rip| process::is_in_stub(rip, change.address());
            if threads.iter().any(|(&tid, stopped)| needs(tid, stopped.as_ref(), &memory, is_there)) {
                return Ok(false);
            }
            let mut batch = Batch::default();
            batch.take_out(*change);
            batch.write(&memory, &Held::of_one()).map(|()| true).map_err(|cause| failed(pid, cause))
        });
        let_all_go(threads);
        if given? {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(NotUndone::InCall.of(pid));
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
}

/// Whether a thread is in some code, or will be when a signal handler returns. A thread that could
/// not be stopped counts as there if its place is unknown.
fn needs(
    tid: i32,
    stopped: Option<&(Stopped, Stop)>,
    memory: &Memory,
    is_there: impl Fn(u64) -> bool,
) -> bool {
    let Some((thread, _)) = stopped else {
        return !Status::read(tid).is_ok_and(|status| status.has_ended())
            && process::blocked_at(tid).is_ok_and(|at| at.is_none_or(is_there));
    };
    let Ok(registers) = thread.registers() else { return false };
    let mut stack = Vec::new();
    let (mut at, last) = (registers.rsp() & !7, registers.rsp().saturating_add(STACK));
    while at < last {
        let length = (4096 - at % 4096) as usize;
        let mut bytes = vec![0; length];
        if memory.peek(at, &mut bytes).is_err() {
            break;
        }
        stack.extend(bytes);
        at += length as u64;
    }
    let words = stack.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    let words: Vec<u64> = words.collect();
    is_there(registers.rip())
        || words.windows(3).any(|words| is_there(words[0]) && is_of_a_frame(words[1], words[2]))
}

/// Whether two words after an instruction pointer look like those in a signal frame: flags, and the
/// code segment of 64-bit programs.
fn is_of_a_frame(flags: u64, segments: u64) -> bool {
    flags < 1 << 22 && flags & 2 != 0 && segments & 0xffff == 0x33
}

/// Unmaps the memory for probes in a process whose bytes are restored, once no thread is in it or
/// will return to it from a signal handler.
///
/// # Errors
/// The memory stays: a thread does not leave it or cannot be stopped, other processes share the
/// memory, or the process runs another program by now.
pub(crate) fn unmap(pid: i32, pieces: &[Mapped]) -> Result<(), Error> {
    let guard = pieces.iter().find(|mapped| mapped.piece == Piece::Guard);
    let guard = guard.ok_or_else(|| NotUndone::Unverified.of(pid))?;
    let end = Instant::now() + LEAVES;
    let mut pause = PAUSE;
    loop {
        let memory = Memory::open(pid)?;
        if !guard::is_at(guard.base, &memory) {
            return Err(NotUndone::OtherProgram.of(pid));
        }
        let mut threads = HashMap::new();
        let stopped = stop_all(pid, &mut threads, Instant::now() + STOP_TIMEOUT);
        let is_idle =
            threads.iter().all(|(&tid, stopped)| is_elsewhere(tid, stopped.as_ref(), &memory, pieces));
        let mut unmapped = stopped.map(|()| false);
        if unmapped.is_ok()
            && is_idle
            && guard::is_at(guard.base, &memory)
            && process::memory_sharers(pid).is_empty()
            && let Some(tid) = threads.iter().find_map(|(&tid, stopped)| stopped.is_some().then_some(tid))
            && let Some((thread, stop)) = threads.remove(&tid).flatten()
        {
            unmapped = unmap_by(pid, thread, stop, (guard.base, pieces), &memory).map(|()| true);
        }
        let_all_go(threads);
        if unmapped? {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(NotUndone::InUse.of(pid));
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
}

/// Whether a thread is in none of these pieces, will not return to them, and has no trap left for
/// the guard.
fn is_elsewhere(tid: i32, stopped: Option<&(Stopped, Stop)>, memory: &Memory, pieces: &[Mapped]) -> bool {
    let is_there = |address: u64| pieces.iter().any(|mapped| address.wrapping_sub(mapped.base) < mapped.size);
    let Some((thread, stop)) = stopped else {
        return Status::read(tid).is_ok_and(|status| status.has_ended());
    };
    let traps = matches!(stop, Stop::Signal(libc::SIGTRAP))
        || Status::read(tid).is_ok_and(|status| status.pending & SIGTRAP_BIT != 0);
    let stands = thread.registers().is_ok_and(|registers| is_there(registers.rsp()));
    !traps && !stands && !needs(tid, stopped, memory, is_there)
}

/// Unmaps pieces of memory by calls of a thread, those of the guard last, and lets the thread go.
fn unmap_by(
    pid: i32,
    thread: Stopped,
    stop: Stop,
    (guard, pieces): (u64, &[Mapped]),
    memory: &Memory,
) -> Result<(), Error> {
    let mappings = process::maps(pid).unwrap_or_default();
    let Some(bare) = process::find_syscall(memory, &mappings, Machine::X86_64) else {
        let_go(thread, stop);
        return Err(NotUndone::NoSystemCall.of(pid));
    };
    let of = |wanted: fn(Piece) -> bool| -> Vec<(u64, u64)> {
        let own = pieces.iter().filter(|mapped| wanted(mapped.piece));
        own.map(|mapped| (mapped.base, mapped.size)).filter(|span| is_ours(*span, &mappings)).collect()
    };
    let probes = mapping::spans(of(|piece| piece == Piece::Probes), &mappings);
    let entrance = Entrance { refuge: Some(guard::refuge(guard)), ..bare };
    let caller = match Caller::begin(thread, stop, entrance) {
        Ok(caller) => caller,
        Err((thread, error)) => {
            let_go(thread, Stop::Other);
            return Err(error);
        }
    };
    let (caller, left) = mapping::unmap(caller, &probes)?;
    let (caller, is_free) = guard::drop_handler(caller, guard)?;
    let (mut thread, mut stop) = caller.end()?;
    if is_free && left.is_empty() {
        // The way back from calls was in the guard, which is unmapped now.
        match Caller::begin(thread, stop, bare) {
            Ok(caller) => {
                (thread, stop) = mapping::unmap(caller, &of(|piece| piece != Piece::Probes))?.0.end()?;
            }
            Err((stays, _)) => (thread, stop) = (stays, Stop::Other),
        }
    }
    let_go(thread, stop);
    Ok(())
}

/// Whether memory contains only mappings made for probes: anonymous memory, and the tracer's own
/// files.
fn is_ours((base, size): (u64, u64), mappings: &[Mapping]) -> bool {
    let there = mappings.iter().filter(|mapping| mapping.start < base + size && base < mapping.end);
    let mut named = there.filter(|mapping| mapping.path.is_some() || mapping.label.is_some());
    named.all(|mapping| mapping.path.as_deref() == Some(Path::new("/memfd:dprobes")))
}

fn let_all_go(threads: HashMap<i32, Option<(Stopped, Stop)>>) {
    for (thread, stop) in threads.into_values().flatten() {
        let_go(thread, stop);
    }
}

fn failed(pid: i32, cause: io::Error) -> Error {
    Error::Refused { what: "putting the bytes back", pid, cause }
}

/// Stops all threads of a process, including those created meanwhile.
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
                // The dying tracer has not detached yet, or the thread cannot be traced at all.
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
        // Two quiet rounds: a list that is read while threads end may be incomplete.
        if !news && std::mem::replace(&mut quiet, true) {
            return Ok(());
        }
        if news {
            quiet = false;
            if Instant::now() > end {
                return Err(NotUndone::NotStopped.of(pid));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// The jumps in effect in a process.
struct Jumps(HashMap<u64, Vec<u8>>);

impl Jumps {
    fn of(changes: &[Change], memory: &Memory) -> Jumps {
        let window = Window::new(memory);
        let there = changes.iter().filter(|change| change.written().len() > 1 && change.is_in(&window));
        Jumps(there.map(|change| (change.address(), change.written().to_vec())).collect())
    }

    /// The target of the jump at an address.
    fn from(&self, address: u64) -> Option<u64> {
        let bytes = self.0.get(&address)?;
        let jump = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        (jump.mnemonic() == Mnemonic::Jmp && jump.is_jmp_short_or_near()).then(|| jump.near_branch_target())
    }

    /// Moves a thread that is at a jump to where it leads.
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
            // Fails only if the thread was killed.
            let _ = thread.set_registers(&registers);
        }
    }
}

/// Lets a thread go as if it had not been stopped.
fn let_go(mut thread: Stopped, stop: Stop) {
    // The tracer may have left a hardware breakpoint. Fails if there are no debug registers.
    let _ = thread.stop_at([]);
    match stop {
        Stop::Signal(signal) => thread.detach(signal),
        _ => {
            if let Ok(mut registers) = thread.registers()
                && restart::restart(thread.tid(), &mut registers)
            {
                // Fails only if the thread was killed.
                let _ = thread.set_registers(&registers);
            }
            thread.detach(0);
        }
    }
}

#[cfg(test)]
mod tests;
