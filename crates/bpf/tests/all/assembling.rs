//! Programs as text. These need no kernel.

use bpf::{Alu, AssembleError, Assembler, Atomic, Cond, Helper, Insn, Reg, Size, Width};

fn text(assembler: Assembler) -> String {
    assembler.finish().expect("the program is complete").to_string()
}

#[test]
fn every_kind_of_instruction_prints() {
    let mut assembler = Assembler::new();
    let alu = [
        Alu::Add,
        Alu::Sub,
        Alu::Mul,
        Alu::Div,
        Alu::Or,
        Alu::And,
        Alu::Lsh,
        Alu::Rsh,
        Alu::Mod,
        Alu::Xor,
        Alu::Mov,
        Alu::Arsh,
    ];
    for op in alu {
        assembler.push(Insn::alu64(op, Reg::R1, Reg::R2));
        assembler.push(Insn::alu32(op, Reg::R3, -4));
    }
    assembler.push(Insn::neg(Width::W64, Reg::R5));
    assembler.push(Insn::neg(Width::W32, Reg::R5));
    for size in [Size::Half, Size::Word, Size::Double] {
        assembler.push(Insn::big_endian(size, Reg::R6));
    }
    for size in [Size::Byte, Size::Half, Size::Word, Size::Double] {
        assembler.push(Insn::load(size, Reg::R0, Reg::R1, 8));
        assembler.push(Insn::store(size, Reg::R10, -8, Reg::R9));
        assembler.push(Insn::store_imm(size, Reg::R10, -16, -1));
    }
    let atomics = [
        Atomic::Add,
        Atomic::Or,
        Atomic::And,
        Atomic::Xor,
        Atomic::FetchAdd,
        Atomic::FetchOr,
        Atomic::FetchAnd,
        Atomic::FetchXor,
        Atomic::Exchange,
        Atomic::CompareExchange,
    ];
    for op in atomics {
        assembler.push(Insn::atomic(op, Size::Double, Reg::R1, 16, Reg::R2));
    }
    assembler.push(Insn::atomic(Atomic::Add, Size::Word, Reg::R1, 4, Reg::R2));
    assembler.load_imm(Reg::R1, u64::MAX);
    assembler.load_imm(Reg::R1, 0x8000_0000);
    assembler.load_imm(Reg::R1, 0x0123_4567_89ab_cdef);
    assembler.load_map(Reg::R1, 3);
    assembler.load_map_value(Reg::R1, 2, 4096);
    assembler.call(Helper::MAP_LOOKUP_ELEM);
    assembler.exit();
    insta::assert_snapshot!(text(assembler));
}

#[test]
fn jumps_calls_and_addresses_print_where_they_lead() {
    let mut assembler = Assembler::new();
    let (back, end, step) = (assembler.label(), assembler.label(), assembler.label());
    assembler.bind(back);
    let conditions = [
        Cond::Eq,
        Cond::Gt,
        Cond::Ge,
        Cond::Set,
        Cond::Ne,
        Cond::Sgt,
        Cond::Sge,
        Cond::Lt,
        Cond::Le,
        Cond::Slt,
        Cond::Sle,
    ];
    for cond in conditions {
        assembler.jump_if64(cond, Reg::R1, Reg::R2, back);
        assembler.jump_if32(cond, Reg::R1, -1, end);
    }
    assembler.load_function(Reg::R2, step);
    assembler.call_function(step);
    assembler.jump(back);
    // This is never executed, so it is left out.
    assembler.push(Insn::mov(Reg::R0, 99));
    assembler.bind(end);
    assembler.exit();
    assembler.function(step);
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.exit();
    insta::assert_snapshot!(text(assembler));
}

#[test]
fn functions_that_are_not_used_are_left_out() {
    let mut assembler = Assembler::new();
    let (unused, used) = (assembler.label(), assembler.label());
    assembler.call_function(used);
    assembler.exit();
    assembler.function(unused);
    assembler.push(Insn::mov(Reg::R0, 1));
    assembler.exit();
    assembler.function(used);
    assembler.push(Insn::mov(Reg::R0, 2));
    assembler.exit();
    let code = assembler.finish().expect("the program is complete");
    assert_eq!(code.functions(), [0, 2]);
    assert_eq!(code.to_string(), "   0: call 2\n   1: exit\n\n   2: r0 = 2\n   3: exit\n");
}

#[test]
fn the_maps_that_are_needed_are_counted() {
    let mut assembler = Assembler::new();
    assembler.load_map_value(Reg::R1, 4, 0);
    assembler.load_map(Reg::R1, 1);
    assembler.exit();
    assert_eq!(assembler.finish().map(|code| code.map_count()), Ok(5));
}

#[test]
fn misused_labels_and_open_ends_are_errors() {
    let error = |write: &dyn Fn(&mut Assembler)| {
        let mut assembler = Assembler::new();
        write(&mut assembler);
        assembler.finish().err()
    };
    let unbound = error(&|assembler| {
        let label = assembler.label();
        assembler.jump(label);
    });
    assert!(matches!(unbound, Some(AssembleError::Unbound(_))), "{unbound:?}");
    let twice = error(&|assembler| {
        let label = assembler.label();
        assembler.bind(label);
        assembler.exit();
        assembler.bind(label);
    });
    assert!(matches!(twice, Some(AssembleError::BoundTwice(_))), "{twice:?}");
    let inside = error(&|assembler| {
        let label = assembler.label();
        assembler.call_function(label);
        assembler.bind(label);
        assembler.exit();
    });
    assert!(matches!(inside, Some(AssembleError::NotAFunction(_))), "{inside:?}");
    let across = error(&|assembler| {
        let (function, inside) = (assembler.label(), assembler.label());
        assembler.call_function(function);
        assembler.jump(inside);
        assembler.function(function);
        assembler.push(Insn::mov(Reg::R0, 0));
        assembler.bind(inside);
        assembler.exit();
    });
    assert_eq!(across, Some(AssembleError::LeavesFunction(1)));
    let open = error(&|assembler| {
        let function = assembler.label();
        assembler.call_function(function);
        assembler.function(function);
        assembler.exit();
    });
    assert_eq!(open, Some(AssembleError::NoEnd(0)));
    assert_eq!(error(&|_| {}), Some(AssembleError::NoEnd(0)));
}
