//! Finds a program's probepoints in a module's file, without a process, as for building a PPDF.

use image::{Function, FunctionKind, Image, Machine};
use patch::Mode;
use rpn::{FunctionPoint, Location, ModuleFile, Probe, Site};

use crate::doubt::{check_doubt, not_relocated};
use crate::place_names::{Numbers, ranges};
use crate::points::{self, Found, Missing};
use crate::site::LONGEST;

/// A probepoint that was resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its sites: one, or several for points of functions.
    pub sites: Vec<Site>,
    /// Remarks about it.
    pub remarks: Vec<String>,
}

/// Resolves a probepoint in a module's file, and checks what can be checked there: that it has the
/// given opcode and that an instruction starts there (both unless `verify` is false), and that the
/// instruction can be displaced. What depends on a process - a shadow stack, restartable sequences
/// - is checked when the probe is applied.
///
/// `symbols` is the file with the symbols: the module, or an unstripped file with the same
/// addresses.
///
/// # Errors
///
/// Why no probe can be placed there, and the remedy.
pub fn resolve(probe: &Probe, symbols: &Image, module: &Image, verify: bool) -> Result<Resolved, String> {
    let mut remarks = Vec::new();
    let vaddr = match &probe.location {
        Location::Points { function, point } => {
            let survey = survey(function, *point, probe.opcode, symbols, module, verify)?;
            remarks.extend(survey.remarks.into_iter().chain(survey.left_out));
            return Ok(Resolved { sites: survey.sites, remarks });
        }
        Location::Offset(offset) => code_offset(*offset, module)?,
        Location::Address(_) if module.is_position_independent() => {
            return Err("`address =` is an address in a process, but this module may be loaded anywhere; give `offset =` instead"
                .to_owned());
        }
        Location::Address(address) => *address,
        Location::Symbol { name, addend } | Location::AddressSymbol { name, addend } => {
            symbol(name, symbols, &mut |remark| remarks.push(remark))?.wrapping_add_signed(*addend)
        }
    };
    Ok(Resolved {
        sites: vec![site(vaddr, probe.opcode, module, verify, Numbers::of(&probe.location, module, 0))?],
        remarks,
    })
}

/// The points of functions in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The sites, by address.
    pub sites: Vec<Site>,
    /// Remarks about them.
    pub remarks: Vec<String>,
    /// How many were left out and why, in one line, if any.
    pub left_out: Option<String>,
    /// The same by reason: how many, with an example; the most frequent first.
    pub reasons: Vec<(usize, String)>,
}

/// Finds points of functions in a module's file. What cannot be probed is left out if a pattern, or
/// every instruction, was asked for. `function`, `point` and `opcode` are as in a probe; the rest
/// as for [`resolve`].
///
/// # Errors
///
/// Nothing can be probed, or something was named that cannot be.
pub fn survey(
    function: &str,
    point: FunctionPoint,
    opcode: Option<u32>,
    symbols: &Image,
    module: &Image,
    verify: bool,
) -> Result<Survey, String> {
    let Found { sites: found, mut skipped, remarks } =
        points::find(function, point, symbols, module).map_err(Missing::reason)?;
    let several = found.len() > 1;
    let mut sites = Vec::with_capacity(found.len());
    for (vaddr, name) in found {
        match site(vaddr, opcode, module, verify, Numbers::Offsets(module)) {
            Ok(site) => sites.push(Site { function: name, ..site }),
            Err(reason) if points::is_lenient(function, point) => skipped.add(&name, reason),
            Err(reason) if several => return Err(format!("{name}: {reason}")),
            Err(reason) => return Err(reason),
        }
    }
    let left_out = skipped.line();
    if sites.is_empty() {
        return Err(left_out.unwrap_or_else(|| "it has no site".to_owned()));
    }
    Ok(Survey { sites, remarks, left_out, reasons: skipped.reasons() })
}

/// The site at an address of a file, if its instruction can be displaced.
fn site(
    vaddr: u64,
    opcode: Option<u32>,
    module: &Image,
    verify: bool,
    numbers: Numbers<'_>,
) -> Result<Site, String> {
    let bytes = (1..=LONGEST).rev().find_map(|length| module.text(vaddr, length));
    let found = bytes.zip(module.offset_of_address(vaddr));
    let (bytes, offset) = found.ok_or_else(|| outside(module))?;
    if verify {
        verify_opcode(opcode, &bytes, || numbers.place(vaddr))?;
        module.check_boundary(vaddr).map_err(|misplaced| numbers.boundary(&misplaced))?;
        check_doubt(module, vaddr)?;
    }
    let mode = mode(module).ok_or("the module is for another machine")?;
    let displaced = patch::displace_in(mode, &bytes, vaddr).map_err(|refusal| refusal.to_string())?;
    not_relocated(module, vaddr, &displaced)?;
    Ok(Site { offset, vaddr, bytes: displaced.original().to_vec(), function: String::new() })
}

/// The mode in which the code of a file runs; `None` for other machines.
pub(crate) fn mode(image: &Image) -> Option<Mode> {
    match image.machine() {
        Machine::X86_64 => Some(Mode::Bits64),
        Machine::I386 => Some(Mode::Bits32),
        Machine::Other(_) => None,
    }
}

/// The address of the code at an offset in a file.
pub(crate) fn code_offset(offset: u64, image: &Image) -> Result<u64, String> {
    image
        .address_of_offset(offset)
        .ok_or_else(|| format!("the file has no code at offset {offset:#x}; {}", code_of_file(image)))
}

/// The message for a place outside the module's code, to which a symbol and a number have led.
pub(crate) fn outside(image: &Image) -> String {
    format!("this place is outside the code of the module; {}", code_of_file(image))
}

/// The offsets of a file's code, as text.
fn code_of_file(image: &Image) -> String {
    let code = image.segments().iter().filter(|segment| segment.executable && segment.file_size > 0);
    match ranges(code.map(|segment| (segment.offset, segment.offset.saturating_add(segment.file_size)))) {
        none if none.is_empty() => "it has none at all".to_owned(),
        ranges => format!("its code is at offset {ranges}"),
    }
}

/// Checks that a file has the symbols of a module (`--sym` of dprobes(8)).
///
/// # Errors
///
/// It is of another build; the error names both.
pub fn symbols_of(symbols: &Image, module: &Image) -> Result<(), String> {
    symbols.has_symbols_of(module).map_err(|foreign| {
        format!(
            "{} does not have the symbols of {}: {foreign}",
            printable::path(symbols.path()),
            printable::path(module.path())
        )
    })
}

/// The address of a site in the file that it was resolved in.
pub(crate) fn site_address(site: &Site, image: &Image) -> Result<u64, String> {
    let vaddr = code_offset(site.offset, image)?;
    if vaddr != site.vaddr {
        return Err(format!(
            "offset {:#x} expected at address {:#x}, found at {vaddr:#x}; build the PPDF again",
            site.offset, site.vaddr
        ));
    }
    Ok(vaddr)
}

/// Why a file is not the one that sites were resolved in. The build-id decides, or the size if
/// there is no build-id.
pub(crate) fn other_file(expected: &ModuleFile, found: &Image) -> Option<String> {
    let advice = "the PPDF was built for another build of the module; build it again for this one";
    let build_id = found.build_id().unwrap_or_default();
    if build_id != expected.build_id {
        let id = |bytes: &[u8]| match bytes {
            [] => "no build-id".to_owned(),
            bytes => format!("build-id {}", image::hex(bytes)),
        };
        return Some(format!("{} expected, {} found: {advice}", id(&expected.build_id), id(build_id)));
    }
    let size = found.file_id().map(|id| id.size)?;
    (build_id.is_empty() && size != expected.size)
        .then(|| format!("a file of {} bytes expected, one of {size} found: {advice}", expected.size))
}

/// Compares the given opcode, if any, with the instruction at a place.
pub(crate) fn verify_opcode(
    opcode: Option<u32>,
    found: &[u8],
    place: impl FnOnce() -> String,
) -> Result<(), String> {
    match (opcode, found.first()) {
        (Some(expected), Some(found)) if expected != u32::from(*found) => Err(format!(
            "opcode {expected:#04x} expected, {found:#04x} found at {}; correct `opcode =`, or leave it out: the disassembler then checks the place",
            place()
        )),
        _ => Ok(()),
    }
}

/// Bytes as text for messages.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("`{}`", digits.join(" "))
}

/// The address of a symbol in the code of a file, which must be unique.
pub(crate) fn symbol(name: &str, image: &Image, remark: &mut dyn FnMut(String)) -> Result<u64, String> {
    let found = image.lookup(name).matches;
    let Some(first) = found.first() else {
        if image.is_data(name) {
            return Err(format!(
                "`{name}` is data, not code: a probe is on an instruction; `dprobes list` shows the functions"
            ));
        }
        let near = image.nearest_names(name);
        let hint = match near.as_slice() {
            [] if image.functions().is_empty() => {
                "; the file has no symbols: give the offset in the file as a number, or with --sym the file that has them"
                    .to_owned()
            }
            [] => "; `dprobes list` shows the functions".to_owned(),
            near => format!(
                "; did you mean {}?",
                near.iter().map(|name| format!("`{}`", printable::text(name))).collect::<Vec<_>>().join(", ")
            ),
        };
        return Err(format!("no symbol `{name}`{hint}"));
    };
    if found.len() > 1 {
        let called = |function: &Function| function.demangled().unwrap_or_else(|| function.full_name());
        let numbers = Numbers::Offsets(image);
        let places = found
            .iter()
            .take(8)
            .map(|function| format!("{} at {}", called(function), numbers.place(function.vaddr)));
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
