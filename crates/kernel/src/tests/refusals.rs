//! Each reason, and where an instruction is not refused.

use maps::{Kind, MapInfo};
use vm::{Op, Program, Register, Word};

use super::live;
use crate::tracepoints::FieldAccess;
use crate::{AttachKind, Reason, Target, compile_for_tracepoint};

/// The reason why a program of one instruction is refused at a place.
fn reason(place: AttachKind, code: &[u8]) -> Option<Reason> {
    let infos: Vec<MapInfo> = KINDS.map(|kind| MapInfo { kind: kind as u32, ..MapInfo::default() }).to_vec();
    let maps = vm::Maps { infos: &infos, words: &[] };
    let narrow = code.get(1) == Some(&(Op::StackOf as u8));
    let word = if narrow { Word::W4 } else { Word::W8 };
    let program = Program { word, code, maps, ..Program::default() };
    let size = crate::Size { probes: 1, processors: 1, contexts: 1, ring: 4096 };
    let bare = Target { place, writes_registers: false, writes_memory: false, ..live::target(size, false) };
    // The tracepoint has two of the fields.
    let fields = [Some(FieldAccess::Thread), None, Some(FieldAccess::Hidden)];
    compile_for_tracepoint(&live::handler(&program, 0), &bare, &fields).err().map(|refusal| {
        assert_eq!(refusal.offset, if refusal.reason == Reason::TooLong { 0 } else { 1 });
        refusal.reason
    })
}

/// An instruction behind another.
fn one(op: Op) -> Vec<u8> {
    let mut code = vec![Op::Nop as u8, op as u8, 1, 0];
    code.resize(16, Op::Exit as u8);
    code
}

/// The kinds of the maps, by their numbers.
const KINDS: [Kind; 4] = [Kind::Plain, Kind::Hist, Kind::Tseries, Kind::Stacks];

/// An instruction on the map of a kind.
fn map(op: Op, kind: Kind) -> Vec<u8> {
    let number = KINDS.iter().position(|it| *it == kind).expect("one of them");
    vec![Op::Nop as u8, op as u8, number as u8, 0, Op::Exit as u8]
}

#[test]
fn each_instruction_of_the_table_is_compiled_or_refused() {
    let mut compiled = 0;
    for (row, place) in
        vm::TABLE.iter().flat_map(|row| [AttachKind::Uprobe, AttachKind::Kprobe].map(|it| (row, it)))
    {
        for map in 0..=KINDS.len() as u8 {
            let mut code = vec![Op::Nop as u8, row.op as u8, map, 0];
            code.resize(16, Op::Exit as u8);
            compiled += usize::from(reason(place, &code).is_none());
        }
    }
    assert!(compiled > vm::TABLE.len() * KINDS.len(), "{compiled}");
}

/// The field that the tracepoint has, and programs do not see.
const HIDDEN: u8 = 2;

fn with_field(field: u8) -> Vec<u8> {
    vec![Op::Nop as u8, Op::PushField as u8, field, 0, Op::Exit as u8]
}

/// An instruction with a register.
fn with(op: Op, register: Register) -> Vec<u8> {
    let mut code = vec![Op::Nop as u8, op as u8];
    code.extend((register as u16).to_le_bytes());
    code.push(Op::Exit as u8);
    code
}

#[test]
fn each_reason_is_given_where_it_holds() {
    use AttachKind::{KernelBreakpoint, Kprobe, Kretprobe, Tracepoint, Uprobe, UserBreakpoint};
    let cases: [(Reason, Vec<u8>, &[AttachKind]); 29] = [
        (Reason::UserContext, with(Op::PopU, Register::Rax), &[Kprobe, Kretprobe, KernelBreakpoint]),
        (Reason::Facility, one(Op::ExitTo), &[Kprobe, Kretprobe, KernelBreakpoint]),
        (
            Reason::Parts,
            vec![Op::Nop as u8, Op::LogB as u8, 1, 0, Op::Exit as u8],
            &[Uprobe, Kprobe, Tracepoint],
        ),
        (Reason::SegmentRegister, with(Op::PushR, Register::FsBase), &[Uprobe, Kprobe, UserBreakpoint]),
        (Reason::FloatRegister, with(Op::PushR, Register::Xmm8), &[Uprobe, UserBreakpoint]),
        (Reason::ControlRegister, with(Op::PushR, Register::Gdtr), &[Kprobe, KernelBreakpoint]),
        (Reason::Cpuid, with(Op::PushR, Register::Cpuid), &[Uprobe, Kprobe]),
        (Reason::ModelSpecificRegister, with(Op::PushR, Register::Msr), &[Kprobe]),
        (Reason::SetsRegister, with(Op::PopR, Register::Rax), &[Uprobe, Kprobe, UserBreakpoint]),
        (Reason::SetsSegmentRegister, with(Op::PopR, Register::Es), &[Uprobe, Kprobe]),
        (Reason::WritesMemory, one(Op::PopMem8), &[Uprobe, UserBreakpoint]),
        (Reason::WritesKernelMemory, one(Op::PopMem64), &[Kprobe, Kretprobe]),
        (Reason::VerifiesWriting, one(Op::Vfyrw), &[Uprobe, Kprobe]),
        (Reason::Selector, one(Op::Seg2lin), &[Uprobe, Kprobe]),
        (Reason::Plugins, one(Op::Callk), &[Uprobe, Kprobe]),
        (Reason::Ports, one(Op::PopIo32), &[Kprobe]),
        (Reason::NoRegisters, with(Op::PushR, Register::Rip), &[Tracepoint]),
        (Reason::NoRecord, one(Op::PushField), &[Kprobe, Kretprobe, KernelBreakpoint]),
        (Reason::NoSuchField, one(Op::PushField), &[Tracepoint]),
        (Reason::HiddenField, with_field(HIDDEN), &[Tracepoint]),
        (Reason::Series, map(Op::Update, Kind::Tseries), &[Uprobe, Kprobe, Tracepoint]),
        (Reason::Amount, map(Op::Load, Kind::Hist), &[Uprobe, Kprobe, Tracepoint]),
        (Reason::Entries, map(Op::Next, Kind::Plain), &[Uprobe, Kprobe, Tracepoint]),
        (Reason::Depth, map(Op::Depth, Kind::Stacks), &[Uprobe, Kprobe, Tracepoint]),
        (Reason::Stack, map(Op::StackOf, Kind::Stacks), &[Uprobe, Kprobe]),
        (Reason::Pattern, one(Op::GlobF), &[Uprobe, Kprobe, Tracepoint]),
        (Reason::Parent, one(Op::PushParent), &[Uprobe, Kprobe, Tracepoint]),
        (Reason::Returns, one(Op::Override), &[Uprobe, Kprobe, Tracepoint]),
        (Reason::TooLong, vec![Op::Add as u8; 100_000], &[Uprobe]),
    ];
    let given: Vec<Reason> = cases.iter().map(|(reason, ..)| *reason).collect();
    assert_eq!(given, Reason::ALL);
    for (expected, code, places) in cases {
        for &place in places {
            assert_eq!(reason(place, &code), Some(expected), "{place:?}");
        }
    }
}

#[test]
fn what_is_for_kernel_probes_is_refused_there_alone() {
    let refused_only_there =
        [one(Op::ExitTo), with(Op::PushR, Register::Cr0), with(Op::PushR, Register::Msr), one(Op::PushIo8)];
    for code in refused_only_there {
        assert!(reason(AttachKind::Kprobe, &code).is_some());
        assert_eq!(reason(AttachKind::Uprobe, &code), None);
    }
    assert_eq!(reason(AttachKind::Tracepoint, &with_field(0)), None);
    assert_eq!(reason(AttachKind::Uprobe, &with_field(0)), None);
    // The user's registers can be read in both.
    let user_register = with(Op::PushU, Register::Rax);
    assert_eq!(
        (reason(AttachKind::Kprobe, &user_register), reason(AttachKind::Uprobe, &user_register)),
        (None, None)
    );
    // What cannot be reached is no matter.
    assert_eq!(reason(AttachKind::Kprobe, &[Op::Exit as u8, Op::Callk as u8]), None);
}
