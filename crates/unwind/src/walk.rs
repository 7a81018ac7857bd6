//! Goes from frame to frame, by rows or by frame pointers.

use super::lookup::Lookup;
use super::registers::{Frame, Place, Registers};
use super::row::{Base, Cfa, Rule, Saved};

/// The most bytes between rsp and rbp that are believed where nothing but rbp is known.
const LARGEST_FRAME: u64 = 16 << 20;

/// Where code can be: no system maps the first page, and beyond these 56 bits is the kernel's half.
const CODE: core::ops::Range<u64> = 0x1000..1 << 56;

/// Writes the addresses of a stack's frames: first rip itself, then the return addresses, as they
/// are on the stack, from the innermost. Returns how many there are.
///
/// A return address is that of the instruction after the call: to name the caller, look up the byte
/// before it. Above the trampoline of a signal is the interrupted instruction itself.
///
/// `read` reads the word at an address; all are multiples of 8. The walk ends at the outermost
/// frame, where `read` returns `None`, where what is found cannot be a frame, or when `frames` is
/// full. It calls `read` at most six times for a frame.
#[inline]
pub fn walk<L: Lookup + ?Sized>(
    registers: &Registers<'_>,
    modules: &L,
    mut read: impl FnMut(u64) -> Option<u64>,
    frames: &mut [u64],
) -> usize {
    let mut frame = Frame::innermost(registers);
    let mut count = 0;
    for slot in frames {
        *slot = frame.rip;
        count += 1;
        if step(&mut frame, modules, &mut read).is_none() {
            break;
        }
    }
    count
}

/// As [`walk`], by frame pointers only: faster, and right if the whole program has them. In a
/// function that has not set up its frame, its caller is left out.
#[inline]
pub fn walk_frame_pointers(
    registers: &Registers<'_>,
    mut read: impl FnMut(u64) -> Option<u64>,
    frames: &mut [u64],
) -> usize {
    let Some((first, rest)) = frames.split_first_mut() else { return 0 };
    *first = registers.rip;
    let (mut rsp, mut rbp) = (registers.rsp, registers.rbp);
    let mut count = 1;
    for slot in rest {
        if !is_frame_pointer(rsp, rbp) {
            break;
        }
        let Some((rip, next)) = read(rbp + 8).zip(read(rbp)) else { break };
        if !CODE.contains(&rip) {
            break;
        }
        *slot = rip;
        count += 1;
        (rsp, rbp) = (rbp + 16, next);
    }
    count
}

/// Whether rbp can point to a frame: to two words at rsp or above.
fn is_frame_pointer(rsp: u64, rbp: u64) -> bool {
    rbp.is_multiple_of(8)
        && rbp < u64::MAX - 16
        && rbp.checked_sub(rsp).is_some_and(|size| size < LARGEST_FRAME)
}

/// Goes to the caller. `None` if there is none.
#[inline]
fn step<L: Lookup + ?Sized>(
    frame: &mut Frame<'_>,
    modules: &L,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<()> {
    let rule = modules.rule(frame.rip, frame.is_caller).unwrap_or(Rule::Unsupported);
    match rule {
        Rule::End => return None,
        Rule::Unsupported => without_rule(frame, modules, read)?,
        // A signal's handler may have a stack of its own, so the interrupted one is anywhere.
        Rule::Signal => *frame = Frame::interrupted(frame.rsp, aligned(read))?,
        Rule::Frame { cfa, rbp, rbx } => {
            let cfa = address(frame, cfa, read)?;
            if cfa <= frame.rsp {
                return None;
            }
            let rip = aligned(read)(cfa.wrapping_sub(8))?;
            become_caller(frame, rip, cfa, rbp, rbx, read);
        }
        Rule::Return { register, offset, rbp, rbx } => {
            let rip = frame.register(register, aligned(read))?;
            let cfa = frame.rsp.checked_add(u64::from(offset))?;
            become_caller(frame, rip, cfa, rbp, rbx, read);
        }
    }
    CODE.contains(&frame.rip).then_some(())
}

/// Goes to the caller by the frame pointer. If rbp leads nowhere from the innermost frame, its
/// function has perhaps set up nothing: then there is a return address at rsp, to code with a rule.
fn without_rule<L: Lookup + ?Sized>(
    frame: &mut Frame<'_>,
    modules: &L,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<()> {
    let rbp = frame.rbp(aligned(read));
    if let Some(rbp) = rbp.filter(|rbp| is_frame_pointer(frame.rsp, *rbp))
        && let Some(rip) = read(rbp + 8).filter(|rip| CODE.contains(rip))
    {
        frame.become_caller(rip, rbp + 16, Place::Memory(rbp), Place::Lost);
        return Some(());
    }
    if frame.is_caller {
        return None;
    }
    let rip = aligned(read)(frame.rsp)?;
    modules.rule(rip, true).filter(|rule| *rule != Rule::Unsupported)?;
    become_caller(frame, rip, frame.rsp.checked_add(8)?, Saved::No, Saved::No, read);
    Some(())
}

/// The canonical frame address.
fn address(frame: &mut Frame<'_>, cfa: Cfa, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    match cfa {
        Cfa::Rsp(bytes) => frame.rsp.checked_add(u64::from(bytes)),
        Cfa::Rbp(bytes) => frame.rbp(aligned(read))?.checked_add(u64::from(bytes)),
        Cfa::Register { register, offset } => {
            frame.register(register, aligned(read))?.checked_add(u64::from(offset))
        }
        Cfa::Indexed { register, displacement, addend } => {
            let index = frame.register(register, aligned(read))?.checked_mul(8)?;
            let at = frame.rsp.checked_add(u64::from(displacement))?.checked_add(index)?;
            aligned(read)(at)?.checked_add(u64::from(addend))
        }
        Cfa::Memory { base, displacement, addend } => {
            let base = match base {
                Base::Rsp => frame.rsp,
                Base::Rbp => frame.rbp(aligned(read))?,
            };
            let word = aligned(read)(base.checked_add_signed(i64::from(displacement))?)?;
            word.checked_add(u64::from(addend))
        }
        Cfa::Plt(offset) => {
            let has_pushed = frame.rip & 15 >= u64::from(offset);
            frame.rsp.checked_add(if has_pushed { 16 } else { 8 })
        }
    }
}

fn become_caller(
    frame: &mut Frame<'_>,
    rip: u64,
    cfa: u64,
    rbp: Saved,
    rbx: Saved,
    read: &mut impl FnMut(u64) -> Option<u64>,
) {
    let (rbp, rbx) = frame.saved(cfa, rbp, rbx, aligned(read));
    frame.become_caller(rip, cfa, rbp, rbx);
}

/// Reads words at multiples of 8 only: registers and stacks that are not aligned are damaged.
fn aligned(read: &mut impl FnMut(u64) -> Option<u64>) -> impl FnMut(u64) -> Option<u64> {
    |address| if address.is_multiple_of(8) { read(address) } else { None }
}
