//! Whether an instruction starts at an address.

use std::fmt;
use std::sync::Arc;

use iced_x86::{Formatter, GasFormatter, Instruction};

use super::Image;
use super::region::{Byte, Region, Surroundings};

/// Bytes of a stretch of code between two known starts. Only a file without symbols and unwinding tables has long
/// ones; beyond this length a place in it cannot be checked.
const STRETCH: u64 = 64 << 20;

/// Why no probe can stand at an address. Addresses are the image's own, before the load bias is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misplaced {
    /// There is no code.
    NotCode {
        /// The address.
        vaddr: u64,
        /// What is there instead.
        why: String,
    },
    /// The address is inside an instruction.
    InsideInstruction {
        /// The address.
        vaddr: u64,
        /// Where that instruction starts.
        before: u64,
        /// Where the next one starts.
        after: u64,
        /// The instruction, as objdump writes it.
        text: String,
    },
    /// The disassembler lost its way before it came to the address.
    Undecodable {
        /// The address.
        vaddr: u64,
        /// Where it lost it: the bytes there are no instruction a compiler would write.
        at: u64,
        /// Where it began.
        start: u64,
    },
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misplaced::NotCode { vaddr, why } => write!(f, "{vaddr:#x} is not code: {why}"),
            Misplaced::InsideInstruction { vaddr, before, after, text } => write!(
                f,
                "{vaddr:#x} is inside the instruction at {before:#x}, `{text}`; the nearest boundaries are \
                 {before:#x} and {after:#x}"
            ),
            Misplaced::Undecodable { vaddr, at, start } => write!(
                f,
                "{vaddr:#x} cannot be checked: the bytes at {at:#x}, between the last known start {start:#x} and the \
                 next one, look like data"
            ),
        }
    }
}

impl std::error::Error for Misplaced {}

impl Image {
    /// Whether an instruction starts at an address: disassembles from the nearest known start before it, up to the
    /// next one. Known are functions' symbols, unwinding entries, the entry point, the starts of code sections.
    ///
    /// Refused are data among code, the inside of instructions (also where a branch jumps past their `lock` prefix),
    /// and places where the disassembly met data. Where this differs from `objdump -d`: `fwait` (0x9b) is an
    /// instruction of its own here, as it is for the processor; runs of two and more zero bytes that control does
    /// not reach are no code.
    ///
    /// # Errors
    ///
    /// Why the place is refused.
    pub fn check_boundary(&self, vaddr: u64) -> Result<(), Misplaced> {
        let region = self.region(vaddr)?;
        match region.byte(vaddr) {
            Byte::Start => Ok(()),
            Byte::Inside(before, after) => {
                let text = region.instruction(before).map(|i| print(&i)).unwrap_or_default();
                Err(Misplaced::InsideInstruction { vaddr, before, after, text })
            }
            Byte::Spoiled(at) => Err(Misplaced::Undecodable { vaddr, at, start: region.range().start }),
            Byte::Zero => Err(not_code(vaddr, "it is one of a run of zero bytes")),
        }
    }

    /// An address inside the instruction at `vaddr` to which a direct branch of the same function jumps, past its
    /// `lock` prefix: whoever replaces more than the first byte of that instruction breaks the program.
    pub fn entered_inside(&self, vaddr: u64) -> Option<u64> {
        let region = self.region(vaddr).ok()?;
        (region.byte(vaddr) == Byte::Start).then(|| region.entered_inside(vaddr)).flatten()
    }

    /// The instruction at an address, as objdump writes it (AT&T syntax); for messages.
    pub fn instruction_text(&self, vaddr: u64) -> Option<String> {
        let region = self.region(vaddr).ok()?;
        region.instruction(vaddr).map(|instruction| print(&instruction))
    }

    /// The stretch of code around an address, taken apart. The last one is kept: probes come in clusters.
    pub(crate) fn region(&self, vaddr: u64) -> Result<Arc<Region>, Misplaced> {
        let mut last = self.region.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(region) = last.as_ref().filter(|region| region.range().contains(&vaddr)) {
            return Ok(Arc::clone(region));
        }
        let region = Arc::new(self.analyze(vaddr)?);
        *last = Some(Arc::clone(&region));
        Ok(region)
    }

    fn analyze(&self, vaddr: u64) -> Result<Region, Misplaced> {
        let refuse = |why: String| not_code(vaddr, why);
        let Some(bitness) = self.headers.machine.bitness() else {
            return Err(refuse(format!("the file is for another machine, {:?}", self.headers.machine)));
        };
        if !self.headers.is_executable(vaddr) {
            return Err(refuse(format!("{} maps nothing executable there", self.path().display())));
        }
        let starts = self.starts();
        let Some(area) = starts.area(vaddr) else {
            let section =
                self.headers.sections.iter().find(|section| section.allocated && section.contains(vaddr));
            return Err(refuse(match section {
                Some(section) => format!("it is in the section {}", section.name),
                None => "it is between sections".to_owned(),
            }));
        };
        if let Some(name) = starts.data_at(vaddr) {
            return Err(refuse(format!("it is in the data `{name}`")));
        }
        let Some((start, end)) = starts.stretch(vaddr, area) else {
            return Err(refuse(format!("no function is known before it in {}", area.name)));
        };
        // What the file does not hold is not code, whatever the section header says.
        let segment = self.headers.executable_segments().find(|s| s.offset_of_address(vaddr).is_some());
        let end = segment.map_or(end, |segment| end.min(segment.file_end()));
        if end - start.vaddr > STRETCH {
            let why = format!("the last known start, {:#x}, is too far before it", start.vaddr);
            return Err(refuse(why));
        }
        let Some(bytes) = self.text(start.vaddr, (end - start.vaddr) as usize) else {
            return Err(refuse(format!("{} cannot be read there", self.path().display())));
        };
        let around = Surroundings {
            proven: start.proven,
            claimed: start.claimed,
            labels: starts.labels_in(start.vaddr..end),
            is_code: &|target| starts.area(target).is_some(),
        };
        Ok(Region::analyze(start.vaddr, bytes, bitness, &around))
    }
}

fn not_code(vaddr: u64, why: impl Into<String>) -> Misplaced {
    Misplaced::NotCode { vaddr, why: why.into() }
}

fn print(instruction: &Instruction) -> String {
    let mut text = String::new();
    GasFormatter::new().format(instruction, &mut text);
    text
}
