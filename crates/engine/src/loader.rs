//! Finds where the dynamic linker can be stopped when it has mapped a module.
//!
//! In: the image of a dynamic linker. Out: `Stops`, addresses for sites of the engine's own; and
//! from a thread's registers at such a site, what has been mapped (`Arrived`).
//!
//! The dynamic linker maps every module, at program start and in dlopen, with its own copy of
//! `mmap`: `mov eax,9; syscall` in its text. The engine puts a site on the instruction after that
//! `syscall`. When it is hit, the mapping exists but nothing in the module has been executed or
//! relocated, so no hit in a constructor or in the resolver of an indirect function is lost.
//!
//! The linker maps a module with several calls and then closes its file (`mov eax,3; syscall`),
//! before relocating it. A linker that is not also the libc is therefore stopped at the close
//! instead, once for each module: while the file is open, its descriptor identifies it.
//!
//! In 32-bit code the call is mmap2, number 0xc0, made by `int 0x80`, by a call of the vdso
//! (`call gs:[0x10]`), or by another call, such as that of glibc's helper from 2.26 on. Such a call
//! is recognised by what follows it: a comparison of the result with 0xfffff000, where error
//! numbers begin.
//!
//! If a linker has no such call, the site is at `_dl_debug_state`, which the linker calls for
//! debuggers when its list of modules has changed. At program start that is after relocation, when
//! resolvers have run.

use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Register};
use image::{Image, Machine};
use process::Module;

/// The bytes of `mov eax,9`: the number of mmap.
const MOV_EAX_MMAP: [u8; 5] = [0xb8, 9, 0, 0, 0];
/// The bytes of `mov eax,0xc0`: the number of mmap2.
const MOV_EAX_MMAP2: [u8; 5] = [0xb8, 0xc0, 0, 0, 0];
/// `mov eax,3; syscall`: a call of close.
const CLOSE: [u8; 7] = [0xb8, 3, 0, 0, 0, 0x0f, 0x05];
/// Results that are errors in 32-bit code begin at one of these values, depending on the
/// comparison.
const ERRORS_32: std::ops::RangeInclusive<u32> = 0xffff_f000..=0xffff_f001;

/// Instructions between the `mov` and the `syscall`, at most.
const BETWEEN: usize = 8;

/// The addresses, in the file's own numbering, of the instructions after mmap's system calls in an
/// image.
fn after_mmap(image: &Image) -> Vec<u64> {
    let mut found = Vec::new();
    let bits = if image.machine() == Machine::I386 { 32 } else { 64 };
    let wanted = if bits == 32 { MOV_EAX_MMAP2 } else { MOV_EAX_MMAP };
    for segment in image.segments().iter().filter(|segment| segment.executable) {
        let Some(text) = image.text(segment.vaddr, segment.file_size as usize) else { continue };
        let starts = text.windows(wanted.len()).enumerate().filter(|(_, bytes)| *bytes == wanted);
        found.extend(
            starts.filter_map(|(start, _)| after_syscall(bits, &text[start..], segment.vaddr + start as u64)),
        );
    }
    found
}

/// The addresses, in the file's own numbering, at which an image is about to close a file; none if
/// the program's own closes pass there too.
fn before_close(image: &Image) -> Vec<u64> {
    let mut found = Vec::new();
    if image.machine() != Machine::X86_64 || !image.lookup("close").matches.is_empty() {
        return found;
    }
    for segment in image.segments().iter().filter(|segment| segment.executable) {
        let Some(text) = image.text(segment.vaddr, segment.file_size as usize) else { continue };
        let starts = text.windows(CLOSE.len()).enumerate().filter(|(_, bytes)| *bytes == CLOSE);
        found.extend(starts.map(|(start, _)| segment.vaddr + start as u64));
    }
    found
}

/// Follows straight-line code from a `mov eax` to a system call, as long as it does not write eax.
/// Returns the address after the call.
pub(crate) fn after_syscall(bits: u32, code: &[u8], address: u64) -> Option<u64> {
    let mut decoder = Decoder::with_ip(bits, code, address, DecoderOptions::NONE);
    let mut information = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    decoder.decode_out(&mut instruction);
    for _ in 0..BETWEEN {
        if !decoder.can_decode() {
            return None;
        }
        decoder.decode_out(&mut instruction);
        match instruction.code() {
            Code::Syscall if bits == 64 => return Some(instruction.next_ip()),
            Code::Int_imm8 if bits == 32 && instruction.immediate8() == 0x80 => {
                return Some(instruction.next_ip());
            }
            Code::Call_rm32 if instruction.memory_segment() == Register::GS => {
                return Some(instruction.next_ip());
            }
            Code::Call_rel32_32 | Code::Call_rm32 => {
                let next = decoder.decode();
                let compares =
                    matches!(next.code(), Code::Cmp_EAX_imm32 | Code::Cmp_rm32_imm8 | Code::Cmp_rm32_imm32)
                        && next.op0_register() == Register::EAX;
                return (compares && ERRORS_32.contains(&(next.immediate(1) as u32))).then(|| next.ip());
            }
            _ => {}
        }
        let writes_eax = information.info(&instruction).used_registers().iter().any(|used| {
            used.register().full_register() == Register::RAX
                && !matches!(used.access(), iced_x86::OpAccess::Read | iced_x86::OpAccess::CondRead)
        });
        if instruction.flow_control() != FlowControl::Next || writes_eax {
            return None;
        }
    }
    None
}

/// The address of the function that the dynamic linker calls for debuggers.
pub(crate) fn debug_state(image: &Image) -> Option<u64> {
    image.lookup("_dl_debug_state").matches.first().map(|function| function.vaddr)
}

/// The dynamic linker among the modules of a process with the main program `main`, once for each
/// time it is mapped.
pub(crate) fn loaders<'a>(modules: &'a [Module], main: Option<&Module>) -> Vec<&'a Module> {
    let Some(interpreter) = main.and_then(|main| main.image.interpreter()) else { return Vec::new() };
    let has_its_name = |module: &&Module| {
        module.path == interpreter
            || interpreter.file_name().is_some_and(|name| module.path.file_name() == Some(name))
    };
    let named: Vec<&Module> = modules.iter().filter(has_its_name).collect();
    if !named.is_empty() {
        return named;
    }
    let path = std::fs::canonicalize(interpreter);
    modules.iter().filter(|module| path.as_ref().is_ok_and(|path| *path == module.path)).collect()
}

/// Where a dynamic linker is stopped after mapping a module, in the file's own numbering.
#[derive(Debug)]
pub(crate) struct Stops {
    /// Before it closes the module's file; may be empty.
    pub(crate) closes: Vec<u64>,
    /// After each of its calls of mmap.
    pub(crate) mapped: Vec<u64>,
}

/// Cache of the stops of dynamic linkers. Finding them takes a scan of all their code.
#[derive(Debug, Default)]
pub(crate) struct Loaders {
    known: Vec<(Arc<Image>, Rc<Stops>)>,
}

impl Loaders {
    /// The number of dynamic linkers kept.
    const KEPT: usize = 16;

    /// The stops of a dynamic linker.
    pub(crate) fn stops(&mut self, image: &Arc<Image>) -> Rc<Stops> {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| Arc::ptr_eq(known, image)) {
            return Rc::clone(known);
        }
        let found = Rc::new(Stops { closes: before_close(image), mapped: after_mmap(image) });
        if self.known.len() >= Loaders::KEPT {
            self.known.clear();
        }
        self.known.push((Arc::clone(image), Rc::clone(&found)));
        found
    }
}

/// What a dynamic linker has just mapped, as far as its thread's registers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// A mapping at an address.
    At(u64),
    /// A file: device and inode, as in the process's mappings.
    File((u32, u32), u64),
}

/// The file that a thread is about to close, from the registers of its call.
pub(crate) fn closed_file(tid: i32, registers: &process::Registers) -> Option<Arrived> {
    let metadata = std::fs::metadata(format!("/proc/{tid}/fd/{}", registers.rdi() as i32)).ok()?;
    let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    Some(Arrived::File(device, metadata.ino()))
}

/// Right after mmap returned: whether it has mapped a file with execute permission.
pub(crate) fn mapped_code(registers: &process::Registers) -> bool {
    let failed = (-4095..0).contains(&registers.result());
    let executable = registers.rdx() & libc::PROT_EXEC as u64 != 0;
    // In 32-bit code the file descriptor is no longer in a register.
    let file = registers.is_32_bit() || registers.r8() as i32 >= 0;
    !failed && executable && file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_of_this_machine_closes_each_file_in_one_place_and_a_libc_is_not_watched_there() {
        let image = |path: &str| Image::open(std::path::Path::new(path)).expect("it is read");
        let linker = image("/lib64/ld-linux-x86-64.so.2");
        let stops = before_close(&linker);
        assert!(!stops.is_empty());
        for stop in stops {
            assert_eq!(linker.text(stop, CLOSE.len()).as_deref(), Some(&CLOSE[..]));
        }
        let libc = process::maps(std::process::id() as i32).expect("own mappings");
        let mut libc = libc.iter().filter_map(|mapping| mapping.path.as_deref()?.to_str());
        let libc = libc.find(|path| path.ends_with("/libc.so.6")).expect("this program has one");
        assert!(before_close(&image(libc)).is_empty());
    }

    #[test]
    fn a_system_call_is_followed_from_its_number() {
        // mov eax,9; syscall
        assert_eq!(after_syscall(64, &[0xb8, 9, 0, 0, 0, 0x0f, 0x05, 0x90], 0x1000), Some(0x1007));
        // mov eax,0xc0; int 0x80
        assert_eq!(after_syscall(32, &[0xb8, 0xc0, 0, 0, 0, 0xcd, 0x80, 0x90], 0x1000), Some(0x1007));
        // mov eax,0xc0; call gs:[0x10]
        let call = [0xb8, 0xc0, 0, 0, 0, 0x65, 0xff, 0x15, 0x10, 0, 0, 0, 0x90];
        assert_eq!(after_syscall(32, &call, 0x1000), Some(0x100c));
    }

    #[test]
    fn a_helper_is_told_by_the_comparison_after_it() {
        // mov eax,0xc0; call helper; cmp eax,0xfffff000
        let mut call = vec![0xb8, 0xc0, 0, 0, 0, 0xe8, 1, 2, 0, 0, 0x3d, 0, 0xf0, 0xff, 0xff];
        assert_eq!(after_syscall(32, &call, 0x1000), Some(0x100a));
        // The same with another number; then mov [esp+0x38],eax.
        call[12] = 0xf1;
        assert_eq!(after_syscall(32, &call, 0x1000), None);
        call.splice(10.., [0x89, 0x44, 0x24, 0x38]);
        assert_eq!(after_syscall(32, &call, 0x1000), None);
    }

    #[test]
    fn code_that_changes_eax_or_ends_is_followed_no_further() {
        assert_eq!(after_syscall(64, &[0xb8, 9, 0, 0, 0, 0x31, 0xc0, 0x0f, 0x05], 0x1000), None);
        assert_eq!(after_syscall(32, &[0xb8, 0xc0, 0, 0, 0, 0xc3, 0xcd, 0x80], 0x1000), None);
        assert_eq!(after_syscall(32, &[0xb8, 0xc0, 0, 0, 0], 0x1000), None);
    }
}
