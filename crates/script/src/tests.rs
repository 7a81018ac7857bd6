//! Laws of the whole crate.

mod programs;
mod trees;

use proptest::prelude::*;

use crate::compile::{Parameters, compile};
use crate::listing::listing;
use crate::{check_text, documentation, parse, print};

/// Words and signs of the language, of which nonsense is made.
const WORDS: &[&str] = &[
    "begin",
    "uprobe:/bin/a:f",
    "interval:s:1",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    "/",
    "$x",
    "@m",
    "@",
    "$1",
    "$#",
    "1",
    "0x10",
    "\"text %d\"",
    "if",
    "else",
    "for",
    "while",
    "unroll",
    "let",
    "macro",
    "struct",
    "union",
    "enum",
    "config",
    "=",
    "+=",
    "==",
    "++",
    "-",
    "*",
    "&",
    ".",
    "..",
    ":",
    "?",
    "!",
    "pid",
    "arg0",
    "args",
    "count()",
    "printf",
    "hist",
    "delete",
    "has_key",
    "str",
    "sizeof",
    "offsetof",
    "uint8",
    "int",
    "S",
    "x",
    "import",
    "#define",
    "#ifdef",
    "#endif",
    "#include",
    "\n",
    " ",
    "//",
    "/*",
    "*/",
    "return",
    "break",
    "_",
    "é",
    "\\",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: testing::rounds(200, 5000), ..ProptestConfig::default() })]

    /// What is printed parses to the same tree.
    #[test]
    fn printing_and_parsing_gives_the_same(script in trees::script()) {
        let text = print(&script);
        match parse("printed", &text) {
            Ok(again) => prop_assert_eq!(&again, &script, "{}", text),
            Err((messages, sources)) => {
                let said: Vec<String> = messages.iter().map(|message| message.render(&sources, false)).collect();
                prop_assert!(false, "{}\n{}", text, said.join("\n"));
            }
        }
    }

    /// Nonsense is refused or accepted, without a panic; what is accepted has a typed form that is
    /// accepted too.
    #[test]
    fn nonsense_is_answered(words in prop::collection::vec(prop::sample::select(WORDS), 0..60)) {
        answered(&words.join(" "));
    }

    /// The same of any text.
    #[test]
    fn any_text_is_answered(text in ".{0,200}") {
        answered(&text);
    }

    /// The same of trees.
    #[test]
    fn any_tree_is_answered(script in trees::script()) {
        answered(&print(&script));
    }
}

/// The normal form may have parentheses that the text did not need.
#[test]
fn the_normal_form_of_the_highest_trees_can_be_read() {
    let nested = [
        ("-- ", "$x", ""),
        ("- ", "1", ""),
        ("1 - (", "1", ")"),
        ("1 + {", "1", "}"),
        ("f(", "1", ")"),
        ("{ if (1) {} ", "1", "}"),
        ("1 ? 2 : ", "1", ""),
        ("@m[", "1", "]"),
    ];
    for (before, inner, after) in nested {
        let mut accepted = 0;
        for count in 1..100 {
            let text = format!("begin {{ $b = {}{inner}{}; }}", before.repeat(count), after.repeat(count));
            let Ok(script) = parse("nested", &text) else { break };
            assert_eq!(parse("printed", &print(&script)).ok(), Some(script), "{text}");
            accepted = count;
        }
        assert!((15..99).contains(&accepted), "{before}: {accepted}");
    }
}

fn answered(text: &str) {
    let checked = check_text("any", text);
    assert!(
        checked.diagnostics.iter().take(3).all(|message| !message.render(&checked.sources, false).is_empty())
    );
    if !checked.has_errors() {
        let typed = checked.typed();
        let again = check_text("typed", &typed);
        assert!(!again.has_errors(), "{text}\n{typed}\n{}", again.render(false));
        assert_eq!(again.typed(), typed);
        match compile(&checked, &Parameters { allow_unsafe: true, ..Parameters::default() }) {
            Ok(compiled) => assert!(!listing(&compiled).contains(" ?\n"), "{text}"),
            Err(messages) => assert!(!messages.is_empty(), "{text}"),
        }
    }
}

#[test]
fn the_page_of_the_language_has_the_tables() {
    let path = testing::repository().join("docs/scripts.md");
    let mut page = std::fs::read_to_string(&path).expect("the page is there");
    // With `UPDATE_CASES=1`, the tables are written anew. Read the difference.
    if std::env::var_os("UPDATE_CASES").is_some() {
        for table in documentation().split("\n\n") {
            let head = table.lines().next().unwrap_or_default();
            let begin = page.find(head).expect("the table is there");
            let end = page[begin..].find("\n\n").map_or(page.len(), |length| begin + length);
            page.replace_range(begin..end, table.trim_end());
        }
        std::fs::write(&path, &page).expect("the page can be written");
    }
    for line in documentation().lines() {
        assert!(line.is_empty() || page.contains(line), "docs/scripts.md does not have: {line}");
    }
}

#[test]
fn the_scripts_of_the_page_are_accepted() {
    let page =
        std::fs::read_to_string(testing::repository().join("docs/scripts.md")).expect("the page is there");
    let blocks: Vec<&str> =
        page.split("```bpftrace\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 7, "the page has scripts");
    for block in blocks {
        let checked = check_text("docs/scripts.md", block);
        assert!(checked.diagnostics.is_empty(), "{block}\n{}", checked.render(false));
    }
}
