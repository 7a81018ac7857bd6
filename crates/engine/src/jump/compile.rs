//! The handlers of jump probes as machine code.

use std::rc::Rc;

use vm::Op;

use super::Code;
use crate::site::Site;
use crate::tracer::Tracer;

/// A handler that counts, and does nothing else.
#[derive(Debug)]
struct Count {
    bytes: Vec<u8>,
}

/// ```text
///   48 8d 64 24 80            lea   -128(%rsp), %rsp       skips the red zone
///   9c                        pushfq
///   f0 48 ff 04 25 abs32      lock incq abs32              for each word
///   9d                        popfq
///   48 8d a4 24 80 00 00 00   lea   128(%rsp), %rsp
/// ```
impl Count {
    fn new(words: &[u32]) -> Count {
        let mut bytes = vec![0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c];
        for word in words {
            bytes.extend_from_slice(&[0xf0, 0x48, 0xff, 0x04, 0x25]);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.push(0x9d);
        bytes.extend_from_slice(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        Count { bytes }
    }
}

impl Code for Count {
    fn length(&self) -> usize {
        self.bytes.len()
    }

    fn entry(&self) -> u32 {
        0
    }

    fn place(&self, _address: u64, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.bytes);
    }

    fn repair(&self, _offset: u32) -> Option<u32> {
        None
    }

    fn undo(&self, offset: u32) -> Option<u32> {
        match offset {
            0 => Some(0),
            5 => Some(128),
            _ => None,
        }
    }
}

impl Tracer<'_> {
    /// Compiles the handler of a probe for a site of an address space.
    pub(crate) fn compile(
        &mut self,
        number: u32,
        program: usize,
        probe: usize,
        _site: &Site,
    ) -> Result<Rc<dyn Code>, String> {
        let ground = self.spaces.get(&number).and_then(|space| space.ground.clone());
        let (Some(ground), Some(cells)) = (ground, &mut self.cells) else {
            return Err("the process has no memory that it shares with the tracer".to_owned());
        };
        let program = &mut self.programs[program];
        let definition = &program.object.probes[probe];
        if definition.ignore > 0 || definition.maxhits < 0x7fff_ffff {
            return Err("it counts its hits one by one".to_owned());
        }
        let counted = program.probes[probe].counted(cells).ok_or("no more counters")?;
        let mut words = vec![counted.hits.at(ground.cells).spill];
        let mut code = program.object.code[definition.entry..].iter().copied();
        loop {
            match code.next() {
                Some(op) if op == Op::IncLvImm as u8 => {
                    let index = u16::from_le_bytes([code.next().unwrap_or(0), code.next().unwrap_or(0)]);
                    let locals = program.locals.address(ground.cells).ok_or("its variables are not shared")?;
                    words.push(locals + u32::from(index) * 8);
                }
                Some(op) if op == Op::Exit as u8 => return Ok(Rc::new(Count::new(&words))),
                _ => return Err("its handler does more than count".to_owned()),
            }
        }
    }
}
