//! Runs a stopped thread for one instruction or up to given addresses, with signals blocked as
//! needed.

use crate::Error;
use crate::ptrace;
use crate::thread::{Stop, Stopped};

/// The debug register that enables the others.
const CONTROL: usize = 7;
/// The debug registers that hold addresses.
const ADDRESSES: usize = 4;

impl Stopped {
    /// Sends it a SIGSTOP again, after one was taken from it.
    pub fn stop_again(&self) {
        // SAFETY: a system call on integers, which nix does not have.
        unsafe { libc::syscall(libc::SYS_tkill, self.tid(), libc::SIGSTOP) };
    }

    /// Its blocked signals, as a set: signal 1 is bit 0.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn signal_mask(&self) -> Result<u64, Error> {
        ptrace::signal_mask(self.tid())
    }

    /// Sets its blocked signals.
    ///
    /// # Errors
    /// The thread has been killed.
    pub fn set_signal_mask(&mut self, mask: u64) -> Result<(), Error> {
        ptrace::set_signal_mask(self.tid(), mask)
    }

    /// Lets it execute one instruction (or take `signal`, if that is not 0; a blocked signal
    /// becomes pending again with its siginfo) and waits until it stops. After the instruction that
    /// is [`Stop::Signal`] of SIGTRAP; anything else came first.
    ///
    /// # Errors
    /// The thread has been killed; its end is still to be waited for.
    pub fn step(self, signal: i32) -> Result<(Stopped, Stop), Error> {
        ptrace::step(self.tid(), signal)?;
        self.next_stop()
    }

    /// Resumes it, with a signal as in [`Stopped::step`], and waits until it stops. Until then
    /// `meanwhile` is called repeatedly; it may wait for something that this thread does.
    ///
    /// # Errors
    /// The thread has been killed; its end is still to be waited for.
    pub fn run_while(self, signal: i32, mut meanwhile: impl FnMut()) -> Result<(Stopped, Stop), Error> {
        ptrace::resume(self.tid(), signal)?;
        self.next_stop_while(&mut meanwhile)
    }

    /// Makes it stop, as after [`Stopped::step`], before it executes the instruction at one of
    /// these addresses (four at most); an empty list ends that. No code is changed: this uses the
    /// thread's debug registers, which nothing else may use.
    ///
    /// # Errors
    /// The thread has been killed, or no debug registers are free ([`Error::Refused`]).
    pub fn stop_at(&mut self, addresses: impl IntoIterator<Item = u64>) -> Result<(), Error> {
        let mut control = 0;
        for (register, address) in addresses.into_iter().take(ADDRESSES).enumerate() {
            ptrace::set_debug_register(self.tid(), register, address)?;
            // Enabled for this thread, for execution of the byte there.
            control |= 1 << (2 * register);
        }
        ptrace::set_debug_register(self.tid(), CONTROL, control)
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;
    use crate::{Event, StartOptions, look_at, start};

    /// A process that has just begun its program.
    fn begun() -> Stopped {
        let running = start(&["/bin/true".into()], &StartOptions::default()).expect("there is a true");
        loop {
            match look_at(running.tid()).expect("a child") {
                Some(Event::Stopped(thread, Stop::Exec { .. })) => return thread,
                Some(Event::Stopped(thread, _)) => drop(thread.resume(0)),
                _ => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn a_thread_steps_and_stops_at_an_address() {
        let mut thread = begun();
        let mut seen = Vec::new();
        for _ in 0..8 {
            let (stopped, stop) = thread.step(0).expect("alive");
            thread = stopped;
            assert_eq!(stop, Stop::Signal(libc::SIGTRAP));
            seen.push(thread.registers().expect("alive"));
        }
        assert!(seen.windows(2).all(|pair| pair[0].rip() != pair[1].rip()), "{seen:x?}");
        // The same instructions again, without a stop between.
        thread.set_registers(&seen[0]).expect("alive");
        thread.stop_at([seen[4].rip()]).expect("debug registers");
        let (mut thread, stop) = thread.run_while(0, || {}).expect("alive");
        assert_eq!(
            (stop, thread.registers().expect("alive").rip()),
            (Stop::Signal(libc::SIGTRAP), seen[4].rip())
        );
        thread.stop_at([]).expect("debug registers");
        let (thread, _) = thread.step(0).expect("alive");
        assert_eq!(thread.registers().expect("alive").rip(), seen[5].rip());
        kill(Pid::from_raw(thread.tid()), Signal::SIGKILL).expect("it was not waited for");
    }
}
