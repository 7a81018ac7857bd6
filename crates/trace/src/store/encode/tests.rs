//! Tests of the encoder's output and comparisons.

use super::*;

#[test]
fn a_short_record_has_the_bytes_of_its_numbers() {
    let edges = [0, 1, 0x7f, 0x80, 0x81, 0x3fff, 0x4000, 0x4001, 0x1f_ffff, 0x20_0000, u64::MAX];
    let mut shorts = 0;
    for passed in edges {
        for step in edges {
            for (point, thread) in [(0, 0), (0x7f, 1), (3, 0x7f), (0x80, 0), (0, 0x80), (u32::MAX, 0)] {
                let mut expected = vec![0];
                [passed, point.into(), thread.into(), step]
                    .iter()
                    .for_each(|number| push_number(&mut expected, *number));
                let Some(short) = FastRecord::of(passed, point, thread, step) else {
                    assert!(
                        passed >= FastRecord::THREE
                            || step >= FastRecord::TWO
                            || point.max(thread) >= FastRecord::ONE
                    );
                    continue;
                };
                shorts += 1;
                for data in [&b""[..], b"12345678", b"123", &[7; 100]] {
                    let mut out = vec![9, 9];
                    short.push(&mut out, data);
                    assert_eq!(out, [&[9, 9], &expected[..], data].concat(), "{passed:#x} {step:#x}");
                }
            }
        }
    }
    assert_eq!(shorts, 9 * 6 * 3);
}

#[test]
fn names_are_the_same_only_if_every_byte_is() {
    let name = b"a name that is longer than any process's";
    for length in 0..name.len() {
        let one = &name[..length];
        assert!(is_same(one, &name.to_vec()[..length]));
        assert!(!is_same(one, &name[..length + 1]));
        for place in 0..length {
            let mut other = one.to_vec();
            other[place] ^= 1;
            assert!(!is_same(one, &other), "{length} bytes, of which that at {place} differs");
        }
    }
}
