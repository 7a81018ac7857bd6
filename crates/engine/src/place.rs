//! Where a program's probepoints are in a module of a process: checked, nothing changed.

use patch::Mode;
use process::{Function, FunctionKind, Machine, Memory, Misplaced, Module};
use rpn::Location;
use vm::Word;

use crate::error::Refused;
use crate::observer::Note;
use crate::program::Program;
use crate::site::{INT3, Planned, Use};

/// The longest instruction of the processor, in bytes.
const LONGEST: usize = 15;

/// What was found for one program in one module.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The sites that can be armed, one for each probepoint.
    pub(crate) planned: Vec<Planned>,
    /// The probepoints that cannot.
    pub(crate) refused: Vec<Refused>,
    /// What should be known of those that can.
    pub(crate) remarks: Vec<Note>,
}

/// How probepoints are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checks {
    /// Whether the opcode given, and the instruction's boundary, are verified.
    pub(crate) opcodes: bool,
    /// Whether a shadow stack guards the process's returns: calls and returns cannot be emulated then.
    pub(crate) shadow_stack: bool,
}

/// Plans all probes of a program that are not over in a module that has the program's name.
pub(crate) fn plan(
    number: usize,
    program: &Program,
    module: &Module,
    memory: &Memory,
    checks: Checks,
) -> Plan {
    let mut plan = Plan::default();
    if let Some(reason) = other_word(program.object.word, module) {
        plan.remarks.push(Note::Other(reason));
        return plan;
    }
    let critical = critical_sections(module, memory);
    for (probe, definition) in program.object.probes.iter().enumerate() {
        if program.probes[probe].state.is_over() {
            continue;
        }
        let mut remark = |remark| plan.remarks.push(Note::Remark { point: definition.point.clone(), remark });
        let wanted = Use::Probe { program: number, probe };
        let planned = locate(&definition.location, module, &mut remark)
            .and_then(|vaddr| site(definition.opcode, vaddr, wanted, module, memory, checks))
            .and_then(|planned| not_critical(planned, &critical));
        match planned {
            Ok(planned) => plan.planned.push(planned),
            Err(reason) => plan.refused.push(Refused {
                module: module.path.display().to_string(),
                point: definition.point.clone(),
                probe,
                reason,
            }),
        }
    }
    plan
}

/// Why a program cannot be placed in a module: it was compiled for another word.
fn other_word(word: Word, module: &Module) -> Option<String> {
    let mode = mode(module)?;
    let bits = word.bits();
    (mode.bits() != bits).then(|| {
        format!(
            "{} is {}-bit code, and the probe program is compiled for {bits}-bit code; it is not probed",
            module.path.display(),
            mode.bits()
        )
    })
}

/// The mode in which the code of a module runs; nothing for another machine's.
fn mode(module: &Module) -> Option<Mode> {
    match module.image.machine() {
        Machine::X86_64 => Some(Mode::Bits64),
        Machine::I386 => Some(Mode::Bits32),
        Machine::Other(_) => None,
    }
}

/// The address within the file's own numbering that a location names.
fn locate(location: &Location, module: &Module, remark: &mut dyn FnMut(String)) -> Result<u64, String> {
    match location {
        Location::Offset(offset) => module.image.address_of_offset(*offset).ok_or_else(|| {
            format!("the file has no code at offset {offset:#x}; `objdump -h` shows where its sections are")
        }),
        Location::Address(address) => {
            if !module.contains(*address) {
                return Err(format!(
                    "address {address:#x} is not in this module, which is mapped at {:#x}",
                    module.bias
                ));
            }
            Ok(address.wrapping_sub(module.bias))
        }
        Location::Symbol { name, addend } | Location::AddressSymbol { name, addend } => {
            let vaddr = symbol(name, module, remark)?;
            Ok(vaddr.wrapping_add_signed(*addend))
        }
    }
}

/// The one address that a symbol has.
fn symbol(name: &str, module: &Module, remark: &mut dyn FnMut(String)) -> Result<u64, String> {
    let found = module.image.lookup(name).matches;
    let Some(first) = found.first() else {
        let near = module.image.nearest_names(name);
        let hint = match near.as_slice() {
            [] if module.image.functions().is_empty() => {
                "; the file has no symbols: give the offset in the file as a number".to_owned()
            }
            [] => "; `dprobes list` shows the functions there are".to_owned(),
            near => format!(
                "; did you mean {}?",
                near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            ),
        };
        return Err(format!("no symbol `{name}`{hint}"));
    };
    if found.len() > 1 {
        let called = |function: &Function| function.demangled().unwrap_or_else(|| function.full_name());
        let places =
            found.iter().take(8).map(|function| format!("{} at {:#x}", called(function), function.vaddr));
        return Err(format!(
            "`{name}` names {} functions: {}; give the full name of one, or its offset",
            found.len(),
            places.collect::<Vec<_>>().join(", ")
        ));
    }
    if first.kind == FunctionKind::Indirect {
        remark(format!("`{name}` is an indirect function: the probe is on its resolver, which runs once"));
    }
    Ok(first.vaddr)
}

/// The site at an address, if its instruction can be displaced.
pub(crate) fn site(
    opcode: Option<u8>,
    vaddr: u64,
    wanted: Use,
    module: &Module,
    memory: &Memory,
    checks: Checks,
) -> Result<Planned, String> {
    let address = module.address(vaddr);
    if !module.contains(address) {
        return Err(format!("{vaddr:#x} is outside the code of the module"));
    }
    let mut bytes = [0; LONGEST];
    let bytes = (1..=LONGEST)
        .rev()
        .find(|&length| memory.peek(address, &mut bytes[..length]).is_ok())
        .map(|length| &bytes[..length])
        .ok_or_else(|| format!("the memory at {address:#x} cannot be read"))?;
    if let Some(expected) = opcode.filter(|&expected| checks.opcodes && expected != bytes[0]) {
        return Err(format!(
            "opcode {expected:#04x} expected, {:#04x} found at {vaddr:#x}; correct `opcode =`, or leave it out to have \
             the place checked by disassembly",
            bytes[0]
        ));
    }
    if bytes[0] == INT3 && module.image.text(vaddr, 1).is_some_and(|text| text[0] != INT3) {
        return Err(format!("another debugger has a breakpoint at {address:#x}; remove it first"));
    }
    if checks.opcodes {
        module.image.check_boundary(vaddr).map_err(|misplaced| boundary(&misplaced))?;
    }
    let mode = mode(module).ok_or_else(|| "the module is for another machine".to_owned())?;
    let displaced = patch::displace_in(mode, bytes, address).map_err(|refusal| refusal.to_string())?;
    if checks.shadow_stack && displaced.needs_plain_stack() {
        return Err(format!(
            "`{}`: the process has a shadow stack, and calls cannot be displaced there",
            displaced.text()
        ));
    }
    Ok(Planned::new(address, displaced, bytes[0], wanted))
}

/// Why a place is not the start of an instruction.
fn boundary(misplaced: &Misplaced) -> String {
    format!("{misplaced}; `--dont-verify-opcodes` probes it all the same")
}

/// The restartable sequences of a module: while a thread is in one, any stop makes it start over, so a probe in
/// one would keep it from ever ending.
fn critical_sections(module: &Module, memory: &Memory) -> Vec<(u64, u64)> {
    /// Bytes of the kernel's `struct rseq_cs`: version and flags, start, length, abort address.
    const DESCRIPTOR: usize = 32;
    let mut sections = Vec::new();
    for range in module.image.rseq_descriptors() {
        let count = (range.end - range.start) as usize / DESCRIPTOR;
        for place in 0..count.min(1 << 16) {
            let mut bytes = [0; DESCRIPTOR];
            if memory.peek(module.address(range.start + (place * DESCRIPTOR) as u64), &mut bytes).is_err() {
                break;
            }
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
            sections.push((word(8), word(8).saturating_add(word(16))));
        }
    }
    sections
}

/// Refuses a site in a restartable sequence.
fn not_critical(planned: Planned, critical: &[(u64, u64)]) -> Result<Planned, String> {
    let address = planned.0.address;
    if critical.iter().any(|&(start, end)| (start..end).contains(&address)) {
        return Err(format!(
            "{address:#x} is in a restartable sequence (rseq), which a stop would never let end"
        ));
    }
    Ok(planned)
}
