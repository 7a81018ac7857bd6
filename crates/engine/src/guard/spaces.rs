//! Maps the guard in a process, keeps it up to date, and removes it.

use process::{Call, Caller, Entrance, Error, Status, Stop, Stopped};

use super::table::Table;
use super::{
    CODE, FIRST_TABLE, Guard, PRIVATE, READ_WRITE, SET, SIZE, TABLE, WORDS, Words, drop_handler,
    is_abandoned, set_handler,
};
use crate::mapping::unmap;
use crate::signal::SIGTRAP_BIT;
use crate::site::Site;
use crate::spaces::Spaces;

impl Spaces {
    /// Gives an address space its guard, by calls of one of its threads, unless that was tried
    /// before. Without a guard, threads that are at a trap or in a call when the tracer dies are
    /// lost, and nothing else.
    pub(crate) fn guard(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        entrance: Entrance,
    ) -> Result<(Stopped, Stop), Error> {
        let Some(space) = self.get_mut(&number) else { return Ok((thread, stop)) };
        if std::mem::replace(&mut space.calls.guard_tried, true) || thread.registers()?.is_32_bit() {
            return Ok((thread, stop));
        }
        let caller = Caller::unfiltered(thread, stop, entrance);
        let (caller, base) = caller.call("mmap", libc::SYS_mmap, [0, SIZE, READ_WRITE, PRIVATE, !0, 0])?;
        let Ok(base) = base else { return caller.end() };
        let table = Table::new(base + TABLE, FIRST_TABLE);
        let mut guard = Guard::new(base, table);
        let Some(space) = self.get_mut(&number) else { return caller.end() };
        let Some(status) = caller.thread().status().ok().filter(|_| guard.write(&space.code.memory).is_ok())
        else {
            return caller.unmap(base, SIZE)?.0.end();
        };
        let mut caller = caller;
        let mut is_free = (status.caught | status.ignored) & SIGTRAP_BIT == 0;
        if status.caught & SIGTRAP_BIT != 0 {
            let asked = base + WORDS + Words::ASKED;
            let action = [libc::SIGTRAP as u64, 0, asked, SET, 0, 0];
            let (next, known) = caller.call("rt_sigaction", libc::SYS_rt_sigaction, action)?;
            caller = next;
            let space = self.get(&number);
            is_free = known.is_ok() && space.is_some_and(|space| is_abandoned(asked, &space.code.memory));
        }
        // Nothing traps yet, so the handler may be installed before its code is executable.
        let calls = [
            Call::protect(base, CODE, libc::PROT_READ | libc::PROT_EXEC),
            set_handler(base + WORDS + Words::ACTION),
        ];
        let (caller, results) = caller.calls(if is_free { &calls } else { &calls[..1] })?;
        let mut results = results.into_iter().map(|result| result.is_ok());
        let (can_execute, handles) = (results.next() == Some(true), results.next() == Some(true));
        if !can_execute {
            let back = [set_handler(base + WORDS + Words::DEFAULT), Call::unmap(base, SIZE)];
            return caller.calls(if handles { &back } else { &back[1..] })?.0.end();
        }
        guard.handles = handles;
        if let Some(space) = self.get_mut(&number) {
            space.mapped.mappings += 2;
            space.calls.guard = Some(guard);
        }
        caller.end()
    }

    /// If a thread blocked SIGTRAP when it hit a trap, the kernel has reset the handler: installs
    /// it again, by a call of the thread. The trap has unblocked SIGTRAP, so the thread's mask
    /// shows only that it may have been blocked. `before`: the trap that the thread hit before this
    /// one.
    pub(crate) fn guard_again(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        before: u64,
    ) -> Result<(Stopped, Stop), Error> {
        let guard = self.get_mut(&number).and_then(|space| space.calls.guard.as_mut());
        let Some(guard) = guard.filter(|guard| guard.handles) else { return Ok((thread, stop)) };
        let mask = thread.signal_mask()?;
        if guard.masks.is_harmless(mask) {
            return Ok((thread, stop));
        }
        let is_there = Status::read(thread.tid())?.caught & SIGTRAP_BIT != 0;
        guard.masks.note(mask, is_there);
        if is_there {
            return Ok((thread, stop));
        }
        if super::mask::blocks_everything(mask) {
            guard.preludes.note(before);
        }
        let action = set_handler(guard.base + WORDS + Words::ACTION);
        let called = self.with_calls(number, thread, stop, &[], |caller| Ok(caller.call_one(action)?.0));
        let (thread, stop, _) = called?;
        Ok((thread, stop))
    }

    /// Makes room in an address space's table for sites that are about to trap, and enters them.
    pub(crate) fn guard_sites(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        sites: &[&Site],
    ) -> Result<(Stopped, Stop), Error> {
        let (mut thread, mut stop) = (thread, stop);
        let table = self.get(&number).and_then(|space| space.calls.guard.as_ref()).map(|guard| &guard.table);
        if let Some((size, now)) = table.map(|table| (table.size_for(sites.len()), table.size()))
            && size > now
        {
            let mut base = None;
            let called = self.with_calls(number, thread, stop, &[], |caller| {
                let arguments = [0, size, READ_WRITE, PRIVATE, !0, 0];
                let (caller, result) = caller.call("mmap", libc::SYS_mmap, arguments)?;
                base = result.ok();
                Ok(caller)
            })?;
            (thread, stop) = (called.0, called.1);
            if let Some((space, base)) = self.get_mut(&number).zip(base) {
                space.mapped.mappings += 1;
                if let Some(guard) = &mut space.calls.guard {
                    // Fails only if the process is gone.
                    let _ = guard.move_table(base, size, &space.code.memory);
                }
            }
        }
        if let Some(space) = self.get_mut(&number)
            && let Some(guard) = &mut space.calls.guard
        {
            let sites: Vec<(u64, u64)> = sites.iter().map(|site| (site.address, 0)).collect();
            guard.traps(&sites, &space.code.memory);
        }
        Ok((thread, stop))
    }

    /// Removes the guard from an address space whose bytes are all restored, by calls of its last
    /// thread.
    pub(crate) fn unguard(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
    ) -> Result<(Stopped, Stop), Error> {
        let Some(space) = self.get_mut(&number) else { return Ok((thread, stop)) };
        let entrances = space.entrance().zip(space.calls.syscall);
        let Some((guard, (entrance, bare))) = space.calls.guard.take().zip(entrances) else {
            return Ok((thread, stop));
        };
        let mut caller = Caller::unfiltered(thread, stop, entrance);
        if guard.handles {
            let (next, is_free) = drop_handler(caller, guard.base)?;
            caller = next;
            if !is_free {
                return caller.end();
            }
        }
        // The way back from calls was in the guard, which is unmapped now.
        let (thread, stop) = caller.end()?;
        let (caller, _) = unmap(Caller::unfiltered(thread, stop, bare), &guard.mapped().collect::<Vec<_>>())?;
        caller.end()
    }
}
