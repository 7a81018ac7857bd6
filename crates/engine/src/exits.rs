//! Exits to other debug facilities (`exit n` of the language; dprobes.lang(8), "RPN Execution
//! Group").
//!
//! | `exit` | facility | here |
//! |---|---|---|
//! | 1 | the kernel debugger | of kernel probes only: the probepoint is removed, as before the debugger is called, and that is told |
//! | 2 | a crash dump of the machine | likewise |
//! | 3 | a core dump of the process | the process is copied and runs on while the copy is written |

use process::Registers;

use std::time::Instant;

use crate::dump::{Refusal, Wanted};
use crate::hit::handler_runner::HandlerRunner;
use crate::observer::Note;

impl HandlerRunner<'_, '_> {
    /// Calls the facility that a probe's handler has exited to; `probe` are the program's number
    /// and the probe's index. `codes`: the major and minor code, with which messages begin.
    /// `registers` are as the handler leaves them, at the probed instruction.
    pub(crate) fn exit_to(
        &mut self,
        facility: u8,
        probe: (usize, usize),
        codes: (u32, u32),
        registers: &Registers,
    ) {
        let head = format!("DProbes({},{})", codes.0, codes.1);
        match facility {
            1 => self.kernel_only(probe, &head, "exit 1: the kernel debugger"),
            2 => self.kernel_only(probe, &head, "exit 2: a crash dump"),
            3 => self.exit_to_core(probe, &head, registers),
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

    /// Notes that the process is to be dumped once all handlers have run, or reports why it is not.
    fn exit_to_core(&mut self, probe: (usize, usize), head: &str, registers: &Registers) {
        let most = self.programs[probe.0].options.max_dumps;
        let wanted = Wanted {
            head: head.to_owned(),
            probe,
            registers: *registers,
            begun: Instant::now(),
            changes: Vec::new(),
        };
        // An exit while another dump is written is counted, and told with that dump.
        if let Err(Refusal::Limit(most)) = self.dumps.want(wanted, most)
            && self.messages.told.is_new(format!("{probe:?} no more core dumps"))
        {
            let dumps = if most == 1 { "dump" } else { "dumps" };
            let text = format!(
                "{head} exit 3: no more core dumps: this probe has written its {most} {dumps}; --max-dumps N raises \
                 the limit"
            );
            self.messages.observer.note(&Note::Exit(text));
        }
    }
}
