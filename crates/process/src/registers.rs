//! A stopped thread's registers, as ptrace returns them.

use libc::user_regs_struct;

/// The general registers, segment registers, flags and instruction pointer of a stopped thread.
///
/// `orig_rax` is the number of the system call that the thread is leaving, or -1.
///
/// In a thread that runs 32-bit code ([`Registers::is_32_bit`]) only the low halves of rip and of
/// the first eight general registers count. A value that the kernel has put in rax is sign-extended
/// there, one that the program has put is not.
#[derive(Clone, Copy)]
pub struct Registers {
    raw: user_regs_struct,
}

macro_rules! fields {
    ($($get:ident $set:ident $field:ident $doc:literal;)*) => {
        impl Registers {
            $(
                #[doc = concat!("The value of ", $doc, ".")]
                pub fn $get(&self) -> u64 {
                    self.raw.$field
                }

                #[doc = concat!("Sets ", $doc, ".")]
                pub fn $set(&mut self, value: u64) {
                    self.raw.$field = value;
                }
            )*
        }
    };
}

fields! {
    rip set_rip rip "the instruction pointer";
    rsp set_rsp rsp "the stack pointer";
    rax set_rax rax "rax";
    rcx set_rcx rcx "rcx";
    rdx set_rdx rdx "rdx";
    rdi set_rdi rdi "rdi";
    rsi set_rsi rsi "rsi";
    r8 set_r8 r8 "r8";
    r10 set_r10 r10 "r10";
    rflags set_rflags eflags "the flags";
    orig_rax set_orig_rax orig_rax "the system call being left, or -1";
    fs_base set_fs_base fs_base "the base of fs";
    gs_base set_gs_base gs_base "the base of gs";
    cs set_cs cs "cs";
    ds set_ds ds "ds";
    es set_es es "es";
    fs set_fs fs "fs";
    gs set_gs gs "gs";
    ss set_ss ss "ss";
}

/// The code segment in which Linux runs 32-bit code.
const CODE_32: u64 = 0x23;

impl Registers {
    /// Whether the thread runs 32-bit code.
    pub fn is_32_bit(&self) -> bool {
        self.raw.cs == CODE_32
    }

    /// The result of a system call that has just returned, or the kernel's internal code instead:
    /// rax, in 32-bit code its low half, sign-extended.
    pub fn result(&self) -> i64 {
        if self.is_32_bit() { i64::from(self.raw.rax as i32) } else { self.raw.rax as i64 }
    }

    /// The number of the system call being left, read like [`Registers::result`]; negative: none.
    pub fn call_number(&self) -> i64 {
        if self.is_32_bit() { i64::from(self.raw.orig_rax as i32) } else { self.raw.orig_rax as i64 }
    }

    /// Wraps ptrace's structure.
    pub(crate) fn from_raw(raw: user_regs_struct) -> Registers {
        Registers { raw }
    }

    /// Registers that are all 0.
    #[cfg(test)]
    pub(crate) fn zeros() -> Registers {
        // SAFETY: the structure holds numbers only, which may all be 0.
        Registers::from_raw(unsafe { std::mem::zeroed() })
    }

    /// ptrace's structure.
    pub(crate) fn raw(&self) -> &user_regs_struct {
        &self.raw
    }

    /// The sixteen general registers in the processor's encoding order: rax, rcx, rdx, rbx, rsp,
    /// rbp, rsi, rdi, r8 to r15.
    pub fn general(&self) -> [u64; 16] {
        let r = &self.raw;
        [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
            r.r14, r.r15,
        ]
    }

    /// All 27 words in the order of `struct user_regs_struct`, which a core file's NT_PRSTATUS note
    /// has too: r15, r14, r13, r12, rbp, rbx, r11 to r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip,
    /// cs, flags, rsp, ss, the bases of fs and gs, ds, es, fs, gs.
    pub fn words(&self) -> [u64; 27] {
        let r = &self.raw;
        [
            r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi,
            r.rdi, r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss, r.fs_base, r.gs_base, r.ds, r.es, r.fs,
            r.gs,
        ]
    }

    /// Sets the first 21 words of [`Registers::words`], which are those of the kernel's `struct
    /// pt_regs`.
    pub fn set_kernel_words(&mut self, words: &[u64; 21]) {
        let r = &mut self.raw;
        [
            r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi,
            r.rdi, r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss,
        ] = *words;
    }

    /// Sets the sixteen general registers, in the order of [`Registers::general`].
    pub fn set_general(&mut self, values: &[u64; 16]) {
        let r = &mut self.raw;
        [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
            r.r14, r.r15,
        ] = *values;
    }
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Registers {{ rip: {:#x}, rsp: {:#x}, general: {:x?} }}",
            self.rip(),
            self.rsp(),
            self.general()
        )
    }
}
