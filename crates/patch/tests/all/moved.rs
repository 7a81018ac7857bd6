//! The slot of an instruction in a process that has the module elsewhere differs only in the
//! addresses that it holds.

use crate::common::encodings::{Addresses, all};
use dprobes_patch::{Continuation, Mode, displace_in};

#[test]
fn a_slot_moves_with_its_module() {
    const SITE: u64 = 0x7000_1234_5678;
    const SLOT: u64 = 0x7000_2000_0000;
    let addresses = Addresses { mode: Mode::Bits64, site: SITE, data: SITE + 0x10_0000, target: SITE + 0x40 };
    let (mut slots, mut words) = (0, 0);
    for encoding in all(addresses) {
        let mut bytes = encoding.bytes.clone();
        bytes.extend_from_slice(&[0x90; 15]);
        for by in [0x1000, 0x0fed_cba9_8000, 0x1000_u64.wrapping_neg()] {
            let here = displace_in(Mode::Bits64, &bytes, SITE);
            let there = displace_in(Mode::Bits64, &bytes, SITE.wrapping_add(by));
            assert_eq!(here.is_ok(), there.is_ok(), "{:02x?}", encoding.bytes);
            let (Ok(here), Ok(there)) = (here, there) else { continue };
            let moved = here.moved(by);
            assert_eq!(
                (moved.address(), moved.reach(), moved.text()),
                (there.address(), there.reach(), there.text())
            );
            for onward in [Continuation::Next, Continuation::Behind] {
                let (Ok(here), Ok(there)) =
                    (here.slot_to(SLOT, onward), there.slot_to(SLOT.wrapping_add(by), onward))
                else {
                    continue;
                };
                assert_eq!(here.moved(by), there, "{:02x?}", encoding.bytes);
                (slots, words) = (slots + 1, words + here.absolute().len());
            }
        }
    }
    assert!(slots > 20_000 && words > 100, "{slots} slots with {words} addresses");
}
