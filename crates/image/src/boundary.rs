//! Checks whether an instruction starts at an address.

use std::fmt;
use std::sync::Arc;

use iced_x86::{Formatter, GasFormatter, Instruction};

use super::Image;
use super::flow::Doubt;
use super::functions::FunctionKind;
use super::region::{Byte, Region, RegionContext};

/// The most bytes of code between two known starts. Only a file without symbols and unwinding
/// tables exceeds this; then addresses in it cannot be checked.
const STRETCH: u64 = 64 << 20;

/// Why no probe can be at an address. Addresses are the image's own, before the load bias is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAnInstruction {
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

impl Image {
    /// Whether an instruction starts at an address: disassembles from the nearest known start
    /// before it up to the next one. Known starts are functions' symbols, unwinding entries, the
    /// entry point and the starts of code sections.
    ///
    /// It refuses data among code, the inside of instructions (also where a branch jumps past their
    /// `lock` prefix), and addresses after bytes that look like data. Differences from
    /// `objdump -d`: `fwait` (0x9b) is an instruction of its own here, as it is for the processor;
    /// runs of two or more zero bytes that control does not reach are not code.
    ///
    /// # Errors
    ///
    /// Why the address is refused.
    pub fn check_boundary(&self, vaddr: u64) -> Result<(), NotAnInstruction> {
        let region = self.region(vaddr)?;
        let inside = |before, after| {
            let text = region.instruction(before).map(|i| print(&i)).unwrap_or_default();
            Err(NotAnInstruction::InsideInstruction { vaddr, before, after, text })
        };
        match region.byte(vaddr) {
            Byte::Start => Ok(()),
            // Tables found by the control flow analysis may lead to code after data.
            Byte::Spoiled(_) | Byte::Zero if self.is_proven(vaddr) => {
                match self.control_flow().reaching_into(vaddr) {
                    None => Ok(()),
                    Some((before, after)) => inside(before, after),
                }
            }
            Byte::Inside(before, after) => inside(before, after),
            Byte::Spoiled(at) => {
                Err(NotAnInstruction::Undecodable { vaddr, at, start: region.range().start })
            }
            Byte::Zero => Err(not_code(vaddr, "it is in a run of zero bytes")),
        }
    }

    /// Why the code at an address may be data: control neither provably nor probably reaches it.
    /// `None` otherwise, and also for i386 code and for files with more code than is analyzed; for
    /// those ask [`check_boundary`](Image::check_boundary).
    pub fn doubt(&self, vaddr: u64) -> Option<Doubt> {
        let starts = self.starts();
        let is_start = starts.starts.binary_search_by_key(&vaddr, |start| start.vaddr).is_ok_and(|at| {
            let start = starts.starts[at];
            start.proven && start.claimed > vaddr && starts.data_at(vaddr).is_none()
        });
        if is_start || starts.area(vaddr).is_some_and(|area| self.is_bare(&area.range)) {
            return None;
        }
        self.control_flow().doubt(vaddr)
    }

    /// Whether a section has neither symbols of functions nor unwinding entries (assembly without
    /// annotations): then disassembly is the only source.
    fn is_bare(&self, area: &std::ops::Range<u64>) -> bool {
        let functions = &self.symbols().functions;
        let first = functions.partition_point(|function| function.vaddr < area.start);
        let within = functions[first..].iter().take_while(|function| function.vaddr < area.end);
        let frames = &self.frames().ranges;
        let frame = frames.get(frames.partition_point(|frame| frame.end <= area.start));
        within.into_iter().all(|function| function.kind == FunctionKind::Label)
            && frame.is_none_or(|frame| frame.start >= area.end)
            && !functions.is_empty()
    }

    /// Whether control provably reaches an address.
    pub(crate) fn is_proven(&self, vaddr: u64) -> bool {
        self.control_flow().length(vaddr) > 0
    }

    /// An address inside the instruction at `vaddr` to which a direct branch of the same function
    /// jumps, past the `lock` prefix: replacing more than the first byte of that instruction would
    /// break the program.
    pub fn entered_inside(&self, vaddr: u64) -> Option<u64> {
        let region = self.region(vaddr).ok()?;
        (region.byte(vaddr) == Byte::Start).then(|| region.entered_inside(vaddr)).flatten()
    }

    /// The instruction at an address in objdump's AT&T syntax, for messages.
    pub fn instruction_text(&self, vaddr: u64) -> Option<String> {
        let region = self.region(vaddr).ok()?;
        region.instruction(vaddr).map(|instruction| print(&instruction))
    }

    /// The analyzed region of code around an address: from one known start to the next.
    pub(crate) fn region(&self, vaddr: u64) -> Result<Arc<Region>, NotAnInstruction> {
        let mut regions = self.regions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(region) = regions.get(vaddr) {
            return Ok(region);
        }
        let region = Arc::new(self.analyze(vaddr)?);
        regions.keep(Arc::clone(&region));
        Ok(region)
    }

    fn analyze(&self, vaddr: u64) -> Result<Region, NotAnInstruction> {
        let refuse = |why: String| not_code(vaddr, why);
        let Some(bitness) = self.headers.machine.bitness() else {
            return Err(refuse(format!("the file is for {}, which is not supported", self.headers.machine)));
        };
        if !self.headers.is_executable(vaddr) {
            return Err(refuse(format!("{} has no executable segment there", printable::path(self.path()))));
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
            return Err(refuse(format!("it is in the data `{}`", printable::text(name))));
        }
        let Some((start, end)) = starts.stretch(vaddr, area) else {
            return Err(refuse(format!("no function is known before it in {}", printable::text(&area.name))));
        };
        // Bytes that are not in the file are not code, whatever the section header says.
        let segment = self.headers.executable_segments().find(|s| s.offset_of_address(vaddr).is_some());
        let end = segment.map_or(end, |segment| end.min(segment.file_end()));
        if end - start.vaddr > STRETCH {
            let why = format!("the last known start, {:#x}, is too far before it", start.vaddr);
            return Err(refuse(why));
        }
        let Some(bytes) = self.text(start.vaddr, (end - start.vaddr) as usize) else {
            return Err(refuse(format!("{} cannot be read there", printable::path(self.path()))));
        };
        let around = RegionContext {
            proven: start.proven,
            claimed: start.claimed,
            labels: starts.labels_in(start.vaddr..end),
            is_code: &|target| starts.area(target).is_some(),
        };
        Ok(Region::analyze(start.vaddr, bytes, bitness, &around))
    }
}

fn not_code(vaddr: u64, why: impl Into<String>) -> NotAnInstruction {
    NotAnInstruction::NotCode { vaddr, why: why.into() }
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
        let of = |vaddr: &u64| image.region(*vaddr).ok();
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
