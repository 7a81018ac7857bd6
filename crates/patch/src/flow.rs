//! Finds jump targets by reading code alone.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};

/// The addresses, ascending, inside instructions to which the 64-bit code at `address` jumps or
/// calls directly, as code does that jumps over a `lock` prefix. Such an instruction must not be
/// moved. Instruction boundaries are not known: one linear pass decodes the code, and skips one
/// byte where decoding fails.
pub fn entered_anywhere(bytes: &[u8], address: u64) -> Vec<u64> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    // One bit for each byte, set if an instruction begins there.
    let mut begins = vec![0u64; bytes.len().div_ceil(64)];
    let mut found = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            if decoder.set_position(at + 1).is_err() {
                break;
            }
            decoder.set_ip(address.wrapping_add(at as u64 + 1));
            continue;
        }
        begins[at / 64] |= 1 << (at % 64);
        if instruction.op0_kind() == OpKind::NearBranch64 {
            let target = instruction.near_branch_target().wrapping_sub(address);
            if target < bytes.len() as u64 {
                found.push(target as usize);
            }
        }
    }
    found.retain(|target| begins[target / 64] >> (target % 64) & 1 == 0);
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|target| address.wrapping_add(target as u64)).collect()
}

/// The length of the 64-bit instruction at the start of `bytes`, if there is one.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then(|| instruction.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_into_instructions_are_found_in_code_with_data() {
        // jmp over `lock`; lock inc [rax]; nop; (no instruction); nop; jmp to the nop; jmp out
        let code = [0xeb, 0x01, 0xf0, 0xff, 0x00, 0x90, 0x06, 0x90, 0xeb, 0xfd, 0xe9, 0, 1, 0, 0];
        assert_eq!(entered_anywhere(&code, 0x1000), [0x1003]);
        assert_eq!(entered_anywhere(&[], 0x1000), []);
    }
}
