//! Formats numbers for people to read.

/// A count, with thousands separated by commas: `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and its noun: `1 record`, `1,234 records`.
pub(crate) fn count_of(number: u64, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", grouped(number))
}

/// Nanoseconds, in a suitable unit: `683 ns`, `12.3 µs`, `1.25 ms`, `2.50 s`.
pub fn duration(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    format!("{value:.*} {unit}", decimals(value))
}

/// Nanoseconds as [`duration`] has them, in nine columns: below one another, the units are, too.
pub(crate) fn aligned(nanoseconds: u64) -> String {
    let shown = duration(nanoseconds);
    let (number, unit) = shown.split_once(' ').unwrap_or((&shown, ""));
    format!("{number:>6} {unit:<2}")
}

/// A rate: `0`, `950`, `12.5 k`, `1.25 M`.
pub fn rate(value: f64) -> String {
    let (value, unit) = match value {
        0.0 => return "0".to_owned(),
        value if value < 1e3 => return format!("{value:.*}", if value < 10.0 { 1 } else { 0 }),
        value if value < 1e6 => (value / 1e3, "k"),
        value if value < 1e9 => (value / 1e6, "M"),
        value => (value / 1e9, "G"),
    };
    format!("{value:.*} {unit}", decimals(value))
}

/// Number of decimals that gives three digits.
fn decimals(value: f64) -> usize {
    match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    }
}

/// A part of all, in percent.
pub(crate) fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [5, 1_000, 12_345, 999_999, 1_250_000_000, 61_000_000_000].map(duration),
            ["5 ns", "1.00 µs", "12.3 µs", "1000 µs", "1.25 s", "61.0 s"]
        );
        assert_eq!([5, 12_345, 61_000_000_000].map(aligned), ["     5 ns", "  12.3 µs", "  61.0 s "]);
        assert_eq!([0.5, 950.0, 12_500.0, 1_250_000.0].map(rate), ["0.5", "950", "12.5 k", "1.25 M"]);
    }
}
