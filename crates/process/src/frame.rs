//! Signal frames: memory from which `rt_sigreturn` restores a thread.
//!
//! `rt_sigreturn` loads a thread's registers, floating-point and vector state and signal mask from
//! memory, all at once, and continues there. Before the tracer sends a thread on a detour, it
//! writes a frame of the thread's own state: if the tracer dies meanwhile, the thread finishes the
//! detour and returns to where it was, as from a signal handler.
//!
//! ```text
//! +0    the return address of a handler: not used, so that a call's result can be left there
//! +8    ucontext: flags, link, stack                40 bytes
//! +48   registers                                   256 bytes
//! +304  signal mask                                 8 bytes
//! ...   extended state as xsave lays it out, at a multiple of 64
//! ```

use std::sync::OnceLock;

use crate::Registers;

/// Bytes before the extended state. The kernel reads fewer.
pub(crate) const HEAD: usize = 448;
/// The alignment of the extended state.
const ALIGNMENT: u64 = 64;
/// Bytes of the legacy area and the header at the start of the extended state.
const LEAST_STATE: usize = 576;
/// The offset, in the legacy area, of the kernel's description of the state.
const DESCRIPTION: usize = 464;
/// The offset of the processor's mask of the components in the state.
const COMPONENTS: usize = 512;
/// The marks of a state that has more than the legacy area
/// (arch/x86/include/uapi/asm/sigcontext.h).
const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
/// The component of AMX tiles. A process must ask for it, and only then do the kernel's frames have
/// it.
const TILES: u64 = 1 << 18;

/// The frame has extended state and a stack segment, and the stack segment is to be restored.
const FLAGS: u64 = 1 | 2 | 4;
/// An invalid mode of an alternative signal stack: it makes the kernel keep the thread's own.
const NO_STACK: u64 = 0x40;

/// The kernel's result codes of an interrupted call that it will restart: ERESTARTSYS,
/// ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
const RESTART: [i64; 4] = [-512, -513, -514, RESTART_BLOCK];
/// The last of them: the kernel has stored in the thread how the call continues.
pub(crate) const RESTART_BLOCK: i64 = -516;
/// Bytes of the `syscall` instruction.
const SYSCALL_LENGTH: u64 = 2;

/// The address and bytes of a frame that ends at or below `end`, for a thread with these registers,
/// blocked signals and extended state (from [`crate::Stopped::extended_state`]). `None` if the
/// state has no known form.
pub(crate) fn frame(
    registers: &Registers,
    mask: u64,
    state: &[u8],
    components: u64,
    end: u64,
) -> Option<(u64, Vec<u8>)> {
    let used = word(state, COMPONENTS)?;
    let wanted = if used & TILES == 0 { components & !TILES } else { components };
    let length = state_size(wanted)?;
    if length < LEAST_STATE || length > state.len() {
        return None;
    }
    let state_at = end.checked_sub(length as u64 + 4)? & !(ALIGNMENT - 1);
    let start = state_at.checked_sub(HEAD as u64)?;
    let mut bytes = head(registers, mask, state_at).to_vec();
    bytes.extend_from_slice(&state[..length]);
    let description = HEAD + DESCRIPTION;
    let (size, whole) = (length as u32, length as u32 + 4);
    bytes[description..description + 4].copy_from_slice(&MAGIC[0].to_le_bytes());
    bytes[description + 4..description + 8].copy_from_slice(&whole.to_le_bytes());
    bytes[description + 8..description + 16].copy_from_slice(&wanted.to_le_bytes());
    bytes[description + 16..description + 20].copy_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&MAGIC[1].to_le_bytes());
    Some((start, bytes))
}

/// The part of a frame before its extended state. The state, at `state_at`, may belong to another
/// frame that shares it.
pub(crate) fn head(registers: &Registers, mask: u64, state_at: u64) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(8, FLAGS);
    put(32, NO_STACK);
    let general = registers.general();
    // r8 to r15; rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp.
    let order = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];
    for (place, number) in order.into_iter().enumerate() {
        put(48 + 8 * place, general[number]);
    }
    put(176, registers.rip());
    if registers.call_number() >= 0 && RESTART.contains(&registers.result()) {
        // On its own way out the kernel would restart the call; `rt_sigreturn` does not, so the
        // frame does.
        put(48 + 8 * 13, registers.orig_rax());
        put(176, registers.rip().wrapping_sub(SYSCALL_LENGTH));
    }
    put(184, registers.rflags());
    put(192, registers.cs() & 0xffff | (registers.ss() & 0xffff) << 48);
    put(232, state_at);
    put(304, mask);
    bytes
}

/// The most bytes that a frame takes, alignment included.
pub(crate) fn most(state: usize) -> u64 {
    (HEAD + state + 4) as u64 + ALIGNMENT
}

/// The mask of the extended state's components that the system uses, which the kernel stores where
/// a frame has its description.
pub(crate) fn components(state: &[u8]) -> Option<u64> {
    word(state, DESCRIPTION)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Bytes of the extended state with these components, in the standard (not compacted) format.
fn state_size(components: u64) -> Option<usize> {
    let end = |component: usize| {
        let known = components & 1 << component != 0;
        if known { *ENDS.get_or_init(ends).get(component)? } else { Some(0) }
    };
    (2..COMPONENTS_KNOWN).try_fold(LEAST_STATE, |size, component| Some(size.max(end(component)?)))
}

/// How many components are possible: bit 63 means something else.
const COMPONENTS_KNOWN: usize = 63;
/// The end offset of each component in the standard format.
static ENDS: OnceLock<Vec<Option<usize>>> = OnceLock::new();

/// Reads the components' offsets by `cpuid`. This is done once, since in a virtual machine it is
/// slow.
fn ends() -> Vec<Option<usize>> {
    const LEAF: u32 = 0xd;
    let end = |component: u32| {
        let entry = std::arch::x86_64::__cpuid_count(LEAF, component);
        entry.eax.checked_add(entry.ebx).map(|end| end as usize)
    };
    (0..COMPONENTS_KNOWN as u32).map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        let mut registers = Registers::zeros();
        registers.set_general(&std::array::from_fn(|number| 100 + number as u64));
        registers.set_rip(0x40_1000);
        registers.set_cs(0x33);
        registers.set_ss(0x2b);
        registers.set_orig_rax(!0);
        registers
    }

    #[test]
    fn registers_lie_where_the_kernel_takes_them_from() {
        let mut state = vec![0; LEAST_STATE];
        state[COMPONENTS] = 3;
        let (start, bytes) = frame(&registers(), 0x1234, &state, 3, 0x10_0000).expect("a plain state");
        let at = |place: usize| word(&bytes, place).expect("within the frame");
        assert!((start + HEAD as u64).is_multiple_of(64) && start + bytes.len() as u64 <= 0x10_0000);
        assert!(0x10_0000 - start <= most(state.len()));
        assert_eq!((at(48), at(48 + 8 * 15), at(176)), (108, 104, 0x40_1000));
        assert_eq!((at(48 + 8 * 13), at(304), at(192)), (100, 0x1234, 0x2b_0000_0000_0033));
        assert_eq!((at(232), at(HEAD + COMPONENTS)), (start + HEAD as u64, 3));
    }

    #[test]
    fn an_interrupted_call_begins_again() {
        let state = vec![0; LEAST_STATE];
        let mut interrupted = registers();
        interrupted.set_rax(-516i64 as u64);
        interrupted.set_orig_rax(35);
        let (_, bytes) = frame(&interrupted, 0, &state, 3, 0x10_0000).expect("a plain state");
        assert_eq!(word(&bytes, 176), Some(0x40_0ffe));
        assert_eq!(word(&bytes, 48 + 8 * 13), Some(35));
        // A call that has failed for good is not restarted.
        interrupted.set_rax(-4i64 as u64);
        let (_, bytes) = frame(&interrupted, 0, &state, 3, 0x10_0000).expect("a plain state");
        assert_eq!(word(&bytes, 176), Some(0x40_1000));
    }

    #[test]
    fn a_state_that_is_cut_short_is_refused() {
        assert!(frame(&registers(), 0, &[0; 500], 3, 0x10_0000).is_none());
        assert!(frame(&registers(), 0, &[0; LEAST_STATE], 7, 0x10_0000).is_none());
        assert!(frame(&registers(), 0, &[0; LEAST_STATE], 3, 64).is_none());
    }
}
