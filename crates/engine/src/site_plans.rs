//! Finds a program's probepoints in a module of a process and checks them. Nothing is changed.
//!
//! In: a program, a module, its code. Out: `Plan`: the sites that can be probed, and why others
//! cannot.

use image::{Image, Pattern};
use process::{Memory, Module};
use rpn::{Location, Site};

use crate::code_bytes::Text;
use crate::doubt::{check_doubt, not_relocated};
use crate::error::Refused;
use crate::jump::Domain;
use crate::module_key::module_key;
use crate::observer::Note;
use crate::place_names::Numbers;
use crate::points::{self, Found, Missing};
use crate::program::Program;
use crate::reason::{NoVersion, NotPlaced};
use crate::resolve::{
    check_file, code_offset, mode, outside, site_address, symbol, symbols_of, verify_opcode,
};
use crate::site::{LONGEST, Planned};
use crate::site_use::{INT3, Use};

/// The result of planning one program in one module.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The sites that can be armed: one for each probepoint, or several for points of functions.
    pub(crate) planned: Vec<Planned>,
    /// The probepoints that cannot be armed.
    pub(crate) refused: Vec<Refused>,
    /// Remarks about the others.
    pub(crate) remarks: Vec<Note>,
}

/// How probepoints are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checks {
    /// Whether the given opcode and the instruction boundary are verified.
    pub(crate) opcodes: bool,
    /// Whether the process has a shadow stack: calls and returns cannot be emulated then.
    pub(crate) shadow_stack: bool,
    /// The process's trust domain, in which some probes may be over.
    pub(crate) domain: Domain,
}

/// What must be found at a site, where known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected<'a> {
    /// The first byte.
    pub(crate) opcode: Option<u32>,
    /// The whole instruction, if the site was resolved before.
    pub(crate) bytes: Option<&'a [u8]>,
    /// Whether the place was given as an address in the process.
    by_address: bool,
}

impl<'a> Expected<'a> {
    fn of(probe: &'a rpn::Probe) -> Expected<'a> {
        let by_address = matches!(probe.location, Location::Address(_));
        Expected { opcode: probe.opcode, bytes: None, by_address }
    }

    /// For a site that was resolved before. Its opcode was verified then, and is the first of these
    /// bytes.
    fn of_site(site: &'a Site) -> Expected<'a> {
        Expected { opcode: None, bytes: Some(&site.bytes), by_address: false }
    }
}

/// Plans all probes of a program that are not over, in a module that the program names.
pub(crate) fn plan(
    number: usize,
    program: &Program,
    module: &Module,
    text: &Text<'_>,
    checks: Checks,
) -> Plan {
    let mut plan = Plan::default();
    let object = match program.versions.of(module.image.machine()) {
        Ok(object) => object,
        Err(reason) => {
            plan.remarks.push(Note::Other(not_for(module, &reason)));
            return plan;
        }
    };
    let critical = critical_sections(module, text.memory.memory());
    let symbols = program.options.symbols.as_deref();
    let other = object.file.as_ref().and_then(|file| check_file(file, &module.image).err());
    let other = other.or_else(|| symbols_of(symbols?, &module.image).err());
    let mut all: Vec<(usize, Result<Found, NotPlaced>)> = Vec::new();
    for (probe, definition) in object.probes.iter().enumerate() {
        if program.probes[probe].is_over_in(checks.domain) {
            continue;
        }
        let mut remark = |remark| plan.remarks.push(Note::Remark { point: definition.point.clone(), remark });
        let found = match (&other, &definition.location) {
            (Some(reason), _) => Err(reason.clone()),
            (None, _) if !definition.sites.is_empty() => resolved(definition, &module.image),
            (None, Location::Points { function, point }) => {
                let symbols = symbols.unwrap_or(&module.image);
                match points::find_apart(function, *point, symbols, &module.image) {
                    Ok(found) => Ok(found),
                    // The program names several modules; not all of them have the function.
                    Err(Missing::Function(_)) if Pattern::is_one(program.module()) => continue,
                    Err(missing) => Err(missing.reason()),
                }
            }
            (None, location) => locate(location, symbols, module, &mut remark)
                .map(|vaddr| Found { sites: vec![(vaddr, String::new())], ..Found::default() }),
        };
        all.push((probe, found));
    }
    // In ascending order of addresses, whatever the order in the program, so that cached memory and
    // file data are used again.
    all.sort_by_key(|(_, found)| found.as_ref().ok().and_then(|found| Some(found.sites.first()?.0)));
    for (probe, found) in all {
        let definition = &object.probes[probe];
        let mut remark = |remark| plan.remarks.push(Note::Remark { point: definition.point.clone(), remark });
        let planned = found.and_then(|found| {
            let wanted = Use::Probe { program: number, probe };
            let check = |vaddr, expected| {
                site(expected, vaddr, wanted, module, text, checks)
                    .and_then(|planned| not_critical(planned, &critical))
            };
            sites(found, definition, module, program, probe, check, &mut remark)
        });
        match planned {
            Ok(planned) => plan.planned.extend(planned),
            Err(reason) => plan.refused.push(Refused {
                module: module.path.display().to_string(),
                point: definition.point.clone(),
                probe,
                reason,
            }),
        }
    }
    // Reported in the order of the program.
    plan.refused.sort_by_key(|refused| refused.probe);
    plan
}

/// The sites of a probe that was resolved before.
fn resolved(definition: &rpn::Probe, image: &Image) -> Result<Found, NotPlaced> {
    let address = |site: &Site| Ok((site_address(site, image)?, site.function.clone()));
    let sites: Result<_, NotPlaced> = definition.sites.iter().map(address).collect();
    Ok(Found { sites: sites?, ..Found::default() })
}

/// Checks the sites of a probe, and notes them if it has many. A lenient definition leaves out what
/// cannot be probed.
fn sites<'a>(
    found: Found,
    definition: &'a rpn::Probe,
    module: &Module,
    program: &Program,
    probe: usize,
    check: impl Fn(u64, Expected<'a>) -> Result<Planned, NotPlaced>,
    remark: &mut dyn FnMut(String),
) -> Result<Vec<Planned>, NotPlaced> {
    let Found { sites, mut skipped, remarks } = found;
    let lenient = match &definition.location {
        Location::Points { function, point } => Some(points::is_lenient(function, *point)),
        _ => None,
    };
    let own_name = module.path.file_name().unwrap_or_default().to_string_lossy();
    let several = sites.len() > 1;
    let mut planned = Vec::with_capacity(sites.len());
    let mut names = Vec::new();
    for (number, (vaddr, name)) in sites.into_iter().enumerate() {
        let expected = match definition.sites.get(number) {
            Some(site) => Expected::of_site(site),
            None => Expected::of(definition),
        };
        match check(vaddr, expected) {
            Ok(site) => {
                names.push((site.0.module, site.0.address, name));
                planned.push(site);
            }
            Err(reason) if lenient == Some(true) => skipped.add(&name, &reason),
            Err(reason) if lenient.is_some() && several => {
                return Err(NotPlaced::OneOf { name, reason: Box::new(reason) });
            }
            Err(reason) => return Err(reason),
        }
    }
    if planned.is_empty() {
        return Err(skipped.line().map_or(NotPlaced::NoSite, NotPlaced::AllLeftOut));
    }
    remarks.into_iter().chain(skipped.line()).for_each(remark);
    if lenient.is_some() {
        let mut places = program.places.borrow_mut();
        for (key, address, name) in names {
            let offset = module.image.offset_of_address(module.vaddr(address)).unwrap_or(0);
            places.note(probe, &key, address, (&own_name, &name), offset);
        }
    }
    Ok(planned)
}

/// Why a program is not placed in a module: it has no version for the module's machine.
fn not_for(module: &Module, reason: &NoVersion) -> String {
    let path = printable::path(&module.path);
    match mode(&module.image) {
        Some(mode) => format!("{path} is {}-bit code and is not probed: {reason}", mode.bits()),
        None => format!("{path} is another machine's code and is not probed"),
    }
}

/// The address of a location in the file's own numbering. `symbols`: the file with the symbols, if
/// it is not the module itself.
fn locate(
    location: &Location,
    symbols: Option<&Image>,
    module: &Module,
    remark: &mut dyn FnMut(String),
) -> Result<u64, NotPlaced> {
    match location {
        Location::Offset(offset) => code_offset(*offset, &module.image),
        Location::Address(address) => {
            if !module.contains(*address) {
                let code = module.mappings.iter().filter(|mapping| mapping.executable);
                let code = code.map(|mapping| (mapping.start, mapping.end)).collect();
                return Err(NotPlaced::OtherModule { address: *address, code });
            }
            Ok(address.wrapping_sub(module.bias))
        }
        Location::Symbol { name, addend } | Location::AddressSymbol { name, addend } => {
            let vaddr = symbol(name, symbols.unwrap_or(&module.image), remark)?;
            Ok(vaddr.wrapping_add_signed(*addend))
        }
        Location::Points { .. } => Err(NotPlaced::Points),
        Location::Tracepoint { .. } => Err(NotPlaced::Tracepoint),
    }
}

/// The site at an address, if its instruction can be displaced.
pub(crate) fn site(
    expected: Expected<'_>,
    vaddr: u64,
    wanted: Use,
    module: &Module,
    text: &Text<'_>,
    checks: Checks,
) -> Result<Planned, NotPlaced> {
    let address = module.address(vaddr);
    let numbers = match expected.by_address {
        true => Numbers::Addresses(module.bias),
        false => Numbers::Offsets(&module.image),
    };
    if !module.contains(address) {
        return Err(outside(&module.image));
    }
    let mut bytes = [0; LONGEST];
    let bytes = (1..=LONGEST)
        .rev()
        .find(|&length| text.peek(address, &mut bytes[..length]).is_ok())
        .map(|length| &bytes[..length])
        .ok_or(NotPlaced::Unreadable(address))?;
    if bytes[0] == INT3 && module.image.text(vaddr, 1).is_some_and(|text| text[0] != INT3) {
        return Err(NotPlaced::Breakpoint(address));
    }
    if checks.opcodes {
        verify_opcode(expected.opcode, bytes, || numbers.with_kind(vaddr))?;
    }
    if let Some(instruction) = expected.bytes.filter(|it| checks.opcodes && !bytes.starts_with(it)) {
        return Err(NotPlaced::Instruction {
            expected: instruction.to_vec(),
            found: bytes[..bytes.len().min(instruction.len())].to_vec(),
            place: numbers.with_kind(vaddr),
        });
    }
    if checks.opcodes {
        module.image.check_boundary(vaddr).map_err(|misplaced| numbers.boundary(misplaced))?;
        check_doubt(&module.image, vaddr)?;
    }
    let mode = mode(&module.image).ok_or(NotPlaced::OtherMachine)?;
    let displaced = patch::displace_in(mode, bytes, address)?;
    not_relocated(&module.image, vaddr, &displaced)?;
    if checks.shadow_stack && displaced.needs_plain_stack() {
        return Err(NotPlaced::ShadowStack { instruction: displaced.text().to_string() });
    }
    Ok(Planned::new(module_key(module), displaced, wanted))
}

/// Code of a module that must stay as it is, as addresses in the process, ascending: restartable
/// sequences, and bytes that the dynamic linker relocates.
pub(crate) fn kept(module: &Module, memory: &Memory) -> Vec<std::ops::Range<u64>> {
    let sequences = critical_sections(module, memory).into_iter().map(|(start, end)| start..end);
    let relocated = module.image.relocated_code().iter();
    let relocated = relocated.map(|range| module.address(range.start)..module.address(range.end));
    let mut kept: Vec<_> = sequences.chain(relocated).collect();
    kept.sort_by_key(|range| range.start);
    kept
}

/// The restartable sequences of a module. Any stop of a thread in one restarts it, so with a probe
/// inside it would never end.
pub(crate) fn critical_sections(module: &Module, memory: &Memory) -> Vec<(u64, u64)> {
    let read = |vaddr| {
        let mut descriptor = [0; 32];
        memory.peek(module.address(vaddr), &mut descriptor).ok().map(|()| descriptor)
    };
    let sequences = module.image.restartable_sequences_by(read);
    sequences.into_iter().map(|range| (range.start, range.end)).collect()
}

/// Refuses a site in a restartable sequence.
fn not_critical(planned: Planned, critical: &[(u64, u64)]) -> Result<Planned, NotPlaced> {
    let address = planned.0.address;
    if critical.iter().any(|&(start, end)| (start..end).contains(&address)) {
        return Err(NotPlaced::Restartable { instruction: planned.0.displaced.text().to_string() });
    }
    Ok(planned)
}
