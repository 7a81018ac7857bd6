//! The way along the code, from what is known to be reached.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic};

use super::super::Image;
use super::super::frames::Stack;
use super::super::functions::Binding;
use super::super::region::{branch_target, ends_flow};
use super::likely::Reference;
use super::piece::Piece;
use super::returns::{Returns, never_returns};
use super::table::{Block, Table};
use super::{ControlFlow, Unresolved};

/// Bytes of padding between two functions.
const PADDING: usize = 256;
/// Elements of one table.
const ELEMENTS: u64 = 4096;
/// Elements of all tables of a file that are read; gdb's have some ten thousand.
const ALL_ELEMENTS: u64 = 1 << 20;

/// Where control comes to, as it is being found.
pub(super) struct Walk<'a> {
    image: &'a Image,
    pub(super) flow: ControlFlow,
    /// Where something known begins, ascending, and up to where it vouches that code follows.
    stretches: Vec<(u64, u64)>,
    /// Addresses that control comes to and that have not been looked at.
    open: Vec<u64>,
    /// Indirect jumps that have not been looked at.
    indirect: Vec<u64>,
    /// Direct jumps, from where to where, but those within a function.
    jumps: Vec<(u64, u64)>,
    /// Instructions that return.
    rets: Vec<u64>,
    /// Targets of direct calls.
    calls: HashSet<u64>,
    /// Elements of tables that are still read.
    elements: u64,
    /// Where the indirect jumps lead whose tables were read.
    targets: HashMap<u64, Vec<u64>>,
    /// Which calls come back; nothing in the first pass, which takes all of them to.
    returns: Option<Returns>,
    /// What instructions refer to in the code otherwise than by jumps; ascending in the end.
    references: Vec<Reference>,
    /// Where the tables are that indirect jumps seem to take their targets from, read or not.
    places: Vec<u64>,
    /// The stretches of which it is not known where all jumps lead.
    open_stretches: HashSet<usize>,
    /// Whether any call was not followed of which nothing is known.
    pub(super) is_unknown: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(image: &'a Image, code: Vec<Piece>) -> Walk<'a> {
        let starts = image.starts();
        let all = &starts.starts;
        let stretches = all.iter().enumerate().map(|(number, start)| {
            let next = all.get(number + 1).map_or(u64::MAX, |next| next.vaddr);
            (start.vaddr, start.claimed.min(next))
        });
        let stretches = stretches.collect();
        let proven = all.iter().filter(|start| start.proven && starts.data_at(start.vaddr).is_none());
        // A section's own start is as good as what vouches for it.
        let open = proven.filter(|start| start.claimed > start.vaddr).map(|start| start.vaddr);
        let open = open.chain(image.called_from_arrays()).chain(image.landing_pads()).collect();
        let flow = ControlFlow { code, ..ControlFlow::default() };
        Walk {
            image,
            flow,
            stretches,
            open,
            indirect: Vec::new(),
            jumps: Vec::new(),
            rets: Vec::new(),
            calls: HashSet::new(),
            elements: ALL_ELEMENTS,
            targets: HashMap::new(),
            returns: None,
            references: Vec::new(),
            places: Vec::new(),
            open_stretches: HashSet::new(),
            is_unknown: false,
        }
    }

    pub(super) fn all(&mut self) {
        loop {
            while let Some(vaddr) = self.open.pop() {
                self.follow(vaddr);
            }
            let mut jumps = std::mem::take(&mut self.indirect);
            if jumps.is_empty() {
                break;
            }
            jumps.sort_unstable();
            for jump in jumps {
                match self.resolve(jump) {
                    Ok(targets) => {
                        self.flow.tables.push((jump, targets.len() as u64));
                        self.jumps.extend(targets.iter().map(|target| (jump, *target)));
                        self.flow.table_targets.extend(&targets);
                        self.open.extend(&targets);
                        self.targets.insert(jump, targets);
                    }
                    Err(why) => self.flow.unresolved.push((jump, why)),
                }
            }
        }
        // What was found since may jump past a comparison: the table has more elements then, or others.
        let tables = std::mem::take(&mut self.flow.tables);
        for (jump, targets) in tables {
            match self.table_of(jump) {
                Ok(_) => self.flow.tables.push((jump, targets)),
                Err(why) => self.flow.unresolved.push((jump, why)),
            }
        }
        let jumps = self.rets.iter().filter(|&&vaddr| {
            let mut pieces = self.flow.code.iter();
            pieces.any(|piece| piece.at(vaddr).is_some_and(|at| piece.is_jump_by_return(at)))
        });
        let jumps: Vec<_> = jumps.map(|&vaddr| (vaddr, Unresolved::NoTable)).collect();
        self.flow.unresolved.extend(jumps);
        self.flow.tables.sort_unstable();
        self.flow.unresolved.sort_unstable();
    }

    /// Where control does not fall through from an address in any case: the end of what vouches for it.
    fn limit(&self, vaddr: u64) -> u64 {
        let next = self.stretches.partition_point(|(start, _)| *start <= vaddr);
        let following = self.stretches.get(next).map_or(u64::MAX, |(start, _)| *start);
        match next.checked_sub(1).map(|last| self.stretches[last].1) {
            Some(claimed) if claimed > vaddr => claimed,
            // Something jumps to where nobody vouches for anything.
            _ => following,
        }
    }

    fn follow(&mut self, vaddr: u64) {
        let Some(number) = self.flow.code.iter().position(|piece| piece.at(vaddr).is_some()) else { return };
        let limit = self.limit(vaddr);
        let piece = &mut self.flow.code[number];
        let Some(mut at) = piece.at(vaddr) else { return };
        piece.jump_to(at);
        let end = piece.at(limit).unwrap_or(piece.bytes.len());
        while at < end && self.flow.code[number].lengths[at] == 0 {
            let piece = &mut self.flow.code[number];
            let Some(instruction) = piece.decode(at).filter(|it| at + it.len() <= end) else { return };
            piece.lengths[at] = instruction.len() as u8;
            if let Some(target) = branch_target(&instruction) {
                self.open.push(target);
                let is_call = instruction.flow_control() == FlowControl::Call;
                if is_call {
                    self.calls.insert(target);
                }
                // Within a stretch they join nothing.
                if !is_call && !(vaddr..limit).contains(&target) {
                    self.jumps.push((instruction.ip(), target));
                }
            }
            self.refer(&instruction);
            if instruction.is_jmp_near_indirect() && !instruction.is_ip_rel_memory_operand() {
                self.indirect.push(instruction.ip());
            }
            if instruction.flow_control() == FlowControl::Return {
                self.rets.push(instruction.ip());
            }
            if ends_flow(&instruction) {
                return;
            }
            at += instruction.len();
            if !self.comes_back(&instruction) {
                self.flow.lost.push(instruction.next_ip());
                let returns = self.returns.as_ref();
                self.is_unknown |= returns
                    .zip(branch_target(&instruction))
                    .is_some_and(|(returns, target)| returns.is_unknown(target));
                return;
            }
        }
    }

    /// Notes what an instruction refers to in the code.
    fn refer(&mut self, instruction: &Instruction) {
        let is_address = instruction.mnemonic() == Mnemonic::Lea;
        let displacement = match instruction.is_ip_rel_memory_operand() {
            true => Some(instruction.ip_rel_memory_address()),
            false => Some(instruction.memory_displacement64()).filter(|it| *it != 0),
        };
        // An immediate of four bytes or more can be an address.
        let number = match instruction.op_count() {
            0 => None,
            count => instruction.try_immediate(count - 1).ok().filter(|it| *it > 0xffff),
        };
        let (from, code) = (instruction.ip(), &self.flow.code);
        let found = displacement.map(|to| (to, is_address)).into_iter().chain(number.map(|to| (to, true)));
        for (to, is_address) in found {
            if code.iter().any(|piece| piece.at(to).is_some()) {
                self.references.push(Reference { to, from, is_address });
            }
        }
    }

    /// Whether control goes on behind an instruction if it is a call.
    fn comes_back(&self, instruction: &Instruction) -> bool {
        let Some(returns) = &self.returns else { return true };
        match instruction.flow_control() {
            FlowControl::Call => branch_target(instruction)
                .is_none_or(|target| target == instruction.next_ip() || returns.comes_back(target)),
            FlowControl::IndirectCall => match self.slot_of(instruction) {
                Some((_, Some(own))) => returns.comes_back(own),
                Some((name, None)) => !never_returns(name),
                None => returns.indirect(),
            },
            _ => true,
        }
    }

    /// The second pass, which goes on behind a call only where that is proven to come back. What was found to be called in the first one
    /// is looked at; that was more, rather than less.
    pub(super) fn again(self, code: Vec<Piece>) -> Walk<'a> {
        // What begins with the stack in use is a part of a function, and followed with it.
        let is_function = |start: u64| {
            let stack = self.image.frames().stack_at(start);
            self.is_reached(start) && stack.is_none_or(|stack| stack == Stack::AtEntry)
        };
        let functions = self.stretches.iter().map(|(start, _)| *start).filter(|&start| is_function(start));
        let functions: Vec<u64> = functions.chain(self.calls.iter().copied()).collect();
        let returns = Returns::of(&self, functions.into_iter());
        let mut walk = Walk::new(self.image, code);
        walk.returns = Some(returns);
        walk
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.flow.code
    }

    pub(super) fn references(&self) -> &[Reference] {
        &self.references
    }

    pub(super) fn table_places(&self) -> &[u64] {
        &self.places
    }

    pub(super) fn stretch(&self, vaddr: u64) -> Option<usize> {
        self.stretch_of(vaddr)
    }

    /// Whether a place is behind a call that is not proven to come back.
    pub(super) fn is_lost(&self, vaddr: u64) -> bool {
        self.flow.lost.binary_search(&vaddr).is_ok()
    }

    /// Whether control may come to a place by a jump of which it is not known where it leads; or nobody says what is there.
    pub(super) fn is_open(&self, vaddr: u64) -> bool {
        self.stretch_of(vaddr).is_none_or(|stretch| {
            self.stretches[stretch].1 <= vaddr || self.open_stretches.contains(&stretch)
        })
    }

    /// What is likely beside what is proven: a third pass, which goes on behind calls, too, of which nothing is known.
    pub(super) fn guess(&mut self) {
        if !self.is_unknown {
            return;
        }
        let pieces = self.flow.code.iter().map(Piece::anew).collect();
        let mut walk = Walk::new(self.image, pieces);
        walk.returns = self.returns.take();
        walk.returns.iter_mut().for_each(|returns| returns.is_lenient = true);
        walk.all();
        walk.pad();
        let mut likely = std::mem::take(&mut walk.flow.likely);
        for (piece, more) in self.flow.code.iter().zip(&walk.flow.code) {
            let found = more.lengths.iter().zip(&piece.lengths).enumerate();
            likely.extend(
                found
                    .filter(|(_, (more, proven))| **more > 0 && **proven == 0)
                    .map(|(at, _)| piece.start + at as u64),
            );
        }
        likely.sort_unstable();
        self.flow.likely = likely;
    }

    fn is_reached(&self, vaddr: u64) -> bool {
        self.piece_of(vaddr).and_then(|piece| Some(piece.lengths[piece.at(vaddr)?] > 0)).unwrap_or(false)
    }

    pub(super) fn image(&self) -> &'a Image {
        self.image
    }

    /// The instruction at an address, if it is reached.
    pub(super) fn decode(&self, vaddr: u64) -> Option<Instruction> {
        let piece = self.piece_of(vaddr)?;
        let at = piece.at(vaddr)?;
        (piece.lengths[at] > 0).then(|| piece.decode(at)).flatten()
    }

    pub(super) fn is_jumped_to(&self, vaddr: u64) -> bool {
        self.piece_of(vaddr).is_some_and(|piece| piece.at(vaddr).is_some_and(|at| piece.is_jumped_to(at)))
    }

    /// Whether something known begins at an address.
    pub(super) fn is_function(&self, vaddr: u64) -> bool {
        self.stretches.binary_search_by_key(&vaddr, |(start, _)| *start).is_ok()
    }

    /// Where an indirect jump leads whose table was read.
    pub(super) fn targets_of(&self, jump: u64) -> Option<&[u64]> {
        self.targets.get(&jump).map(Vec::as_slice)
    }

    /// The symbol whose address is in the word through which an instruction calls or jumps, and where it is if the file defines it.
    pub(super) fn slot_of(&self, instruction: &Instruction) -> Option<(&'a str, Option<u64>)> {
        if !instruction.is_ip_rel_memory_operand() {
            return None;
        }
        let slot = self.image.written().slots.get(&instruction.ip_rel_memory_address())?;
        Some((slot.0.as_str(), slot.1))
    }

    /// Whether a function never returns, as its name says: one of another module, called by way of the procedure linkage table.
    pub(super) fn never_returns(&self, target: u64) -> bool {
        /// Instructions of an entry of that table.
        const ENTRY: usize = 3;
        let mut at = target;
        for _ in 0..ENTRY {
            let Some(instruction) = self.decode(at) else { return false };
            if instruction.is_jmp_near_indirect() {
                return matches!(self.slot_of(&instruction), Some((name, None)) if never_returns(name));
            }
            at = instruction.next_ip();
        }
        false
    }

    /// Finds the padding between proven instructions.
    pub(super) fn pad(&mut self) {
        self.references.sort_unstable_by_key(|reference| reference.to);
        self.flow.lost.sort_unstable();
        self.places = self
            .flow
            .tables
            .iter()
            .map(|(jump, _)| *jump)
            .chain(self.flow.unresolved.iter().map(|(jump, _)| *jump))
            .filter_map(|jump| self.place_of(jump))
            .collect();
        let (open, entered) = self.open_stretches();
        self.open_stretches.clone_from(&open);
        self.flow.likely = self.likely();
        let closed =
            (0..self.stretches.len()).filter(|stretch| !open.contains(stretch) && entered.contains(stretch));
        let closed = closed.map(|stretch| self.stretches[stretch].0..self.stretches[stretch].1);
        self.flow.closed = closed.filter(|range| range.start < range.end && range.end < u64::MAX).collect();
        let (mut dead, mut fillers) = (Vec::new(), Vec::new());
        for (number, piece) in self.flow.code.iter().enumerate() {
            for gap in piece.gaps() {
                let range = piece.start + gap.start as u64..piece.start + gap.end as u64;
                if gap.len() > PADDING || !piece.is_padding(gap.clone()) || self.is_referred_to(&range) {
                    continue;
                }
                // Where it is not known where a function's jumps lead, a case of a `switch` may begin with alignment.
                let is_closed = self.stretch_of(range.start).is_none_or(|stretch| {
                    self.stretches[stretch].1 <= range.start || !open.contains(&stretch)
                });
                if is_closed && piece.is_left_before(gap.start) {
                    dead.push(range);
                }
                fillers.push((number, gap));
            }
        }
        dead.sort_by_key(|range| range.start);
        self.flow.padding = dead;
        // They are instructions all the same.
        for (number, gap) in fillers {
            let piece = &mut self.flow.code[number];
            let mut at = gap.start;
            while at < gap.end
                && let Some(filler) = piece.decode(at)
            {
                if filler.mnemonic() == Mnemonic::Nop {
                    piece.lengths[at] = filler.len() as u8;
                }
                at += filler.len();
            }
        }
    }

    /// The stretches, by number, of functions of which it is not known where all their jumps lead, or that have landing pads of exceptions;
    /// and those that are connected with one of them by jumps. Then those that are connected with the entry of a function, as its unwinding
    /// entry tells, and that it is called, or named for others: what is not may be a part of another, which is jumped to nobody sees how.
    fn open_stretches(&self) -> (HashSet<usize>, HashSet<usize>) {
        let mut joined: Vec<usize> = (0..self.stretches.len()).collect();
        fn root(joined: &mut [usize], mut at: usize) -> usize {
            while joined[at] != at {
                joined[at] = joined[joined[at]];
                at = joined[at];
            }
            at
        }
        for &(from, to) in &self.jumps {
            if let (Some(from), Some(to)) = (self.stretch_of(from), self.stretch_of(to)) {
                let (from, to) = (root(&mut joined, from), root(&mut joined, to));
                joined[from] = to;
            }
        }
        let unresolved = self.flow.unresolved.iter().map(|&(jump, _)| jump);
        let open = unresolved.chain(self.image.frames().with_landing_pads());
        let open: Vec<usize> = open.filter_map(|vaddr| self.stretch_of(vaddr)).collect();
        let open: HashSet<usize> = open.into_iter().map(|stretch| root(&mut joined, stretch)).collect();
        // A part of a function that has no frame of its own looks like an entry, too; but nobody calls it.
        let named = self.image.functions().iter().filter(|function| function.binding != Binding::Local);
        let named: HashSet<u64> = named.map(|function| function.vaddr).collect();
        let entered = (0..self.stretches.len()).filter(|&stretch| {
            let start = self.stretches[stretch].0;
            (self.calls.contains(&start) || named.contains(&start))
                && self.image.frames().stack_at(start) == Some(Stack::AtEntry)
        });
        let entered: HashSet<usize> = entered.map(|stretch| root(&mut joined, stretch)).collect();
        let mut with = |roots: &HashSet<usize>| -> HashSet<usize> {
            (0..self.stretches.len()).filter(|&stretch| roots.contains(&root(&mut joined, stretch))).collect()
        };
        (with(&open), with(&entered))
    }

    /// Whether any instruction refers to some addresses otherwise than by a jump.
    fn is_referred_to(&self, range: &Range<u64>) -> bool {
        let from = self.references.partition_point(|reference| reference.to < range.start);
        self.references.get(from).is_some_and(|reference| reference.to < range.end)
    }

    /// Where the table is that an indirect jump seems to take its target from.
    fn place_of(&self, jump: u64) -> Option<u64> {
        let piece = self.piece_of(jump)?;
        Some(Block::new(piece, piece.at(jump)?).table()?.place)
    }

    fn stretch_of(&self, vaddr: u64) -> Option<usize> {
        self.stretches.partition_point(|(start, _)| *start <= vaddr).checked_sub(1)
    }

    /// The table that an indirect jump's target comes from, and how many elements it has.
    fn table_of(&self, jump: u64) -> Result<(Table, u64), Unresolved> {
        let piece = self.piece_of(jump).ok_or(Unresolved::NoTable)?;
        let at = piece.at(jump).ok_or(Unresolved::NoTable)?;
        let block = Block::new(piece, at);
        let table = block.table().ok_or(Unresolved::NoTable)?;
        let count = block.bound(table.from, table.index).ok_or(Unresolved::NoBound)?;
        match count {
            1..=ELEMENTS => Ok((table, count)),
            _ => Err(Unresolved::NoBound),
        }
    }

    fn piece_of(&self, vaddr: u64) -> Option<&Piece> {
        self.flow.code.iter().find(|piece| piece.at(vaddr).is_some())
    }

    /// Where an indirect jump leads.
    fn resolve(&mut self, jump: u64) -> Result<Vec<u64>, Unresolved> {
        let (table, count) = self.table_of(jump)?;
        self.elements = self.elements.checked_sub(count).ok_or(Unresolved::TooMany)?;
        let piece = self.piece_of(jump).ok_or(Unresolved::NoTable)?;
        let mut targets = Vec::with_capacity(count as usize);
        for element in 0..count {
            let target = self.element(&table, element).ok_or(Unresolved::Strange)?;
            let is_code = self.image.starts().area(target).is_some_and(|area| {
                area.range.contains(&target) && self.image.starts().data_at(target).is_none()
            });
            let fits = piece.at(target).is_some_and(|at| piece.lengths[at] > 0 || !piece.is_inside(at));
            if !is_code || !fits {
                return Err(Unresolved::Strange);
            }
            targets.push(target);
        }
        targets.sort_unstable();
        targets.dedup();
        Ok(targets)
    }

    fn element(&self, table: &Table, element: u64) -> Option<u64> {
        match table.base {
            Some(base) => {
                let place = table.place.checked_add(element * 4)?;
                let bytes = self.image.data(place, 4)?;
                let distance = i32::from_le_bytes(bytes.try_into().ok()?);
                Some(base.wrapping_add_signed(distance.into()))
            }
            None => self.image.pointer_at(table.place.checked_add(element * 8)?),
        }
    }
}

impl Image {
    /// What is called when the file is loaded and unloaded: the functions in its arrays of them.
    fn called_from_arrays(&self) -> Vec<u64> {
        /// Elements of all of them that are looked at.
        const MOST: usize = 1 << 16;
        let is_array = |name: &str| matches!(name, ".init_array" | ".fini_array" | ".preinit_array");
        let sections = self.headers.sections.iter().filter(|section| is_array(&section.name));
        let places = sections
            .flat_map(|section| (section.vaddr..section.vaddr.saturating_add(section.size)).step_by(8));
        let called = places.take(MOST).filter_map(|place| self.pointer_at(place));
        called.filter(|vaddr| self.starts().area(*vaddr).is_some()).collect()
    }
}
