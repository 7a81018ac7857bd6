//! Laws of compiled code, whatever it computes.
//!
//! * Each instruction is reached with the same number of elements on the stack on all ways, and
//!   never takes more than there are. Only `abort` does not care.
//! * Words of the frame lie in the part that the handler says it uses.

use std::collections::BTreeMap;

use dprobes_script::{Compiled, Handler, listing};
use vm::{ControlFlow, Instruction, Op, Word};

/// Checks all handlers.
pub(crate) fn handlers(compiled: &Compiled) -> Result<(), String> {
    for handler in &compiled.handlers {
        one(compiled, handler).map_err(|what| format!("{what}\n{}", listing(compiled)))?;
    }
    Ok(())
}

/// The elements that an instruction pops and pushes.
fn effect(instruction: &Instruction) -> (u64, u64) {
    let row = instruction.row();
    match instruction.op {
        Op::LogImm | Op::LogB | Op::LogW | Op::LogD | Op::Ros => (instruction.operand, 0),
        Op::DupImm => (1, instruction.operand + 1),
        Op::PushR => (0, 1),
        Op::PopMem64 => (2, 0),
        _ => {
            let known = |count: Option<u8>| u64::from(count.expect("the compiler uses no other"));
            (known(row.pops), known(row.pushes))
        }
    }
}

fn one(compiled: &Compiled, handler: &Handler) -> Result<(), String> {
    let code = &compiled.code[..handler.end];
    let mut depths: BTreeMap<usize, u64> = BTreeMap::new();
    let mut open = vec![(handler.entry, 0)];
    while let Some((offset, depth)) = open.pop() {
        let instruction =
            Instruction::at(code, offset, Word::W8).ok_or(format!("{offset}: no instruction"))?;
        if let Some(before) = depths.get(&offset) {
            if *before != depth && instruction.op != Op::Abort {
                return Err(format!("{offset}: {before} or {depth} elements are on the stack"));
            }
            continue;
        }
        depths.insert(offset, depth);
        let (pops, pushes) = effect(&instruction);
        let Some(left) = depth.checked_sub(pops) else {
            return Err(format!("{offset}: {pops} elements are taken of {depth}"));
        };
        if matches!(instruction.op, Op::PushF | Op::PopF) && instruction.operand as usize + 8 > handler.frame
        {
            return Err(format!("{offset}: the frame has {} bytes", handler.frame));
        }
        let target = || {
            let target = instruction.target(code).filter(|target| *target >= handler.entry);
            target.ok_or(format!("{offset}: a jump leaves the handler"))
        };
        let after = left + pushes;
        match instruction.row().transfer {
            ControlFlow::None => open.push((instruction.next, after)),
            ControlFlow::Jump => open.push((target()?, after)),
            ControlFlow::Branch => open.extend([(target()?, after), (instruction.next, after)]),
            ControlFlow::End => {}
            other => return Err(format!("{offset}: {other:?}")),
        }
    }
    Ok(())
}
