//! Tests that `docs/language.md` agrees with the tables it describes: instructions, statements,
//! registers, exceptions and limits. Anything missing, superfluous or different there fails, and so
//! does an example that does not compile.

use std::collections::BTreeMap;

use vm::{Context, Exception, Group, Op, Operand, Row, TABLE, Word};

use crate::arch::Arch;
use crate::keys::Key;
use crate::spellings::pieces;
use crate::{Object, Options, check, compile_text};

mod instruction_trials;

const REFERENCE: &str = include_str!("../../../docs/language.md");

/// The rows of the table under `heading` whose first column is called `first`.
fn table(heading: &str, first: &str) -> Vec<Vec<&'static str>> {
    let from = |line: &&str| line.trim_start_matches('#').trim() == heading && line.starts_with('#');
    let mut lines = REFERENCE.lines().skip_while(|line| !from(line)).skip(1);
    let mut rows = Vec::new();
    let mut within = false;
    for line in lines.by_ref().take_while(|line| !line.starts_with('#')) {
        let cells: Vec<&str> =
            line.trim().trim_matches('|').split(" | ").map(|cell| cell.trim_matches([' ', '|'])).collect();
        match line.starts_with('|') {
            true if within && !line.starts_with("|---") => rows.push(cells),
            true => within |= cells[0] == first,
            false => within = false,
        }
    }
    assert!(!rows.is_empty(), "no table of {first} under {heading}");
    rows
}

fn code(cell: &str) -> &str {
    cell.trim_matches('`')
}

fn heading(group: Group) -> &'static str {
    match group {
        Group::Execution => "Execution",
        Group::Logging => "Logging",
        Group::Local => "Local variables",
        Group::Global => "Global variables",
        Group::Arithmetic => "Arithmetic and logic",
        Group::Register => "Registers",
        Group::Data => "Data",
        Group::System => "System variables",
        Group::Verification => "Address verification",
        Group::Port => "Ports",
        Group::Miscellaneous => "Miscellaneous",
        Group::Exception => "Exceptions",
        Group::Tracing => "Stack tracing",
        Group::Internal => "Internal registers",
        Group::Heap => "Heap",
        Group::Frame => "The frame",
        Group::Map => "Maps",
    }
}

/// The instruction as the document writes it: `push lv, INDEX`.
fn written(row: &Row) -> String {
    let operand = match row.operand {
        Operand::None => return row.name.to_string(),
        Operand::U8 if row.op == Op::ExitTo => "FACILITY",
        Operand::U16 if row.op == Op::SetMinImm => "MINOR",
        Operand::U16 if row.op == Op::SetMajImm => "MAJOR",
        Operand::U16 if row.group == Group::Frame => "OFFSET",
        Operand::U16 if row.group == Group::Map => "MAP",
        Operand::U8 if row.op == Op::PushNsecs => "CLOCK",
        Operand::U8 if row.op == Op::Signal => "TARGET",
        Operand::U8 | Operand::U16 => "COUNT",
        Operand::Local | Operand::Global => "INDEX",
        Operand::Register => "REGISTER",
        Operand::Bit => "POSITION",
        Operand::S16 => "N",
        Operand::Word => "VALUE",
        Operand::Label => "LABEL",
        Operand::Proc => "PROCEDURE",
        Operand::Field => "NAME",
    };
    let comma = if pieces(row.name).nth(1).is_some() { "," } else { "" };
    format!("{}{comma} {operand}", row.name)
}

/// The document's rows of all instructions, in the order of the groups and opcodes.
fn described() -> Vec<(&'static Row, Vec<&'static str>)> {
    let mut groups: Vec<Group> = Vec::new();
    for row in TABLE {
        if !groups.contains(&row.group) {
            groups.push(row.group);
        }
    }
    let mut found = Vec::new();
    for group in groups {
        // "Logging" also has a table of record formats, before that of the instructions.
        let lines = table(heading(group), "Instruction").into_iter().filter(|cells| cells.len() == 7);
        let mut lines: BTreeMap<&str, Vec<&str>> = lines.map(|cells| (code(cells[0]), cells)).collect();
        for row in TABLE.iter().filter(|row| row.group == group) {
            let name = written(row);
            let cells = lines.remove(name.as_str()).unwrap_or_else(|| panic!("`{name}` is not described"));
            found.push((row, cells));
        }
        assert!(lines.is_empty(), "no instructions: {:?}", lines.keys());
    }
    found
}

#[test]
fn every_instruction_is_described_as_it_is() {
    let number = |count: Option<u8>| count.map_or("n".to_string(), |count| count.to_string());
    for (row, cells) in described() {
        let name = written(row);
        assert_eq!(u8::from_str_radix(cells[1], 16), Ok(row.op as u8), "{name}");
        assert_eq!(cells[2], format!("{} → {}", number(row.pops), number(row.pushes)), "{name}");
        let kernel = row.context == Context::Kernel;
        let (user, s390) = (compiles(row, Arch::X86_64, "user"), compiles(row, Arch::S390, "kernel"));
        assert_eq!(user, !kernel, "{name}");
        let probes = match (kernel, s390) {
            (false, true) => "all",
            (false, false) => "all, Intel",
            (true, true) => "kernel",
            (true, false) => "kernel, Intel",
        };
        assert_eq!(cells[3], probes, "{name}");
        assert!(cells[5].ends_with('.'), "{name}");
    }
}

/// Whether a program of this one instruction, with a valid operand, compiles.
fn compiles(row: &Row, arch: Arch, kind: &str) -> bool {
    let register = match arch {
        Arch::S390 => "gpr0",
        _ => "rax",
    };
    let instruction = written(row).replace("REGISTER", register).replace("LABEL", "here");
    let instruction = instruction.replace("PROCEDURE", "helper");
    let words = instruction.split_whitespace().map(|word| match word {
        "OFFSET" | "MAP" | "CLOCK" | "FACILITY" | "MINOR" | "MAJOR" | "COUNT" | "INDEX" | "POSITION"
        | "N" | "VALUE" => "1",
        "NAME" => "pid",
        "TARGET" => "0",
        word => word,
    });
    let instruction = words.collect::<Vec<_>>().join(" ");
    compile(&format!("here: nop {instruction} jmp here"), arch, kind).is_ok()
}

fn compile(handler: &str, arch: Arch, kind: &str) -> Result<Object, String> {
    // A program with fields needs a tracepoint.
    let first = if kind == "kernel" { "tracepoint = sched:sched_switch exit" } else { "" };
    let text = format!(
        "name = a modtype = {kind} vars = 8 gvars = 8\nproc helper\nret\nendproc\n{first}\noffset = main\n{handler}\n"
    );
    let options = Options { arch, ..Options::default() };
    compile_text("example", &text, &options).map(|it| it.object).map_err(|it| it.render(false))
}

/// The instructions of an object's code.
fn ops(object: &Object) -> Vec<Op> {
    let decoded = vm::instructions(&object.code, object.word());
    decoded.map_while(|it| it.instruction()).map(|it| it.op).collect()
}

#[test]
fn every_example_compiles_and_has_its_instruction() {
    for (row, cells) in described() {
        let kind = if row.context == Context::Kernel { "kernel" } else { "user" };
        let object = compile(code(cells[6]), Arch::X86_64, kind)
            .unwrap_or_else(|failure| panic!("{}: {failure}", written(row)));
        assert!(ops(&object).contains(&row.op), "{}: {}", written(row), cells[6]);
    }
    let mut rest = REFERENCE;
    let mut programs = 0;
    while let Some((_, after)) = rest.split_once("```rpn\n") {
        let (program, after) = after.split_once("```").expect("it ends");
        let compiled = compile_text("example", program, &Options::default());
        assert!(compiled.is_ok_and(|compiled| compiled.notes.is_empty()), "{program}");
        programs += 1;
        rest = after;
    }
    assert!(programs >= 3);
}

#[test]
fn arguments_and_results_become_what_is_described() {
    for cells in table("Arguments and results", "Written") {
        for number in 6..=20 {
            // A row with an N applies to every argument without a row of its own.
            let with = |cell: &str| {
                let text = code(cell).replace("* (N - 5)", &format!("* ({number} - 5)"));
                text.replace("(N + 1)", &format!("({number} + 1)"))
                    .replace("arg, N", &format!("arg, {number}"))
            };
            let i386 = match cells[4] {
                "as the others" => {
                    let number: u64 = code(cells[0])[10..].parse().expect("an argument's number");
                    format!("push r, esp push {} add push mem, u32", 4 * (number + 1))
                }
                cell => with(cell),
            };
            for (arch, becomes) in [(Arch::X86_64, with(cells[3])), (Arch::I386, i386)] {
                let short = compile(&with(cells[0]), arch, "user").expect("it compiles");
                let long = compile(&becomes, arch, "user").expect("it compiles");
                assert_eq!(short.code, long.code, "{} on {arch}", cells[0]);
            }
        }
    }
}

#[test]
fn what_an_instruction_raises_are_exceptions_of_the_table() {
    let rows = table("Exceptions", "Exception");
    let mut codes = Vec::new();
    for cells in &rows {
        let code = u64::from_str_radix(cells[1].trim_start_matches("0x"), 16).expect("a code");
        assert_eq!(Exception { code, parm1: 0, parm2: 0 }.name(), cells[0]);
        codes.push(code);
    }
    // Exactly the bits that have a name.
    let named = |code: &u64| Exception { code: *code, parm1: 0, parm2: 0 }.name() != "EXCEPTION";
    assert_eq!(codes, (0..16).map(|bit| 1 << bit).filter(named).collect::<Vec<u64>>());
    for (row, cells) in described() {
        let known = |name: &str| rows.iter().any(|cells| cells[0] == name);
        let all = cells[4].split(", ").all(|name| known(name) || ["-", "any"].contains(&name));
        assert!(all, "{}: {}", written(row), cells[4]);
    }
}

#[test]
fn every_statement_is_described_as_it_is() {
    for (heading, stands) in
        [("File header", Key::in_file as fn(Key) -> bool), ("Probe header", Key::in_probe as fn(Key) -> bool)]
    {
        let rows = table(heading, "Statement");
        let described: Vec<&str> = rows.iter().map(|cells| code(cells[0])).collect();
        let mut keys: Vec<&str> = Key::ALL.iter().filter(|key| stands(**key)).map(|key| key.name()).collect();
        let mut sorted = described.clone();
        sorted.sort_unstable();
        keys.sort_unstable();
        assert_eq!(sorted, keys, "{heading}");
        for cells in rows {
            check_limits(heading, code(cells[0]), cells[1]);
            if let crate::keys::ValueKind::Word(words) =
                Key::from_name(code(cells[0])).expect("a key").takes()
            {
                let spelled: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                assert_eq!(cells[1], spelled.join(", "));
            }
        }
    }
}

/// If the document says `0 to N`: N compiles, and N + 1 does not.
fn check_limits(heading: &str, key: &str, values: &str) {
    let Some(most) = values.strip_prefix("0 to ") else { return };
    let most: u128 = match most {
        "2^64-1" => u64::MAX.into(),
        "`heapmax`" => vm::HEAP_LIMIT as u128,
        most => most.parse().expect("a number"),
    };
    let text = |value: u128| match heading {
        "File header" => format!("name = a {key} = {value} offset = main"),
        _ => format!("name = a offset = main {key} = {value}"),
    };
    assert!(compile_text("most", &text(most), &Options::default()).is_ok(), "{key} = {most}");
    assert!(compile_text("more", &text(most + 1), &Options::default()).is_err(), "{key} = {most} + 1");
}

#[test]
fn what_holds_without_a_statement_is_as_described() {
    let object =
        compile_text("none", "name = a offset = main", &Options::default()).expect("it compiles").object;
    let probe = &object.probes[0];
    let yes = |it: bool| if it { "`yes`" } else { "`no`" }.to_string();
    let values = [
        ("File header", "modtype", format!("`{}`", object.kind.name())),
        ("File header", "vars", object.vars.to_string()),
        ("File header", "gvars", object.gvars.to_string()),
        ("File header", "major", object.major.to_string()),
        ("File header", "id", object.id.to_string()),
        ("File header", "logmax", object.logmax.to_string()),
        ("File header", "jmpmax", object.jmpmax.to_string()),
        ("File header", "insmax", object.insmax.to_string()),
        ("File header", "excpt_log", object.excpt_log.to_string()),
        ("File header", "autostacktrace", yes(object.autostacktrace)),
        ("File header", "heapmax", object.heapmax.to_string()),
        ("File header", "logonfault", yes(probe.logonfault)),
        ("File header", "ignore", probe.ignore.to_string()),
        ("File header", "maxhits", format!("{:#x}", probe.maxhits)),
        ("Probe header", "minor", probe.minor.to_string()),
        ("Probe header", "excpt_mask", format!("{:#06x}", probe.mask)),
        ("Probe header", "ignore", probe.ignore.to_string()),
        ("Probe header", "maxhits", format!("{:#x}", probe.maxhits)),
    ];
    for (heading, key, value) in values {
        let rows = table(heading, "Statement");
        let cells = rows.iter().find(|cells| code(cells[0]) == key).expect("it is described");
        assert_eq!(cells[2], value, "{key}");
    }
}

/// The registers of a table: name, index, and the remaining cells.
fn registers(heading: &str) -> Vec<(String, u16, Vec<&'static str>)> {
    let mut all = Vec::new();
    for cells in table(heading, "Registers") {
        let (first, last) = cells[0].split_once(" to ").unwrap_or((cells[0], cells[0]));
        let (from, to) = cells[1].split_once(" to ").unwrap_or((cells[1], cells[1]));
        let index = |text: &str| u16::from_str_radix(text, 16).expect("an index");
        let (first, last) = (code(first), code(last));
        let stem = first.trim_end_matches(|character: char| character.is_ascii_digit());
        let number: u16 = first[stem.len()..].parse().unwrap_or(0);
        for (place, index) in (index(from)..=index(to)).enumerate() {
            let name = match first == last {
                true => first.to_string(),
                false => format!("{stem}{}", number + place as u16),
            };
            all.push((name, index, cells[2..].to_vec()));
        }
        assert_eq!(all.last().map(|(name, ..)| name.as_str()), Some(last));
    }
    all
}

#[test]
fn every_register_is_described_as_it_is() {
    for arch in Arch::ALL {
        let (heading, skip) = match arch {
            Arch::I386 | Arch::X86_64 => ("Registers of i386 and x86-64", 2),
            Arch::S390 | Arch::S390x => ("Registers of s390 and s390x", 0),
            Arch::Ppc | Arch::Ppc64 => ("Registers of ppc and ppc64", 0),
        };
        let mut described = registers(heading);
        described.retain(|(_, _, cells)| *arch != Arch::I386 || cells[0] != "x86-64");
        assert_eq!(described.len(), arch.registers().len(), "{arch}");
        for ((name, index, cells), register) in described.iter().zip(arch.registers()) {
            assert_eq!((name.as_str(), *index), (register.name, register.index), "{arch}");
            let uses = register.uses;
            let contexts = |u: bool, r: bool| match (u, r) {
                (true, true) => "u, r",
                (true, false) => "u",
                (false, true) => "r",
                (false, false) => "-",
            };
            let expected = [contexts(uses.push_u, uses.push_r), contexts(uses.pop_u, uses.pop_r)];
            assert_eq!(cells[skip..skip + 2], expected, "{arch} {name}");
            assert_eq!(cells[skip + 2], if register.kernel { "kernel" } else { "all" }, "{arch} {name}");
            if let Some(intel) = vm::Register::from_name(name).filter(|_| arch.is_intel()) {
                let elements = [Word::W4, Word::W8].map(|word| intel.pushes(word).to_string()).join(", ");
                assert_eq!(cells[1], elements, "{name}");
            }
        }
    }
}

#[test]
fn every_machine_and_every_limit_is_described_as_it_is() {
    let rows = table("Machines", "Machine");
    assert_eq!(rows.len(), Arch::ALL.len());
    for (arch, cells) in Arch::ALL.iter().zip(rows) {
        assert_eq!(cells[0], arch.name());
        assert_eq!(cells[1], arch.word().bytes().to_string(), "{arch}");
        assert_eq!(cells[2], arch.opcode_bytes().to_string(), "{arch}");
        assert_eq!(cells.len() > 3 && !cells[3].is_empty(), !arch.is_intel(), "{arch}");
    }
    let limits: Vec<usize> =
        table("Limits", "What").iter().map(|cells| cells[1].parse().expect("a number")).collect();
    let expected = [
        vm::STACK_WORDS,
        vm::CALL_DEPTH,
        vm::CALL_LIMIT as usize,
        vm::JUMP_LIMIT as usize,
        vm::INSTRUCTION_LIMIT as usize,
        vm::HANDLER_LIMIT as usize,
        vm::LOG_LIMIT,
        vm::TRACE_LIMIT,
        vm::HEAP_LIMIT,
        vm::HEAP_BLOCKS,
        u16::MAX.into(),
        source::MAX_FILE_BYTES,
        source::MAX_MESSAGES,
    ];
    assert_eq!(limits, expected);
    assert_eq!(check::HEAPMAX, vm::HEAP_LIMIT);
}
