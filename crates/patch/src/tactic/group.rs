//! Moves several instructions under one jump, where control is proven to reach only the first
//! directly.
//!
//! The followers run only in its trampoline: the jump overwrites their bytes. So the program must
//! never be seen at one of them: a fault is reported at its instruction's address and the thread
//! returns there, into the middle of a jump. Nor may a thread block in one, or store an address in
//! it. Followers are therefore instructions that cannot fault in any state of processor and memory
//! ([`Displaced::may_fault`](crate::Displaced::may_fault)): no memory operand, so no `push`, `pop`
//! or return (the stack can end there), no division. No call, whose return address would be a
//! follower's, nothing that [`Displaced::can_follow`](crate::Displaced::can_follow) refuses, and no
//! `endbr64`, which is a jump target.

use crate::{Mode, displace_in};

use super::find_pad::Pages;
use super::image::Change;
use super::placed::{Placed, State};
use super::placement::{Group, LONGEST};
use super::search::Search;
use super::{Code, Flow, Purpose, Tactic};
use crate::tactic::placement::JUMP;

/// `endbr64`, the target of indirect jumps.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

impl Search<'_> {
    /// Gives an open entry a jump over as many following instructions as needed.
    pub(super) fn group(&mut self, address: u64) -> bool {
        let Some(flow) = &self.code.flow else { return false };
        let Some(entry) = self.placed.entries.get(&address) else { return false };
        let single = entry.length;
        if entry.alone || entry.purpose != Purpose::Site || usize::from(single) >= JUMP {
            return false;
        }
        let Some(followers) = self.followers(flow, address, single) else { return false };
        let length = followers.iter().map(|(_, length)| *length).sum::<usize>() + usize::from(single);
        let group = Group { single, length: length as u8, followers };
        self.place_over(address, group, Pages::Used, Tactic::Grouped)
    }

    /// Gives an open entry a jump over more bytes than its own.
    pub(super) fn place_over(&mut self, address: u64, group: Group, pages: Pages, tactic: Tactic) -> bool {
        let Some(bytes) = self.code.slice(address, group.length.into()) else { return false };
        let Some(entry) = self.placed.entries.get_mut(&address) else { return false };
        entry.length = group.length;
        // At least the bytes that the jump changes.
        entry.original.iter_mut().zip(bytes).for_each(|(original, byte)| *original = *byte);
        let placed = self.give_jump(address, pages);
        let Some(entry) = self.placed.entries.get_mut(&address) else { return false };
        match &mut entry.state {
            State::Jump(placement) if placed => {
                placement.tactic = tactic;
                placement.group = Some(group);
            }
            _ => entry.length = group.single,
        }
        placed
    }

    /// The instructions behind one of `single` bytes that a five-byte jump overwrites, if none is a
    /// jump target or a return address (only the last may be a call).
    fn followers(&self, flow: &Flow<'_>, address: u64, single: u8) -> Option<Vec<(u64, usize)>> {
        let at = flow.functions.partition_point(|function| function.end <= address);
        let function = flow.functions.get(at).filter(|function| function.contains(&address))?;
        if is_behind_call(self.code, function.start, address) {
            return None;
        }
        let mut followers = Vec::new();
        let mut last = displace_in(Mode::Bits64, self.code.rest(address)?, address).ok()?;
        // The program's own fault handler may continue behind the faulting instruction.
        if last.may_fault() && !is_push(last.original()) || !self.code.is_instruction(address) {
            return None;
        }
        let mut next = address + u64::from(single);
        while next < address + JUMP as u64 {
            let lands = flow.targets.binary_search(&next).is_ok();
            if !last.falls_through() || last.enters_kernel() || lands || !self.code.is_instruction(next) {
                return None;
            }
            last = displace_in(Mode::Bits64, self.code.rest(next)?, next).ok()?;
            let end = next + last.length() as u64;
            let forbidden = last.may_fault()
                || !last.can_follow()
                || last.original() == ENDBR64
                || last.enters_kernel()
                || last.can_set_trap_flag()
                || self.limits.shadow_stacks && last.needs_plain_stack()
                || self.code.keeps(next, end)
                || self.code.is_entered(next, end)
                || self.code.is_divided(next, end)
                || self.code.is_inside(next)
                || end > function.end
                || self.placed.overlaps(next, end);
            if forbidden {
                return None;
            }
            followers.push((next, last.length()));
            next = end;
        }
        Some(followers)
    }

    /// Restores bytes to the program's: reopens the entries that rely on other values.
    fn redo_reliers(&mut self, address: u64, original: &[u8]) {
        for (at, value) in (address..).zip(original) {
            let byte = self.placed.image.byte(at);
            if byte.relied > 0 && byte.change == Change::None && byte.value != *value {
                for other in self.placed.reliers(at, at + 1) {
                    self.placed.unplace(other);
                    self.open.insert(other);
                }
            }
        }
    }

    /// Dissolves the group that has a new site among its followers: its first instruction gets a
    /// jump of its own.
    pub(super) fn ungroup(&mut self, address: u64) {
        let Some((&first, entry)) = self.placed.entries.range(..address).next_back() else { return };
        let grouped = entry.placement().and_then(|placement| placement.group.as_ref());
        if grouped.is_some_and(|group| group.followers.iter().any(|(follower, _)| *follower == address)) {
            self.dismiss(first);
            if let Some(entry) = self.placed.entries.get_mut(&first) {
                entry.alone = true;
            }
            self.open.insert(first);
        }
    }

    /// Removes the jump of an entry and opens it. Reopens the entries that rely on it or use its
    /// spare bytes.
    pub(super) fn dismiss(&mut self, address: u64) {
        let Some(entry) = self.placed.entries.get(&address) else { return };
        let (guest, length, original) = (entry.guest, usize::from(entry.length), entry.original);
        let joint_of = |placed: &Placed, address| placed.entries.get(&address)?.placement()?.joint;
        let joint = joint_of(self.placed, address);
        if let Some(guest) = guest {
            let joint = joint_of(self.placed, guest);
            self.placed.unplace(guest);
            self.open.insert(guest);
            if let Some(joint) = joint {
                self.redo_reliers(joint.address, &joint.original);
            }
        }
        self.placed.unplace(address);
        self.redo_reliers(address, &original[..length]);
        if let Some(joint) = joint {
            self.redo_reliers(joint.address, &joint.original);
        }
    }
}

/// Whether a call is so close before an instruction that its unknown callee may return to just
/// behind it.
fn is_behind_call(code: &Code<'_>, start: u64, address: u64) -> bool {
    /// How many bytes past its call a callee may return.
    const NEAR: u64 = 16;
    let low = address.saturating_sub(NEAR + LONGEST as u64).max(start);
    let from = code.instructions.partition_point(|at| *at < low);
    code.instructions[from..].iter().take_while(|at| **at < address).any(|&at| {
        code.rest(at).is_some_and(|bytes| {
            displace_in(Mode::Bits64, bytes, at)
                .is_ok_and(|it| it.is_call() && at + it.length() as u64 + NEAR >= address)
        })
    })
}

/// Whether an instruction pushes a register or an immediate: it faults only at the end of the
/// stack, and a fault handler that skips it would break the following pop.
fn is_push(bytes: &[u8]) -> bool {
    matches!(bytes, [0x50..=0x57] | [0x41, 0x50..=0x57] | [0x68, ..] | [0x6a, _])
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Planner, Site, Space};
    use super::*;

    const ADDRESS: u64 = 0x40_0000;

    /// Plans `push %rbx` followed by `behind`, with memory for trampolines only; returns the
    /// followers' lengths.
    fn followers(behind: &[u8], targets: &[u64]) -> Option<Vec<usize>> {
        followers_of(&[0x53], behind, targets, true)
    }

    /// The same for any first instruction; `proven`: whether instruction boundaries are known.
    fn followers_of(first: &[u8], behind: &[u8], targets: &[u64], proven: bool) -> Option<Vec<usize>> {
        let bytes = [first, behind, &[0x90; 16]].concat();
        let mut instructions = Vec::new();
        let mut at = 0;
        while proven && let Ok(displaced) = displace_in(Mode::Bits64, &bytes[at..], ADDRESS + at as u64) {
            instructions.push(ADDRESS + at as u64);
            at += displaced.length();
        }
        let function = ADDRESS..ADDRESS + bytes.len() as u64;
        let flow = Flow { functions: std::slice::from_ref(&function), targets };
        let code = Code {
            address: ADDRESS,
            bytes: &bytes,
            instructions: &instructions,
            entered: &[],
            padding: &[],
            kept: &[],
            flow: Some(flow),
        };
        let space = Space { free: &[], trampolines: 0x50_0000..0x51_0000 };
        let mut planner = Planner::new(Limits { mappings: 0, shadow_stacks: false, few_addresses: false });
        let plan = planner.plan(&code, &space, &[Site { address: ADDRESS, length: first.len(), jump: true }]);
        let grouped = plan.jumps.iter().find(|jump| jump.tactic == Tactic::Grouped);
        assert_eq!(grouped.is_none(), plan.traps.len() == 1, "{plan:?}");
        grouped.map(|jump| jump.followers.iter().map(|(_, length)| *length).collect())
    }

    #[test]
    fn what_touches_registers_alone_is_moved_together() {
        // mov %rdi,%rbx; xor %eax,%eax
        assert_eq!(followers(&[0x48, 0x89, 0xfb, 0x31, 0xc0], &[]), Some(vec![3, 2]));
        // sub $8,%rsp
        assert_eq!(followers(&[0x48, 0x83, 0xec, 0x08], &[]), Some(vec![4]));
        // mov %rdi,%rbx; jne
        assert_eq!(followers(&[0x48, 0x89, 0xfb, 0x75, 0x02], &[]), Some(vec![3, 2]));
        // lea 4(%rdi),%eax; nop
        assert_eq!(followers(&[0x8d, 0x47, 0x04, 0x90], &[]), Some(vec![3, 1]));
    }

    #[test]
    fn what_can_fault_or_be_stayed_in_is_not() {
        let nops = [0x90; 4];
        let refused: [(&str, &[u8]); 16] = [
            ("push %r12", &[0x41, 0x54]),
            ("pop %rbx", &[0x5b]),
            ("ret", &[0xc3]),
            ("leave", &[0xc9]),
            ("mov (%rdi),%eax", &[0x8b, 0x07]),
            ("mov %edi,4(%rsp)", &[0x89, 0x7c, 0x24, 0x04]),
            ("mov %edi,(%rip)", &[0x89, 0x3d, 0, 0, 0, 0]),
            ("div %ecx", &[0xf7, 0xf1]),
            ("divss %xmm1,%xmm0", &[0xf3, 0x0f, 0x5e, 0xc1]),
            ("call *%rax", &[0xff, 0xd0]),
            ("jmp *%rax", &[0xff, 0xe0]),
            ("syscall", &[0x0f, 0x05]),
            ("pushf", &[0x9c]),
            ("popf", &[0x9d]),
            ("rdtsc", &[0x0f, 0x31]),
            ("endbr64", &ENDBR64),
        ];
        for (text, instruction) in refused {
            assert_eq!(followers(&[instruction, &nops].concat(), &[]), None, "{text}");
            // Nor after another follower.
            assert_eq!(followers(&[&[0x31, 0xc0], instruction, &nops].concat(), &[]), None, "{text}");
        }
    }

    #[test]
    fn nothing_is_behind_what_can_fault_and_be_skipped() {
        let behind = [0x98, 0xf7, 0xd0, 0xf7, 0xd8];
        let firsts: [(&str, &[u8], bool); 7] = [
            ("xor %edx,%edx", &[0x31, 0xd2], true),
            ("push %r12", &[0x41, 0x54], true),
            ("div %ecx", &[0xf7, 0xf1], false),
            ("lodsb", &[0xac], false),
            ("mov (%rdi),%eax", &[0x8b, 0x07], false),
            ("pop %rbx", &[0x5b], false),
            ("ud2", &[0x0f, 0x0b], false),
        ];
        for (text, first, together) in firsts {
            assert_eq!(followers_of(first, &behind, &[], true).is_some(), together, "{text}");
            assert_eq!(followers_of(first, &behind, &[], false), None, "{text}: nobody has proven it");
        }
    }

    #[test]
    fn nothing_is_moved_that_something_comes_to() {
        let code = [0x48, 0x89, 0xfb, 0x31, 0xc0];
        assert_eq!(followers(&code, &[ADDRESS, ADDRESS + 6]), Some(vec![3, 2]));
        assert_eq!(followers(&code, &[ADDRESS + 1]), None);
        assert_eq!(followers(&code, &[ADDRESS + 4]), None);
    }
}
