//! Numbers as they are written: decimal, octal, hexadecimal, with a power of ten, with a unit of
//! time.

/// Suffixes and the number of nanoseconds that each means.
const DURATIONS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// C's suffixes. They are read and mean nothing.
const IGNORED: &[&str] = &["u", "l", "ul", "lu", "ll", "ull", "llu"];

/// The value of a number; `Err` says what is wrong with it.
pub(crate) fn value(text: &str) -> Result<u64, &'static str> {
    const TOO_LARGE: &str = "the number is larger than 64 bits";
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let end = digits.find(|each: char| !each.is_ascii_hexdigit() && each != '_').unwrap_or(digits.len());
        let (digits, suffix) = digits.split_at(end);
        if !suffix.is_empty() && !is_ignored(suffix) {
            return Err("the suffix is not known");
        }
        return sum(digits, 16).ok_or(if digits.is_empty() { "the number has no digits" } else { TOO_LARGE });
    }
    let end = text.find(|each: char| !each.is_ascii_digit() && each != '_').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Err("the number has no digits");
    }
    if rest.is_empty() || is_ignored(rest) {
        let octal = digits.len() > 1 && digits.starts_with('0');
        if octal && digits.contains(['8', '9']) {
            return Err("a number that begins with 0 is octal and has the digits 0 to 7");
        }
        return sum(digits, if octal { 8 } else { 10 }).ok_or(TOO_LARGE);
    }
    let whole = sum(digits, 10).ok_or(TOO_LARGE)?;
    if let Some((_, factor)) = DURATIONS.iter().find(|(suffix, _)| *suffix == rest) {
        return whole.checked_mul(*factor).ok_or(TOO_LARGE);
    }
    let Some(power) = rest.strip_prefix(['e', 'E']) else { return Err("the suffix is not known") };
    if power.is_empty() || !power.bytes().all(|each| each.is_ascii_digit()) {
        return Err("the power of ten is not a number");
    }
    let power = power.parse::<u32>().ok().and_then(|power| 10u64.checked_pow(power));
    power.and_then(|power| whole.checked_mul(power)).ok_or(TOO_LARGE)
}

fn is_ignored(suffix: &str) -> bool {
    suffix.len() <= 3 && IGNORED.contains(&suffix.to_ascii_lowercase().as_str())
}

fn sum(digits: &str, base: u64) -> Option<u64> {
    let mut value = 0u64;
    let mut any = false;
    for digit in digits.chars().filter(|each| *each != '_') {
        let digit = digit.to_digit(u32::try_from(base).ok()?)?;
        value = value.checked_mul(base)?.checked_add(u64::from(digit))?;
        any = true;
    }
    any.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_its_value() {
        let good = [
            ("0", 0),
            ("0123", 0o123),
            ("0x1F", 31),
            ("0X10", 16),
            ("2e3", 2000),
            ("1E6", 1_000_000),
            ("1_000_123_000", 1_000_123_000),
            ("123UL", 123),
            ("123u", 123),
            ("0x7fLL", 127),
            ("1ns", 1),
            ("1m", 60_000_000_000),
            ("2d", 172_800_000_000_000),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, expected) in good {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
        for text in ["09", "1e", "1e99", "0x", "1x", "18446744073709551616", "_", "300000d", "1e-3", "0xfgz"]
        {
            assert!(value(text).is_err(), "{text}");
        }
    }
}
