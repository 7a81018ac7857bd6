//! The agent's entry from compiled code, and its exit.
//!
//! A context starts at a multiple of [`CONTEXT_SIZE`], and the agent's stack is at its end, so the
//! stack pointer alone identifies a thread's context.

use core::arch::naked_asm;
use core::mem::offset_of;

use super::settings::{Settings, dprobes_settings};
use layout::{CONTEXT_SIZE, HandlerInfo, Identity, SAVED, Saved};

/// The flags that the agent needs: only the bit that is always set.
const FLAGS: u64 = 2;
/// All flags except the trap flag, which `pushf` stores while a debugger single-steps.
const NO_TRAP_FLAG: i32 = !0x100;

/// Where a context keeps xmm0 to xmm15, the stack pointer, and the current handler.
const VECTORS: u64 = SAVED + offset_of!(Saved, vectors) as u64;
const STACK: u64 = SAVED + offset_of!(Saved, stack) as u64;
const HANDLER: u64 = SAVED + offset_of!(Saved, handler) as u64;

/// Defines an entry point that calls a function of two arguments on the context's stack. `rdi` is
/// the context, which this thread has claimed; rax is the result.
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
///     jmp  return_to_code
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
                "jmp {return_to_code}",
                no_trap_flag = const NO_TRAP_FLAG,
                flags = const FLAGS,
                stack = const STACK,
                handler = const HANDLER,
                vectors = const VECTORS,
                size = const CONTEXT_SIZE,
                function = sym $function,
                return_to_code = sym return_to_code,
            )
        }
    };
}

entry! {
    /// [`layout::Entries::resume`].
    ///
    /// # Safety
    /// The context and everything it refers to are as the tracer has set them up, and stay so until
    /// this returns.
    dprobes_resume calls super::handler::run, for the handler "rsi"
}

entry! {
    /// [`layout::Entries::wait`].
    ///
    /// # Safety
    /// As for [`dprobes_resume`].
    dprobes_wait calls super::ring::wait, for the handler "0"
}

/// What [`HANDLER`] is while an instruction on a map is carried out.
const MAP_CALL: u64 = 1;

/// The flags with which the agent cannot work: direction, and alignment check.
const UNFIT: u32 = 1 << 10 | 1 << 18;

/// Repeats an instruction for the vector registers that the agent's code uses. The build makes sure
/// that these are all (`build.rs`).
#[cfg(not(all_vectors))]
macro_rules! each_used_vector {
    ($instruction:literal) => {
        concat!(".irp number, 0, 1, 2, 3\n", $instruction, "\n.endr")
    };
}

#[cfg(all_vectors)]
macro_rules! each_used_vector {
    ($instruction:literal) => {
        concat!(
            ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n",
            $instruction,
            "\n.endr"
        )
    };
}

/// [`layout::Entries::map`]. It is called several times in a run, so it does less than the others:
/// it saves the vector registers that the agent uses and, as compiled code needs no other flags,
/// changes flags only where they do not fit.
///
/// ```text
///     pushfq ; push rbx ... r15
///     mov  %rsp, STACK(%rdi)
///     mov  $MAP_CALL, HANDLER(%rdi)
///     movups %xmm0 ..., VECTORS(%rdi)
///     mov  %rdi, %rbx ; lea CONTEXT_SIZE(%rdi), %rsp
///     call carry_out
///     jmp  return_from_map
/// ```
///
/// # Safety
/// As for [`dprobes_resume`].
#[cfg_attr(image, unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dprobes_map() {
    naked_asm!(
        "pushfq",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi + {stack}], rsp",
        "mov qword ptr [rdi + {handler}], {map_call}",
        each_used_vector!("movups [rdi + {vectors} + 16 * \\number], xmm\\number"),
        "mov rbx, rdi",
        "test dword ptr [rsp + 48], {unfit}",
        "lea rsp, [rdi + {size}]",
        "jnz 3f",
        "2: call {function}",
        "jmp {return_from_map}",
        "3: push {flags}",
        "popfq",
        "jmp 2b",
        flags = const FLAGS,
        unfit = const UNFIT,
        map_call = const MAP_CALL,
        stack = const STACK,
        handler = const HANDLER,
        vectors = const VECTORS,
        size = const CONTEXT_SIZE,
        function = sym super::map_call::carry_out,
        return_from_map = sym return_from_map,
    )
}

/// Returns to compiled code behind a call of [`dprobes_map`]: `rbx` is the context, `rax` the
/// result.
#[unsafe(naked)]
unsafe extern "C" fn return_from_map() -> ! {
    naked_asm!(
        each_used_vector!("movups xmm\\number, [rbx + {vectors} + 16 * \\number]"),
        // Where the tracer looks for the context of a thread on the program's stack.
        "mov rdi, rbx",
        "mov rsp, [rbx + {stack}]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "test dword ptr [rsp], {unfit}",
        "jnz 2f",
        "lea rsp, [rsp + 8]",
        "ret",
        "2: and qword ptr [rsp], {no_trap_flag}",
        "popfq",
        "ret",
        unfit = const UNFIT,
        no_trap_flag = const NO_TRAP_FLAG,
        stack = const STACK,
        vectors = const VECTORS,
    )
}

/// Returns to compiled code: `rbx` is the context, `rax` the result.
#[unsafe(naked)]
unsafe extern "C" fn return_to_code() -> ! {
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

/// Abandons a run that cannot complete: drops its record and returns to the compiled code after the
/// call of [`dprobes_resume`]; or abandons a wait for room, which then fails, or an instruction on
/// a map, whose result is then 0. Runs on a context's stack. The agent calls it when an invariant
/// is broken, and the tracer may send a thread here that faults in the agent.
#[cfg_attr(image, unsafe(no_mangle))]
#[unsafe(naked)]
pub extern "C" fn dprobes_give_up() -> ! {
    naked_asm!(
        "lea rbx, [rsp - 1]",
        "and rbx, {mask}",
        "mov rcx, [rbx + {handler}]",
        "mov rax, rcx",
        "test rcx, rcx",
        "jz {return_to_code}",
        "cmp rcx, {map_call}",
        "je 3f",
        "mov ecx, [rcx + {dropped}]",
        "test ecx, ecx",
        "jz 2f",
        "lock inc qword ptr [rcx]",
        "2:",
        "mov rax, [rip + {settings}]",
        "add rax, {nothing}",
        "jmp {return_to_code}",
        "3: xor eax, eax",
        "jmp {return_from_map}",
        map_call = const MAP_CALL,
        return_from_map = sym return_from_map,
        mask = const -(CONTEXT_SIZE as i64),
        handler = const HANDLER,
        dropped = const offset_of!(HandlerInfo, dropped),
        settings = sym dprobes_settings,
        nothing = const offset_of!(Identity, dummy_state),
        return_to_code = sym return_to_code,
    )
}

/// The code above reads it as the first of the settings.
const _: () = assert!(offset_of!(Settings, identity) == 0);
