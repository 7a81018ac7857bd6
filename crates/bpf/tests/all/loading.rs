//! What the verifier accepts and refuses.

use bpf::{Alu, Assembler, Cond, Helper, Insn, Label, Map, MapSpec, ProgramKind, Reg, Size};

use crate::support::{load, permitted, try_load};

#[test]
fn a_program_computes() {
    if !permitted("a_program_computes") {
        return;
    }
    let mut assembler = Assembler::new();
    assembler.push(Insn::load(Size::Double, Reg::R0, Reg::R1, 0));
    assembler.push(Insn::load(Size::Double, Reg::R2, Reg::R1, 8));
    assembler.push(Insn::alu64(Alu::Mul, Reg::R0, Reg::R2));
    assembler.load_imm(Reg::R3, 0x1_0000_0002);
    assembler.push(Insn::alu64(Alu::Add, Reg::R0, Reg::R3));
    assembler.exit();
    let program = load(ProgramKind::RawTracepoint, assembler, &[]);
    assert_eq!(program.test_run(&[6, 7]), Ok(44));
}

#[test]
fn functions_are_called_and_passed_to_helpers() {
    if !permitted("functions_are_called_and_passed_to_helpers") {
        return;
    }
    let map = Map::create(&MapSpec { mappable: true, ..MapSpec::array("sum", 16, 1) });
    let map = map.expect("this process may create maps");
    let mut assembler = Assembler::new();
    let (step, double) = (assembler.label(), assembler.label());
    // The loop's step adds its number to the map's second word.
    assembler.push(Insn::mov(Reg::R1, 10));
    assembler.load_function(Reg::R2, step);
    assembler.push(Insn::mov(Reg::R3, 0));
    assembler.push(Insn::mov(Reg::R4, 0));
    assembler.call(Helper::LOOP);
    assembler.push(Insn::mov(Reg::R1, Reg::R0));
    assembler.call_function(double);
    assembler.exit();
    assembler.function(step);
    assembler.load_map_value(Reg::R2, 0, 8);
    assembler.push(Insn::load(Size::Double, Reg::R3, Reg::R2, 0));
    assembler.push(Insn::alu64(Alu::Add, Reg::R3, Reg::R1));
    assembler.push(Insn::store(Size::Double, Reg::R2, 0, Reg::R3));
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.exit();
    assembler.function(double);
    assembler.push(Insn::mov(Reg::R0, Reg::R1));
    assembler.push(Insn::alu64(Alu::Lsh, Reg::R0, 1));
    assembler.exit();
    let program = load(ProgramKind::RawTracepoint, assembler, &[&map]);
    assert_eq!(program.test_run(&[]), Ok(20));
    let shared = map.share().expect("the map is mappable");
    let words: Vec<u64> = shared.iter().map(|w| w.load(std::sync::atomic::Ordering::Relaxed)).collect();
    assert_eq!(words[..2], [0, 45]);
}

#[test]
fn a_refusal_names_the_instruction_and_the_reason() {
    if !permitted("a_refusal_names_the_instruction_and_the_reason") {
        return;
    }
    let mut assembler = Assembler::new();
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.load_imm(Reg::R2, 1 << 40);
    assembler.push(Insn::load(Size::Double, Reg::R3, Reg::R2, 0));
    assembler.exit();
    let error = try_load(ProgramKind::RawTracepoint, assembler, &[]).expect_err("it reads anywhere");
    assert_eq!((error.errno, error.insn), (bpf::Errno::EACCES, Some(3)), "{}", error.log);
    let reason = error.reason().unwrap_or_default();
    assert!(reason.contains("R2 invalid mem access"), "{reason}");
}

#[test]
fn far_jumps_are_accepted_and_lead_where_they_should() {
    if !permitted("far_jumps_are_accepted_and_lead_where_they_should") {
        return;
    }
    let mut assembler = Assembler::new();
    let (far, back, start) = (assembler.label(), assembler.label(), assembler.label());
    assembler.push(Insn::load(Size::Double, Reg::R2, Reg::R1, 0));
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.jump(start);
    assembler.bind(back);
    assembler.push(Insn::alu64(Alu::Add, Reg::R0, 1000));
    assembler.exit();
    assembler.bind(start);
    assembler.jump_if64(Cond::Eq, Reg::R2, 1, far);
    for _ in 0..90_000 {
        assembler.push(Insn::alu64(Alu::Add, Reg::R0, 1));
    }
    assembler.bind(far);
    assembler.push(Insn::alu64(Alu::Add, Reg::R0, 5));
    assembler.jump_if64(Cond::Eq, Reg::R2, 1, back);
    assembler.exit();
    let program = load(ProgramKind::RawTracepoint, assembler, &[]);
    assert_eq!((program.test_run(&[1]), program.test_run(&[0])), (Ok(1005), Ok(90_005)));
}

#[test]
fn a_dispatcher_of_thousands_of_segments_is_accepted() {
    const SEGMENTS: i32 = 2000;
    if !permitted("a_dispatcher_of_thousands_of_segments_is_accepted") {
        return;
    }
    // The program's argument is a segment's number; each segment returns a number of its own.
    let mut assembler = Assembler::new();
    let (labels, end): (Vec<Label>, Label) =
        ((0..SEGMENTS).map(|_| assembler.label()).collect(), assembler.label());
    assembler.push(Insn::load(Size::Double, Reg::R2, Reg::R1, 0));
    assembler.push(Insn::mov(Reg::R0, -1));
    dispatch(&mut assembler, 0, &labels);
    for (number, &label) in (0..).zip(&labels) {
        assembler.bind(label);
        assembler.push(Insn::mov(Reg::R0, number));
        for _ in 0..40 {
            assembler.push(Insn::alu64(Alu::Add, Reg::R0, 1));
        }
        assembler.jump_if64(Cond::Ge, Reg::R0, 1000, end);
        assembler.jump(end);
    }
    assembler.bind(end);
    assembler.exit();
    let program = load(ProgramKind::RawTracepoint, assembler, &[]);
    for number in [0, 1, 777, 1234, 1999] {
        assert_eq!(program.test_run(&[number]), Ok(number as u32 + 40));
    }
}

/// Jumps to the label with the number in `R2`, by halving.
fn dispatch(assembler: &mut Assembler, first: i32, labels: &[Label]) {
    if let [only] = labels {
        return assembler.jump(*only);
    }
    let (low, high) = labels.split_at(labels.len() / 2);
    let middle = first + low.len() as i32;
    let upper = assembler.label();
    assembler.jump_if64(Cond::Ge, Reg::R2, middle, upper);
    dispatch(assembler, first, low);
    assembler.bind(upper);
    dispatch(assembler, middle, high);
}
