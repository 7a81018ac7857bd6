//! Follows the children of traced processes: the kernel itself adds each to the list of processes
//! before it runs, so that none of its hits is missed.
//!
//! ```text
//!     sched_process_fork(parent, child):
//!         if (processes[parent->tgid] && child->tgid != parent->tgid)
//!             processes[child->tgid] = 1
//! ```

use bpf::{
    Alu, Assembler, Cond, Helper, Insn, Link, Program, ProgramKind, ProgramSpec, RawTracepoint, Reg, Size,
};

use crate::processes::Processes;

/// Places in the frame of the program: what is read of the tasks, which are keys of the map, and a
/// value of it.
const PARENT: i16 = -8;
const CHILD: i16 = -16;
const VALUE: i16 = -24;

/// Adds to the processes, from now on, what they fork, as long as the link lives.
///
/// # Errors
/// Why that cannot be done, in words.
pub fn follow_children(processes: &Processes) -> Result<Link, String> {
    let members = bpf::kernel_members("task_struct", ["tgid"]);
    let members = members.map_err(|error| format!("the kernel's type information: {error}"))?;
    let [tgid] = members.ok_or("the kernel's type information has no `task_struct` with a `tgid`")?;
    let code = program(tgid).finish().map_err(|error| error.to_string())?;
    let spec = ProgramSpec {
        kind: ProgramKind::RawTracepoint,
        name: "dp_follow",
        code: &code,
        maps: &[&processes.map],
    };
    let program = Program::load(&spec).map_err(|error| error.to_string())?;
    RawTracepoint { name: "sched_process_fork" }.attach(&program, 0).map_err(|error| error.to_string())
}

/// The program, for the place of `tgid` in `struct task_struct`.
fn program(tgid: u32) -> Assembler {
    let mut asm = Assembler::new();
    let out = asm.label();
    asm.push(Insn::mov(Reg::R6, Reg::R1));
    for (argument, place) in [(0, PARENT), (8, CHILD)] {
        asm.push(Insn::store_imm(Size::Double, Reg::R10, place, 0));
        address(&mut asm, Reg::R1, place);
        asm.push(Insn::mov(Reg::R2, 4));
        asm.push(Insn::load(Size::Double, Reg::R3, Reg::R6, argument));
        asm.push(Insn::alu64(Alu::Add, Reg::R3, tgid as i32));
        asm.call(Helper::PROBE_READ_KERNEL);
        asm.jump_if64(Cond::Ne, Reg::R0, 0, out);
    }
    asm.push(Insn::load(Size::Word, Reg::R1, Reg::R10, PARENT));
    asm.push(Insn::load(Size::Word, Reg::R2, Reg::R10, CHILD));
    asm.jump_if64(Cond::Eq, Reg::R1, Reg::R2, out);
    asm.load_map(Reg::R1, 0);
    address(&mut asm, Reg::R2, PARENT);
    asm.call(Helper::MAP_LOOKUP_ELEM);
    asm.jump_if64(Cond::Eq, Reg::R0, 0, out);
    asm.push(Insn::store_imm(Size::Double, Reg::R10, VALUE, 1));
    asm.load_map(Reg::R1, 0);
    address(&mut asm, Reg::R2, CHILD);
    address(&mut asm, Reg::R3, VALUE);
    asm.push(Insn::mov(Reg::R4, 0));
    asm.call(Helper::MAP_UPDATE_ELEM);
    asm.bind(out);
    asm.push(Insn::mov(Reg::R0, 0));
    asm.exit();
    asm
}

/// A register becomes the address of a place in the frame.
fn address(asm: &mut Assembler, to: Reg, place: i16) {
    asm.push(Insn::mov(to, Reg::R10));
    asm.push(Insn::alu64(Alu::Add, to, i32::from(place)));
}
