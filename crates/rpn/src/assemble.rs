//! The assembler: syntax tree in, bytecode out.
//!
//! ```text
//! opcode, 1 byte | operand, little-endian, as `vm::Operand` says
//! ```
//!
//! Handlers and procedures are laid out in source order. The first pass assigns offsets, the second
//! writes the instructions. A handler that could run past its end gets an `exit`, a procedure a
//! `ret`.

use std::collections::BTreeMap;

use source::{Diagnostic, Keep, Messages, Span, nearest, quote};
use vm::{Op, Operand as Takes, Word};

use crate::ast::{Body, Instruction, Item, Line, Operand, Procedure, Program, Statement};
use crate::check::{MAX_NAMES, show, within};
use crate::expression::{Expression, Name};
use crate::keys::Key;
use crate::object::{ModuleKind, Object, Proc, SymbolUse};
use crate::spellings::ARGUMENT;

/// Writes a program's code into `object`, which already has the headers.
pub(crate) fn assemble(program: &Program, object: &mut Object, messages: &mut Messages) {
    let layouts = lay_out(program, object.word());
    let procedures = find_procedures(program, &layouts, messages);
    object.procs = program
        .items
        .iter()
        .zip(&layouts)
        .filter_map(|(item, layout)| match item {
            Item::Procedure(Procedure { name, .. }) => {
                Some(Proc { name: name.text.clone(), entry: layout.start, end: layout.end })
            }
            Item::Probe(_) => None,
        })
        .collect();
    let has_tracepoints = program.items.iter().any(|item| match item {
        Item::Probe(probe) => probe.header.iter().any(|statement| statement.key == Key::Tracepoint),
        Item::Procedure(_) => false,
    });
    let mut probe = 0;
    for (item, layout) in program.items.iter().zip(&layouts) {
        let (body, start, is_procedure) = match item {
            Item::Probe(it) => {
                if let Some(probe) = object.probes.get_mut(probe) {
                    (probe.entry, probe.end) = (layout.start, layout.end);
                }
                probe += 1;
                (&it.body, it.header.first().map_or(Span::default(), Statement::span), false)
            }
            Item::Procedure(it) => (&it.body, it.name.place.span, true),
        };
        let labels = find_labels(body, layout, messages);
        let mut writer =
            Writer { object, messages, procedures: &procedures, labels, is_procedure, has_tracepoints };
        writer.body(body, layout, start);
    }
}

/// The layout of one handler or procedure in the code.
struct Layout {
    start: usize,
    end: usize,
    /// The offset of each line.
    lines: Vec<usize>,
    /// The instruction appended at the end.
    last: Option<Op>,
}

fn lay_out(program: &Program, word: Word) -> Vec<Layout> {
    let mut at = 0;
    let mut layouts = Vec::new();
    for item in &program.items {
        let (body, ending) = match item {
            Item::Probe(probe) => (&probe.body, Op::Exit),
            Item::Procedure(procedure) => (&procedure.body, Op::Ret),
        };
        let start = at;
        let mut lines = Vec::with_capacity(body.lines.len());
        let mut runs_off = true;
        for line in &body.lines {
            lines.push(at);
            if let Line::Instruction(instruction) = line {
                at += size(instruction.op, word);
                runs_off = !ends(instruction.op);
            }
        }
        let last = runs_off.then_some(ending);
        at += last.map_or(0, |op| size(op, word));
        layouts.push(Layout { start, end: at, lines, last });
    }
    layouts
}

fn size(op: Op, word: Word) -> usize {
    1 + op.row().operand.size(word.bytes())
}

/// Whether execution never continues after this instruction.
pub(crate) fn ends(op: Op) -> bool {
    !op.row().transfer.falls_through()
}

/// The procedures by lower-case name, with their names as written and their entries.
fn find_procedures(
    program: &Program,
    layouts: &[Layout],
    messages: &mut Messages,
) -> BTreeMap<String, (Name, usize)> {
    let mut procedures: BTreeMap<String, (Name, usize)> = BTreeMap::new();
    for (item, layout) in program.items.iter().zip(layouts) {
        let Item::Procedure(Procedure { name, .. }) = item else { continue };
        let key = name.text.to_ascii_lowercase();
        if let Some((first, _)) = procedures.get(&key) {
            messages.add(
                Diagnostic::error(
                    name.place,
                    format!("the procedure {} is defined twice", quote(&name.text)),
                )
                .label("expected another name")
                .related(first.place.span, "first defined here"),
            );
            continue;
        }
        procedures.insert(key, (name.clone(), layout.start));
    }
    procedures
}

/// A label: its name and place in the source, its offset in the code, and whether a jump goes
/// there.
struct Label {
    name: Name,
    offset: usize,
    used: bool,
}

/// The number in a name such as `arg0`, as other tracers call an argument.
fn argument(name: &str) -> Option<u8> {
    let number = name.strip_prefix(ARGUMENT)?;
    if number.is_empty() { Some(0) } else { number.parse().ok() }
}

fn find_labels(body: &Body, layout: &Layout, messages: &mut Messages) -> BTreeMap<String, Label> {
    let mut labels: BTreeMap<String, Label> = BTreeMap::new();
    let is_instruction = |line: &Line| matches!(line, Line::Instruction(_) | Line::Missing);
    let last = body.lines.iter().rposition(is_instruction);
    for (index, (line, offset)) in body.lines.iter().zip(&layout.lines).enumerate() {
        let Line::Label(name) = line else { continue };
        let key = name.text.to_ascii_lowercase();
        if let Some(first) = labels.get(&key) {
            messages.add(
                Diagnostic::error(name.place, format!("the label {} is defined twice", quote(&name.text)))
                    .label("expected another name")
                    .related(first.name.place.span, "first defined here")
                    .help("labels are known within their handler or procedure; case does not matter"),
            );
            continue;
        }
        if last.is_none_or(|last| last < index) {
            messages.add(
                Diagnostic::error(
                    name.place,
                    format!("no instruction follows the label {}", quote(&name.text)),
                )
                .label("expected an instruction after it"),
            );
        }
        labels.insert(key, Label { name: name.clone(), offset: *offset, used: false });
    }
    labels
}

/// Writes the code of one handler or procedure.
struct Writer<'a> {
    object: &'a mut Object,
    messages: &'a mut Messages,
    procedures: &'a BTreeMap<String, (Name, usize)>,
    labels: BTreeMap<String, Label>,
    is_procedure: bool,
    /// Whether the program has a probe at a tracepoint.
    has_tracepoints: bool,
}

impl Writer<'_> {
    /// Writes a body; `start` is where it begins in the source.
    fn body(&mut self, body: &Body, layout: &Layout, start: Span) {
        let mut last = start;
        for (line, offset) in body.lines.iter().zip(&layout.lines) {
            let Line::Instruction(instruction) = line else { continue };
            if self.messages.full() {
                return;
            }
            last = instruction.place.span;
            self.object.lines.push((*offset, last));
            self.instruction(instruction, *offset);
        }
        if let Some(op) = layout.last {
            let offset = self.object.code.len();
            self.object.lines.push((offset, last.after()));
            self.object.code.push(op as u8);
        }
        if self.messages.has_errors() {
            // An instruction that could not be parsed may be the one that uses the label.
            return;
        }
        let mut unused: Vec<&Label> = self.labels.values().filter(|label| !label.used).collect();
        unused.sort_by_key(|label| (label.offset, label.name.place.span.start));
        for label in unused {
            let name = &label.name;
            let warning =
                Diagnostic::warning(name.place, format!("nothing jumps to the label {}", quote(&name.text)));
            self.messages.add(warning.label("never used"));
        }
    }

    /// Writes an instruction. A wrong operand is reported and written as 0, so that offsets stay
    /// right.
    fn instruction(&mut self, instruction: &Instruction, offset: usize) {
        let op = instruction.op;
        if op == Op::Ret && !self.is_procedure {
            let warning = Diagnostic::warning(instruction.place, "`ret` outside of a procedure");
            self.messages.add(warning.label("there is no call to return from; `exit` ends a handler"));
        }
        crate::context::instruction(op, instruction.place, self.object).or_report(self.messages);
        let bytes = op.row().operand.size(self.object.word().bytes());
        let value = match &instruction.operand {
            None => Ok(0),
            Some(Operand::Number(expression)) => self.number(op, expression, offset + 1),
            Some(Operand::Register(register, place)) => {
                let checked = crate::context::register(op, register, *place, self.object);
                checked.map(|()| u64::from(register.index))
            }
            Some(Operand::Field(name)) => self.field(name),
            Some(Operand::Target(name)) => {
                self.target(op, name).map(|target| target.wrapping_sub(offset + 1 + bytes) as u64)
            }
        };
        let value = value.or_report(self.messages).unwrap_or(0);
        self.object.code.push(op as u8);
        self.object.code.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }

    /// A number operand, checked against the instruction's limits.
    fn number(&mut self, op: Op, expression: &Expression, at: usize) -> Result<u64, Diagnostic> {
        let word = self.object.word();
        let row = op.row();
        let name = row.name;
        let number = match row.operand {
            Takes::U8 if op == Op::ExitTo => {
                within(expression, "the facility of `exit`", 1..=3).map_err(|wrong| {
                    wrong.help("1 is the kernel debugger, 2 a crash dump, 3 a core dump of the process")
                })?
            }
            Takes::U8 => within(expression, &format!("the count of `{name}`"), 0..=0xff)?,
            Takes::U16 => within(expression, &format!("the operand of `{name}`"), 0..=0xffff)?,
            // Two's complement; only the low two bytes are written.
            Takes::S16 => within(expression, &format!("the operand of `{name}`"), -0x8000..=0x7fff)? & 0xffff,
            Takes::Local => self.variable(expression, "local", "vars", self.object.vars)?,
            Takes::Global => self.variable(expression, "global", "gvars", self.object.gvars)?,
            Takes::Bit => within(expression, "a bit position", 1..=i128::from(word.bits()))?,
            Takes::Word => return self.word(expression, at),
            // The parser produces no number for these.
            Takes::None | Takes::Register | Takes::Label | Takes::Proc | Takes::Field => 0,
        };
        Ok(u64::try_from(number).unwrap_or(0))
    }

    fn variable(
        &self,
        expression: &Expression,
        which: &str,
        key: &str,
        count: u16,
    ) -> Result<i128, Diagnostic> {
        let index = expression.value()?.plain()?;
        if (0..i128::from(count)).contains(&index) {
            return Ok(index);
        }
        let (label, help) = match count {
            0 => (
                format!("the program declares no {which} variables"),
                format!("add `{key} = {}` to the file header", show(index.clamp(0, 65534) + 1)),
            ),
            _ => (
                format!("expected 0 to {}", count - 1),
                format!("the file header declares `{key} = {count}`; indices start at 0"),
            ),
        };
        let message = format!("there is no {which} variable {}", show(index));
        Err(Diagnostic::error(expression.place, message).label(label).help(help))
    }

    /// The index of a field's name in the object's list, to which it adds a new name.
    fn field(&mut self, name: &Name) -> Result<u64, Diagnostic> {
        // In user programs the instruction itself is refused.
        if !self.has_tracepoints && self.object.kind != ModuleKind::User {
            let wrong = Diagnostic::error(name.place, "`push field` in a program without a tracepoint");
            return Err(wrong
                .label("no probe has a record with fields")
                .help("a probe at a tracepoint begins with `tracepoint = SYSTEM:NAME`"));
        }
        let fields = &mut self.object.fields;
        let index = fields.iter().position(|field| *field == name.text).unwrap_or_else(|| {
            fields.push(name.text.clone());
            fields.len() - 1
        });
        if index >= MAX_NAMES {
            return Err(Diagnostic::error(name.place, "too many fields")
                .label(format!("expected at most {MAX_NAMES} different names")));
        }
        Ok(index as u64)
    }

    /// A word operand: a number that fits, or, in kernel programs, a symbol's address.
    fn word(&mut self, expression: &Expression, at: usize) -> Result<u64, Diagnostic> {
        let word = self.object.word();
        let value = expression.value()?;
        let Some(symbol) = value.symbol else {
            let half = 1i128 << (word.bits() - 1);
            if !(-half..2 * half).contains(&value.number) {
                return Err(Diagnostic::error(
                    expression.place,
                    format!("{} does not fit in a word", show(value.number)),
                )
                .label(format!("the probed program's word has {} bits", word.bits())));
            }
            // Negative numbers in two's complement.
            return Ok(word.truncate(value.number as u64));
        };
        if self.object.kind == ModuleKind::User {
            let words = vm::TABLE.iter().filter_map(|row| row.name.strip_prefix("push "));
            let words = words.map(|rest| rest.split(',').next().unwrap_or(rest));
            let near = nearest(&symbol.text, words).map(|near| format!("push {near}"));
            let wrong = Diagnostic::error(
                expression.place,
                format!("the symbol {} cannot be pushed in a user program", quote(&symbol.text)),
            )
            .label("expected a number")
            .help("`push SYMBOL` is for the symbols of the kernel (`modtype = kernel` or `kmod`)");
            return Err(match argument(&symbol.text) {
                Some(number) => wrong.help(format!("write `push {ARGUMENT}, {number}`")),
                None => wrong.suggest(near),
            });
        }
        let addend = i64::try_from(value.number).map_err(|_| {
            Diagnostic::error(expression.place, "this offset from its symbol is too large")
                .label("does not fit in 64 bits")
        })?;
        self.object.symbols.push(SymbolUse { offset: at, name: symbol.text, addend });
        Ok(0)
    }

    /// The offset of a jump's or call's target.
    fn target(&mut self, op: Op, name: &Name) -> Result<usize, Diagnostic> {
        let key = name.text.to_ascii_lowercase();
        let shown = quote(&name.text);
        if op.row().operand == Takes::Proc {
            if let Some((_, entry)) = self.procedures.get(&key) {
                return Ok(*entry);
            }
            let names = self.procedures.values().map(|(name, _)| name.text.as_str());
            let wrong = Diagnostic::error(name.place, format!("no procedure is called {shown}"))
                .label("expected the name of a `proc`");
            return Err(match self.labels.contains_key(&key) {
                true => wrong.help(format!("{shown} is a label: `jmp` goes there, `call` takes a procedure")),
                false => wrong.suggest(nearest(&name.text, names)),
            });
        }
        if let Some(label) = self.labels.get_mut(&key) {
            label.used = true;
            return Ok(label.offset);
        }
        let names = self.labels.values().map(|label| label.name.text.as_str());
        let wrong = Diagnostic::error(name.place, format!("there is no label {shown} here"))
            .label("expected a label of this handler or procedure");
        Err(match self.procedures.contains_key(&key) {
            true => wrong.help(format!("{shown} is a procedure: `call {}`", name.text)),
            false => wrong.suggest(nearest(&name.text, names)),
        })
    }
}
