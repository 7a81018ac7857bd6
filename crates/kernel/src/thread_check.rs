//! The code that compares the thread with a [`Filter`], before anything of a hit is counted.

use bpf::{Alu, Cond, Helper, Insn, Label, Reg, Size};

use crate::emit::Emit;
use crate::filter::{Cgroup, Filter, ThreadName};

/// Leaves unless the thread is one of those that count. `place`: two words of the stack.
pub(crate) fn emit(e: &mut Emit, filter: &Filter, place: i16, out: Label) {
    if let Some(user) = filter.user {
        e.call(Helper::GET_CURRENT_UID_GID);
        e.asm.push(Insn::mov32(Reg::R0, Reg::R0));
        e.asm.load_imm(Reg::R1, user.into());
        e.jump_if(Cond::Ne, Reg::R0, Reg::R1, out);
    }
    if let Some(ThreadName(name)) = filter.name {
        e.mov(Reg::R1, Reg::R10);
        e.alu(Alu::Add, Reg::R1, i32::from(place));
        e.thread_name();
        for (half, expected) in name.as_chunks::<8>().0.iter().enumerate() {
            e.load(Size::Double, Reg::R0, Reg::R10, place + 8 * half as i16);
            e.asm.load_imm(Reg::R1, u64::from_le_bytes(*expected));
            e.jump_if(Cond::Ne, Reg::R0, Reg::R1, out);
        }
    }
    if let Some(Cgroup { id, level }) = filter.cgroup {
        e.mov(Reg::R1, level as i32);
        e.call(Helper::GET_CURRENT_ANCESTOR_CGROUP_ID);
        e.asm.load_imm(Reg::R1, id);
        e.jump_if(Cond::Ne, Reg::R0, Reg::R1, out);
    }
}
