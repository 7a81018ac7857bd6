//! Overlapping instructions: code jumps past the prefix of one, so they share bytes, whichever is
//! to be moved.

use dprobes_patch::tactic::{Code, Limits, Plan, Planner, Reason, Site, Space};

const ADDRESS: u64 = 0x7f3a_5c2f_6000;

/// A plan for one site, in code with these known instructions.
fn plan(bytes: &[u8], instructions: &[u64], entered: &[u64], site: Site) -> Plan {
    let at = |offsets: &[u64]| -> Vec<u64> { offsets.iter().map(|offset| ADDRESS + offset).collect() };
    let code = Code {
        address: ADDRESS,
        bytes,
        instructions: &at(instructions),
        entered: &at(entered),
        padding: &[],
        kept: &[],
        flow: None,
    };
    let trampolines = ADDRESS + 0x10_0000..ADDRESS + 0x20_0000;
    // The target range of a jump whose last bytes are those behind the increment, and little else.
    let free = ADDRESS + 0x6660_0000..ADDRESS + 0x6670_0000;
    let free = std::slice::from_ref(&free);
    let mut planner = Planner::new(Limits { mappings: 64, shadow_stacks: false, few_addresses: false });
    planner.plan(&code, &Space { free, trampolines }, &[site])
}

/// `cwtl`, then bytes that form no jump, then `jz` past the prefix of
/// `lock incq displacement(%rip)`.
const PREFIXED: [u8; 24] = [
    0x98, 0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x90, 0x90, 0x74, 0x01, 0xf0, 0x48, 0xff, 0x05, 0x10, 0x20, 0x30,
    0xc0, 0xc3, 0x66, 0x66, 0x90, 0x90, 0x90,
];

#[test]
fn no_part_of_another_instruction_is_moved_for_a_site() {
    let starts = [0, 1, 6, 7, 8, 10, 11, 18];
    let mut alone = 0;
    // The second byte of a jump at the site is the byte that follows: try all distances around the
    // prefix.
    for second in 0..=255 {
        let mut bytes = PREFIXED;
        bytes[1] = second;
        for (known, is_shared) in [(&starts[..], true), (&[0, 1, 6, 7, 8, 11, 18][..], false)] {
            let plan = plan(&bytes, known, &[], Site { address: ADDRESS, length: 1, jump: true });
            let moved = plan.jumps.iter().any(|jump| jump.address == ADDRESS + 11);
            assert!(!(moved && is_shared), "{second:#x}: {plan:?}");
            alone += u32::from(moved);
            // The only evidence is that code jumps there.
            let doubtful = self::plan(
                &bytes,
                &[0, 1, 6, 7, 8, 11, 18],
                &[11],
                Site { address: ADDRESS, length: 1, jump: true },
            );
            assert!(
                doubtful.jumps.iter().all(|jump| jump.address != ADDRESS + 11),
                "{second:#x}: {doubtful:?}"
            );
        }
    }
    assert!(alone > 0, "it would be moved if its bytes were its own");
}

#[test]
fn a_site_that_overlaps_with_an_instruction_is_trapped() {
    let starts = [0, 1, 6, 7, 8, 10, 11, 18];
    for (at, length, reason) in [(10, 8, Reason::Entered), (11, 7, Reason::Shared)] {
        let site = Site { address: ADDRESS + at, length, jump: true };
        let plan = plan(&PREFIXED, &starts, &[], site);
        assert_eq!(plan.traps, [(ADDRESS + at, reason)], "{plan:?}");
        let whole: &[u64] = &[at];
        let plan = self::plan(&PREFIXED, whole, &[], site);
        assert_eq!((plan.jumps.len(), plan.traps.len()), (1, 0), "{plan:?}");
    }
}
