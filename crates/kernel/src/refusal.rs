//! What a handler cannot do here, and how that is told.

use std::fmt;

/// Makes the enum, its texts and the list of all.
macro_rules! reasons {
    ($($reason:ident $code:literal $text:literal;)*) => {
        /// Why a handler cannot run in the kernel. `docs/kernel-engine.md` lists the texts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $text] $reason,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Reason] = &[$(Reason::$reason,)*];

            /// The instructions that it is about.
            pub fn instructions(self) -> &'static str {
                match self {
                    $(Reason::$reason => $code,)*
                }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str(match self {
                    $(Reason::$reason => $text,)*
                })
            }
        }
    };
}

// Name, the instructions, the text.
reasons! {
    UserContext "pop u" "in a kernel probe, the registers of the user context cannot be changed";
    Facility "exit N" "in a kernel probe, the debugger (1) and a crash dump (2) stop the whole machine: only with --allow-panic; a core dump (3) is of user probes";
    Parts "log b, log w, log d" "parts of words cannot be logged in the kernel; `log N` logs words";
    SegmentRegister "push r, ds (es, fs, gs, fs_base, gs_base)" "an eBPF program sees no segment register but cs and ss";
    FloatRegister "push u, xmm0 (fr0, mxcsr, ...)" "an eBPF program sees no register of the FPU or of SSE";
    ControlRegister "push r, cr0 (dr7, gdtr, ...)" "an eBPF program sees no control, debug, task or descriptor table register";
    Cpuid "push r, cpuid" "an eBPF program cannot execute `cpuid`";
    ModelSpecificRegister "push r, msr" "an eBPF program cannot read a model-specific register";
    SetsRegister "pop r" "this kernel lets no eBPF program change the registers at this place";
    SetsSegmentRegister "pop r, ds (es, fs, gs)" "an eBPF program cannot change a segment register";
    WritesMemory "pop mem" "this kernel lets no eBPF program change the memory of a process";
    WritesKernelMemory "pop mem" "no eBPF program can change the memory of the kernel";
    VerifiesWriting "vfyrw" "an eBPF program cannot tell whether memory can be written";
    Selector "seg2lin" "an eBPF program cannot read descriptor tables";
    Plugins "callk" "no plugin can be called in the kernel";
    Ports "push io, pop io" "an eBPF program cannot access ports";
    NoRegisters "push r, push u, pop r, pop u" "at a tracepoint there are no registers; `push field` has what its record holds";
    NoRecord "push field" "only a tracepoint has a record with fields";
    NoSuchField "push field" "the tracepoint's record has no field of this name";
    HiddenField "push field, common_flags (common_preempt_count)" "the kernel does not show eBPF programs this field of the record";
    Series "update" "a series of intervals (`tseries`) cannot be updated in the kernel yet";
    Amount "load, fetch" "what a histogram or a series amounts to cannot be read in the kernel yet";
    Entries "next, entries" "a handler in the kernel cannot go through the entries of a map yet";
    Depth "depth" "the frames of a stack cannot be counted in the kernel yet";
    Stack "stack" "the stack of a 32-bit program cannot be taken in the kernel yet";
    Pattern "glob fr" "a pattern with `*` cannot be matched in the kernel yet";
    Parent "push parent" "the parent of a process cannot be told in the kernel yet";
    Returns "override" "the kernel lets eBPF return only from functions of its own that are made for it";
    TooLong "any" "the handler is longer than the kernel's verifier follows";
}

/// A handler that cannot run in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The offset of the instruction in the bytecode ([`rpn::Object::line_at`]).
    pub offset: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_each_reason_and_no_other() {
        let text = include_str!("../../../docs/kernel-engine.md");
        let section = text.split("## What a handler cannot do here").nth(1).expect("the section");
        let section = section.split("\n## ").next().unwrap_or(section);
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        let row = |reason: &Reason| match reason.instructions() {
            "any" => format!("| any | {reason} |"),
            instructions => format!("| `{instructions}` | {reason} |"),
        };
        assert_eq!(rows, Reason::ALL.iter().map(row).collect::<Vec<_>>());
    }
}
