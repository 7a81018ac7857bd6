//! Compiles a handler: its functions in order.
//!
//! In: a `Handler`, its bytecode, and what it is compiled for (`Target`). Out: `Compiled`, the
//! instructions of an eBPF program; or a `Refusal`.
//!
//! ```text
//!     program     filter, count, claim a context, run steps, write the record, release
//!     step        one round of bpf_loop: calls the part, or the routines, that the field Next names
//!     part 0..    the bytecode, cut into parts
//!     routines    what the parts use
//! ```

use std::collections::BTreeMap;

use bpf::{Code, Cond, Label, Reg};

use crate::compiler::Compiler;
use crate::emit::{CONTEXT, Emit, REGISTERS, Top};
use crate::handler::{Handler, Target};
use crate::layout::{Field, Layout};
use crate::micro;
use crate::nodes::Nodes;
use crate::refusal::{Reason, Refusal};
use crate::routine::{self, Uses};
use crate::table_code;
use crate::tracepoints::FieldAccess;

/// The most bytes of bytecode.
const CODE_LIMIT: usize = 1 << 20;

/// A handler as an eBPF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Its instructions. They name maps by their index in the list of [`crate::Maps`].
    pub code: Code,
    /// What it was compiled for; sleepable only if it reads memory of the process.
    pub target: Target,
    pub(crate) layout: Layout,
}

/// Compiles a handler.
///
/// # Errors
/// If the handler can reach an instruction that cannot be done in the kernel.
pub fn compile(handler: &Handler<'_>, target: &Target) -> Result<Compiled, Refusal> {
    compile_for_tracepoint(handler, target, &[])
}

/// Compiles a handler for a tracepoint: [`crate::AttachKind::Tracepoint`]. For each of
/// [`rpn::Object::fields`], `fields` says how the tracepoint's record has it, if it does.
///
/// # Errors
/// If the handler can reach an instruction that cannot be done there.
pub fn compile_for_tracepoint(
    handler: &Handler<'_>,
    target: &Target,
    fields: &[Option<FieldAccess>],
) -> Result<Compiled, Refusal> {
    let too_long = Refusal { reason: Reason::TooLong, offset: handler.entry };
    if handler.code.len() > CODE_LIMIT {
        return Err(too_long);
    }
    let nodes = Nodes::of(handler);
    if nodes.too_long {
        return Err(too_long);
    }
    let mut e = Emit::new(handler.word);
    let labels = nodes.list.keys().map(|&offset| (offset, e.asm.label())).collect();
    let layout = Layout::of(handler);
    let table_functions = BTreeMap::new();
    let mut compiler =
        Compiler { e, handler, target, fields, layout, nodes, labels, clear: None, table_functions };
    compiler.functions()?;
    // The kernel protects a program that may sleep in another way, which takes longer.
    let target = Target { sleepable: target.sleepable && compiler.e.reads, ..*target };
    let code = compiler.e.asm.finish().map_err(|_| too_long)?;
    Ok(Compiled { code, target, layout })
}

impl Compiler<'_> {
    /// Emits all functions.
    fn functions(&mut self) -> Result<(), Refusal> {
        let step = self.e.asm.label();
        self.program(step);
        let parts: Vec<Label> = (0..self.nodes.parts).map(|_| self.e.asm.label()).collect();
        let routines = self.e.asm.label();
        self.step(step, &parts, routines);
        for (part, &label) in parts.iter().enumerate() {
            self.part(part, label)?;
        }
        self.routines(routines);
        table_code::emit(self);
        Ok(())
    }

    /// Emits one round of `bpf_loop`:
    ///
    /// ```text
    ///     step(round, frame): context = frame[0]; registers = frame[1]
    ///         switch (context.next) { part or routines }(context, registers)
    /// ```
    fn step(&mut self, label: Label, parts: &[Label], routines: Label) {
        self.e.asm.function(label);
        self.e.load(bpf::Size::Double, CONTEXT, Reg::R2, 0);
        self.e.load(bpf::Size::Double, Reg::R2, Reg::R2, 8);
        self.e.mov(Reg::R1, CONTEXT);
        self.e.get(Reg::R3, Field::Next);
        let starts = self.nodes.starts();
        let mut cases: Vec<(usize, Label)> = Vec::new();
        let ends: Vec<Label> = (0..=parts.len()).map(|_| self.e.asm.label()).collect();
        cases.extend(starts.iter().copied().zip(ends.iter().copied()));
        cases.push((routine::FIRST as usize, ends[parts.len()]));
        self.search(&cases);
        for (&end, &function) in ends.iter().zip(parts.iter().chain([&routines])) {
            self.e.asm.bind(end);
            self.e.asm.call_function(function);
            self.e.asm.exit();
        }
    }

    /// Jumps to the label of the last case that is not above `R3`. The cases ascend.
    fn search(&mut self, cases: &[(usize, Label)]) {
        if let [(_, label)] = cases {
            return self.e.asm.jump(*label);
        }
        let (low, high) = cases.split_at(cases.len() / 2);
        let Some(&(start, _)) = high.first() else { return };
        let upper = self.e.asm.label();
        self.e.jump_if(Cond::Ge, Reg::R3, start as i32, upper);
        self.search(low);
        self.e.asm.bind(upper);
        self.search(high);
    }

    /// Begins a function that is called with the context and the registers, and jumps to one of
    /// several labels by the number in the field Next.
    fn dispatch(&mut self, label: Label, cases: &[(usize, Label)]) {
        self.e.asm.function(label);
        self.e.mov(CONTEXT, Reg::R1);
        self.e.mov(REGISTERS, Reg::R2);
        self.e.get(Reg::R3, Field::Next);
        self.search(cases);
    }

    /// Emits a part of the bytecode.
    fn part(&mut self, part: usize, label: Label) -> Result<(), Refusal> {
        let nodes = self.nodes.list.iter().filter(|(_, node)| node.part == part);
        let here: Vec<_> = nodes.map(|(&offset, &node)| (offset, node)).collect();
        let entries = here.iter().filter(|(_, node)| node.entry);
        let mut entries: Vec<_> = entries.map(|(offset, _)| (*offset, self.labels[offset])).collect();
        if entries.is_empty() {
            // Only jumps that are never taken lead here.
            let Some((offset, _)) = here.first() else { return Ok(()) };
            entries.push((*offset, self.labels[offset]));
        }
        self.dispatch(label, &entries);
        for (offset, node) in here {
            self.e.asm.bind(self.labels[&offset]);
            if node.joined || node.top.is_some() {
                self.e.top = node.top.map_or(Top::Above(0), Top::Known);
            }
            self.e.asm.source(Some(offset as u32));
            self.node(offset, &node)?;
        }
        self.e.asm.source(None);
        self.e.emit_raises();
        Ok(())
    }

    /// Emits the routines that are used.
    fn routines(&mut self, label: Label) {
        // Which are used is only known when all have been emitted, so all are numbered first.
        let mut bodies = Vec::new();
        let mut emitted = Uses::default();
        let mut labels: Vec<(usize, Label)> = Vec::new();
        let all = self.all_uses();
        for micro in all.without(Uses::default()) {
            labels.push((micro.number() as usize, self.e.asm.label()));
            bodies.push(micro);
        }
        if bodies.is_empty() {
            self.e.asm.function(label);
            return self.e.end_step();
        }
        self.dispatch(label, &labels);
        for (micro, (_, label)) in bodies.into_iter().zip(labels) {
            emitted.add(micro);
            self.e.asm.bind(label);
            self.e.top = Top::Above(0);
            micro::emit(micro, self);
            self.e.emit_raises();
        }
        debug_assert_eq!(self.e.uses.without(emitted).count(), 0);
    }

    /// The routines that the parts use, and those that these use.
    fn all_uses(&mut self) -> Uses {
        let mut trial = Compiler {
            e: Emit::new(self.handler.word),
            handler: self.handler,
            target: self.target,
            fields: self.fields,
            layout: self.layout,
            nodes: Nodes { list: BTreeMap::new(), ..self.nodes },
            labels: BTreeMap::new(),
            clear: None,
            table_functions: BTreeMap::new(),
        };
        trial.e.uses = self.e.uses;
        let mut done = Uses::default();
        loop {
            let next: Vec<_> = trial.e.uses.without(done).collect();
            if next.is_empty() {
                return trial.e.uses;
            }
            for micro in next {
                done.add(micro);
                trial.e.top = Top::Above(0);
                micro::emit(micro, &mut trial);
                trial.e.emit_raises();
            }
        }
    }
}
