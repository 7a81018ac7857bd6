//! Names and label values as Prometheus allows them, of any text.

/// Names of labels that mean something to Prometheus.
const RESERVED: [&str; 4] = ["le", "quantile", "job", "instance"];

/// The most bytes of a label's value.
const LONGEST: usize = 1024;

/// The name of a metric.
pub(crate) fn metric(name: &str) -> String {
    plain(name)
}

/// The names of labels, in their order: valid, and no two the same.
pub(crate) fn labels<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let mut name = plain(name);
        if name.starts_with('_') || RESERVED.contains(&&*name) {
            name = format!("key_{}", name.trim_start_matches('_'));
        }
        let free = (2..).map(|number| format!("{name}_{number}"));
        let name = [name.clone()].into_iter().chain(free).find(|name| !taken.contains(name));
        taken.extend(name);
    }
    taken
}

/// The value of a label: visible characters, and not too many.
pub(crate) fn value(text: &str) -> String {
    let text = printable::text(text);
    if text.len() <= LONGEST {
        return text.into_owned();
    }
    let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}

/// Letters of ASCII, digits and `_`; no digit at the beginning.
fn plain(name: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let name: String = name.chars().map(|each| if is_plain(each) { each } else { '_' }).collect();
    match name.chars().next() {
        Some(first) if !first.is_ascii_digit() => name,
        _ => format!("_{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_a_valid_one() {
        assert_eq!(metric("a b\u{e4}-c"), "a_b__c");
        assert_eq!(metric("0x"), "_0x");
        assert_eq!(metric(""), "_");
        assert_eq!(
            labels(["pid", "pid", "le", "__name__", "", "pid_2"]),
            ["pid", "pid_2", "key_le", "key_name__", "key_", "pid_2_2"]
        );
    }

    #[test]
    fn a_value_is_visible_and_short() {
        assert_eq!(value("a\u{1b}[2Jb\n"), "a\\x1b[2Jb\\x0a");
        let long = value(&"\u{e4}".repeat(2000));
        assert!(long.ends_with("...") && long.len() <= LONGEST + 3, "{}", long.len());
    }
}
