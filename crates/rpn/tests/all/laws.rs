//! Property tests for all inputs: no text or object makes the compiler or the disassembler panic,
//! and the disassembly of a compiled object compiles to the same object.

use dprobes_rpn::{
    Access, Arch, FunctionPoint, Location, ModuleKind, Object, Options, Probe, Proc, Register, SymbolUse,
    Watch, compile_text, disassemble,
};
use proptest::prelude::*;
use vm::{Op, Operand, TABLE};

/// Parts of texts of the language, and of damage to them.
fn pieces() -> impl Strategy<Value = String> {
    let rows = TABLE.iter().map(|row| row.name.to_string()).collect::<Vec<_>>();
    let registers = Arch::ALL.iter().flat_map(|arch| arch.registers());
    let registers = registers.map(|register| register.name.to_string()).collect::<Vec<_>>();
    let words = [
        "name",
        "=",
        "appln",
        "modtype",
        "user",
        "kernel",
        "vars",
        "gvars",
        "3",
        "groupdef",
        "typedef",
        "type",
        "a",
        "major",
        "logmax",
        "jmpmax",
        "insmax",
        "offset",
        "address",
        "main",
        "entry",
        "return",
        "push arg,",
        "push retval",
        "watchpoint",
        "rw",
        "opcode",
        "minor",
        "ignore",
        "maxhits",
        "logonfault",
        "yes",
        "proc",
        "endproc",
        "l",
        "l:",
        ":",
        ",",
        "+",
        "-",
        "*",
        "/",
        "%",
        "<<",
        ">>",
        "&",
        "|",
        "^",
        "~",
        "!",
        "(",
        ")",
        "?",
        "#",
        "##",
        "0",
        "1",
        "0x10",
        "0xffffffffffffffff",
        "99999999999999999999",
        "01",
        "1x",
        "\"text\"",
        "\"",
        "'",
        "\\",
        "\\\n",
        "//",
        "/*",
        "*/",
        "\n#define m",
        "\n#define f(x)",
        "m",
        "f(",
        "f",
        "\n#define f(x, ...) #x x ## m f(m)",
        "\n#undef m",
        "\n#if",
        "\n#ifdef m",
        "\n#ifndef f",
        "\n#elif",
        "\n#elseif",
        "\n#else",
        "\n#endif",
        "\n#include \"a.rpn\"",
        "\n#include <b>",
        "\n#error",
        "defined",
        "__LINE__",
        "__VA_ARGS__",
        "push b,",
        "log arf",
        "cnvrt sxf",
        "suspend",
        "alloc gv",
        "excpt_mask",
        "excpt_log",
        "autostacktrace",
        "heapmax",
        "heap",
        "é",
        "\u{feff}",
        "\u{0}",
        "\r\n",
    ];
    let words = words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    prop_oneof![
        4 => prop::sample::select(words),
        2 => prop::sample::select(rows),
        1 => prop::sample::select(registers),
        1 => any::<String>(),
    ]
}

/// Compiles, and renders every message. The disassembly of the object must compile to the same
/// object.
fn digest(text: &str, arch: Arch) {
    let options = Options { arch, ..Options::default() };
    match compile_text("a.rpn", text, &options) {
        Ok(compiled) => {
            for note in &compiled.notes {
                note.render(&compiled.sources, true);
            }
            let printed = disassemble(&compiled.object);
            let again = compile_text("b.rpn", &printed, &options);
            let again = again.unwrap_or_else(|failure| panic!("{printed}\n{}", failure.render(false)));
            assert_eq!(bare(&again.object), bare(&compiled.object), "{printed}");
        }
        Err(failure) => assert!(!failure.render(false).is_empty()),
    }
}

/// The programs of the other tests, valid and invalid.
fn programs() -> Vec<String> {
    let paths = ["tests/good", "tests/bad", "../../tests/seeds"].map(std::fs::read_dir);
    let paths = paths.into_iter().flat_map(|entries| entries.expect("the directories are there"));
    let mut paths: Vec<_> = paths.map(|entry| entry.expect("they can be read").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rpn"));
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("they are text")).collect()
}

/// An object without the fields that depend on the layout of its source.
fn bare(object: &Object) -> Object {
    let mut object = object.clone();
    object.lines.iter_mut().for_each(|(_, span)| *span = Default::default());
    for probe in &mut object.probes {
        probe.span = Default::default();
        probe.point = String::new();
    }
    object
}

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
    prop_oneof![
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
fn object() -> impl Strategy<Value = Object> {
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
fn op_of(draft: &Draft, object: &Object, procedures: usize) -> Op {
    let row = &TABLE[draft.row % TABLE.len()];
    let missing = match row.operand {
        Operand::Local => object.vars == 0,
        Operand::Global => object.gvars == 0,
        Operand::Proc => procedures == 0,
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

/// Writes the code: first assigns offsets, then writes the bytes.
fn fill(object: &mut Object, bodies: Vec<(Option<Probe>, Vec<Draft>)>) {
    let bytes = object.word().bytes();
    let size = |op: Op| 1 + op.row().operand.size(bytes);
    let procedures = bodies.iter().filter(|(probe, _)| probe.is_none()).count();
    let mut at = 0;
    let mut laid: Vec<Vec<(usize, Op, u64)>> = Vec::new();
    for (probe, drafts) in bodies {
        let last = if probe.is_some() { Op::Exit } else { Op::Ret };
        let ops =
            drafts.iter().map(|draft| (op_of(draft, object, procedures), draft.value)).chain([(last, 0)]);
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
            let symbols = ["nr_free_pages", "task", "R", "x", "b", "Rax", "a b", "push", "proc", "name"];
            let addend = (value as i64) >> 40;
            object.symbols.push(SymbolUse {
                offset: at + 1,
                name: symbols[pick(symbols.len())].into(),
                addend,
            });
            0
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
    if object.kind == ModuleKind::User
        || !matches!(object.arch, Arch::I386 | Arch::X86_64)
        || matches!(probe.location, Location::Offset(_) | Location::Symbol { .. } | Location::Points { .. })
    {
        probe.watch = None;
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text: String, arch in prop::sample::select(Arch::ALL)) {
        digest(&text, arch);
    }

    #[test]
    fn no_words_of_the_language_make_it_panic(
        pieces in prop::collection::vec((pieces(), prop::sample::select(vec![" ", " ", "\n", ""])), 0..60),
        begun: bool,
        arch in prop::sample::select(Arch::ALL),
    ) {
        let mut text = String::from(if begun { "name = appln vars = 2 gvars = 2 offset = main\n" } else { "" });
        for (piece, space) in pieces {
            text.push_str(&piece);
            text.push_str(space);
        }
        digest(&text, arch);
    }

    #[test]
    fn no_damage_to_a_program_makes_it_panic(
        which: prop::sample::Index,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, pieces()), 1..4),
        arch in prop::sample::select(Arch::ALL),
    ) {
        let mut text = which.get(&programs()).clone();
        for (place, length, piece) in damage {
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = place.index(starts.len());
            let end = starts.get(at + length).copied().unwrap_or(text.len());
            text.replace_range(starts[at]..end, &piece);
            text.push('\n');
        }
        digest(&text, arch);
    }

    #[test]
    fn an_object_comes_back_from_its_disassembly(object in object()) {
        let text = disassemble(&object);
        let options = Options { arch: object.arch, ..Options::default() };
        let again = compile_text("a.rpn", &text, &options);
        let again = again.unwrap_or_else(|failure| panic!("{text}\n{}", failure.render(false)));
        prop_assert_eq!(bare(&again.object), bare(&object), "{}", text);
        for (offset, span) in &again.object.lines {
            prop_assert_eq!(again.object.line_at(*offset), Some(*span));
        }
        // The disassembly is stable.
        prop_assert_eq!(disassemble(&again.object), text);
    }

    #[test]
    fn no_object_makes_the_disassembler_panic(
        mut object in object(),
        code in prop::collection::vec(any::<u8>(), 0..200),
        ends in (0..300usize, 0..300usize, any::<usize>()),
    ) {
        object.code = code;
        object.probes[0].entry = ends.0;
        object.probes[0].end = ends.1;
        object.procs.push(Proc { name: "p".into(), entry: ends.2, end: usize::MAX });
        let text = disassemble(&object);
        digest(&text, object.arch);
    }
}
