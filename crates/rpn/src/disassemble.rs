//! The disassembler: object in, source text out, which compiles to the same object.
//!
//! It builds a [`Program`] and prints it. Labels are named `l0`, `l1` and so on. Invalid
//! instructions (in an object that the compiler did not make) become comments.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use source::SourceLocation;
use vm::{Decoded, Operand as Takes};

use crate::ast::{Body, Instruction, Item, Line, Operand, ProbePoint, Procedure, Program, Statement, Value};
use crate::check::{EXCPT_LOG, HEAPMAX, JMPMAX, LOGMAX, MAXHITS};
use crate::expression::{Binary, Expression, Name, Node, Unary};
use crate::keys::Key;
use crate::object::{Location, ModuleKind, Object, Probe};

/// Converts an object to source text: the file header, every probe with its header and handler,
/// every procedure.
///
/// Compiling the text for the same [`crate::Arch`] gives the object back. It never fails: invalid
/// instructions become comments.
pub fn disassemble(object: &Object) -> String {
    let mut items: Vec<(usize, Item)> = Vec::new();
    let decoder = Decoder::new(object);
    for probe in &object.probes {
        let body = decoder.body(probe.entry, probe.end);
        items.push((
            probe.entry,
            Item::Probe(ProbePoint { header: probe_header(probe, object.heapmax), body }),
        ));
    }
    for procedure in &object.procs {
        let body = decoder.body(procedure.entry, procedure.end);
        items.push((procedure.entry, Item::Procedure(Procedure { name: name(&procedure.name), body })));
    }
    items.sort_by_key(|(entry, _)| *entry);
    let items = items.into_iter().map(|(_, item)| item).collect();
    Program { header: file_header(object), items }.to_string()
}

fn name(text: &str) -> Name {
    Name { text: text.to_string(), place: SourceLocation::default() }
}

fn number(value: u64) -> Expression {
    Expression { node: Node::Number(value), place: SourceLocation::default() }
}

fn signed(value: i16) -> Expression {
    let magnitude = number(value.unsigned_abs().into());
    match value {
        0.. => magnitude,
        _ => Expression {
            node: Node::Unary(Unary::Minus, Box::new(magnitude)),
            place: SourceLocation::default(),
        },
    }
}

/// `symbol`, `symbol + 4` or `symbol - 4`.
fn symbol(text: &str, addend: i64) -> Expression {
    let symbol = Expression { node: Node::Symbol(name(text)), place: SourceLocation::default() };
    let operator = match addend {
        0 => return symbol,
        1.. => Binary::Add,
        _ => Binary::Subtract,
    };
    let operands = Box::new([symbol, number(addend.unsigned_abs())]);
    Expression { node: Node::Binary(operator, operands), place: SourceLocation::default() }
}

fn statement(key: Key, value: Value) -> Statement {
    Statement { key, place: SourceLocation::default(), value: Some(value), written: String::new() }
}

fn file_header(object: &Object) -> Vec<Statement> {
    let numbers = [
        (Key::Vars, u64::from(object.vars), 0),
        (Key::Gvars, object.gvars.into(), 0),
        (Key::Major, object.major.into(), 0),
        (Key::Id, object.id.into(), 0),
        (Key::Logmax, object.logmax as u64, LOGMAX as u64),
        (Key::Jmpmax, object.jmpmax.into(), JMPMAX.into()),
        (Key::Insmax, object.insmax.into(), vm::INSTRUCTIONS.into()),
        (Key::ExcptLog, object.excpt_log as u64, EXCPT_LOG as u64),
        (Key::Heapmax, object.heapmax as u64, HEAPMAX as u64),
    ];
    let names = |texts: &[String]| Value::Names(texts.iter().map(|text| name(text)).collect());
    let mut header = vec![
        statement(Key::Name, Value::Name(name(&object.module))),
        statement(Key::Modtype, Value::Name(name(object.kind.name()))),
    ];
    let told = numbers.into_iter().filter(|(_, value, default)| value != default);
    header.extend(told.map(|(key, value, _)| statement(key, Value::Number(number(value)))));
    if object.autostacktrace {
        header.push(statement(Key::Autostacktrace, Value::Name(name("yes"))));
    }
    for (key, texts) in [(Key::Groupdef, &object.groups), (Key::Typedef, &object.types)] {
        if !texts.is_empty() {
            header.push(statement(key, names(texts)));
        }
    }
    header
}

fn probe_header(probe: &Probe, heapmax: usize) -> Vec<Statement> {
    let (key, first, last) = match &probe.location {
        Location::Tracepoint { system, .. } => (Key::Tracepoint, symbol(system, 0), None),
        Location::Offset(value) => (Key::Offset, number(*value), None),
        Location::Symbol { name, addend } => (Key::Offset, symbol(name, *addend), None),
        Location::Points { function, .. } => (Key::Offset, symbol(function, 0), None),
        Location::Address(value) => (
            Key::Address,
            number(*value),
            probe.watch.map(|watch| number(value.saturating_add(last_byte(watch)))),
        ),
        Location::AddressSymbol { name, addend } => {
            let last =
                probe.watch.map(|watch| symbol(name, addend.saturating_add_unsigned(last_byte(watch))));
            (Key::Address, symbol(name, *addend), last)
        }
    };
    let place = match (&probe.location, last) {
        (Location::Points { function, point }, _) => {
            Value::Point(name(function), *point, SourceLocation::default())
        }
        (Location::Tracepoint { system, name: tracepoint }, _) => {
            Value::Tracepoint(name(system), name(tracepoint))
        }
        (_, Some(last)) => Value::Range(first, last),
        (_, None) => Value::Number(first),
    };
    let mut header = vec![statement(key, place)];
    let mut add = |key, value| header.push(statement(key, value));
    if let Some(watch) = probe.watch {
        add(Key::Watchpoint, Value::Name(name(watch.access.name())));
    }
    if let Some(opcode) = probe.opcode {
        add(Key::Opcode, Value::Number(number(opcode.into())));
    }
    for (key, value, default) in [
        (Key::Minor, probe.minor.into(), 0),
        (Key::Ignore, probe.ignore, 0),
        (Key::Maxhits, probe.maxhits, MAXHITS),
        (Key::ExcptMask, probe.mask.into(), vm::DEFAULT_MASK.into()),
        (Key::Heap, probe.heap as u64, heapmax as u64),
    ] {
        if value != default {
            add(key, Value::Number(number(value)));
        }
    }
    for (key, text) in [(Key::Group, &probe.group), (Key::Type, &probe.kind)] {
        if let Some(text) = text {
            add(key, Value::Name(name(text)));
        }
    }
    if probe.logonfault {
        add(Key::Logonfault, Value::Name(name("yes")));
    }
    header
}

fn last_byte(watch: crate::object::Watch) -> u64 {
    u64::from(watch.length.saturating_sub(1))
}

struct Decoder<'a> {
    object: &'a Object,
    /// Names of the procedures by entry.
    procedures: HashMap<usize, &'a str>,
    /// Symbols whose addresses the code holds, by the word's offset.
    symbols: HashMap<usize, Expression>,
}

impl<'a> Decoder<'a> {
    fn new(object: &'a Object) -> Decoder<'a> {
        let procedures = object.procs.iter().map(|it| (it.entry, it.name.as_str())).collect();
        let symbols = object.symbols.iter().map(|it| (it.offset, symbol(&it.name, it.addend))).collect();
        Decoder { object, procedures, symbols }
    }

    /// The instructions of a handler or procedure, with labels at the targets of jumps.
    fn body(&self, entry: usize, end: usize) -> Body {
        let end = end.min(self.object.code.len());
        let code = &self.object.code[..end];
        let decoded: Vec<Decoded> = vm::instructions(code, self.object.word()).from(entry).collect();
        let starts: BTreeSet<usize> = decoded.iter().map(|it| it.range().start).collect();
        let jumps = decoded.iter().filter_map(|it| it.instruction());
        let jumps = jumps.filter(|it| it.row().operand == Takes::Label);
        let targets = jumps.filter_map(|it| it.target(&self.object.code));
        let mut labels: BTreeMap<usize, String> =
            targets.filter(|target| starts.contains(target)).map(|target| (target, String::new())).collect();
        for (index, label) in labels.values_mut().enumerate() {
            *label = format!("l{index}");
        }
        let mut lines = Vec::new();
        for it in &decoded {
            if let Some(label) = labels.get(&it.range().start) {
                lines.push(Line::Label(name(label)));
            }
            lines.push(self.line(*it, &labels));
        }
        Body { lines }
    }

    fn line(&self, decoded: Decoded, labels: &BTreeMap<usize, String>) -> Line {
        let comment = |why: &str| {
            let bytes = &self.object.code[decoded.range()];
            let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Line::Comment(format!("{:#x}: {}: {why}", decoded.range().start, bytes.join(" ")))
        };
        let Some(instruction) = decoded.instruction() else { return comment("not an instruction") };
        let vm::Instruction { op, operand, offset, .. } = instruction;
        let target = instruction.target(&self.object.code);
        let value = match op.row().operand {
            Takes::None => None,
            Takes::Register => match self.object.arch.register_at(operand) {
                Some(register) => Some(Operand::Register(register, SourceLocation::default())),
                None => return comment("no such register"),
            },
            Takes::Field => match usize::try_from(operand).ok().and_then(|it| self.object.fields.get(it)) {
                Some(field) => Some(Operand::Field(name(field))),
                None => return comment("no such field"),
            },
            Takes::Label => match target.and_then(|target| labels.get(&target)) {
                Some(label) => Some(Operand::Target(name(label))),
                None => return comment("a jump to an offset where no instruction of this handler begins"),
            },
            Takes::Proc => match target.and_then(|target| self.procedures.get(&target)) {
                Some(procedure) => Some(Operand::Target(name(procedure))),
                None => return comment("a call of an offset where no procedure begins"),
            },
            Takes::Word
                if self.object.kind != ModuleKind::User && self.symbols.contains_key(&(offset + 1)) =>
            {
                Some(Operand::Number(self.symbols[&(offset + 1)].clone()))
            }
            Takes::S16 => Some(Operand::Number(signed(operand as u16 as i16))),
            _ => Some(Operand::Number(number(operand))),
        };
        Line::Instruction(Instruction { op, operand: value, place: SourceLocation::default() })
    }
}
