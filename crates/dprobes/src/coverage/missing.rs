//! The lines that were not reached, on the terminal: for each source file, function by function.
//!
//! ```text
//! lines that were not reached:
//! slow.c
//!   rate_of  61-64
//!   refresh  never called: 72, 76-88
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::measured::{File, Measured};

/// The lines of all files. Paths below `here` are shown relative to it.
pub(super) fn text(measured: &Measured, here: Option<&Path>) -> String {
    let mut text = String::new();
    for (path, file) in &measured.files {
        let functions = functions(file);
        if functions.is_empty() {
            continue;
        }
        let short = here.and_then(|here| Path::new(path).strip_prefix(here).ok());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", printable::path(short.unwrap_or(Path::new(path))));
        let width = functions.iter().map(|function| function.name.chars().count()).max().unwrap_or(0);
        for Function { name, is_called, lines } in functions {
            let never = if is_called { "" } else { "never called: " };
            let _ = writeln!(text, "  {name:width$}  {never}{}", ranges(&lines));
        }
    }
    match text.is_empty() {
        true => "every line was reached\n".to_owned(),
        false => format!("lines that were not reached:\n{text}"),
    }
}

/// A function that has lines that were not reached.
struct Function {
    name: String,
    is_called: bool,
    /// The lines, each with whether the next line with code is the next one here.
    lines: Vec<(u64, bool)>,
}

/// The functions that have such lines. A line belongs to the function that begins last before it.
fn functions(file: &File) -> Vec<Function> {
    let mut found: BTreeMap<u64, Vec<(u64, bool)>> = BTreeMap::new();
    let all: Vec<(u64, bool)> = file.lines.iter().map(|(line, is_reached)| (*line, *is_reached)).collect();
    let first = |line: u64| {
        let before = file.functions.keys().rev().find(|(first, _)| *first <= line);
        before.map_or(0, |(first, _)| *first)
    };
    // The entry of a function that ran already when measuring began is not reached.
    let mut entered: BTreeSet<u64> = BTreeSet::new();
    for (place, &(line, is_reached)) in all.iter().enumerate() {
        if is_reached {
            entered.insert(first(line));
        } else {
            let goes_on = all.get(place + 1).is_some_and(|next| !next.1 && first(next.0) == first(line));
            found.entry(first(line)).or_default().push((line, goes_on));
        }
    }
    let named = |(first, lines): (u64, Vec<(u64, bool)>)| {
        let mut there = file.functions.iter().filter(|((line, _), _)| *line == first).peekable();
        let name = there.peek().map_or("-", |((_, name), _)| name.as_str());
        let name = image::demangled(name).unwrap_or_else(|| name.to_owned());
        let is_called = first == 0 || entered.contains(&first) || there.any(|(_, is_called)| *is_called);
        Function { name: printable::text(&name).to_string(), is_called, lines }
    };
    found.into_iter().map(named).collect()
}

/// Lines as ranges: `3, 7-9`. Lines without code do not end a range.
fn ranges(lines: &[(u64, bool)]) -> String {
    let parts = lines.split_inclusive(|(_, goes_on)| !goes_on);
    let part = |part: &[(u64, bool)]| match part {
        [] => String::new(),
        [(one, _)] => one.to_string(),
        [(first, _), .., (last, _)] => format!("{first}-{last}"),
    };
    parts.map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_by_function_and_in_ranges() {
        let mut file = File::default();
        let lines = [(1, true), (2, false), (4, false), (5, true), (6, false), (10, false), (12, false)];
        file.lines = lines.into();
        file.functions = [((1, "f".to_owned()), true), ((10, "long".to_owned()), false)].into();
        let measured = Measured { files: [("/w/a.c".to_owned(), file)].into(), unmeasured: 0 };
        assert_eq!(
            text(&measured, Some(Path::new("/w"))),
            "lines that were not reached:\na.c\n  f     2-4, 6\n  long  never called: 10-12\n"
        );
        assert_eq!(text(&Measured::default(), None), "every line was reached\n");
    }
}
