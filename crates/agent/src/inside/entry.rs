//! Where compiled code enters the agent, and where it leaves it.
//!
//! A context begins at a multiple of [`CONTEXT_SIZE`]; its end is the stack that the agent uses, so that the stack pointer
//! alone tells which context a thread has.

use core::arch::naked_asm;
use core::mem::offset_of;

use super::settings::{Settings, dprobes_settings};
use layout::{CONTEXT_SIZE, HandlerInfo, Identity, SAVED, Saved};

/// The flags that the agent's own code needs: none but the one that is always set.
const FLAGS: u64 = 2;
/// All flags but the one by which a debugger steps: while it does, `pushf` stores that, too.
const NO_TRAP_FLAG: i32 = !0x100;

/// Where a context keeps xmm0 to xmm15, the stack pointer, and which handler it runs.
const VECTORS: u64 = SAVED + offset_of!(Saved, vectors) as u64;
const STACK: u64 = SAVED + offset_of!(Saved, stack) as u64;
const HANDLER: u64 = SAVED + offset_of!(Saved, handler) as u64;

/// Defines an entry that calls a function of two arguments on the context's stack: `rdi` is the context, which this
/// thread has claimed; rax is the result.
///
/// ```text
///     pushfq                        the program's flags, which may be any
///     push rbx ... r15
///     mov  %rsp, STACK(%rdi)
///     mov  handler, HANDLER(%rdi)
///     movups %xmm0 ... %xmm15, VECTORS(%rdi)
///     lea  CONTEXT_SIZE(%rdi), %rsp
///     push $2 ; popfq
///     call function
///     jmp  leave
/// ```
macro_rules! entry {
    ($(#[$attribute:meta])* $name:ident calls $function:path, for the handler $operand:literal) => {
        $(#[$attribute])*
        #[cfg_attr(image, unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "pushfq",
                "and qword ptr [rsp], {no_trap_flag}",
                "push rbx",
                "push rbp",
                "push r12",
                "push r13",
                "push r14",
                "push r15",
                "mov [rdi + {stack}], rsp",
                concat!("mov qword ptr [rdi + {handler}], ", $operand),
                ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "movups [rdi + {vectors} + 16 * \\number], xmm\\number",
                ".endr",
                "mov rbx, rdi",
                "lea rsp, [rdi + {size}]",
                "push {flags}",
                "popfq",
                "call {function}",
                "jmp {leave}",
                no_trap_flag = const NO_TRAP_FLAG,
                flags = const FLAGS,
                stack = const STACK,
                handler = const HANDLER,
                vectors = const VECTORS,
                size = const CONTEXT_SIZE,
                function = sym $function,
                leave = sym leave,
            )
        }
    };
}

entry! {
    /// [`layout::Entries::resume`].
    ///
    /// # Safety
    /// The context and what it leads to are as the tracer has set them up, and stay so until this returns.
    dprobes_resume calls super::handler::run, for the handler "rsi"
}

entry! {
    /// [`layout::Entries::wait`].
    ///
    /// # Safety
    /// As for [`dprobes_resume`].
    dprobes_wait calls super::ring::wait, for the handler "0"
}

/// Goes back to compiled code: `rbx` is the context, `rax` the result.
#[unsafe(naked)]
unsafe extern "C" fn leave() -> ! {
    naked_asm!(
        ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        "movups xmm\\number, [rbx + {vectors} + 16 * \\number]",
        ".endr",
        "mov rsp, [rbx + {stack}]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "popfq",
        "ret",
        stack = const STACK,
        vectors = const VECTORS,
    )
}

/// Gives up a run that cannot be ended: its record is dropped, and compiled code goes on behind its call of
/// [`dprobes_resume`]; or a wait for room, which there is none then. What comes here runs on a context's stack: the agent's own code where an invariant is broken. The tracer may
/// send a thread here, too, if that faults in the agent.
#[cfg_attr(image, unsafe(no_mangle))]
#[unsafe(naked)]
pub extern "C" fn dprobes_give_up() -> ! {
    naked_asm!(
        "lea rbx, [rsp - 1]",
        "and rbx, {mask}",
        "mov rcx, [rbx + {handler}]",
        "mov rax, rcx",
        "test rcx, rcx",
        "jz {leave}",
        "mov ecx, [rcx + {dropped}]",
        "test ecx, ecx",
        "jz 2f",
        "lock inc qword ptr [rcx]",
        "2:",
        "mov rax, [rip + {settings}]",
        "add rax, {nothing}",
        "jmp {leave}",
        mask = const -(CONTEXT_SIZE as i64),
        handler = const HANDLER,
        dropped = const offset_of!(HandlerInfo, dropped),
        settings = sym dprobes_settings,
        nothing = const offset_of!(Identity, nothing),
        leave = sym leave,
    )
}

/// The first of the settings is the address of the [`Identity`]: so it is read above.
const _: () = assert!(offset_of!(Settings, identity) == 0);
