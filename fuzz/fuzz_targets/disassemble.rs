//! Any code of any machine: the disassembler shows it, and what it shows compiles or is refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpn::{Arch, ModuleKind, Object, Options, Proc, compile_text, disassemble};

fuzz_target!(|data: &[u8]| {
    let [machine, kind, entry, end, code @ ..] = data else { return };
    let arch = Arch::ALL[usize::from(*machine) % Arch::ALL.len()];
    let options = Options { arch, ..Options::default() };
    let Ok(compiled) = compile_text("base", "name = a vars = 9 gvars = 9 offset = main", &options) else {
        panic!("it is right");
    };
    let mut object: Object = compiled.object;
    object.kind = [ModuleKind::User, ModuleKind::Kernel, ModuleKind::KernelModule][usize::from(*kind) % 3];
    object.code = code.to_vec();
    (object.probes[0].entry, object.probes[0].end) = (usize::from(*entry), code.len());
    object.procs.push(Proc { name: "p".into(), entry: usize::from(*end), end: usize::from(*entry) });
    let text = disassemble(&object);
    if let Err(failure) = compile_text("disassembly", &text, &options) {
        assert!(!failure.render(false).is_empty());
    }
});
