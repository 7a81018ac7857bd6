//! Times as text, by formats of C's `strftime` in the C locale.

use jiff::Timestamp;
use jiff::fmt::strtime::{BrokenDownTime, Config, PosixCustom};
use jiff::tz::TimeZone;

/// What bpftrace shows of a time that cannot be shown.
const UNKNOWN: &[u8] = b"(?)";

/// A time that `strftime()` gave: `%f` stands for six digits of microseconds.
pub(crate) fn event_time(format: &[u8], time: i128, zone: &TimeZone) -> Vec<u8> {
    let micros = format!("{:06}", time.rem_euclid(1_000_000_000) / 1000);
    let mut with_micros = Vec::with_capacity(format.len());
    let mut rest = format;
    while let [first, others @ ..] = rest {
        match rest {
            // Two percent signs are one, so what follows them is no conversion.
            [b'%', b'%', others @ ..] => {
                with_micros.extend_from_slice(b"%%");
                rest = others;
            }
            [b'%', b'f', others @ ..] => {
                with_micros.extend_from_slice(micros.as_bytes());
                rest = others;
            }
            _ => {
                with_micros.push(*first);
                rest = others;
            }
        }
    }
    formatted(&with_micros, time, zone).unwrap_or_else(|| UNKNOWN.into())
}

/// A time by a format; `None` if it cannot be shown or nothing comes out.
pub(crate) fn formatted(format: &[u8], time: i128, zone: &TimeZone) -> Option<Vec<u8>> {
    let time = Timestamp::from_nanosecond(time).ok()?.to_zoned_datetime(zone.clone());
    // Conversions that do not exist stand as they are, as with C's function.
    let config = Config::new().custom(PosixCustom::new()).lenient(true);
    // The format may have bytes that are not UTF-8: what lies between them is formatted.
    let mut out = Vec::new();
    for chunk in format.utf8_chunks() {
        let text = BrokenDownTime::from(&time).to_string_with_config(&config, chunk.valid()).ok()?;
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(chunk.invalid());
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 14 November 2023, a Tuesday, 22:13:25 UTC.
    const TIME: i128 = 1_700_000_005_000_042_999;

    fn shown(format: &str) -> String {
        let shown = formatted(format.as_bytes(), TIME, &TimeZone::UTC).expect("a time");
        String::from_utf8(shown).expect("ASCII")
    }

    /// What `date` says of this time in the C locale, whose conversions are those of C's function.
    #[test]
    fn conversions_are_those_of_c() {
        let expected = [
            ("%a|%A|%b|%B|%h", "Tue|Tuesday|Nov|November|Nov"),
            ("%c|%x|%X|%r", "Tue Nov 14 22:13:25 2023|11/14/23|22:13:25|10:13:25 PM"),
            ("%C|%y|%Y|%g|%G", "20|23|2023|23|2023"),
            ("%d|%e|%m|%j|%D|%F", "14|14|11|318|11/14/23|2023-11-14"),
            ("%H|%I|%k|%l|%M|%S|%p|%P", "22|10|22|10|13|25|PM|pm"),
            ("%R|%T|%s|%z|%Z", "22:13|22:13:25|1700000005|+0000|UTC"),
            ("%u|%w|%U|%V|%W", "2|2|46|46|46"),
            ("%n|%t|%%|%-e|%_m|%+", "\n|\t|%|14|11|%+"),
        ];
        for (format, text) in expected {
            assert_eq!(shown(format), text, "{format}");
        }
    }

    #[test]
    fn strftime_has_microseconds() {
        let event = |format: &[u8], time| event_time(format, time, &TimeZone::UTC);
        assert_eq!(event(b"%H:%M:%S.%f", TIME), b"22:13:25.000042");
        assert_eq!(event(b"%%f %f", TIME), b"%f 000042");
        assert_eq!(event(b"\xff%S\xfe", TIME), b"\xff25\xfe");
        assert_eq!(event(b"%S", i128::MAX), UNKNOWN);
        assert_eq!(event(b"%F", -1), b"1969-12-31");
    }

    #[test]
    fn a_time_is_shown_in_the_zone() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
        assert_eq!(formatted(b"%T %z %Z", TIME, &zone).expect("a time"), b"23:13:25 +0100 CET");
    }
}
