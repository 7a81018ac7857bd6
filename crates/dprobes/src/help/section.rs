//! Finds the part of a page that words name: its sections by their headings, or rows of its tables
//! by what they are about.

/// A heading of a page.
struct Heading<'a> {
    level: usize,
    text: &'a str,
    /// The index of its line.
    line: usize,
}

/// The sections whose headings have these words, as Markdown; if there is none, the rows of tables
/// that are about them. `None` if there are none either.
pub(super) fn named(page: &str, words: &str) -> Option<String> {
    let lines: Vec<&str> = page.lines().collect();
    let headings = headings(&lines);
    let words = words.to_lowercase();
    let text = |heading: &&Heading<'_>| heading.text.to_lowercase().replace('`', "");
    let is_it = |heading: &&Heading<'_>| text(heading) == words;
    let has_it = |heading: &&Heading<'_>| text(heading).contains(&words);
    let exact: Vec<&Heading<'_>> = headings.iter().filter(is_it).collect();
    let found = if exact.is_empty() { headings.iter().filter(has_it).collect() } else { exact };
    let (mut sections, mut end) = (Vec::new(), 0);
    // A section within one that is shown is shown with it.
    for heading in found {
        if heading.line < end {
            continue;
        }
        let mut behind = headings.iter().filter(|other| other.line > heading.line);
        let next = behind.find(|other| other.level <= heading.level);
        end = next.map_or(lines.len(), |next| next.line);
        sections.push(lines[heading.line..end].join("\n"));
    }
    match sections.is_empty() {
        true => rows(&lines, &headings, &words),
        false => Some(sections.join("\n\n")),
    }
}

/// The headings below the page's own.
pub(super) fn titles(page: &str) -> Vec<String> {
    let lines: Vec<&str> = page.lines().collect();
    let found = headings(&lines);
    found.iter().filter(|heading| heading.level == 2).map(|heading| heading.text.replace('`', "")).collect()
}

fn headings<'a>(lines: &[&'a str]) -> Vec<Heading<'a>> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (line, text) in lines.iter().enumerate() {
        is_code ^= text.trim_start().starts_with("```");
        let level = text.bytes().take_while(|byte| *byte == b'#').count();
        if let Some(text) = text[level..].strip_prefix(' ').filter(|_| level > 0 && !is_code) {
            found.push(Heading { level, text: text.trim(), line });
        }
    }
    found
}

/// The rows of tables whose first cell names a word, each table below the heading of its section.
fn rows(lines: &[&str], headings: &[Heading<'_>], word: &str) -> Option<String> {
    let is_about = |line: &str| {
        let cell = line.strip_prefix('|').and_then(|rest| rest.split('|').next()).unwrap_or_default();
        let mut names = cell.split('`').skip(1).step_by(2);
        names.any(|name| {
            let name = name.to_lowercase();
            name == word || name.split(['(', ' ', '.']).next() == Some(word)
        })
    };
    let mut found = Vec::new();
    for (number, table) in tables(lines) {
        let rows: Vec<&str> = table.iter().skip(2).copied().filter(|line| is_about(line)).collect();
        if !rows.is_empty() {
            let heading = headings.iter().rfind(|heading| heading.line < number);
            let heading = heading.map_or_else(String::new, |heading| format!("## {}\n\n", heading.text));
            found.push(format!("{heading}{}\n{}", table[..2].join("\n"), rows.join("\n")));
        }
    }
    (!found.is_empty()).then(|| found.join("\n\n"))
}

/// The tables, each with the index of its first line; they have a head and the line below it.
fn tables<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a [&'a str])> {
    let is_row = |line: &&str| line.starts_with('|');
    let mut number = 0;
    let parts = lines.chunk_by(move |one, other| is_row(one) == is_row(other));
    parts.filter_map(move |part| {
        let first = number;
        number += part.len();
        (part.len() > 2 && is_row(&part[0])).then_some((first, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Page

Text.

## Source lines

One.

### Of `C`

Two.

```text
# no heading
```

## Values

| name | what |
|---|---|
| `func` | a function |
| `probe`, `name` | a point |
| `str(data)` | a text |
";

    #[test]
    fn sections_and_rows_are_found() {
        let lines = named(PAGE, "source LINES").expect("a section");
        assert!(lines.starts_with("## Source lines\n\nOne.") && lines.contains("# no heading"), "{lines}");
        assert!(!lines.contains("Values"), "{lines}");
        assert_eq!(named(PAGE, "of c").map(|text| text.lines().count()), Some(7));
        let row = named(PAGE, "func").expect("a row");
        assert_eq!(row, "## Values\n\n| name | what |\n|---|---|\n| `func` | a function |");
        assert!(named(PAGE, "name").is_some_and(|row| row.ends_with("a point |")));
        assert!(named(PAGE, "str").is_some_and(|row| row.ends_with("a text |")));
        assert_eq!(named(PAGE, "no heading"), None);
        assert_eq!(titles(PAGE), ["Source lines", "Values"]);
    }
}
