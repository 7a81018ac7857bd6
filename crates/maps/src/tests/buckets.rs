//! The buckets of histograms, against a table of what bpftrace does.

use crate::buckets::{linear, linears, power, powers};

#[test]
fn powers_of_two() {
    // Number, and its bucket for 0, 1, 2 and 5 bits.
    let table: [(i64, [usize; 4]); 21] = [
        (i64::MIN, [0, 0, 0, 0]),
        (-1, [0, 0, 0, 0]),
        (0, [1, 1, 1, 1]),
        (1, [2, 2, 2, 2]),
        (2, [3, 3, 3, 3]),
        (3, [3, 4, 4, 4]),
        (4, [4, 5, 5, 5]),
        (5, [4, 5, 6, 6]),
        (6, [4, 6, 7, 7]),
        (7, [4, 6, 8, 8]),
        (8, [5, 7, 9, 9]),
        (10, [5, 7, 10, 11]),
        (12, [5, 8, 11, 13]),
        (15, [5, 8, 12, 16]),
        (16, [6, 9, 13, 17]),
        (31, [6, 10, 16, 32]),
        (32, [7, 11, 17, 33]),
        (63, [7, 12, 20, 64]),
        (64, [8, 13, 21, 65]),
        (65, [8, 13, 21, 65]),
        (i64::MAX, [64, 126, 248, 1888]),
    ];
    for (number, expected) in table {
        assert_eq!([0, 1, 2, 5].map(|bits| power(number, bits)), expected, "{number}");
    }
    assert_eq!([0, 1, 2, 3, 4, 5].map(powers), [65, 127, 249, 489, 961, 1889]);
}

#[test]
fn each_bucket_is_one_range() {
    for bits in 0..=5 {
        let mut last = 0;
        for number in (-2..1 << 14).chain((14..63).flat_map(|at| [(1 << at) - 1, 1 << at, (1 << at) + 1])) {
            let bucket = power(number, bits);
            assert!(bucket == last || bucket == last + 1 || number > 1 << 14, "{number} {bits}");
            assert!(bucket >= last);
            last = bucket;
        }
    }
}

#[test]
fn steps() {
    let table = [
        (i64::MIN, 0),
        (99, 0),
        (100, 1),
        (119, 1),
        (120, 2),
        (180, 5),
        (199, 5),
        (200, 6),
        (201, 6),
        (i64::MAX, 6),
    ];
    for (number, expected) in table {
        assert_eq!(linear(number, 100, 200, 20), expected, "{number}");
    }
    assert_eq!(linears(100, 200, 20), 7);
    // What is left of a range that is no multiple of the step is in the last bucket.
    assert_eq!([95, 100, 101].map(|number| linear(number, 0, 100, 30)), [4, 4, 4]);
    assert_eq!(linears(0, 100, 30), 5);
    // Parameters that make no sense have buckets as well.
    assert_eq!(linear(7, 10, 0, 0), 0);
    assert_eq!(linear(12, 10, 0, 0), 1);
    assert_eq!(linear(i64::MAX, i64::MIN, i64::MAX, 1), usize::MAX);
}
