//! The `metadata` file of a trace, in TSDL, the description language of CTF 1.8.

use std::fmt::Write;

use crate::store::About;

/// The first bytes of every packet.
pub(super) const MAGIC: u32 = 0xc1fc_1fc1;

/// The integer types that the description uses.
const TYPES: &str = "\
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := timestamp_t;
";

/// The layout of packets and record headers, the same in all streams.
const STREAM: &str = "\
stream {
\tid = 0;
\tpacket.context := struct {
\t\ttimestamp_t timestamp_begin;
\t\ttimestamp_t timestamp_end;
\t\tuint64_t content_size;
\t\tuint64_t packet_size;
\t\tuint64_t packet_seq_num;
\t\tuint64_t events_discarded;
\t\tuint32_t cpu_id;
\t};
\tevent.header := struct {
\t\tuint16_t id;
\t\ttimestamp_t timestamp;
\t};
};
";

/// The clock of a trace: the kernel's CLOCK_MONOTONIC if its offset from 1970 is known; else a
/// clock that begins in 1970.
///
/// Both give the same times. With the former, readers can show the trace next to those of other
/// tools on the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Nanoseconds from 1970 to the clock's zero.
    offset: u64,
}

impl Clock {
    /// The clock for a trace.
    pub(super) fn of(about: &About) -> Clock {
        let offset =
            u64::try_from(about.monotonic).ok().filter(|&offset| offset <= about.start.min(i64::MAX as u64));
        Clock { offset: offset.unwrap_or(0) }
    }

    /// Converts a time to a clock value, clamped to what the clock and readers can represent.
    pub(super) fn at(self, time: u64) -> u64 {
        time.clamp(self.offset, i64::MAX as u64) - self.offset
    }

    /// Converts a clock value to a time.
    pub(super) fn time(self, shown: u64) -> u64 {
        self.offset + shown
    }
}

/// The description of a trace, without its event classes.
pub(super) fn preamble(about: &About, clock: Clock, uuid: &[u8; 16]) -> String {
    let mut text = format!("/* CTF 1.8 */\n\n{TYPES}\n");
    let uuid = hyphenated(uuid);
    let _ = write!(
        text,
        "trace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{uuid}\";\n\tbyte_order = le;\n\
         \tpacket.header := struct {{\n\t\tuint32_t magic;\n\t\tuint8_t uuid[16];\n\t\tuint32_t stream_id;\n\t}};\n}};\n\n"
    );
    text.push_str(&environment(about));
    let _ = write!(
        text,
        "clock {{\n\tname = \"monotonic\";\n\tdescription = \"Monotonic Clock\";\n\tfreq = 1000000000;\n\
         \toffset_s = {};\n\toffset = {};\n}};\n\n",
        clock.offset / 1_000_000_000,
        clock.offset % 1_000_000_000
    );
    text.push_str(STREAM);
    text
}

/// The `env` block: the machine and the tracer.
fn environment(about: &About) -> String {
    let mut version = about.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (version.next().unwrap_or(0), version.next().unwrap_or(0));
    let mut text = String::from("env {\n");
    for (name, value) in [
        ("domain", "user"),
        ("tracer_name", "dprobes"),
        ("tracer_version", &about.version),
        ("hostname", &about.host),
        ("kernel", &about.kernel),
        ("machine", &about.machine),
        ("command", &about.command.join(" ")),
    ] {
        let _ = writeln!(text, "\t{name} = {};", quoted(value));
    }
    for (name, value) in [
        ("tracer_major", u64::from(major)),
        ("tracer_minor", u64::from(minor)),
        ("tracer_pid", about.pid.into()),
        ("processors", about.processors.into()),
        ("start", about.start.min(i64::MAX as u64)),
    ] {
        let _ = writeln!(text, "\t{name} = {value};");
    }
    text.push_str("};\n\n");
    text
}

/// A UUID in its usual text form.
fn hyphenated(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (place, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&place) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A string literal. A NUL would end it for readers and is replaced by U+2400.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for each in text.chars() {
        match each {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\0' => quoted.push('\u{2400}'),
            _ if printable::is_plain(each) => quoted.push(each),
            // Three octal digits for each byte, so that a following digit is not read as part of
            // it.
            _ => {
                for byte in each.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(quoted, "\\{byte:03o}");
                }
            }
        }
    }
    quoted.push('"');
    quoted
}

/// A field name. CTF readers remove the leading underscore, which distinguishes names from keywords
/// (`string`, `event`).
pub(super) fn identifier(name: &str) -> String {
    let plain = name.chars().map(|each| if each.is_ascii_alphanumeric() { each } else { '_' });
    std::iter::once('_').chain(plain).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text of a string literal by the rules of C, as in TSDL; none if it is no literal.
    fn meaning(literal: &str) -> Option<String> {
        let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
        let mut text = Vec::new();
        let mut letters = inner.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '"' | '\n' | '\0' => return None,
                '\\' => match letters.next()? {
                    'n' => text.push(b'\n'),
                    't' => text.push(b'\t'),
                    own @ ('"' | '\\') => text.push(own as u8),
                    digit @ '0'..='7' => {
                        let mut octal = String::from(digit);
                        octal.extend(letters.by_ref().take(2));
                        text.push(u8::from_str_radix(&octal, 8).ok()?);
                    }
                    _ => return None,
                },
                _ => text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        String::from_utf8(text).ok()
    }

    proptest! {
        #[test]
        fn a_literal_means_the_text(text in "[\\x00-\\x7f\\PC]{0,40}") {
            prop_assert_eq!(meaning(&quoted(&text)), Some(text.replace('\0', "\u{2400}")));
        }

        #[test]
        fn an_identifier_is_one(name in "\\PC{0,20}") {
            let identifier = identifier(&name);
            prop_assert!(identifier.starts_with('_'));
            prop_assert!(identifier.chars().all(|each| each.is_ascii_alphanumeric() || each == '_'));
        }
    }

    #[test]
    fn the_clock_is_the_monotonic_one_where_it_is_known() {
        let about = About {
            start: 1_700_000_000_000_000_005,
            monotonic: 1_600_000_000_000_000_002,
            ..About::default()
        };
        let clock = Clock::of(&about);
        assert_eq!(clock.at(1_600_000_000_000_000_002), 0);
        assert_eq!(clock.at(1_700_000_000_000_000_005), 100_000_000_000_000_003);
        assert_eq!(clock.at(7), 0, "before its zero");
        assert_eq!(clock.time(clock.at(u64::MAX)), i64::MAX as u64, "beyond what readers count");
        let text = preamble(&about, clock, &[0xab; 16]);
        assert!(text.contains("offset_s = 1600000000;\n\toffset = 2;"), "{text}");
        assert!(text.contains("uuid = \"abababab-abab-abab-abab-abababababab\";"), "{text}");
        for about in [
            About::default(),
            About { monotonic: -5, ..About::default() },
            About { monotonic: 5, ..About::default() },
        ] {
            assert_eq!(Clock::of(&about).at(7), 7, "{about:?}");
        }
    }
}
