//! The outcome of a run, without what varies from run to run.

/// A run's status and output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: String,
    /// Its standard output, without times.
    pub output: Vec<String>,
}

/// Whether a word is a time or a load figure: `0:00:12`, `1.234s`, `11.8`, `(3.2ms)`.
fn is_time(word: &str) -> bool {
    let word = word.trim_matches(|c| matches!(c, '(' | ')' | ',' | '.' | ';' | '[' | ']'));
    let number = word.trim_end_matches("ms").trim_end_matches("us").trim_end_matches('s');
    let digits = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ':'));
    digits && (number.len() < word.len() || number.contains(['.', ':']))
}

/// Whether a word is the address of an object, which varies.
fn is_address(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    word.strip_prefix("0x")
        .is_some_and(|digits| digits.len() >= 8 && digits.chars().all(|c| c.is_ascii_hexdigit()))
}

/// The last line of Python's tests; their duration follows.
const DURATION: &str = "Total duration:";

/// Text without times, addresses and names of temporary directories.
pub(super) fn timeless(text: &str) -> Vec<String> {
    let word = |word: &str| match word {
        word if is_time(word) => "TIME".to_owned(),
        word if is_address(word) => "ADDRESS".to_owned(),
        word => word.to_owned(),
    };
    // The directory of Python's tests has the process id in its name, and the line after a slow
    // test names it again.
    let kept = text.lines().filter(|line| !line.starts_with("== cwd:"));
    let kept = kept.map(|line| match line.split_once(" -- ") {
        Some((line, took)) if line.contains("load avg:") && took.contains(" passed in ") => line,
        _ => line,
    });
    // More than a minute is written in several words.
    let kept = kept.map(|line| if line.starts_with(DURATION) { DURATION } else { line });
    kept.map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect()
}

impl Outcome {
    /// The difference to another run, if any.
    pub fn difference(&self, other: &Outcome) -> Option<String> {
        if self.status != other.status {
            return Some(format!("{}, not {}", other.status, self.status));
        }
        let longest = self.output.len().max(other.output.len());
        (0..longest).find_map(|place| {
            let (ours, theirs) = (self.output.get(place), other.output.get(place));
            (ours != theirs).then(|| {
                let shown =
                    |line: Option<&String>| line.map_or("nothing".to_owned(), |line| format!("{line:?}"));
                format!("line {} is {}, not {}", place + 1, shown(theirs), shown(ours))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, timeless};

    #[test]
    fn times_are_not_compared_and_numbers_are() {
        let one = "0:00:07 load avg: 0.85 [1/4] test_json\nRan 110 tests in 2.672s\nat 0x7f0011223344 12";
        let other = "0:01:00 load avg: 10.75 [1/4] test_json\nRan 110 tests in 0.1s\nat 0x7f00aabbccdd 12";
        assert_eq!(timeless(one), timeless(other));
        let long = "0:00:31 load avg: 1.25 [2/4] test_re -- test_json passed in 30.1 sec";
        assert_eq!(timeless(long), timeless("0:00:02 load avg: 0.12 [2/4] test_re"));
        assert_eq!(timeless("Total duration: 1 min 15 sec"), timeless("Total duration: 1.5 sec"));
        assert_ne!(timeless("Ran 110 tests"), timeless("Ran 111 tests"));
        assert_ne!(timeless("sum 1b3"), timeless("sum 1b4"));
    }

    #[test]
    fn the_first_difference_is_told() {
        let lines = |text: &str| Outcome { status: "exit 0".into(), output: timeless(text) };
        assert_eq!(lines("a\nb").difference(&lines("a\nb")), None);
        assert_eq!(lines("a\nb").difference(&lines("a\nc")).unwrap(), r#"line 2 is "c", not "b""#);
        assert_eq!(lines("a").difference(&lines("a\nc")).unwrap(), r#"line 2 is "c", not nothing"#);
        let crashed = Outcome { status: "signal 11".into(), output: vec![] };
        assert_eq!(lines("a").difference(&crashed).unwrap(), "signal 11, not exit 0");
    }
}
