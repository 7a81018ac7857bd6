//! The builtins and functions of the language, as one table.
//!
//! The checker, the messages and the page of the documentation read the same rows: a name, its
//! arguments, its result, the probes in which it has a meaning, and what it needs.

mod entry;
mod functions;
mod maps;
mod values;

pub use entry::{Accepts, Entry, Gives, Needs, Parameter, Usage};

/// All rows.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    values::TABLE.iter().chain(functions::TABLE).chain(maps::TABLE)
}

/// The row of a name. `arg0` to `arg127` are one row, as are `sarg0` and its like.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    let name = match name.trim_end_matches(|each: char| each.is_ascii_digit()) {
        stem @ ("arg" | "sarg") if argument(name).is_some() => match stem {
            "arg" => "argN",
            _ => "sargN",
        },
        "argN" | "sargN" => return None,
        _ => name,
    };
    all().find(|entry| entry.name == name)
}

/// The number of `arg3`.
pub(crate) fn argument(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("sarg").or_else(|| name.strip_prefix("arg"))?;
    let plain = digits == "0" || !digits.starts_with('0');
    digits
        .parse()
        .ok()
        .filter(|number| plain && *number < 128 && digits.bytes().all(|each| each.is_ascii_digit()))
}

/// "no argument", "1 argument", "2 arguments".
pub(crate) fn arguments(count: usize) -> String {
    match count {
        0 => "no argument".into(),
        1 => "1 argument".into(),
        _ => format!("{count} arguments"),
    }
}

/// The table in Markdown, for the documentation.
pub fn markdown() -> String {
    let mut out =
        String::from("| name | gives | in probes | needs | what it does |\n|---|---|---|---|---|\n");
    let mut rows: Vec<&Entry> = all().collect();
    rows.sort_by_key(|entry| entry.name);
    for entry in rows {
        let needs = match entry.needs {
            Needs::Nothing => "-".to_string(),
            Needs::Kernel => "code in the kernel".to_string(),
            Needs::Unsafe => "`--unsafe`".to_string(),
            Needs::Missing(what) => format!("refused: {what}"),
        };
        let (form, gives, meaning) = (entry.form(), entry.gives.shown(), entry.meaning.names());
        out.push_str(&format!("| `{form}` | {gives} | {meaning} | {needs} | {} |\n", entry.about));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_has_two_rows_and_each_says_what_it_does() {
        let mut names: Vec<&str> = all().map(|entry| entry.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(all().all(|entry| !entry.about.is_empty()));
    }

    #[test]
    fn arguments_have_numbers() {
        assert_eq!(find("arg0").map(|entry| entry.name), Some("argN"));
        assert_eq!(find("sarg3").map(|entry| entry.name), Some("sargN"));
        assert!(find("arg").is_none() && find("arg128").is_none() && find("arg01").is_none());
        assert!(find("argN").is_none());
    }

    #[test]
    fn a_form_shows_what_may_be_left_out() {
        let form = |name| find(name).map(Entry::form).unwrap_or_default();
        assert_eq!(form("str"), "str(data[, length])");
        assert_eq!(form("ntop"), "ntop([family, ]address)");
        assert_eq!(form("printf"), "printf(format, ...)");
        assert_eq!(form("pid"), "pid([namespace])");
        assert_eq!(form("elapsed"), "elapsed");
    }
}
