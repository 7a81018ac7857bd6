//! `--group` and `--type` as the manual writes them.
//!
//! dprobes.lang, example 6, has `--group process memory`, `--group = filesys` and `--type = leave`. A command line
//! parser would take the second word for something else, so such lists are joined before it sees them: `--group=process,memory`.

use std::ffi::{OsStr, OsString};

const OPTIONS: [&str; 2] = ["--group", "--type"];

/// Joins the words of each list. A list goes on as long as its words look like names, so that the program may come
/// after it (`--group process ./app.ppdf`); what was joined with `=` already is whole, unless a comma ends it.
/// After `--` comes another command's line.
pub(crate) fn join(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.into_iter().peekable();
    let mut joined = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            joined.push(word);
            joined.extend(words);
            break;
        }
        let Some((option, first)) =
            option(&word).filter(|(_, first)| first.is_empty() || first.ends_with(','))
        else {
            joined.push(word);
            continue;
        };
        let mut list = first.to_owned();
        while let Some(next) = words.next_if(|word| is_part(word)) {
            list.push(',');
            list.push_str(&next.to_string_lossy());
        }
        let names: Vec<&str> = list.split([',', '=']).filter(|name| !name.is_empty()).collect();
        joined.push(match names.is_empty() {
            // The parser says that a value is missing.
            true => option.into(),
            false => format!("{option}={}", names.join(",")).into(),
        });
    }
    joined
}

/// The option that a word is, and what it has after a `=`.
fn option(word: &OsStr) -> Option<(&'static str, &str)> {
    let word = word.to_str()?;
    OPTIONS.iter().find_map(|option| {
        let rest = word.strip_prefix(option)?;
        Some((*option, if rest.is_empty() { rest } else { rest.strip_prefix('=')? }))
    })
}

/// Whether a word may belong to a list: names, commas, a `=`. Names may have a `.` too, but then it is more likely a
/// file's.
fn is_part(word: &OsStr) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || "_$@,=".contains(character);
    word.to_str().is_some_and(|word| !word.is_empty() && word.chars().all(fits))
}

#[cfg(test)]
mod tests {
    fn join(line: &str) -> String {
        let words = super::join(line.split(' ').map(Into::into));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_spellings_of_the_manual_are_one() {
        for spelled in [
            "--group process memory",
            "--group process,memory",
            "--group = process memory",
            "--group =process , memory",
            "--group= process memory",
            "--group process, memory",
            "--group=process, memory",
            "--group=process,memory",
        ] {
            assert_eq!(
                join(&format!("run a.ppdf {spelled}")),
                "run a.ppdf --group=process,memory",
                "{spelled}"
            );
            let both = format!("run {spelled} --type = leave a.ppdf -- ls --group x y");
            assert_eq!(
                join(&both),
                "run --group=process,memory --type=leave a.ppdf -- ls --group x y",
                "{spelled}"
            );
        }
    }

    #[test]
    fn what_is_no_list_is_left_alone() {
        for line in
            ["run a --group=x y", "run a --groups x y", "run a --type --group", "list x y", "run a --type"]
        {
            assert_eq!(join(line), line);
        }
        assert_eq!(join("run a --group ="), "run a --group");
    }
}
