//! How the engine learns that a module was mapped.
//!
//! The dynamic linker maps every module, at the start of a program and in dlopen, with its own copy of `mmap`:
//! `mov eax,9; syscall` in its text. A site of the engine's own on the instruction after that `syscall` is
//! reached when the mapping is there and nothing of the module has run or been relocated, so no hit of a
//! constructor or of an indirect function's resolver is lost.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Register};
use process::{Image, Module};

/// The bytes of `mov eax,9`: the number of mmap.
const MOV_EAX_MMAP: [u8; 5] = [0xb8, 9, 0, 0, 0];

/// Instructions between the `mov` and the `syscall`, at most.
const BETWEEN: usize = 8;

/// The addresses, in the file's own numbering, of the instructions after mmap's system calls in an image.
pub(crate) fn after_mmap(image: &Image) -> Vec<u64> {
    let mut found = Vec::new();
    for segment in image.segments().iter().filter(|segment| segment.executable) {
        let Some(text) = image.text(segment.vaddr, segment.file_size as usize) else { continue };
        let starts = text.windows(MOV_EAX_MMAP.len()).enumerate().filter(|(_, bytes)| *bytes == MOV_EAX_MMAP);
        found.extend(
            starts.filter_map(|(start, _)| after_syscall(&text[start..], segment.vaddr + start as u64)),
        );
    }
    found
}

/// Follows straight-line code that leaves eax alone from a `mov eax` to a `syscall`: the address after it.
fn after_syscall(code: &[u8], address: u64) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut information = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    decoder.decode_out(&mut instruction);
    for _ in 0..BETWEEN {
        if !decoder.can_decode() {
            return None;
        }
        decoder.decode_out(&mut instruction);
        if instruction.code() == Code::Syscall {
            return Some(instruction.next_ip());
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

/// Whether a module is the dynamic linker of a process whose main program is `main`.
pub(crate) fn is_loader(module: &Module, main: Option<&Module>) -> bool {
    let interpreter = main.and_then(|main| main.image.interpreter());
    match interpreter {
        Some(interpreter) => {
            module.path == interpreter
                || interpreter.file_name().is_some_and(|name| module.path.file_name() == Some(name))
                || std::fs::canonicalize(interpreter).is_ok_and(|path| path == module.path)
        }
        None => false,
    }
}

/// What the registers say right after mmap returned: whether it has mapped a file's code.
pub(crate) fn mapped_code(registers: &process::Registers) -> bool {
    let failed = (-4095..0).contains(&(registers.rax() as i64));
    let executable = registers.rdx() & libc::PROT_EXEC as u64 != 0;
    let file = registers.r8() as i32 >= 0;
    !failed && executable && file
}
