//! Any text, for any machine: the compiler answers with an object or with messages, and an object comes back from its
//! disassembly. The first byte chooses the machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpn::{Arch, Object, Options, compile_text, disassemble};

fuzz_target!(|data: &[u8]| {
    let Some((first, text)) = data.split_first() else { return };
    let arch = Arch::ALL[usize::from(*first) % Arch::ALL.len()];
    let options = Options { arch, ..Options::default() };
    match compile_text("input", &String::from_utf8_lossy(text), &options) {
        // A few messages: rendering all of hundreds would be most of the time.
        Err(failure) => {
            for message in failure.diagnostics.iter().take(4) {
                assert!(!message.render(&failure.sources, false).is_empty());
            }
        }
        Ok(compiled) => {
            let text = disassemble(&compiled.object);
            match compile_text("disassembly", &text, &options) {
                Err(failure) => panic!("{text}\n{}", failure.render(false)),
                Ok(again) => assert_eq!(bare(compiled.object), bare(again.object), "{text}"),
            }
        }
    }
});

/// An object without what depends on how its source was written.
fn bare(mut object: Object) -> Object {
    object.lines.iter_mut().for_each(|(_, span)| *span = Default::default());
    for probe in &mut object.probes {
        probe.span = Default::default();
        probe.point = String::new();
    }
    object
}
