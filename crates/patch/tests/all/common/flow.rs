//! Jump targets in code whose instructions are all known.

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

/// Bytes of the longest instruction.
const LONGEST: usize = 15;

/// The addresses, ascending, to which the 64-bit code at `address` jumps or calls directly and
/// which are inside it. `instructions` are all its instructions.
pub fn targets(bytes: &[u8], address: u64, instructions: &[u64]) -> Vec<u64> {
    let end = address.saturating_add(bytes.len() as u64);
    let mut found = Vec::new();
    for start in instructions.iter().filter(|start| (address..end).contains(start)) {
        let rest = &bytes[(start - address) as usize..];
        let rest = &rest[..rest.len().min(LONGEST)];
        let instruction = Decoder::with_ip(64, rest, *start, DecoderOptions::NONE).decode();
        let target = instruction.near_branch_target();
        if instruction.op0_kind() == OpKind::NearBranch64 && (address..end).contains(&target) {
            found.push(target);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether the function at `address` has no indirect jumps except those through a word at a fixed
/// address (to another module's function), so that its instructions show all paths between them.
/// False if any part of it is not an instruction.
pub fn is_closed(bytes: &[u8], address: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let indirect = instruction.flow_control() == FlowControl::IndirectBranch;
        if instruction.is_invalid() || indirect && !instruction.is_ip_rel_memory_operand() {
            return false;
        }
    }
    true
}
