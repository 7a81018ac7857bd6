//! Any bytecode, with any limits, for any place: it compiles to a program for the kernel or is refused, and a refusal names
//! an offset in the code.
//!
//! The input: 8 bytes of settings, then the code.
#![no_main]

use kernel::{Condition, Handler, AttachKind, Size, TablesShape, Target, compile};
use libfuzzer_sys::fuzz_target;
use vm::{ProbepointInfo, Word};

fuzz_target!(|input: &[u8]| {
    let Some((&[choice, entry, jmpmax, insmax, logmax, excpt_log, heap, mask], code)) = input.split_first_chunk::<8>() else {
        return;
    };
    let places =
        [AttachKind::Uprobe, AttachKind::Kprobe, AttachKind::Kretprobe, AttachKind::UserBreakpoint, AttachKind::KernelBreakpoint, AttachKind::Uprobe];
    let handler = Handler {
        word: if choice & 1 == 0 { Word::W8 } else { Word::W4 },
        code,
        entry: entry.into(),
        jmpmax: u32::from(jmpmax) << 9,
        insmax: u32::from(insmax) << 23,
        logmax: usize::from(logmax) << 8,
        excpt_log: usize::from(excpt_log) << 8,
        autostacktrace: choice & 2 != 0,
        heap: usize::from(heap) << 7,
        mask: u16::from(mask) << 8 | u16::from(mask),
        locals: (choice & 3).into(),
        globals: (choice >> 6).into(),
        tables: TablesShape::default(),
        is_script: choice & 32 != 0,
        point: ProbepointInfo { module: b"app", offset: 1, id: 2, major: 3, minor: 4 },
    };
    let target = Target {
        place: places[usize::from(choice >> 2) % places.len()],
        sleepable: choice & 4 != 0,
        only: kernel::Filter::default(),
        filtered: choice & 8 != 0,
        by_process: choice & 64 != 0,
        except: (choice & 128 != 0).then_some(7),
        condition: (choice & 64 != 0).then(|| Condition::of_opcode(mask)),
        returns: choice & 8 != 0,
        cookie: (choice & 16 != 0).then_some(5),
        facilities: choice & 32 != 0,
        without_context: choice & 4 != 0,
        writes_registers: choice & 16 != 0,
        writes_memory: choice & 32 != 0,
        size: Size { probes: 3, processors: 4, contexts: 2, ring: 1 << 16 },
    };
    match compile(&handler, &target) {
        Ok(compiled) => {
            let functions = compiled.code.functions().len();
            assert!((1..256).contains(&functions), "{functions} functions");
            assert!(compiled.code.insns().len() < 1_000_000);
        }
        Err(refusal) => assert!(refusal.offset <= code.len().max(handler.entry)),
    }
});
