//! Parsers for option values.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use trace::Items;
use trace::sink::Target;

use super::tracing::Plugin;

/// Parses `KEY=VALUE`, or `KEY` for `KEY=1`, as C compilers do.
pub(super) fn definition(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, "1"));
    let key = key.trim();
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    let goes_on = |c: char| starts(c) || c.is_ascii_digit();
    if key.is_empty() || !key.starts_with(starts) || !key.chars().all(goes_on) {
        return Err(format!("`{key}` is no name; KEY=VALUE expected, as in -D LIMIT=4096"));
    }
    Ok((key.to_owned(), value.trim().to_owned()))
}

/// Checks header items, and keeps their names.
pub(super) fn items(text: &str) -> Result<String, String> {
    if text.trim_matches([',', ' ', '\t']).is_empty() {
        return Err("no header item is named; as in --log PID TSC, or --log ALL".to_owned());
    }
    Items::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A limit to what traps may cost: a part of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MaxOverhead(pub(crate) Option<f64>);

/// Parses a limit: `5%`, `0.5%`, `none`.
pub(super) fn max_overhead(text: &str) -> Result<MaxOverhead, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(MaxOverhead(None));
    }
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match percent.filter(|percent| *percent > 0.0 && *percent <= 100.0) {
        Some(percent) => Ok(MaxOverhead(Some(percent / 100.0))),
        None => Err("a part of the time is written as 5%, up to 100%, or `none` for no limit".to_owned()),
    }
}

/// Parses a plugin and its argument.
pub(super) fn plugin(text: &str) -> Result<Plugin, String> {
    let (file, argument) = text.split_once('=').unwrap_or((text, ""));
    match file.is_empty() {
        true => Err("the plugin's file is missing; as in --plugin ./plugin.so=ARGUMENT".to_owned()),
        false => Ok(Plugin { file: file.into(), argument: argument.to_owned() }),
    }
}

/// Parses a point of a function.
pub(super) fn parse_point(text: &str) -> Result<rpn::FunctionPoint, String> {
    let wrong = || "entry, return, * or an offset in hexadecimal expected".to_owned();
    rpn::FunctionPoint::parse(text).ok_or_else(wrong)
}

/// The help of `--log-target`: these targets, and where records go without any.
pub(super) fn targets_help(targets: &str, default: &str) -> String {
    format!("Where records go, separated by commas or given several times: {targets} [default: {default}]")
}

/// The same, as `--help` says it.
pub(super) fn targets_long_help(targets: &str, default: &str) -> String {
    let help = targets_help(targets, default);
    format!("{help}\n\nSee `dprobes help targets` for what each target is and guarantees.")
}

/// Parses a target for probes of the background session.
pub(super) fn kept_target(text: &str) -> Result<Target, String> {
    match Target::parse(text) {
        Ok(Target::Terminal) => {
            Err("standard error is not there any more when probes that stay are hit".to_owned())
        }
        target => target.map_err(|error| error.to_string()),
    }
}

/// Parses a range of indices.
pub(super) fn range(text: &str) -> Result<(usize, usize), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from), Ok(to)) if from <= to => Ok((from, to)),
        _ => Err("a range is written as FROM-TO, as in 0-7".to_owned()),
    }
}

/// Parses a size in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || "a size is written as 512K or 16M, and is from 256K to 64M".to_owned();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        _ => return Err(wrong()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let bytes = bytes.filter(|bytes| engine::BUFFERS.contains(bytes)).ok_or_else(wrong)?;
    if !bytes.is_power_of_two() {
        let next = bytes.next_power_of_two() >> 10;
        return Err(format!("a buffer's size is a power of two; the next one is {next}K"));
    }
    Ok(bytes)
}

/// Parses `ADDRESS:PORT`, or one of both: a port of the loopback address, or a free one.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let of_port = || format!("127.0.0.1:{}", text.strip_prefix(':').unwrap_or(text)).parse().ok();
    text.parse()
        .ok()
        .or_else(|| text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, 0)))
        .or_else(of_port)
        .ok_or_else(|| "an address and a port are expected, as in 127.0.0.1:8080, or a port".to_owned())
}

/// Parses one of some words, each of which stands for a value.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    words: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words.iter().map(|(word, _)| *word)).map(|given| {
        let found = words.iter().find(|(word, _)| *word == given);
        found.map(|(_, value)| *value).expect("only these words are taken")
    })
}

/// Parses a time; a bare number means seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; a time is written as 10s, 500ms or 2m"))
}

/// Parses the time between two of something: at least a tenth of a second.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(100);
    duration(text)
        .and_then(|time| if time < least { Err("expected at least 100ms".to_owned()) } else { Ok(time) })
}

#[cfg(test)]
mod tests {
    use super::{address, definition, size};

    #[test]
    fn sizes_are_powers_of_two_within_bounds() {
        assert_eq!(size("16M"), Ok(16 << 20));
        assert_eq!(size("512kib"), Ok(512 << 10));
        assert_eq!(size("4194304"), Ok(4 << 20));
        for wrong in ["", "M", "1K", "128M", "3M", "4G", "-1", "99999999999999999999M"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_and_ports_are_told_apart() {
        let parsed = |text| address(text).map(|address| address.to_string());
        for (text, expected) in [
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("::1", "[::1]:0"),
            ("10.0.0.1", "10.0.0.1:0"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(expected));
        }
        assert!(parsed("localhost").is_err() && parsed("99999").is_err());
    }

    #[test]
    fn definitions_are_as_for_a_c_compiler() {
        assert_eq!(definition("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(definition("A"), Ok(("A".to_owned(), "1".to_owned())));
        assert!(definition("1A=2").is_err());
        assert!(definition("=2").is_err());
    }
}
