//! Exits to other debug facilities (`exit n` of the language; dprobes.lang(8), "RPN Execution
//! Group").
//!
//! | `exit` | facility | here |
//! |---|---|---|
//! | 1 | the kernel debugger | of kernel probes only: the probepoint is removed, as before the debugger is called, and that is told |
//! | 2 | a crash dump of the machine | likewise |
//! | 3 | a core dump of the process | written while the process waits; then it runs on |

use process::{Registers, Stopped};

use crate::dump::dump_core;
use crate::hit::handler_runner::HandlerRunner;
use crate::observer::Note;

impl HandlerRunner<'_, '_> {
    /// Calls the facility that a probe's handler has exited to; `probe` are the program's number
    /// and the probe's index. `codes`: the major and minor code, with which messages begin.
    /// `thread` hit the probe; `registers` are as the handler leaves them, at the probed
    /// instruction.
    pub(crate) fn exit_to(
        &mut self,
        facility: u8,
        probe: (usize, usize),
        codes: (u32, u32),
        thread: &Stopped,
        registers: &Registers,
    ) {
        let head = format!("DProbes({},{})", codes.0, codes.1);
        match facility {
            1 => self.kernel_only(probe, &head, "exit 1: the kernel debugger"),
            2 => self.kernel_only(probe, &head, "exit 2: a crash dump"),
            3 => self.exit_to_core(&head, thread, registers),
            // The assembler refuses other numbers, and the interpreter raises INVALID_OPERAND.
            _ => {}
        }
    }

    /// Reports, once for each probe, that a facility does not exist for user probes.
    fn kernel_only(&mut self, probe: (usize, usize), head: &str, facility: &str) {
        if self.messages.told.is_new(format!("{probe:?} {facility}")) {
            let text = format!("{head} {facility} is for kernel probes only; the probepoint is removed");
            self.messages.observer.note(&Note::Exit(text));
        }
    }

    /// Writes a core dump of the process, and reports its path or the error.
    fn exit_to_core(&mut self, head: &str, thread: &Stopped, registers: &Registers) {
        let tid = thread.tid();
        let pid = self.followed.threads.get(&tid).map_or(tid, |tracked| tracked.identity.pid);
        let text = match dump_core(self.followed, self.messages, pid, thread, registers) {
            Ok(written) => {
                let left_out: Vec<String> = written.left_out.iter().map(i32::to_string).collect();
                let without = match left_out.is_empty() {
                    true => String::new(),
                    false => {
                        format!("; without thread {}, which could not be stopped", left_out.join(", "))
                    }
                };
                format!(
                    "{head} core dump of process {pid} written to {}{without}",
                    printable::path(&written.path)
                )
            }
            Err(reason) => format!("{head} core dump of process {pid} failed: {reason}"),
        };
        self.messages.observer.note(&Note::Exit(text));
    }
}
