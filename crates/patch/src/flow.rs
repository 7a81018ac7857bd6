//! Where instructions begin, and where code jumps to, read from the code alone.

use iced_x86::{Decoder, DecoderOptions, OpKind};

/// The addresses of the instructions that 64-bit code at `address` is, read in a straight line until the end, or until something is
/// no instruction. It is as right as `address` is: that of a function, and `bytes` no more than that function.
pub fn instructions(bytes: &[u8], address: u64) -> Vec<u64> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut found = Vec::with_capacity(bytes.len() / 4);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            break;
        }
        found.push(instruction.ip());
    }
    found
}

/// The addresses, ascending, to which the 64-bit code at `address` jumps or calls directly and which are inside of one of its
/// `instructions` (ascending): code that jumps over a `lock` prefix does that. Such an instruction must not be moved.
pub fn entered(bytes: &[u8], address: u64, instructions: &[u64]) -> Vec<u64> {
    let end = address.saturating_add(bytes.len() as u64);
    let mut found = Vec::new();
    for start in instructions.iter().filter(|start| (address..end).contains(start)) {
        let rest = &bytes[(start - address) as usize..];
        let rest = &rest[..rest.len().min(15)];
        let instruction = Decoder::with_ip(64, rest, *start, DecoderOptions::NONE).decode();
        let target = instruction.near_branch_target();
        if instruction.op0_kind() == OpKind::NearBranch64
            && (address..end).contains(&target)
            && instructions.binary_search(&target).is_err()
        {
            found.push(target);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
