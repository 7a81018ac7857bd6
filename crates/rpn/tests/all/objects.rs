//! Random valid objects: those that the compiler could have made.

use dprobes_rpn::{
    Access, Arch, FunctionPoint, Location, ModuleKind, Object, Probe, Proc, Register, SymbolUse, Watch,
};
use proptest::prelude::*;
use vm::{Op, Operand, TABLE};

/// An instruction that is completed once the number of instructions and procedures is known.
#[derive(Clone, Debug)]
struct Draft {
    row: usize,
    value: u64,
}

fn draft() -> impl Strategy<Value = Draft> {
    (0..TABLE.len(), any::<u64>()).prop_map(|(row, value)| Draft { row, value })
}

fn location() -> impl Strategy<Value = Location> {
    let name = prop_oneof![
        "[a-z_][a-z0-9_.@$]{0,8}",
        "[ -~]{1,12}",
        Just("operator new(unsigned long)".to_string())
    ];
    let offset = any::<u64>().prop_map(FunctionPoint::Offset);
    let point = prop_oneof![
        Just(FunctionPoint::Entry),
        Just(FunctionPoint::Return),
        Just(FunctionPoint::Each),
        offset
    ];
    let points = (name.clone(), point).prop_map(|(function, point)| Location::Points { function, point });
    let symbol = (name, prop_oneof![Just(0), any::<i64>(), -100..100i64]);
    let tracepoint = ("[a-z9][a-z0-9_]{0,5}", "[a-z_*?-]{1,8}")
        .prop_map(|(system, name)| Location::Tracepoint { system, name });
    prop_oneof![
        tracepoint,
        any::<u64>().prop_map(Location::Offset),
        symbol.clone().prop_map(|(name, addend)| Location::Symbol { name, addend }),
        any::<u64>().prop_map(Location::Address),
        symbol.prop_map(|(name, addend)| Location::AddressSymbol { name, addend }),
        points,
    ]
}

fn probe() -> impl Strategy<Value = Probe> {
    let access = prop::sample::select(vec![Access::Execute, Access::Write, Access::ReadWrite, Access::Io]);
    let watch = prop::option::of((access, prop::sample::select(vec![1u8, 2, 4])));
    let counts =
        (0..=65535u32, prop_oneof![Just(0), any::<u64>()], prop_oneof![Just(0x7fff_ffff), 1..=u64::MAX]);
    let opcode = prop::option::of(any::<u32>());
    let member = prop::option::of(prop::sample::select(vec!["alpha".to_string(), "beta".to_string()]));
    let rest = (opcode, member.clone(), member, any::<bool>(), any::<u16>(), any::<usize>());
    (location(), watch, counts, rest).prop_map(|(location, watch, (minor, ignore, maxhits), rest)| {
        let (opcode, group, kind, logonfault, mask, heap) = rest;
        let watch = watch.map(|(access, length)| {
            let length = if access == Access::Execute { 1 } else { length };
            Watch { access, length }
        });
        Probe {
            point: String::new(),
            location,
            watch,
            opcode,
            minor,
            group,
            kind,
            ignore,
            maxhits,
            logonfault,
            mask,
            heap,
            entry: 0,
            end: 0,
            span: Default::default(),
            sites: Vec::new(),
        }
    })
}

/// Valid objects: handlers and procedures in any order, jumps within each, calls between all.
pub(crate) fn object() -> impl Strategy<Value = Object> {
    let header = (
        "[ -~]{1,20}",
        prop::sample::select(vec![ModuleKind::User, ModuleKind::Kernel, ModuleKind::KernelModule]),
        prop::sample::select(Arch::ALL),
        (any::<u16>(), any::<u16>(), 0..=65535u32, any::<u32>(), 0..=32768usize, 0..=65535u32),
        (0..=32768usize, any::<bool>(), 0..=16384usize, 0..=1_073_741_824u32),
    );
    let bodies =
        prop::collection::vec((prop::option::of(probe()), prop::collection::vec(draft(), 0..20)), 1..6);
    (header, probe(), bodies).prop_map(|((module, kind, arch, numbers, more), first, mut bodies)| {
        let (vars, gvars, major, id, logmax, jmpmax) = numbers;
        let (excpt_log, autostacktrace, heapmax, insmax) = more;
        bodies.push((Some(first), Vec::new()));
        let mut object = Object {
            module,
            kind,
            arch,
            vars,
            gvars,
            major,
            id,
            logmax,
            jmpmax,
            insmax,
            excpt_log,
            autostacktrace,
            heapmax,
            groups: vec!["alpha".into(), "beta".into()],
            types: vec!["alpha".into(), "beta".into()],
            ..Object::default()
        };
        fill(&mut object, bodies);
        object
    })
}

/// The instruction of a draft; `nop` if the object declares too little for it.
fn op_of(draft: &Draft, object: &Object, procedures: usize, has_fields: bool) -> Op {
    let row = &TABLE[draft.row % TABLE.len()];
    let missing = match row.operand {
        Operand::Local => object.vars == 0,
        Operand::Global => object.gvars == 0,
        Operand::Proc => procedures == 0,
        Operand::Field => !has_fields,
        _ => !can_be_used(row.name, object),
    };
    if missing { Op::Nop } else { row.op }
}

/// Whether the manual allows the instruction in such a program: I/O and selectors are IA32 only,
/// and user mode has no I/O and no task structure. (`callk` calls plugins, which user programs have
/// too.)
fn can_be_used(name: &str, object: &Object) -> bool {
    let io = ["push io, u8", "push io, u16", "push io, u32", "pop io, u8", "pop io, u16", "pop io, u32"];
    let intel = matches!(object.arch, Arch::I386 | Arch::X86_64);
    let user = object.kind == ModuleKind::User;
    (intel || !(io.contains(&name) || name == "seg2lin"))
        && !(user && (io.contains(&name) || name == "push task"))
}

/// Whether the appendices allow the instruction for the register; in user programs both contexts
/// are the same.
fn fits(op: Op, register: &Register, object: &Object) -> bool {
    let uses = register.uses;
    let pops = matches!(op, Op::PopR | Op::PopU);
    if object.kind == ModuleKind::User {
        let msr = register.name == "msr" && matches!(object.arch, Arch::I386 | Arch::X86_64);
        return if pops { uses.pop_u } else { uses.push_u && !msr };
    }
    match op {
        Op::PushR => uses.push_r,
        Op::PushU => uses.push_u,
        Op::PopR => uses.pop_r,
        _ => uses.pop_u,
    }
}

/// Whether a probe has a record with fields.
fn has_tracepoints(bodies: &[(Option<Probe>, Vec<Draft>)]) -> bool {
    let at_tracepoint = |probe: &Probe| matches!(probe.location, Location::Tracepoint { .. });
    bodies.iter().any(|(probe, _)| probe.as_ref().is_some_and(at_tracepoint))
}

/// Writes the code: first assigns offsets, then writes the bytes.
fn fill(object: &mut Object, mut bodies: Vec<(Option<Probe>, Vec<Draft>)>) {
    let bytes = object.word().bytes();
    let size = |op: Op| 1 + op.row().operand.size(bytes);
    if object.kind != ModuleKind::Kernel {
        for probe in bodies.iter_mut().filter_map(|(probe, _)| probe.as_mut()) {
            if matches!(probe.location, Location::Tracepoint { .. }) {
                probe.location = Location::Offset(0);
            }
        }
    }
    let has_fields = has_tracepoints(&bodies);
    let procedures = bodies.iter().filter(|(probe, _)| probe.is_none()).count();
    let mut at = 0;
    let mut laid: Vec<Vec<(usize, Op, u64)>> = Vec::new();
    for (probe, drafts) in bodies {
        let last = if probe.is_some() { Op::Exit } else { Op::Ret };
        let ops = drafts
            .iter()
            .map(|draft| (op_of(draft, object, procedures, has_fields), draft.value))
            .chain([(last, 0)]);
        let mut lines = Vec::new();
        for (op, value) in ops {
            lines.push((at, op, value));
            at += size(op);
        }
        let entry = lines[0].0;
        match probe {
            Some(probe) => object.probes.push(settle(Probe { entry, end: at, ..probe }, object)),
            None => {
                object.procs.push(Proc { name: format!("p{}", object.procs.len()), entry, end: at });
            }
        }
        laid.push(lines);
    }
    for lines in &laid {
        for &(at, op, value) in lines {
            object.lines.push((at, Default::default()));
            let operand = operand(object, op, value, at, lines);
            object.code.push(op as u8);
            object.code.extend_from_slice(&operand.to_le_bytes()[..op.row().operand.size(bytes)]);
        }
    }
}

fn operand(object: &mut Object, op: Op, value: u64, at: usize, lines: &[(usize, Op, u64)]) -> u64 {
    let end = at + 1 + op.row().operand.size(object.word().bytes());
    let pick = |count: usize| value as usize % count;
    match op.row().operand {
        Operand::None => 0,
        Operand::U8 if op == Op::ExitTo => 1 + value % 3,
        Operand::U8 => value % 256,
        Operand::U16 | Operand::S16 => value % 65536,
        Operand::Local => value % u64::from(object.vars),
        Operand::Global => value % u64::from(object.gvars),
        Operand::Bit => 1 + value % u64::from(object.word().bits()),
        Operand::Register => {
            let registers = object.arch.registers().iter();
            let fitting: Vec<&Register> = registers.filter(|it| fits(op, it, object)).collect();
            fitting[pick(fitting.len())].index.into()
        }
        Operand::Word if object.kind != ModuleKind::User && value.is_multiple_of(4) => {
            let symbols =
                ["nr_free_pages", "task", "R", "x", "b", "Rax", "a b", "push", "proc", "name", "field"];
            let addend = (value as i64) >> 40;
            object.symbols.push(SymbolUse {
                offset: at + 1,
                name: symbols[pick(symbols.len())].into(),
                addend,
            });
            0
        }
        Operand::Field => {
            let names = ["common_pid", "ret", "push", "Ret", "a b"];
            let name = names[pick(names.len())];
            let known = object.fields.iter().position(|it| it == name);
            known.unwrap_or_else(|| {
                object.fields.push(name.into());
                object.fields.len() - 1
            }) as u64
        }
        Operand::Word => object.word().truncate(value),
        Operand::Label => (lines[pick(lines.len())].0.wrapping_sub(end)) as u64,
        Operand::Proc => (object.procs_entry(value).wrapping_sub(end)) as u64,
    }
}

trait Entries {
    fn procs_entry(&self, value: u64) -> usize;
}

impl Entries for Object {
    fn procs_entry(&self, value: u64) -> usize {
        self.procs[value as usize % self.procs.len()].entry
    }
}

/// Makes a probe valid: watchpoints only where allowed, on aligned addresses; numbers within the
/// word.
fn settle(mut probe: Probe, object: &Object) -> Probe {
    let ports = probe.watch.is_some_and(|watch| watch.access == Access::Io);
    if (object.kind == ModuleKind::User && ports)
        || !matches!(object.arch, Arch::I386 | Arch::X86_64)
        || matches!(probe.location, Location::Offset(_) | Location::Symbol { .. } | Location::Points { .. })
    {
        probe.watch = None;
    }
    if matches!(probe.location, Location::Tracepoint { .. }) {
        (probe.watch, probe.opcode) = (None, None);
    }
    let length = probe.watch.map_or(1, |watch| u64::from(watch.length));
    if let Location::Offset(number) | Location::Address(number) = &mut probe.location {
        *number = object.word().truncate(*number) / length * length;
    }
    if let Location::AddressSymbol { addend, .. } = &mut probe.location {
        *addend = (*addend).min(i64::MAX - 8);
    }
    probe.heap = probe.heap.min(object.heapmax);
    probe.opcode = probe.opcode.map(|opcode| match object.arch {
        // Not int3, int, into, svc or lpsw.
        Arch::I386 | Arch::X86_64 => opcode % 0xcc,
        Arch::S390 | Arch::S390x => 0x9000 | (opcode % 0x7000),
        Arch::Ppc | Arch::Ppc64 => opcode,
    });
    probe
}
