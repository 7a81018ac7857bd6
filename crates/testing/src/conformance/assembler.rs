//! A small assembler over the instruction table, enough for the case files.
//!
//! A line is `label:`, an instruction by its name in the table (commas do not matter), or both; or
//! `bytes ITEM...`, raw code. Lines between `repeat N` and `end` are repeated N times, with `{i}`
//! replaced by the iteration's number from 0 on and `{j}` by the next. A jump's operand is a label,
//! or `+N` or `-N` from the byte after the operand.

use super::text::{self, Labels};
use vm::{Op, Operand, Register, Row, TABLE, Word};

/// Bytecode and its source information.
#[derive(Debug, Default)]
pub struct Assembled {
    /// The bytecode.
    pub code: Vec<u8>,
    /// The offset of each label.
    pub labels: Labels,
    /// Its instructions in the order of the text, without raw bytes.
    pub ops: Vec<Op>,
}

/// Assembles `lines` for a word.
pub fn assemble(lines: &[String], word: Word) -> Assembled {
    let lines = unroll(lines);
    // Sizes do not depend on labels: the first pass finds the labels, the second uses them.
    let first = pass(&lines, word, None);
    pass(&lines, word, Some(&first.labels))
}

/// Expands repeated lines.
fn unroll(lines: &[String]) -> Vec<String> {
    let mut unrolled = Vec::new();
    let mut rest = lines.iter();
    while let Some(line) = rest.next() {
        let Some(count) = line.trim().strip_prefix("repeat ") else {
            unrolled.push(line.clone());
            continue;
        };
        let count: usize = count.trim().parse().expect("repeat takes a number");
        let block: Vec<_> = rest.by_ref().take_while(|line| line.trim() != "end").collect();
        for round in 0..count {
            let (this, next) = (round.to_string(), (round + 1).to_string());
            unrolled.extend(block.iter().map(|line| line.replace("{i}", &this).replace("{j}", &next)));
        }
    }
    unrolled
}

fn pass(lines: &[String], word: Word, known: Option<&Labels>) -> Assembled {
    let mut assembled = Assembled::default();
    for line in lines {
        let mut tokens = text::tokens(&line.replace(',', " "));
        while let Some(label) = tokens.first().and_then(|token| token.strip_suffix(':')) {
            let place = assembled.code.len() as u64;
            assert!(assembled.labels.insert(label.into(), place).is_none(), "label {label} twice");
            tokens.remove(0);
        }
        match tokens.first().map(String::as_str) {
            None => {}
            Some("bytes") => {
                let none = Labels::new();
                assembled.code.extend(text::bytes(&tokens[1..], word, known.unwrap_or(&none)));
            }
            Some(_) => {
                let (row, operand) = find(&tokens);
                assembled.ops.push(row.op);
                assembled.code.push(row.op as u8);
                let after = assembled.code.len() + row.operand.size(word.bytes());
                let value = match (operand, row.operand) {
                    (None, _) => 0,
                    (Some(name), Operand::Register) => register(name),
                    (Some(name), Operand::Label | Operand::Proc) => distance(name, after, word, known),
                    (Some(digits), _) => text::number(digits, word, known.unwrap_or(&Labels::new())),
                };
                let size = row.operand.size(word.bytes());
                assembled.code.extend(&value.to_le_bytes()[..size]);
            }
        }
    }
    assembled
}

/// The table row that a line names (the longest match), and its operand.
fn find(tokens: &[String]) -> (&'static Row, Option<&str>) {
    let matches = |row: &&Row| {
        let name: Vec<_> = row.name.split([' ', ',']).filter(|part| !part.is_empty()).collect();
        let operands = usize::from(row.operand != Operand::None);
        tokens.len() == name.len() + operands && tokens.iter().zip(&name).all(|(token, part)| token == part)
    };
    let row = TABLE.iter().filter(matches).max_by_key(|row| row.name.len());
    let row = row.unwrap_or_else(|| panic!("no instruction is `{}`", tokens.join(" ")));
    (row, (row.operand != Operand::None).then(|| tokens[tokens.len() - 1].as_str()))
}

/// A register's index from its name, or a number for an invalid register.
fn register(name: &str) -> u64 {
    match Register::from_name(name) {
        Some(register) => register as u64,
        None => text::number(name, Word::W8, &Labels::new()),
    }
}

/// The distance of a jump from the byte after its operand.
fn distance(name: &str, after: usize, word: Word, known: Option<&Labels>) -> u64 {
    if name.starts_with(['+', '-']) {
        return text::number(name, word, &Labels::new());
    }
    let Some(labels) = known else { return 0 };
    let place = labels.get(name).unwrap_or_else(|| panic!("no label is `{name}`"));
    place.wrapping_sub(after as u64)
}
