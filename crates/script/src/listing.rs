//! The bytecode of a compiled script as text.
//!
//! ```text
//! uprobe:libc:malloc:
//!                             // @ = count();
//!        0  push 1
//!        9  push 0
//!       18  push 0
//!       27  update 0          // @
//!       30  abort
//! ```

use std::collections::BTreeSet;
use std::fmt::Write;

use vm::{Decoded, Group, Instruction, Op, Operand, Register, Word};

use crate::compiled::Compiled;

/// The column at which comments begin.
const COMMENTS: usize = 36;

/// The bytecode of a compiled script: addresses, instructions and operands. Where a statement
/// begins, a comment has its text.
pub fn listing(compiled: &Compiled) -> String {
    let decoded: Vec<Decoded> = vm::instructions(&compiled.code, Word::W8).collect();
    let targets: BTreeSet<usize> =
        decoded.iter().filter_map(|decoded| decoded.instruction()?.target(&compiled.code)).collect();
    let mut out = String::new();
    let mut notes = compiled.notes.iter().peekable();
    for decoded in decoded {
        let offset = decoded.range().start;
        for handler in compiled.handlers.iter().filter(|handler| handler.entry == offset) {
            if !out.is_empty() {
                out.push('\n');
            }
            let points: Vec<String> = handler.points.iter().map(ToString::to_string).collect();
            line(&mut out, &format!("{}:  // frame: {} bytes", points.join(",\n"), handler.frame));
        }
        while let Some((_, text)) = notes.next_if(|(at, _)| *at <= offset) {
            line(&mut out, &format!("{:COMMENTS$}// {}", "", source::printable(text)));
        }
        let label = if targets.contains(&offset) { ':' } else { ' ' };
        let text = match decoded {
            Decoded::Instruction(instruction) => shown(compiled, &instruction),
            Decoded::Unknown(_) => ("?".to_string(), String::new()),
        };
        let (instruction, comment) = text;
        let instruction = format!("{offset:8}{label} {instruction}");
        match comment.as_str() {
            "" => line(&mut out, &instruction),
            comment => line(&mut out, &format!("{instruction:COMMENTS$}// {comment}")),
        }
    }
    out
}

fn line(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{}", text.trim_end());
}

/// An instruction, and what its operand names.
fn shown(compiled: &Compiled, instruction: &Instruction) -> (String, String) {
    let row = instruction.row();
    let operand = instruction.operand;
    let text = match row.operand {
        Operand::None => String::new(),
        Operand::Register => match u16::try_from(operand).ok().and_then(Register::from_index) {
            Some(register) => register.name().to_string(),
            None => operand.to_string(),
        },
        Operand::Label | Operand::Proc => match instruction.target(&compiled.code) {
            Some(target) => target.to_string(),
            None => "?".to_string(),
        },
        // A value that is negative, or that is more than a count, is easier to read in this form.
        Operand::Word if operand > 0xffff_ffff => format!("{operand:#x}"),
        _ => operand.to_string(),
    };
    let index = usize::try_from(operand).unwrap_or(usize::MAX);
    let map = compiled.maps.get(index).filter(|_| row.group == Group::Map);
    let comment = map.map_or(String::new(), |map| match instruction.op {
        Op::StackOf | Op::KStackOf | Op::Depth => "stacks".to_owned(),
        _ => format!("@{}", map.name),
    });
    let space = if text.is_empty() { "" } else { " " };
    (format!("{}{space}{text}", row.name), comment)
}
