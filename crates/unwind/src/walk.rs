//! Goes from frame to frame, by rows or by frame pointers.

use super::lookup::Lookup;
use super::registers::{Frame, RegisterLocation, Registers};
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
/// full. It calls `read` at most six times for a frame. It depends on nothing but its arguments.
#[inline]
pub fn walk<L: Lookup + ?Sized>(
    registers: &Registers<'_>,
    modules: &L,
    mut read: impl FnMut(u64) -> Option<u64>,
    frames: &mut [u64],
) -> usize {
    let Some((first, rest)) = frames.split_first_mut() else { return 0 };
    let mut frame = Frame::innermost(registers);
    *first = frame.rip;
    let mut count = 1;
    for slot in rest {
        if step(&mut frame, modules, &mut read).is_none() {
            break;
        }
        *slot = frame.rip;
        count += 1;
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
#[inline(always)]
fn step<L: Lookup + ?Sized>(
    frame: &mut Frame<'_>,
    modules: &L,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<()> {
    let rule = modules.rule(frame.rip, frame.is_caller).unwrap_or(Rule::Unsupported);
    let (rip, cfa, rbp, rbx) = match rule {
        Rule::Frame { cfa, rbp, rbx } => {
            let cfa = address(frame, cfa, read)?;
            if cfa <= frame.rsp {
                return None;
            }
            (aligned(read)(cfa.wrapping_sub(8))?, cfa, rbp, rbx)
        }
        Rule::Return { register, offset, rbp, rbx } => {
            let rip = frame.register(register, aligned(read))?;
            (rip, frame.rsp.checked_add(u64::from(offset))?, rbp, rbx)
        }
        Rule::End => return None,
        Rule::Unsupported => {
            *frame = without_rule(*frame, modules, read)?;
            return CODE.contains(&frame.rip).then_some(());
        }
        // A signal's handler may have a stack of its own, so the interrupted one is anywhere.
        Rule::Signal => {
            *frame = Frame::interrupted(frame.rsp, aligned(read))?;
            return CODE.contains(&frame.rip).then_some(());
        }
    };
    become_caller(frame, rip, cfa, rbp, rbx, read);
    CODE.contains(&rip).then_some(())
}

/// Goes to the caller by the frame pointer. If rbp leads nowhere from the innermost frame, its
/// function has perhaps set up nothing: then there is a return address at rsp, to code with a rule.
#[inline(never)]
fn without_rule<'a, L: Lookup + ?Sized>(
    mut frame: Frame<'a>,
    modules: &L,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<Frame<'a>> {
    let rbp = frame.rbp(aligned(read));
    if let Some(rbp) = rbp.filter(|rbp| is_frame_pointer(frame.rsp, *rbp))
        && let Some(rip) = read(rbp + 8).filter(|rip| CODE.contains(rip))
    {
        frame.become_caller(rip, rbp + 16, RegisterLocation::Memory(rbp), RegisterLocation::Lost);
        return Some(frame);
    }
    if frame.is_caller {
        return None;
    }
    let rip = aligned(read)(frame.rsp)?;
    modules.rule(rip, true).filter(|rule| *rule != Rule::Unsupported)?;
    let cfa = frame.rsp.checked_add(8)?;
    become_caller(&mut frame, rip, cfa, Saved::No, Saved::No, read);
    Some(frame)
}

/// The canonical frame address.
#[inline(always)]
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

#[inline(always)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Module;
    use crate::row::Row;

    /// Where the stack of a test begins.
    const STACK: u64 = 0x7fff_0000_0000;

    /// The addresses of code of each rule: 16 bytes from 0x1000 + 16 * its place.
    fn frames_of(rules: &[Rule], registers: &Registers<'_>, stack: &[u64]) -> ([u64; 8], usize) {
        let mut table = [Row { address: 0, rule: 0 }; 8];
        for (at, (row, rule)) in table.iter_mut().zip(rules).enumerate() {
            *row = Row { address: 16 * at as u32, rule: rule.pack() };
        }
        let end = 0x1000 + 16 * rules.len() as u64;
        let modules = [Module { start: 0x1000, end, bias: 0x1000, table: &table[..rules.len()] }];
        let read = |address: u64| stack.get(usize::try_from(address.checked_sub(STACK)? / 8).ok()?).copied();
        let mut frames = [0; 8];
        let count = walk(registers, modules.as_slice(), read, &mut frames);
        (frames, count)
    }

    #[track_caller]
    fn assert_frames(rules: &[Rule], registers: &Registers<'_>, stack: &[u64], expected: &[u64]) {
        let (frames, count) = frames_of(rules, registers, stack);
        assert_eq!(&frames[..count], expected);
    }

    fn at(rip: u64) -> Registers<'static> {
        Registers { rip, rsp: STACK, rbp: 0, all: None }
    }

    fn frame(cfa: Cfa) -> Rule {
        Rule::Frame { cfa, rbp: Saved::No, rbx: Saved::No }
    }

    #[test]
    fn the_outermost_frame_ends_a_stack() {
        assert_frames(&[frame(Cfa::Rsp(8)), Rule::End], &at(0x1000), &[0x1018, 0x1008], &[0x1000, 0x1018]);
        assert_frames(&[frame(Cfa::Rsp(8))], &at(0x1000), &[0x1008, 0, 0x1008], &[0x1000, 0x1008]);
        // Beyond the memory, and with no memory at all.
        assert_frames(&[frame(Cfa::Rsp(8))], &at(0x1000), &[0x1008, 0x1009], &[0x1000, 0x1008, 0x1009]);
        assert_frames(&[frame(Cfa::Rsp(8))], &at(0x1000), &[], &[0x1000]);
    }

    #[test]
    fn a_linkage_table_is_left_by_the_place_in_its_entry() {
        let rules = [frame(Cfa::Plt(11)), Rule::End];
        assert_frames(&rules, &at(0x100a), &[0x1018], &[0x100a, 0x1018]);
        assert_frames(&rules, &at(0x100b), &[7, 0x1018], &[0x100b, 0x1018]);
    }

    /// A call at the end of a function: the return address is that of the next one.
    #[test]
    fn a_return_address_is_looked_up_as_the_call_before_it() {
        let rules = [frame(Cfa::Rsp(8)), Rule::End, frame(Cfa::Rsp(8))];
        assert_frames(&rules, &at(0x1000), &[0x1020, 0x1028], &[0x1000, 0x1020]);
    }

    /// A caller's frame is found by rbx, which the function called has saved.
    #[test]
    fn rbx_is_restored_when_it_is_needed() {
        let saved = Rule::Frame { cfa: Cfa::Rsp(16), rbp: Saved::No, rbx: Saved::Below(16) };
        let rules = [saved, frame(Cfa::Register { register: 3, offset: 24 }), Rule::End];
        let stack = [STACK + 24, 0x1018, 0, 0, 0, 0x1028];
        assert_frames(&rules, &at(0x1000), &stack, &[0x1000, 0x1018, 0x1028]);
        // Its own, and none.
        let mut all = [0; 16];
        (all[3], all[7]) = (STACK, STACK);
        let known = Registers { all: Some(&all), ..at(0x1018) };
        assert_frames(&rules, &known, &[0, 0, 0x1028], &[0x1018, 0x1028]);
        assert_frames(&rules, &at(0x1018), &[0, 0, 0x1028], &[0x1018]);
    }

    /// A function that aligns its stack, with rbp in its frame, and after it has restored rbp.
    #[test]
    fn rbp_is_at_rbp_until_it_is_restored() {
        let (rbp, rbx) = (Saved::AtRbp, Saved::No);
        let rules = [Rule::Frame { cfa: Cfa::Rsp(24), rbp, rbx }, frame(Cfa::Rbp(16)), Rule::End];
        let mut stack = [0; 12];
        (stack[1], stack[2], stack[9]) = (STACK + 64, 0x1018, 0x1028);
        for rbp in [STACK + 8, STACK + 64] {
            assert_frames(&rules, &Registers { rbp, ..at(0x1000) }, &stack, &[0x1000, 0x1018, 0x1028]);
        }
    }

    #[test]
    fn a_stack_that_does_not_grow_ends() {
        for (rbp, expected) in [(STACK + 8, 1), (STACK + 16, 1), (STACK + 24, 2)] {
            let registers = Registers { rip: 0x1000, rsp: STACK + 32, rbp, all: None };
            let rules = [frame(Cfa::Rbp(16)), Rule::End];
            assert_frames(&rules, &registers, &[0x1018; 9], &[0x1000, 0x1018][..expected]);
        }
        let memory = frame(Cfa::Memory { base: Base::Rsp, displacement: 8, addend: 0 });
        assert_frames(&[memory], &at(0x1000), &[0x1008, STACK, 0x1008], &[0x1000]);
        // Neither one that is not aligned.
        assert_frames(&[memory], &at(0x1000), &[0x1008, STACK + 20, 0x1008, 0x1008], &[0x1000]);
    }

    /// A context that leads to itself: as many frames as there is room for.
    #[test]
    fn a_circle_ends() {
        let mut stack = [0; 32];
        (stack[20], stack[21]) = (STACK, 0x1000);
        assert_frames(&[Rule::Signal], &at(0x1000), &stack, &[0x1000; 8]);
    }

    /// An interrupted instruction is looked up as it is, not as a return address.
    #[test]
    fn a_signal_leads_to_the_interrupted_instruction() {
        let mut stack = [0; 40];
        // rbp, rsp and rip, and the frame of the interrupted function.
        (stack[15], stack[20], stack[21]) = (STACK + 256, STACK + 240, 0x1010);
        stack[31] = 0x1028;
        let rules = [Rule::Signal, frame(Cfa::Rsp(16)), Rule::End];
        assert_frames(&rules, &at(0x1000), &stack, &[0x1000, 0x1010, 0x1028]);
        // The same by rbp.
        stack[33] = 0x1028;
        let rules = [Rule::Signal, frame(Cfa::Rbp(16)), Rule::End];
        assert_frames(&rules, &at(0x1000), &stack, &[0x1000, 0x1010, 0x1028]);
    }

    #[test]
    fn without_a_rule_the_frame_pointer_leads_on() {
        let registers = Registers { rbp: STACK + 16, ..at(0x1000) };
        let stack = [0, 0, STACK + 48, 0x9000, 0, 0, 0, 0x1018];
        assert_frames(&[Rule::Unsupported, Rule::End], &registers, &stack, &[0x1000, 0x9000, 0x1018]);
        // Without one, a return address to code with a rule.
        let rules = [Rule::Unsupported, Rule::End];
        assert_frames(&rules, &at(0x1000), &[0x1018], &[0x1000, 0x1018]);
        assert_frames(&rules, &at(0x1000), &[0x1008], &[0x1000]);
        assert_frames(&rules, &at(0x1000), &[0x9008], &[0x1000]);
    }

    #[test]
    fn frame_pointers_alone() {
        let stack = [STACK + 32, 0x1018, 0, 0, STACK + 8, 0x1028, 0, 0];
        let read = |address: u64| stack.get(usize::try_from(address.checked_sub(STACK)? / 8).ok()?).copied();
        let registers = Registers { rbp: STACK, ..at(0x1000) };
        let mut frames = [0; 8];
        // The last frame pointer does not ascend.
        let count = walk_frame_pointers(&registers, read, &mut frames);
        assert_eq!(&frames[..count], [0x1000, 0x1018, 0x1028]);
        assert_eq!(walk_frame_pointers(&registers, read, &mut frames[..2]), 2);
        assert_eq!(walk_frame_pointers(&registers, read, &mut []), 0);
    }
}
