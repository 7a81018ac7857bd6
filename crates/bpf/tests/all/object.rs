//! Programs as files that other tools read.

use std::process::Command;

use bpf::{Assembler, Cond, Helper, Insn, Reg, write_object};

use crate::support::with_a_child;

#[test]
fn llvm_objdump_reads_an_object() {
    let Some(objdump) = testing::find_program("llvm-objdump") else {
        return testing::skipped("llvm-objdump", "llvm-objdump");
    };
    let mut assembler = Assembler::new();
    let (done, double) = (assembler.label(), assembler.label());
    assembler.load_map(Reg::R1, 1);
    assembler.call(Helper::MAP_LOOKUP_ELEM);
    assembler.jump_if64(Cond::Eq, Reg::R0, 0, done);
    assembler.load_map_value(Reg::R2, 0, 8);
    assembler.call_function(double);
    assembler.load_function(Reg::R2, double);
    assembler.bind(done);
    assembler.exit();
    assembler.function(double);
    assembler.push(Insn::mov(Reg::R0, 7));
    assembler.exit();
    let code = assembler.finish().expect("the program is complete");
    let object = write_object(&code, &["variables", "contexts"], "uprobe", "handler");
    let scratch = testing::Scratch::new();
    let file = scratch.path().join("handler.o");
    std::fs::write(&file, object).expect("the scratch directory is writable");
    let _child = with_a_child();
    let output = Command::new(objdump).args(["-dr", "--no-show-raw-insn"]).arg(&file).output();
    let output = output.expect("llvm-objdump can be executed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Older versions print decimal numbers, newer ones hexadecimal: those here are the same in
    // both.
    let text = text.replace("0x", "");
    let listing: Vec<&str> = text.lines().skip(2).map(str::trim).filter(|line| !line.is_empty()).collect();
    insta::assert_snapshot!(listing.join("\n"));
}
