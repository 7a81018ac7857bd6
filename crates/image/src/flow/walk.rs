//! Follows the code of a file from what is known to be reached.
//!
//! In: the file's code and the starts known from its tables. Out: the instructions that control
//! reaches, the tables of indirect jumps, and the jumps that remain unresolved. `passes` follows
//! the code again with what the first pass has found; `padding` reads what is between.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iced_x86::{Decoder, FlowControl, Instruction, Mnemonic};

mod padding;
mod passes;

use super::super::Image;
use super::super::exceptions::exception_pads;
use super::super::region::{branch_target, ends_flow};
use super::likely::Reference;
use super::piece::{Piece, decode_with, decoder};
use super::returns::{Returns, never_returns};
use super::table::{Block, Table};
use super::{ControlFlow, Unresolved};

/// The most elements of one table.
const ELEMENTS: u64 = 4096;
/// The most elements of all tables of a file; gdb has some ten thousand.
const ALL_ELEMENTS: u64 = 1 << 20;

/// A walk along the code, with what it has found so far.
pub(super) struct FlowAnalysis<'a> {
    image: &'a Image,
    pub(super) flow: ControlFlow,
    /// The known starts, ascending, each with the end of the code that it claims.
    stretches: Vec<(u64, u64)>,
    /// Addresses that control reaches and that are still to be followed.
    open: Vec<u64>,
    /// Indirect jumps that are still to be resolved.
    indirect: Vec<u64>,
    /// Direct jumps (from, to), except those within a function.
    jumps: Vec<(u64, u64)>,
    /// Instructions that return.
    rets: Vec<u64>,
    /// Targets of direct calls.
    calls: HashSet<u64>,
    /// How many more elements of tables may be read.
    elements: u64,
    /// The targets of the indirect jumps whose tables were read.
    targets: HashMap<u64, Vec<u64>>,
    /// Which calls return; `None` in the first pass, which assumes that all do.
    returns: Option<Returns>,
    /// References of instructions to code, other than by jumps; ascending in the end.
    references: Vec<Reference>,
    /// The addresses of the tables that indirect jumps seem to use, read or not.
    places: Vec<u64>,
    /// The stretches with unresolved jumps.
    open_stretches: HashSet<usize>,
    /// Whether any call was not followed because it is unknown if it returns.
    pub(super) is_unknown: bool,
}

impl<'a> FlowAnalysis<'a> {
    pub(super) fn new(image: &'a Image, mut code: Vec<Piece>) -> FlowAnalysis<'a> {
        let starts = image.starts();
        let all = &starts.starts;
        let stretches = all.iter().enumerate().map(|(number, start)| {
            let next = all.get(number + 1).map_or(u64::MAX, |next| next.vaddr);
            (start.vaddr, start.claimed.min(next))
        });
        let stretches = stretches.collect();
        let proven = all.iter().filter(|start| start.proven && starts.data_at(start.vaddr).is_none());
        // A section's own start counts like a function's.
        let open = proven.filter(|start| start.claimed > start.vaddr).map(|start| start.vaddr);
        let open = open.chain(called_from_arrays(image)).chain(exception_pads(image)).collect();
        for piece in &mut code {
            let places: Vec<usize> = all.iter().filter_map(|start| piece.at(start.vaddr)).collect();
            places.into_iter().for_each(|at| piece.start_at(at));
        }
        let flow = ControlFlow { code, ..ControlFlow::default() };
        FlowAnalysis {
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
        // Code found later may jump past a comparison: then the table may have more elements, or
        // others.
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

    /// The address that nothing before it falls through to: the end of the code that a known start
    /// claims.
    fn limit(&self, vaddr: u64) -> u64 {
        let next = self.stretches.partition_point(|(start, _)| *start <= vaddr);
        let following = self.stretches.get(next).map_or(u64::MAX, |(start, _)| *start);
        match next.checked_sub(1).map(|last| self.stretches[last].1) {
            Some(claimed) if claimed > vaddr => claimed,
            // A jump leads to code that no start claims.
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
        let (start, bytes) = (piece.start, Arc::clone(&piece.bytes));
        let mut decoder = decoder(&bytes);
        while at < end && self.flow.code[number].lengths[at] == 0 {
            let decoded = decode_with(&mut decoder, start, at);
            let Some(instruction) = decoded.filter(|it| at + it.len() <= end) else { return };
            self.flow.code[number].lengths[at] = instruction.len() as u8;
            if let Some(target) = branch_target(&instruction) {
                self.open.push(target);
                let is_call = instruction.flow_control() == FlowControl::Call;
                if is_call {
                    self.calls.insert(target);
                }
                // Jumps within a stretch join no stretches.
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

    /// Notes which code an instruction refers to.
    fn refer(&mut self, instruction: &Instruction) {
        let is_address = instruction.mnemonic() == Mnemonic::Lea;
        let displacement = match instruction.is_ip_rel_memory_operand() {
            true => Some(instruction.ip_rel_memory_address()),
            false => Some(instruction.memory_displacement64()).filter(|it| *it != 0),
        };
        // An immediate of more than two bytes can be an address.
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

    /// Whether control continues after an instruction, which may be a call.
    fn comes_back(&self, instruction: &Instruction) -> bool {
        let Some(returns) = &self.returns else { return true };
        match instruction.flow_control() {
            FlowControl::Call => branch_target(instruction)
                .is_none_or(|target| target == instruction.next_ip() || returns.call_returns(target)),
            FlowControl::IndirectCall => match self.slot_of(instruction) {
                Some((_, Some(own))) => returns.call_returns(own),
                Some((name, None)) => !never_returns(name),
                None => returns.indirect_call_returns(),
            },
            _ => true,
        }
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

    /// Whether an address is after a call that is not proven to return.
    pub(super) fn is_lost(&self, vaddr: u64) -> bool {
        self.flow.lost.binary_search(&vaddr).is_ok()
    }

    /// Whether an unresolved jump may reach an address, or no known start claims it.
    pub(super) fn is_open(&self, vaddr: u64) -> bool {
        self.stretch_of(vaddr).is_none_or(|stretch| {
            self.stretches[stretch].1 <= vaddr || self.open_stretches.contains(&stretch)
        })
    }

    fn is_reached(&self, vaddr: u64) -> bool {
        self.piece_of(vaddr).and_then(|piece| Some(piece.lengths[piece.at(vaddr)?] > 0)).unwrap_or(false)
    }

    pub(super) fn image(&self) -> &'a Image {
        self.image
    }

    /// The piece that an address is in, and a decoder of its code, for [`FlowAnalysis::decode_in`].
    pub(super) fn piece_decoder(&self, vaddr: u64) -> Option<(&Piece, Decoder<'_>)> {
        let piece = self.piece_of(vaddr)?;
        Some((piece, decoder(&piece.bytes)))
    }

    /// [`FlowAnalysis::decode`], with a decoder of the piece that the address probably is in.
    pub(super) fn decode_in(
        &self,
        here: &mut Option<(&Piece, Decoder<'_>)>,
        vaddr: u64,
    ) -> Option<Instruction> {
        let near = here.as_mut().and_then(|(piece, decoder)| Some((piece.at(vaddr)?, piece, decoder)));
        match near {
            Some((at, piece, decoder)) if piece.lengths[at] > 0 => decode_with(decoder, piece.start, at),
            Some(_) => None,
            None => self.decode(vaddr),
        }
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

    /// Whether a known start is at an address.
    pub(super) fn is_function(&self, vaddr: u64) -> bool {
        match self.flow.code.iter().find_map(|piece| Some(piece.is_start(piece.at(vaddr)?))) {
            Some(starts) => starts,
            None => self.stretches.binary_search_by_key(&vaddr, |(start, _)| *start).is_ok(),
        }
    }

    /// The targets of an indirect jump whose table was read.
    pub(super) fn targets_of(&self, jump: u64) -> Option<&[u64]> {
        self.targets.get(&jump).map(Vec::as_slice)
    }

    /// The symbol whose address is in the slot through which an instruction calls or jumps, and its
    /// address if the file defines it.
    pub(super) fn slot_of(&self, instruction: &Instruction) -> Option<(&'a str, Option<u64>)> {
        if !instruction.is_ip_rel_memory_operand() {
            return None;
        }
        let slot = self.image.written().slots.get(&instruction.ip_rel_memory_address())?;
        Some((slot.0.as_str(), slot.1))
    }

    /// Whether a function never returns: an entry of the procedure linkage table for a function of
    /// another module that is known not to.
    pub(super) fn never_returns(&self, target: u64) -> bool {
        /// Instructions of one entry of that table.
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

    /// The address of the table that an indirect jump seems to use.
    fn place_of(&self, jump: u64) -> Option<u64> {
        let piece = self.piece_of(jump)?;
        Some(Block::new(piece, piece.at(jump)?).table()?.place)
    }

    fn stretch_of(&self, vaddr: u64) -> Option<usize> {
        self.stretches.partition_point(|(start, _)| *start <= vaddr).checked_sub(1)
    }

    /// The table of an indirect jump, and its number of elements.
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

    /// The targets of an indirect jump.
    fn resolve(&mut self, jump: u64) -> Result<Vec<u64>, Unresolved> {
        let (table, count) = self.table_of(jump)?;
        self.elements = self.elements.checked_sub(count).ok_or(Unresolved::TooMany)?;
        let piece = self.piece_of(jump).ok_or(Unresolved::NoTable)?;
        let mut targets = Vec::with_capacity(count as usize);
        for element in 0..count {
            let target = self.element(&table, element).ok_or(Unresolved::BadEntry)?;
            let is_code = self.image.starts().area(target).is_some_and(|area| {
                area.range.contains(&target) && self.image.starts().data_at(target).is_none()
            });
            let fits = piece.at(target).is_some_and(|at| piece.lengths[at] > 0 || !piece.is_inside(at));
            if !is_code || !fits {
                return Err(Unresolved::BadEntry);
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

/// The functions called when the file is loaded and unloaded, from its init and fini arrays.
fn called_from_arrays(image: &Image) -> Vec<u64> {
    /// The most elements of all arrays that are read.
    const MOST: usize = 1 << 16;
    let is_array = |name: &str| matches!(name, ".init_array" | ".fini_array" | ".preinit_array");
    let sections = image.headers.sections.iter().filter(|section| is_array(&section.name));
    let places =
        sections.flat_map(|section| (section.vaddr..section.vaddr.saturating_add(section.size)).step_by(8));
    let called = places.take(MOST).filter_map(|place| image.pointer_at(place));
    called.filter(|vaddr| image.starts().area(*vaddr).is_some()).collect()
}
