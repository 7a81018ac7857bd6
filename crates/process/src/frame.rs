//! The frame from which a thread goes on by itself: what a signal handler's return restores.
//!
//! `rt_sigreturn` takes a thread's registers, its floating-point and vector state and its signal mask from memory, all at once, and
//! goes on there. So a thread that is sent to do something for the tracer is given such a frame of its own state, before it
//! is sent: if the tracer dies meanwhile, the thread ends what it does and returns to where it was, as from a signal.
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

/// Bytes before the extended state. The kernel reads less.
pub(crate) const HEAD: usize = 448;
/// What the extended state begins at a multiple of.
const ALIGNMENT: u64 = 64;
/// Bytes of the legacy area and the header, with which the extended state begins.
const LEAST_STATE: usize = 576;
/// Where the kernel looks for its description of the state: within the legacy area.
const DESCRIPTION: usize = 464;
/// Where the processor notes which components the state has.
const COMPONENTS: usize = 512;
/// The marks of a state that has more than the legacy area (arch/x86/include/uapi/asm/sigcontext.h).
const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
/// The component of AMX tiles, for which a process must ask: the kernel's frames have it only then.
const TILES: u64 = 1 << 18;

/// The frame has extended state, a stack segment, and that segment counts.
const FLAGS: u64 = 1 | 2 | 4;
/// A mode that no alternative signal stack has: the kernel leaves the thread's own as it is.
const NO_STACK: u64 = 0x40;

/// Codes by which the kernel marks a call that it will start again: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND,
/// ERESTART_RESTARTBLOCK.
const RESTART: [i64; 4] = [-512, -513, -514, RESTART_BLOCK];
/// The last of them: the kernel has noted for the thread how the call goes on.
pub(crate) const RESTART_BLOCK: i64 = -516;
/// Bytes of the instruction that makes a call.
const SYSCALL_LENGTH: u64 = 2;

/// The bytes of a frame that ends at or below `end`, for a thread with these registers, which blocks these signals and has this extended
/// state (as [`crate::Stopped::extended_state`] gives it): its address, and the bytes. `None` where the state is not of a known form.
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

/// What of a frame is before its extended state, which is at `state_at`: in another frame's, if two share it.
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
        // The kernel would have started the call again on the way out, which this is not.
        put(48 + 8 * 13, registers.orig_rax());
        put(176, registers.rip().wrapping_sub(SYSCALL_LENGTH));
    }
    put(184, registers.rflags());
    put(192, registers.cs() & 0xffff | (registers.ss() & 0xffff) << 48);
    put(232, state_at);
    put(304, mask);
    bytes
}

/// The most bytes that a frame takes, with what is lost by its alignment.
pub(crate) fn most(state: usize) -> u64 {
    (HEAD + state + 4) as u64 + ALIGNMENT
}

/// The components of the extended state that the system uses: the kernel notes them where a frame has its description.
pub(crate) fn components(state: &[u8]) -> Option<u64> {
    word(state, DESCRIPTION)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Bytes of the extended state with these components, in the form that is not compacted.
fn state_size(components: u64) -> Option<usize> {
    let end = |component: usize| {
        let known = components & 1 << component != 0;
        if known { *ENDS.get_or_init(ends).get(component)? } else { Some(0) }
    };
    (2..COMPONENTS_KNOWN).try_fold(LEAST_STATE, |size, component| Some(size.max(end(component)?)))
}

/// Components that there can be: the last bit says something else.
const COMPONENTS_KNOWN: usize = 63;
/// Where each ends in that form.
static ENDS: OnceLock<Vec<Option<usize>>> = OnceLock::new();

/// The processor's table of them. It is asked once: in a virtual machine its answer takes long.
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
        // One that has failed for good does not.
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
