//! Joins option values of several words, as the manual writes them, into one.
//!
//! dprobes.lang, example 6, has `--group process memory`, `--group = filesys` and `--type = leave`;
//! dprobes(8) has `--log` with any of its items. A command line parser would take the second word
//! for something else, so such lists are joined before parsing: `--group=process,memory`. So are
//! the three words of a definition, `-D key = value`.

use std::ffi::{OsStr, OsString};

use trace::Items;

/// An option that takes a list.
struct List {
    long: &'static str,
    short: &'static str,
    /// Whether a word may be in the list.
    has: fn(&str) -> bool,
}

const LISTS: [List; 4] = [
    List { long: "--group", short: "-u", has: is_name },
    List { long: "--type", short: "-t", has: is_name },
    List { long: "--log", short: "-l", has: is_item },
    // What a shell makes of `-p $(pgrep app)`.
    List { long: "--pid", short: "-p", has: is_number },
];

/// Joins the words of each list. A list continues while words look like names, so the program may
/// follow it (`--group process ./app.ppdf`). A list already joined with `=` is complete, unless it
/// ends in a comma. Words after `--` belong to the probed command and stay as they are.
pub(crate) fn join(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let words = with_definitions(words);
    let is_script = words.iter().take(2).any(|word| word == "trace" || word == "tools");
    let mut words = words.into_iter().peekable();
    let mut joined = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            joined.push(word);
            joined.extend(words);
            break;
        }
        let Some((option, spelled, first)) =
            option(&word).filter(|(_, _, first)| first.is_empty() || first.ends_with(','))
        else {
            joined.push(word);
            continue;
        };
        // Numbers behind a process may be parameters of a script.
        if is_script && option.long == "--pid" {
            joined.push(word);
            continue;
        }
        let mut list = first.to_owned();
        while let Some(next) = words.next_if(|word| option.goes_on(word)) {
            list.push(',');
            list.push_str(&next.to_string_lossy());
        }
        let names: Vec<&str> = list.split([',', '=']).filter(|name| !name.is_empty()).collect();
        joined.push(match names.is_empty() {
            // The parser reports the missing value, or what is wrong with the next word.
            true => spelled.into(),
            false => format!("{spelled}={}", names.join(",")).into(),
        });
    }
    joined
}

/// Joins the words of each definition: `-D key = value` is `-D key=value`.
fn with_definitions(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let mut place = 0;
    while place < words.len() && words[place] != "--" {
        if is_definition(&words[place..]) {
            let (key, value) = (words[place + 1].clone(), words[place + 3].clone());
            let mut joined = key;
            joined.push("=");
            joined.push(value);
            words.splice(place + 1..place + 4, [joined]);
            place += 1;
        }
        place += 1;
    }
    words
}

/// Whether words begin with a definition in three words behind its option.
pub(crate) fn is_definition(words: &[OsString]) -> bool {
    let is_key = |word: &OsString| {
        word.to_str()
            .is_some_and(|word| !word.is_empty() && is_name(word) && !word.as_bytes()[0].is_ascii_digit())
    };
    matches!(words, [option, key, equals, value, ..]
        if option == "-D" && is_key(key) && equals == "=" && value != "--")
}

/// How many words a list takes, or a definition in several words, with its option; `None` if the
/// first word is no such option.
pub(crate) fn list(words: &[OsString]) -> Option<usize> {
    if is_definition(words) {
        return Some(4);
    }
    let (option, _, first) = option(words.first()?)?;
    if !first.is_empty() && !first.ends_with(',') {
        return Some(1);
    }
    let more = words[1..].iter().take_while(|word| option.goes_on(word)).count();
    // A list of no such words has its value in the next one.
    Some(if more == 0 && first.is_empty() { 2 } else { 1 + more })
}

/// The list option that a word is, how it is spelled, and its value after `=`.
fn option(word: &OsStr) -> Option<(&'static List, &'static str, &str)> {
    let word = word.to_str()?;
    LISTS.iter().find_map(|list| {
        let (spelled, rest) = [list.long, list.short]
            .into_iter()
            .find_map(|spelled| Some((spelled, word.strip_prefix(spelled)?)))?;
        Some((list, spelled, if rest.is_empty() { rest } else { rest.strip_prefix('=')? }))
    })
}

impl List {
    /// Whether a word may belong to the list: names, commas, `=`.
    fn goes_on(&self, word: &OsStr) -> bool {
        let names = |word: &str| word.split([',', '=']).filter(|name| !name.is_empty()).all(self.has);
        word.to_str().is_some_and(|word| !word.is_empty() && names(word))
    }
}

/// Whether a word is a number.
fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word looks like the name of a group or type. These may contain `.` too, but then the
/// word is more likely a file name.
fn is_name(word: &str) -> bool {
    word.chars().all(|character| character.is_ascii_alphanumeric() || "_$@".contains(character))
}

/// Whether a word is a header item, or is meant as one: it is all capitals.
fn is_item(word: &str) -> bool {
    let capitals = word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase());
    // Items of other machines; the parser of `--log` rejects them by name.
    let foreign = ["PSW", "UPSW"].iter().any(|item| word.eq_ignore_ascii_case(item));
    capitals || foreign || Items::parse(word).is_ok()
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
    fn header_items_may_be_several_words_and_options_short() {
        for (line, joined) in [
            ("run -u process memory -t=leave, enter a.ppdf", "run -u=process,memory -t=leave,enter a.ppdf"),
            ("insert -l psw Upsw a.rpn", "insert -l=psw,Upsw a.rpn"),
            ("insert --log PID UID a.rpn", "insert --log=PID,UID a.rpn"),
            ("insert -l pid Tsc count", "insert -l=pid,Tsc count"),
            ("insert --log = ALL a.rpn", "insert --log=ALL a.rpn"),
            ("insert --log=PID, UID -l TSC a.rpn", "insert --log=PID,UID -l=TSC a.rpn"),
            ("insert --log PID UDI a.rpn", "insert --log=PID,UDI a.rpn"),
            ("insert --log PID PSW UPSW a.rpn", "insert --log=PID,PSW,UPSW a.rpn"),
            ("insert --log-target KLOG a.rpn", "insert --log-target KLOG a.rpn"),
            ("insert --log what a.rpn", "insert --log what a.rpn"),
            ("attach -p 17 18 19 a.rpn", "attach -p=17,18,19 a.rpn"),
            ("attach --pid 17,18 19 --for 3", "attach --pid=17,18,19 --for 3"),
            ("attach -p redis-server a.rpn", "attach -p redis-server a.rpn"),
            ("trace -p 17 a.bt 4096", "trace -p 17 a.bt 4096"),
            ("tools run memleak -p 17 4096", "tools run memleak -p 17 4096"),
        ] {
            assert_eq!(join(line), joined);
        }
    }

    #[test]
    fn a_definition_may_be_three_words() {
        for (line, joined) in [
            ("run -D key = value a.rpn", "run -D key=value a.rpn"),
            ("run -D a = 1 -D b = = a.rpn -- ls -D x = y", "run -D a=1 -D b== a.rpn -- ls -D x = y"),
            ("run a.rpn -D a=1 = x", "run a.rpn -D a=1 = x"),
            ("run a.rpn -D 1 = x", "run a.rpn -D 1 = x"),
            ("run a.rpn -D a = -- x", "run a.rpn -D a = -- x"),
            ("run a.rpn -D a =", "run a.rpn -D a ="),
        ] {
            assert_eq!(join(line), joined);
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
