//! Notes in the claimed context who runs the handler: the thread and the site.
//!
//! ```text
//!     fs, and the offset behind it in Identity  --mov------->  tid -> holder, %edx
//!     without a libc: the thread's descriptors  --lar, lsl-->  tid -> holder, %edx
//!     the environment                           ------------>  site
//! ```
//!
//! The tracer stores the thread id in the descriptors where fs is not the libc's. The id of a
//! thread that is found in neither place is 0. The process id is in [`Identity`], or in the
//! descriptors.

use crate::emit::{Label, Stream};
use crate::operands::{Alu, Condition, RAX, RDX, Reg, Rm};
use crate::output::Output;
use core::mem::offset_of;
use layout::{Context, Identity, thread_id};

/// A field of the context whose address is in `register`.
pub(crate) fn of_context(register: Reg, offset: usize) -> Rm {
    Rm::At(register, offset as i32)
}

impl Output<'_> {
    /// A field of the process's [`Identity`].
    pub(crate) fn identity(&self, offset: usize) -> Rm {
        Rm::Absolute(self.environment.identity + offset as u32)
    }

    /// Writes thread and site to the context; edx: the thread id afterwards. Changes rax. Only code
    /// from `other` (all code, if `None`) must check that this is a libc thread with its own fs.
    pub(crate) fn set_owner(&mut self, context: Reg, other: Option<Label>) {
        self.set_holder(context, other);
        self.set_site(context);
    }

    /// Writes the thread id to the context as [`Output::set_owner`] does, and leaves it in edx.
    pub(crate) fn set_holder(&mut self, context: Reg, other: Option<Label>) {
        self.thread_id(RDX, other);
        self.emitter.store32(of_context(context, offset_of!(Context, holder)), RAX);
        self.emitter.load32(RDX, RAX);
    }

    /// Sets eax to the thread id; 0: not known. Changes `scratch`. `other`: as for
    /// [`Output::set_owner`].
    pub(crate) fn thread_id(&mut self, scratch: Reg, other: Option<Label>) {
        let [unknown, known, own, by_itself] = [(); 4].map(|()| self.emitter.label());
        let offset = self.identity(offset_of!(Identity, tid_offset));
        let rseq = self.identity(offset_of!(Identity, rseq_offset));
        let asked = other.map(|other| {
            let stream = self.emitter.aside(Stream::Cold);
            self.emitter.bind(other);
            stream
        });
        self.emitter.load(RAX, rseq);
        self.emitter.test(RAX);
        self.emitter.jump_if(Condition::Equal, by_itself);
        self.marked(RAX, by_itself);
        if let Some(stream) = asked {
            self.emitter.jump(own);
            self.emitter.end_detour(stream);
        }
        self.emitter.bind(own);
        self.emitter.load(RAX, offset);
        self.emitter.test(RAX);
        self.emitter.jump_if(Condition::Equal, unknown);
        self.guard(unknown);
        self.emitter.load32(RAX, Rm::Thread(RAX, 0));
        self.emitter.bind(known);
        // Without a mark, fs is the libc's if the word there is its own address, as in the ABI.
        let stream = self.emitter.aside(Stream::Cold);
        self.emitter.bind(by_itself);
        self.emitter.read_fs_base(RAX);
        self.guard(unknown);
        self.emitter.compare_with_thread_word(RAX);
        self.emitter.jump_if(Condition::Equal, own);
        self.emitter.jump(unknown);
        let untold = self.emitter.label();
        self.emitter.bind(unknown);
        self.own_number(thread_id::THREAD, scratch, untold);
        self.emitter.jump(known);
        self.emitter.bind(untold);
        self.emitter.number(RAX, 0);
        self.emitter.jump(known);
        self.emitter.end_detour(stream);
    }

    /// Writes the site to the context.
    pub(crate) fn set_site(&mut self, context: Reg) {
        let site = self.environment.site;
        self.emitter.store_site(of_context(context, offset_of!(Context, site)), site);
    }

    /// Sets a register to the process id.
    pub(crate) fn process_id(&mut self, to: Reg) {
        let (unknown, known) = (self.emitter.label(), self.emitter.label());
        let pid = self.identity(offset_of!(Identity, pid));
        self.with_rax().load32(RAX, pid);
        self.emitter.test32(RAX);
        self.emitter.jump_if(Condition::Equal, unknown);
        self.emitter.bind(known);
        self.emitter.load(to, RAX);
        let stream = self.emitter.aside(Stream::Cold);
        let untold = self.emitter.label();
        self.emitter.bind(unknown);
        self.own_number(thread_id::PROCESS, to, untold);
        self.emitter.jump(known);
        self.emitter.bind(untold);
        let owner = self.identity(offset_of!(Identity, owner));
        self.emitter.load32(RAX, owner);
        self.emitter.jump(known);
        self.emitter.end_detour(stream);
    }

    /// Sets eax to a number that the tracer stored in the thread's descriptors, or goes to `untold`
    /// if there is none. Changes `scratch`.
    ///
    /// ```text
    ///     mov  $selector, %eax ; lar %eax, %scratch ; jne untold
    ///     xor  $ours, %scratch ; test $fixed, %scratch ; jne untold
    ///     lsl  %eax, %eax
    ///     test $1 << 10, %scratch ; je low ; or $1 << 21, %eax
    /// low: and $1 << 20, %scratch ; or %scratch, %eax
    /// ```
    fn own_number(&mut self, place: u16, scratch: Reg, untold: Label) {
        let low = self.emitter.label();
        let (fixed, ours) = thread_id::FIXED;
        self.emitter.number(RAX, thread_id::selector(place).into());
        self.emitter.segment_rights(scratch, RAX);
        self.emitter.jump_if(Condition::NotEqual, untold);
        self.emitter.alu32_number(Alu::Xor, scratch, ours as i32);
        self.emitter.test32_number(scratch, fixed as i32);
        self.emitter.jump_if(Condition::NotEqual, untold);
        self.emitter.segment_limit(RAX, RAX);
        self.emitter.test32_number(scratch, 1 << thread_id::BIT_21);
        self.emitter.jump_if(Condition::Equal, low);
        self.emitter.alu32_number(Alu::Or, RAX, 1 << 21);
        self.emitter.bind(low);
        self.emitter.alu32_number(Alu::And, scratch, 1 << thread_id::BIT_20);
        self.emitter.alu32(Alu::Or, RAX, scratch);
    }
}
