//! Exits to other debug facilities (`exit n`).

use process::Registers;

use crate::observer::Note;
use crate::tracer::Tracer;

impl Tracer<'_> {
    /// Calls the facility that a handler has asked for, for the thread that hit its probe. `codes`: the major and
    /// minor code, which messages begin with. `registers`: the thread's at the probed instruction.
    pub(crate) fn exit_to(&mut self, _tid: i32, _facility: u8, codes: (u32, u32), _registers: &Registers) {
        let (major, minor) = codes;
        self.tell_once(Note::Other(format!("DProbes({major},{minor}) exit")));
    }
}
