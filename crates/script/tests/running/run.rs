//! Runs the handlers of a compiled script in the interpreter.

use std::sync::atomic::AtomicU64;

use dprobes_script::{AttachPoint, Compiled};
use maps::{MapInfo, Maps};
use vm::{Constants, End, Outcome, ProbepointInfo, Program, State};

use crate::machine::Thread;

/// A compiled script with its maps.
pub(crate) struct Run {
    pub(crate) compiled: Compiled,
    infos: Vec<MapInfo>,
    words: Vec<AtomicU64>,
    constants: Vec<u8>,
    state: Box<State>,
}

impl Run {
    /// With its maps, unless they are larger than a test may take.
    pub(crate) fn new(compiled: Compiled) -> Option<Run> {
        let mut infos: Vec<MapInfo> = compiled.maps.iter().map(|map| map.info).collect();
        let words = maps::plan(&mut infos, 2, 1 << 24).ok().filter(|words| *words < 1 << 27)?;
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        // Names of attach points and of their functions: those of the first handler's points.
        let points: Vec<&AttachPoint> =
            compiled.handlers.iter().flat_map(|handler| &handler.points).collect();
        let names: Vec<Vec<u8>> = points.iter().map(|point| point.to_string().into_bytes()).collect();
        let functions: Vec<Vec<u8>> = names
            .iter()
            .map(|name| name.rsplit(|byte| *byte == b':').next().unwrap_or_default().to_vec())
            .collect();
        let constants = lay_out([&compiled.constants, &names, &functions]);
        Some(Run { compiled, infos, words, constants, state: Box::default() })
    }

    pub(crate) fn maps(&self) -> Maps<'_> {
        Maps { infos: &self.infos, words: &self.words }
    }

    /// Runs a handler; gives the log if it is kept.
    pub(crate) fn hit(&mut self, handler: usize, minor: u32, thread: &mut Thread) -> (Outcome, Vec<u8>) {
        let entry = self.compiled.handlers[handler].entry;
        let program = Program {
            code: &self.compiled.code,
            jmpmax: 100_000,
            insmax: 1_000_000,
            logmax: vm::LOG_LIMIT,
            mask: dprobes_script::EXCEPTIONS,
            maps: Maps { infos: &self.infos, words: &self.words },
            constants: Constants(&self.constants),
            point: ProbepointInfo { minor, ..ProbepointInfo::default() },
            ..Program::default()
        };
        let outcome = vm::run(&program, entry, &mut self.state, thread);
        let log = match outcome.end {
            End::Abort => Vec::new(),
            _ => self.state.log().to_vec(),
        };
        (outcome, log)
    }
}

/// The constants as the interpreter reads them.
fn lay_out(classes: [&Vec<Vec<u8>>; 3]) -> Vec<u8> {
    let count: usize = classes.iter().map(|class| class.len()).sum();
    let mut head: Vec<u8> = Vec::new();
    let mut bytes: Vec<u8> = Vec::new();
    for class in classes {
        head.extend((class.len() as u32).to_le_bytes());
    }
    for text in classes.into_iter().flatten() {
        let start = 12 + 8 * count + bytes.len();
        head.extend((start as u32).to_le_bytes());
        head.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text);
    }
    head.extend(bytes);
    head
}
