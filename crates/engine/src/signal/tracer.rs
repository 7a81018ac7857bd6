//! Answers signal-delivery stops: handles faults of ours, passes on signals of the program.

use libc::siginfo_t;
use process::Stopped;

use super::{
    PUT_BACK, SI_KERNEL, fault_address, is_ignored, is_interrupted, is_synchronous, set_fault_address,
};
use crate::restart;
use crate::tracer::Tracer;

impl Tracer<'_> {
    /// Handles a thread that is stopped by a signal.
    pub(crate) fn signalled(&mut self, thread: Stopped, signal: i32) -> Result<(), process::Error> {
        let info = thread.signal_info()?;
        // Must come first: after an `int3` the thread's address may be inside a jump to a
        // trampoline, though it is not in that jump.
        let Some(thread) = self.trapped_by(thread, signal, &info)? else { return Ok(()) };
        let outside = self.stepper().signalled_in_jump(thread, signal, &info)?;
        let Some((thread, signal, mut info)) = outside else { return Ok(()) };
        // The thread may have left the trampoline and hit an `int3`.
        let Some(mut thread) = self.trapped_by(thread, signal, &info)? else { return Ok(()) };
        let mut registers = thread.registers()?;
        let synchronous = is_synchronous(signal, &info);
        let ignored = is_interrupted(&registers) && is_ignored(thread.tid(), signal);
        if ignored && !synchronous {
            // The program sees nothing of this stop. An interrupted system call restarts in place,
            // so that it does not look like a new call.
            self.slot_watcher().check_slot(&thread)?;
            if restart::restart(thread.tid(), &mut registers) {
                thread.set_registers(&registers)?;
            }
            self.followed.resume(thread, signal);
            return Ok(());
        }
        if signal == libc::SIGTRAP && synchronous && self.slot_watcher().is_amid_a_call(&thread, &registers) {
            // The program single-steps itself. The displaced call is not complete, so the step is
            // not shown yet.
            self.followed.resume(thread, 0);
            return Ok(());
        }
        let moved = self.slot_watcher().show_the_site(&thread, &mut registers, synchronous);
        if let Some((hidden, shown)) = moved
            && synchronous
            && matches!(signal, libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS)
            && fault_address(&info) == hidden
        {
            // These signals carry the address of the instruction; SIGSYS carries, in the same
            // field, that of the next one.
            set_fault_address(&mut info, shown);
            thread.set_signal_info(&info)?;
        }
        if moved.is_some() {
            thread.set_registers(&registers)?;
        }
        self.followed.resume(thread, signal);
        Ok(())
    }

    /// Handles the signal of an `int3` of ours. Returns the thread if it is another signal.
    fn trapped_by(
        &mut self,
        thread: Stopped,
        signal: i32,
        info: &siginfo_t,
    ) -> Result<Option<Stopped>, process::Error> {
        match signal == libc::SIGTRAP && matches!(info.si_code, SI_KERNEL | PUT_BACK) {
            true => self.trapped(thread),
            false => Ok(Some(thread)),
        }
    }
}
