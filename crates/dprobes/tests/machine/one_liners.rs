//! The lines of `docs/one-liners.md` that need kprobes, as they are there, while files are read.

use crate::trial::Trial;

const PAGE: &str = include_str!("../../../../docs/one-liners.md");

/// The script of the line of a lesson for the whole system.
fn script(lesson: &str) -> &'static str {
    let (_, text) = PAGE.split_once(&format!("## {lesson}. ")).expect("the lesson");
    let (_, line) = text.split_once("# dprobes trace '").expect("a line for the whole system");
    line.split_once("'\n").expect("its end").0
}

/// The script of a lesson runs while `dd` reads 40 blocks of 700 bytes and `cat` reads files.
fn lesson(number: &str) -> String {
    let work = "dd if=/dev/zero of=/dev/null bs=700 count=40 2>/dev/null; cat /examples/* >/dev/null";
    format!("cat > script.bt <<'END'\n{}\nEND\ndprobes trace script.bt -- sh -c '{work}'", script(number))
}

/// The rows of a map's histogram, from its name on.
fn rows<'a>(text: &'a str, map: &str) -> impl Iterator<Item = &'a str> {
    let from = text.split_once(&format!("{map}:\n")).unwrap_or_else(|| panic!("{map} in\n{text}")).1;
    from.lines().take_while(|line| line.contains(" |"))
}

fn count(row: &str) -> u64 {
    let (numbers, _) = row.split_once(" |").expect("a row");
    numbers.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a count")
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::shell("one-liners: how large, in steps of one size", &lesson("6"), |text| {
            let blocks = rows(text, "@bytes").find(|row| row.starts_with("[600, 800)"));
            assert!(blocks.is_some_and(|row| count(row) >= 40), "{text}");
        }),
        Trial::shell("one-liners: how long", &lesson("7"), |text| {
            let calls: u64 = rows(text, "@ns[dd]").map(count).sum();
            assert!(calls >= 40, "{text}");
            assert!(!text.contains("@start"), "{text}");
        }),
        Trial::shell("one-liners: what is in a struct", &lesson("12"), |text| {
            assert!(text.lines().any(|line| line == "open path: zero"), "{text}");
        }),
    ]
}
