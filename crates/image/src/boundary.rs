//! Checks whether an instruction starts at an address.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use iced_x86::{Formatter, GasFormatter, Instruction};

use super::Image;
use super::flow::{Doubt, control_flow};
use super::functions::FunctionKind;
use super::headers::Machine;
use super::region::{Byte, Region, RegionContext};

/// The most bytes of code between two known starts. Only a file without symbols and unwinding
/// tables exceeds this; then addresses in it cannot be checked.
const STRETCH: u64 = 64 << 20;

/// Why an address is not one of code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCode {
    /// The file is for a machine whose code is not decoded.
    #[error("the file is for {0}, which is not supported")]
    OtherMachine(Machine),
    /// No executable segment of the file has it.
    #[error("{} has no executable segment there", printable::path(.0))]
    NoSegment(PathBuf),
    /// It is in a section without code.
    #[error("it is in the section {0}")]
    Section(String),
    /// It is in no section.
    #[error("it is between sections")]
    BetweenSections,
    /// A symbol says that it is data.
    #[error("it is in the data `{}`", printable::text(.0))]
    Data(String),
    /// Disassembly has nowhere to start; with the section.
    #[error("no function is known before it in {}", printable::text(.0))]
    NoStart(String),
    /// Disassembly would have to start too far before it.
    #[error("the last known start, {0:#x}, is too far before it")]
    FarFromStart(u64),
    /// The file cannot be read.
    #[error("{} cannot be read there", printable::path(.0))]
    Unreadable(PathBuf),
    /// It is filled with zeros.
    #[error("it is in a run of zero bytes")]
    Zeros,
}

/// Why no probe can be at an address. Addresses are the image's own, before the load bias is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAnInstruction {
    /// There is no code.
    NotCode {
        /// The address.
        vaddr: u64,
        /// What is there instead.
        why: NoCode,
    },
    /// The address is inside an instruction.
    InsideInstruction {
        /// The address.
        vaddr: u64,
        /// The start of that instruction.
        before: u64,
        /// The start of the next instruction.
        after: u64,
        /// The instruction, in objdump's syntax.
        text: String,
    },
    /// Disassembly failed before it reached the address.
    Undecodable {
        /// The address.
        vaddr: u64,
        /// Where it failed: the bytes there are no instruction that a compiler would write.
        at: u64,
        /// The known start where it began.
        start: u64,
    },
}

impl fmt::Display for NotAnInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAnInstruction::NotCode { vaddr, why } => write!(f, "{vaddr:#x} is not code: {why}"),
            NotAnInstruction::InsideInstruction { vaddr, before, after, text } => write!(
                f,
                "{vaddr:#x} is inside the instruction at {before:#x}, `{text}`; the nearest boundaries are \
                 {before:#x} and {after:#x}"
            ),
            NotAnInstruction::Undecodable { vaddr, at, start } => write!(
                f,
                "{vaddr:#x} cannot be checked: the bytes at {at:#x}, between the last known start {start:#x} and the \
                 next one, look like data"
            ),
        }
    }
}

impl std::error::Error for NotAnInstruction {}

/// Answers [`Image::check_boundary`].
pub(crate) fn check_boundary(image: &Image, vaddr: u64) -> Result<(), NotAnInstruction> {
    let region = region(image, vaddr)?;
    let inside = |before, after| {
        let text = region.instruction(before).map(|i| print(&i)).unwrap_or_default();
        Err(NotAnInstruction::InsideInstruction { vaddr, before, after, text })
    };
    match region.byte(vaddr) {
        Byte::Start => Ok(()),
        // Tables found by the control flow analysis may lead to code after data.
        Byte::Spoiled(_) | Byte::Zero if is_proven(image, vaddr) => {
            match control_flow(image).reaching_into(vaddr) {
                None => Ok(()),
                Some((before, after)) => inside(before, after),
            }
        }
        Byte::Inside(before, after) => inside(before, after),
        Byte::Spoiled(at) => Err(NotAnInstruction::Undecodable { vaddr, at, start: region.range().start }),
        Byte::Zero => Err(NotAnInstruction::NotCode { vaddr, why: NoCode::Zeros }),
    }
}

/// Answers [`Image::doubt`].
pub(crate) fn doubt(image: &Image, vaddr: u64) -> Option<Doubt> {
    let starts = image.starts();
    let is_start = starts.starts.binary_search_by_key(&vaddr, |start| start.vaddr).is_ok_and(|at| {
        let start = starts.starts[at];
        start.proven && start.claimed > vaddr && starts.data_at(vaddr).is_none()
    });
    if is_start || starts.area(vaddr).is_some_and(|area| is_bare(image, &area.range)) {
        return None;
    }
    control_flow(image).doubt(vaddr)
}

/// Whether a section has neither symbols of functions nor unwinding entries (assembly without
/// annotations): then disassembly is the only source.
fn is_bare(image: &Image, area: &std::ops::Range<u64>) -> bool {
    let functions = &image.symbols().functions;
    let first = functions.partition_point(|function| function.vaddr < area.start);
    let within = functions[first..].iter().take_while(|function| function.vaddr < area.end);
    let frames = &image.frames().ranges;
    let frame = frames.get(frames.partition_point(|frame| frame.end <= area.start));
    within.into_iter().all(|function| function.kind == FunctionKind::Label)
        && frame.is_none_or(|frame| frame.start >= area.end)
        && !functions.is_empty()
}

/// Whether control provably reaches an address.
pub(crate) fn is_proven(image: &Image, vaddr: u64) -> bool {
    control_flow(image).length(vaddr) > 0
}

/// Answers [`Image::entered_inside`].
pub(crate) fn entered_inside(image: &Image, vaddr: u64) -> Option<u64> {
    let region = region(image, vaddr).ok()?;
    (region.byte(vaddr) == Byte::Start).then(|| region.entered_inside(vaddr)).flatten()
}

/// Answers [`Image::instruction_text`].
pub(crate) fn instruction_text(image: &Image, vaddr: u64) -> Option<String> {
    let region = region(image, vaddr).ok()?;
    region.instruction(vaddr).map(|instruction| print(&instruction))
}

/// The analyzed region of code around an address: from one known start to the next.
pub(crate) fn region(image: &Image, vaddr: u64) -> Result<Arc<Region>, NotAnInstruction> {
    let mut regions = image.regions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(region) = regions.get(vaddr) {
        return Ok(region);
    }
    let region = Arc::new(analyze(image, vaddr)?);
    regions.keep(Arc::clone(&region));
    Ok(region)
}

fn analyze(image: &Image, vaddr: u64) -> Result<Region, NotAnInstruction> {
    let refuse = |why: NoCode| NotAnInstruction::NotCode { vaddr, why };
    let Some(bitness) = image.headers.machine.bitness() else {
        return Err(refuse(NoCode::OtherMachine(image.headers.machine)));
    };
    if !image.headers.is_executable(vaddr) {
        return Err(refuse(NoCode::NoSegment(image.path().to_owned())));
    }
    let starts = image.starts();
    let Some(area) = starts.area(vaddr) else {
        let section =
            image.headers.sections.iter().find(|section| section.allocated && section.contains(vaddr));
        return Err(refuse(match section {
            Some(section) => NoCode::Section(section.name.clone()),
            None => NoCode::BetweenSections,
        }));
    };
    if let Some(name) = starts.data_at(vaddr) {
        return Err(refuse(NoCode::Data(name.to_owned())));
    }
    let Some((start, end)) = starts.stretch(vaddr, area) else {
        return Err(refuse(NoCode::NoStart(area.name.clone())));
    };
    // Bytes that are not in the file are not code, whatever the section header says.
    let segment = image.headers.executable_segments().find(|s| s.offset_of_address(vaddr).is_some());
    let end = segment.map_or(end, |segment| end.min(segment.file_end()));
    if end - start.vaddr > STRETCH {
        return Err(refuse(NoCode::FarFromStart(start.vaddr)));
    }
    let Some(bytes) = image.text(start.vaddr, (end - start.vaddr) as usize) else {
        return Err(refuse(NoCode::Unreadable(image.path().to_owned())));
    };
    let around = RegionContext {
        proven: start.proven,
        claimed: start.claimed,
        labels: starts.labels_in(start.vaddr..end),
        is_code: &|target| starts.area(target).is_some(),
    };
    Ok(Region::analyze(start.vaddr, bytes, bitness, &around))
}

fn print(instruction: &Instruction) -> String {
    let mut text = String::new();
    GasFormatter::new().format(instruction, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_taken_apart_once_in_whatever_order_its_sites_come() {
        let itself = std::env::current_exe().expect("a process has a program");
        let image = Image::open(&itself).expect("it is an ELF file");
        let near = image.entry();
        let asked: Vec<u64> = (0..400).map(|step| near + step * 64).collect();
        let of = |vaddr: &u64| region(&image, *vaddr).ok();
        let first: Vec<_> = asked.iter().map(of).collect();
        assert!(first.iter().flatten().count() > 100, "the program's own code is known");
        // Now from the last to the first, each far from the previous one.
        for place in (0..400).rev().map(|step| step * 37 % 400) {
            let same = match (&first[place], of(&asked[place])) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, &now),
                (None, None) => true,
                _ => false,
            };
            assert!(same, "{:#x} is taken apart anew", asked[place]);
        }
    }
}
