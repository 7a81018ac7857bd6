//! Finds a program's probepoints in a module's file, without a process, as for building a PPDF.

use image::{Function, FunctionKind, Image, Machine, Pattern, Segment};
use patch::Mode;
use rpn::{FunctionPoint, Location, ModuleFile, Object, Probe, Site};

use crate::doubt::{check_doubt, not_relocated};
use crate::place_names::Numbers;
use crate::points::{self, Found, Missing};
use crate::reason::{CodeRanges, Hint, NotPlaced};
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
pub fn resolve(probe: &Probe, symbols: &Image, module: &Image, verify: bool) -> Result<Resolved, NotPlaced> {
    let mut remarks = Vec::new();
    let vaddr = match &probe.location {
        Location::Points { function, point } => {
            let survey = survey(function, *point, probe.opcode, symbols, module, verify)?;
            remarks.extend(survey.remarks.into_iter().chain(survey.left_out));
            return Ok(Resolved { sites: survey.sites, remarks });
        }
        Location::Tracepoint { .. } => return Err(NotPlaced::Tracepoint),
        Location::Offset(offset) => code_offset(*offset, module)?,
        Location::Address(_) if module.is_position_independent() => {
            return Err(NotPlaced::AddressInFile);
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

/// The sites of a program's probe in a module's file: those that a PPDF names, or as [`resolve`]
/// finds them. `symbols`: the file with the symbols, if it is not the module itself. `None` if the
/// program names several modules by a pattern, and this one does not have the function.
///
/// # Errors
///
/// As for [`resolve`]; also that the program was built for another build of the module.
pub fn sites_in(
    object: &Object,
    probe: usize,
    symbols: Option<&Image>,
    module: &Image,
    verify: bool,
) -> Result<Option<Resolved>, NotPlaced> {
    let Some(probe) = object.probes.get(probe) else { return Ok(None) };
    if let Some(file) = &object.file {
        check_file(file, module)?;
    }
    if let Some(symbols) = symbols {
        symbols_of(symbols, module)?;
    }
    if !probe.sites.is_empty() {
        let sites = probe.sites.iter().map(|known| resolved_site(known, module, verify));
        return Ok(Some(Resolved { sites: sites.collect::<Result<_, _>>()?, remarks: Vec::new() }));
    }
    let symbols = symbols.unwrap_or(module);
    if let Location::Points { function, point } = &probe.location
        && Pattern::is_one(&object.module)
        && let Err(Missing::Function(_)) = points::find(function, *point, symbols, module)
    {
        return Ok(None);
    }
    resolve(probe, symbols, module, verify).map(Some)
}

/// A site that was resolved before, checked against the module's bytes.
fn resolved_site(known: &Site, module: &Image, verify: bool) -> Result<Site, NotPlaced> {
    let vaddr = site_address(known, module)?;
    let numbers = Numbers::Offsets(module);
    let found = module.text(vaddr, known.bytes.len()).ok_or_else(|| outside(module))?;
    if verify && found != known.bytes {
        return Err(NotPlaced::Instruction {
            expected: known.bytes.clone(),
            found: found[..found.len().min(known.bytes.len())].to_vec(),
            place: numbers.with_kind(vaddr),
        });
    }
    let site = site(vaddr, None, module, verify, numbers)?;
    Ok(Site { function: known.function.clone(), ..site })
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
) -> Result<Survey, NotPlaced> {
    let Found { sites: found, mut skipped, remarks } =
        points::find(function, point, symbols, module).map_err(Missing::reason)?;
    let several = found.len() > 1;
    let mut sites = Vec::with_capacity(found.len());
    for (vaddr, name) in found {
        match site(vaddr, opcode, module, verify, Numbers::Offsets(module)) {
            Ok(site) => sites.push(Site { function: name, ..site }),
            Err(reason) if points::is_lenient(function, point) => skipped.add(&name, &reason),
            Err(reason) if several => return Err(NotPlaced::OneOf { name, reason: Box::new(reason) }),
            Err(reason) => return Err(reason),
        }
    }
    let left_out = skipped.line();
    if sites.is_empty() {
        return Err(left_out.map_or(NotPlaced::NoSite, NotPlaced::AllLeftOut));
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
) -> Result<Site, NotPlaced> {
    let bytes = (1..=LONGEST).rev().find_map(|length| module.text(vaddr, length));
    let found = bytes.zip(module.offset_of_address(vaddr));
    let (bytes, offset) = found.ok_or_else(|| outside(module))?;
    if verify {
        verify_opcode(opcode, &bytes, || numbers.with_kind(vaddr))?;
        module.check_boundary(vaddr).map_err(|misplaced| numbers.boundary(misplaced))?;
        check_doubt(module, vaddr)?;
    }
    let mode = mode(module).ok_or(NotPlaced::OtherMachine)?;
    let displaced = patch::displace_in(mode, &bytes, vaddr)?;
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
pub(crate) fn code_offset(offset: u64, image: &Image) -> Result<u64, NotPlaced> {
    image.address_of_offset(offset).ok_or_else(|| NotPlaced::NoCode { offset, code: code_of_file(image) })
}

/// The reason for a place outside the module's code, to which a symbol and a number have led.
pub(crate) fn outside(image: &Image) -> NotPlaced {
    NotPlaced::Outside(code_of_file(image))
}

/// The offsets of a file's code.
fn code_of_file(image: &Image) -> CodeRanges {
    let code = image.segments().iter().filter(|segment| segment.executable && segment.file_size > 0);
    let range = |segment: &Segment| (segment.offset, segment.offset.saturating_add(segment.file_size));
    CodeRanges(code.map(range).collect())
}

/// Checks that a file has the symbols of a module (`--sym` of dprobes(8)).
///
/// # Errors
///
/// It is of another build; the error names both.
pub fn symbols_of(symbols: &Image, module: &Image) -> Result<(), NotPlaced> {
    symbols.has_symbols_of(module).map_err(|difference| NotPlaced::OtherSymbols {
        symbols: symbols.path().to_owned(),
        module: module.path().to_owned(),
        difference,
    })
}

/// The address of a site in the file that it was resolved in.
pub(crate) fn site_address(site: &Site, image: &Image) -> Result<u64, NotPlaced> {
    let found = code_offset(site.offset, image)?;
    if found != site.vaddr {
        return Err(NotPlaced::Moved { offset: site.offset, expected: site.vaddr, found });
    }
    Ok(found)
}

/// Checks that a file is the one that sites were resolved in. The build-id decides, or the size if
/// there is no build-id.
pub(crate) fn check_file(expected: &ModuleFile, found: &Image) -> Result<(), NotPlaced> {
    let build_id = found.build_id().unwrap_or_default();
    let size = found.file_id().map(|id| id.size);
    let is_other = build_id != expected.build_id
        || build_id.is_empty() && size.is_some_and(|size| size != expected.size);
    match is_other {
        true => Err(NotPlaced::OtherFile {
            expected: Box::new(expected.clone()),
            build_id: build_id.to_vec(),
            size: size.unwrap_or_default(),
        }),
        false => Ok(()),
    }
}

/// Compares the given opcode, if any, with the instruction at a place.
pub(crate) fn verify_opcode(
    opcode: Option<u32>,
    found: &[u8],
    place: impl FnOnce() -> String,
) -> Result<(), NotPlaced> {
    match (opcode, found.first()) {
        (Some(expected), Some(&found)) if expected != u32::from(found) => {
            Err(NotPlaced::Opcode { expected, found, place: place() })
        }
        _ => Ok(()),
    }
}

/// The address of a symbol in the code of a file, which must be unique.
pub(crate) fn symbol(name: &str, image: &Image, remark: &mut dyn FnMut(String)) -> Result<u64, NotPlaced> {
    let found = image.lookup(name).matches;
    let Some(first) = found.first() else {
        if image.is_data(name) {
            return Err(NotPlaced::Data(name.to_owned()));
        }
        let hint = match Hint::near(image.nearest_names(name)) {
            _ if image.imports(name) => Hint::Imported,
            _ if image.is_inlined(name) => Hint::Inlined,
            Hint::List if image.functions().is_empty() => Hint::NoSymbols,
            hint => hint,
        };
        return Err(NotPlaced::NoSymbol { name: name.to_owned(), hint });
    };
    if found.len() > 1 {
        let called = |function: &Function| function.demangled().unwrap_or_else(|| function.full_name());
        let numbers = Numbers::Offsets(image);
        let places = found
            .iter()
            .take(8)
            .map(|function| format!("{} at {}", called(function), numbers.with_kind(function.vaddr)));
        return Err(NotPlaced::Ambiguous {
            name: name.to_owned(),
            count: found.len(),
            places: places.collect(),
        });
    }
    if first.kind == FunctionKind::Indirect {
        remark(format!("`{name}` is an indirect function: the probe is on its resolver, which runs once"));
    }
    Ok(first.vaddr)
}
