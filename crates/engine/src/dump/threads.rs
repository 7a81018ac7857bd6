//! The threads of a core dump.

use elfcore::{ArchComponentState, ArchState, ThreadView};
use process::{Event, Registers, Stat, Status, Stop, Stopped};

use crate::followed::Followed;
use crate::reason::NotDumped;
use crate::signal::{SIGTRAP_BIT, show};
use crate::space::Space;

/// Types of notes (include/uapi/linux/elf.h).
const NT_PRFPREG: u32 = 2;
const NT_X86_XSTATE: u32 = 0x202;
const NT_PRXFPREG: u32 = 0x46e6_2b7f;
const NT_386_TLS: u32 = 0x200;

/// Bytes of the command line that fit in the format, without the final NUL.
const COMMAND_LINE: usize = 79;

/// A thread as the dump shows it.
struct Shown {
    tid: i32,
    status: Status,
    registers: Registers,
    floating_point: Vec<u8>,
    /// Empty if the processor has no extended state.
    extended: Vec<u8>,
    /// Additional notes of 32-bit threads, with their types: `fxsave`'s registers, the thread's own
    /// segments.
    narrow: Vec<(u32, Vec<u8>)>,
}

/// All stopped threads of process `pid` as in the unprobed program: first the one that hit the
/// probe, with `registers`, since debuggers begin with the first; then the others by their ids.
///
/// # Errors
/// The first thread is gone.
pub(super) fn views(
    followed: &Followed,
    pid: i32,
    thread: &Stopped,
    registers: &Registers,
    space: &Space,
) -> Result<Vec<ThreadView>, NotDumped> {
    let ended = |_| NotDumped::Killed;
    let status = Status::read(thread.tid()).map_err(ended)?;
    let mut shown = vec![Shown::new(thread, status, *registers).map_err(ended)?];
    let held = followed.holds.events.iter().filter_map(|event| match event {
        Event::Stopped(thread, stop) => Some((thread, *stop)),
        Event::Ended { .. } => None,
    });
    let newborn = followed.new_threads.newborn.values().map(|newborn| (&newborn.thread, Stop::Interrupt));
    // A thread that is gone by now was killed, and is not shown.
    let others = held.chain(newborn).filter_map(|(thread, stop)| other(pid, thread, stop, space));
    shown.extend(others);
    shown[1..].sort_by_key(|thread| thread.tid);
    same_size(&mut shown);
    let mut command_line = process::command_line(pid, COMMAND_LINE);
    while command_line.last() == Some(&0) {
        command_line.pop();
    }
    let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
    Ok(shown.into_iter().map(|thread| thread.view(&command_line)).collect())
}

/// A thread that was stopped by `stop`, if it belongs to process `pid`.
fn other(pid: i32, thread: &Stopped, stop: Stop, space: &Space) -> Option<Shown> {
    let mut status = Status::read(thread.tid()).ok()?;
    if status.tgid != pid {
        return None;
    }
    let mut registers = thread.registers().ok()?;
    let before = registers.rip().wrapping_sub(1);
    let trap_pending = status.own_pending & SIGTRAP_BIT != 0;
    if (stop == Stop::Signal(libc::SIGTRAP) || trap_pending) && space.site(before).is_some() {
        // It has hit a probe too, which is still to be handled.
        registers.set_rip(before);
        status.own_pending &= !SIGTRAP_BIT;
    } else if let Some((site, place)) = space.in_slot(registers.rip()) {
        show(place, site, &mut registers);
    }
    Shown::new(thread, status, registers).ok()
}

/// Gives the register sets of all threads the size of the first one's, as the format's writer
/// expects. The kernel uses the same size for all threads. If one has no extended state, it is left
/// out of all.
fn same_size(shown: &mut [Shown]) {
    let Some(first) = shown.first() else { return };
    let (floating_point, mut extended) = (first.floating_point.len(), first.extended.len());
    if shown.iter().any(|thread| thread.extended.is_empty()) {
        extended = 0;
    }
    for thread in shown {
        // Notes are aligned to 4 bytes.
        thread.floating_point.resize(floating_point.next_multiple_of(4), 0);
        thread.extended.resize(extended.next_multiple_of(4), 0);
    }
}

impl Shown {
    fn new(thread: &Stopped, status: Status, registers: Registers) -> Result<Shown, process::Error> {
        let extended = match thread.extended_state() {
            Ok(bytes) => bytes,
            Err(error) if error.is_gone() => return Err(error),
            Err(_) => Vec::new(),
        };
        let floating_point = thread.floating_point()?;
        let narrow = match registers.is_32_bit() {
            true => vec![
                (NT_PRXFPREG, thread.fxsave_registers()?),
                // Empty if the kernel does not provide them.
                (NT_386_TLS, thread.own_segments().unwrap_or_default()),
            ],
            false => Vec::new(),
        };
        Ok(Shown { tid: thread.tid(), status, registers, floating_point, extended, narrow })
    }

    fn view(self, command_line: &str) -> ThreadView {
        // If the thread is gone by now, it is shown with what was read before.
        let stat = Stat::read(self.tid).unwrap_or_default();
        let mut components = vec![ArchComponentState {
            name: "floating point",
            note_type: NT_PRFPREG,
            note_name: b"CORE",
            data: self.floating_point,
        }];
        if !self.extended.is_empty() {
            components.push(ArchComponentState {
                name: "extended state",
                note_type: NT_X86_XSTATE,
                note_name: b"LINUX",
                data: self.extended,
            });
        }
        for (note_type, data) in self.narrow {
            components.push(ArchComponentState {
                name: "32-bit state",
                note_type,
                note_name: b"LINUX",
                data,
            });
        }
        ThreadView {
            tid: self.tid,
            cmd_line: command_line.to_owned(),
            comm: process::name(self.tid),
            // Its state without the tracer.
            state: b'R',
            ppid: stat.parent,
            pgrp: stat.group,
            session: stat.session,
            flags: stat.flags as i32,
            utime: stat.user_time,
            stime: stat.system_time,
            cutime: stat.children_user_time,
            cstime: stat.children_system_time,
            // Stored as a signed byte.
            nice: stat.nice as u64,
            uid: u64::from(self.status.uid),
            gid: self.status.gid,
            // The dump was not caused by a signal.
            cursig: 0,
            sighold: self.status.blocked,
            sigpend: self.status.own_pending,
            arch_state: Box::new(ArchState { gpr_state: self.registers.words().to_vec(), components }),
        }
    }
}
