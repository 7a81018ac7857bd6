//! What can be asked of an [`Image`] beyond what it contains. Each question is answered in the file
//! of its subject, from the image's data.

use std::ops::Range;

use super::boundary::NotAnInstruction;
use super::flow::{ControlFlow, Doubt};
use super::image::Image;
use super::lookup::Lookup;
use super::outline::Outline;
use super::possible_targets::PossibleTargets;
use super::restartable::DESCRIPTOR;
use super::selection::Selected;
use super::separate::SymbolMismatch;
use super::usdt::{self, StaticProbe};
use super::{
    DebugTypes, boundary, entry_points, flow, lookup, outline, restartable, selection, separate, table,
};

/// The most bytes of debug information that are read to say why a name is not found.
const DEBUG_INFORMATION: u64 = 64 << 20;

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
        boundary::check_boundary(self, vaddr)
    }

    /// Why the code at an address may be data: control neither provably nor probably reaches it.
    /// `None` otherwise, and also for i386 code and for files with more code than is analyzed; for
    /// those ask [`check_boundary`](Image::check_boundary).
    pub fn doubt(&self, vaddr: u64) -> Option<Doubt> {
        boundary::doubt(self, vaddr)
    }

    /// An address inside the instruction at `vaddr` to which a direct branch of the same function
    /// jumps, past the `lock` prefix: replacing more than the first byte of that instruction would
    /// break the program.
    pub fn entered_inside(&self, vaddr: u64) -> Option<u64> {
        boundary::entered_inside(self, vaddr)
    }

    /// The instruction at an address in objdump's AT&T syntax, for messages.
    pub fn instruction_text(&self, vaddr: u64) -> Option<String> {
        boundary::instruction_text(self, vaddr)
    }

    /// Analyzes the function that starts at an address.
    ///
    /// # Errors
    ///
    /// No instruction starts there.
    pub fn outline(&self, vaddr: u64) -> Result<Outline, NotAnInstruction> {
        outline::outline(self, vaddr)
    }

    /// The functions that a name may mean. Names are case-sensitive. The first of these that has a
    /// result counts: the ELF name (`malloc`, `memcpy@GLIBC_2.2.5`); the whole demangled name; the
    /// C++ name without parameters.
    ///
    /// A bare name means the default version, as for a linker; another version must be given.
    pub fn lookup(&self, name: &str) -> Lookup<'_> {
        lookup::lookup(self, name)
    }

    /// Names similar to one that was not found, the likeliest first, five at most; for "did you
    /// mean".
    pub fn nearest_names(&self, name: &str) -> Vec<String> {
        lookup::nearest_names(self, name)
    }

    /// Whether a name is that of a function of another module, which this one calls.
    pub fn imports(&self, name: &str) -> bool {
        table::imported(&self.source, &self.headers).any(|symbol| symbol.name == name)
    }

    /// Whether the compiler has put a function into its callers wherever it is called, by the debug
    /// information in this file itself. If that is very large, it is not asked.
    pub fn is_inlined(&self, name: &str) -> bool {
        let section = self.headers.section(".debug_info");
        let is_small = section.is_some_and(|section| section.size <= DEBUG_INFORMATION);
        is_small && DebugTypes::read(self).is_ok_and(|types| types.has_inlined(name).unwrap_or(false))
    }

    /// The functions that a name means, one for each address: as of [`Image::lookup`], or for
    /// `sub_1a2b` the function without a symbol whose unwinding entry is at 0x1a2b.
    pub fn select_named(&self, name: &str) -> Vec<Selected> {
        selection::select_named(self, name)
    }

    /// The functions whose names match, one for each address. `matches` is tried with the ELF name,
    /// with and without its version; with the demangled name; and without its parameters. Labels
    /// and parts of other functions (`f.cold`) are left out.
    pub fn select_matching(&self, matches: &dyn Fn(&str) -> bool) -> Vec<Selected> {
        selection::select_matching(self, matches)
    }

    /// The implementations that an indirect function may pick: the functions whose addresses its
    /// resolver takes. Several resolvers may share implementations. Empty if they cannot be
    /// determined.
    pub fn implementations(&self, resolver: u64) -> Vec<u64> {
        selection::implementations(self, resolver)
    }

    /// What is proven of the control flow. It is computed once.
    pub fn control_flow(&self) -> &ControlFlow {
        flow::control_flow(self)
    }

    /// The addresses that control may reach other than from the instruction before or by a direct
    /// branch. They are computed once.
    pub fn possible_targets(&self) -> &PossibleTargets {
        entry_points::possible_targets(self)
    }

    /// The restartable sequences, from the descriptors in the file with the dynamic linker's
    /// relocations applied.
    pub fn restartable_sequences(&self) -> Vec<Range<u64>> {
        restartable::restartable_sequences(self)
    }

    /// The restartable sequences, from descriptors that `read` returns for addresses of the file.
    /// Descriptors read from a process yield the process's addresses. An unreadable descriptor is
    /// left out.
    pub fn restartable_sequences_by(
        &self,
        read: impl Fn(u64) -> Option<[u8; DESCRIPTOR]>,
    ) -> Vec<Range<u64>> {
        restartable::restartable_sequences_by(self, read)
    }

    /// The static probes (USDT) that the program's author placed, in the order of their notes. They
    /// are read anew each time. A file without section headers has none.
    pub fn static_probes(&self) -> Vec<StaticProbe> {
        usdt::static_probes(self)
    }

    /// Whether this file's symbols are a module's: both come from one build, with the same
    /// addresses.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub fn has_symbols_of(&self, module: &Image) -> Result<(), SymbolMismatch> {
        separate::has_symbols_of(self, module)
    }

    /// Whether the file has code, and not only symbols and debug information of another file's
    /// code.
    pub fn has_code(&self) -> bool {
        separate::has_code(self)
    }
}
