//! Any bytes: they compile or are refused.

use proptest::collection::vec;
use proptest::prelude::*;
use vm::{Program, Word};

use super::live;
use crate::{AttachKind, Size, Target, compile};

const PLACES: [AttachKind; 6] = [
    AttachKind::Uprobe,
    AttachKind::Kprobe,
    AttachKind::Kretprobe,
    AttachKind::UserBreakpoint,
    AttachKind::KernelBreakpoint,
    AttachKind::Event,
];

proptest! {
    #[test]
    fn any_bytes_compile_or_are_refused_with_an_offset(
        code in vec(any::<u8>(), 0..300),
        wide in any::<bool>(),
        place in 0..PLACES.len(),
        (entry, jmpmax, insmax, logmax) in (0..20_usize, any::<u32>(), any::<u32>(), any::<usize>()),
        (excpt_log, heap, mask) in (any::<usize>(), any::<usize>(), any::<u16>()),
        (autostacktrace, writes) in any::<(bool, bool)>(),
    ) {
        let word = if wide { Word::W8 } else { Word::W4 };
        let program = Program { word, code: &code, jmpmax, insmax, logmax, mask, excpt_log, heap, autostacktrace, ..Program::default() };
        let size = Size { probes: 3, processors: 4, contexts: 2, ring: 1 << 16 };
        let target = Target {
            place: PLACES[place],
            writes_registers: writes,
            writes_memory: writes,
            ..live::target(size, false)
        };
        match compile(&live::handler(&program, entry), &target) {
            Ok(compiled) => prop_assert!(compiled.code.functions().len() < 256),
            Err(refusal) => prop_assert!(refusal.offset < code.len()),
        }
    }
}
