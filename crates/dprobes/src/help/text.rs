//! Shows a page of the documentation as plain text.
//!
//! A link to another page becomes the command that shows it; a link to a file of the sources says
//! that it is there. Tables are set in columns if they fit, otherwise as lists.

use super::pages;
use crate::markdown::{self, Block};

/// The indentation of code, and of what is said of a row of a wide table.
const INDENT: usize = 4;

/// How a page is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Columns of a line.
    pub(super) width: usize,
    /// Whether headings are bold, as a terminal shows them.
    pub(super) is_bold: bool,
}

/// A page as text.
pub(super) fn shown(page: &str, look: Look) -> String {
    let mut text = String::new();
    let mut is_list = false;
    for block in markdown::blocks(page) {
        // Items of a list stand together.
        let was_list = std::mem::replace(&mut is_list, matches!(block, Block::Item(..)));
        if !(text.is_empty() || was_list && is_list) {
            text.push('\n');
        }
        match block {
            Block::Heading(level, heading) => text.push_str(&look.heading(level, &linked(heading))),
            Block::Paragraph(paragraph) => text.push_str(&wrapped(&linked(&paragraph), look.width, "", "")),
            Block::Item(mark, item) => {
                let first = format!("{mark} ");
                let more = " ".repeat(first.len());
                text.push_str(&wrapped(&linked(&item), look.width, &first, &more));
            }
            Block::Code(lines) => {
                for line in lines {
                    text.push_str(format!("{:INDENT$}{line}", "").trim_end());
                    text.push('\n');
                }
            }
            Block::Table(rows) => {
                let rows: Vec<Vec<String>> =
                    rows.iter().map(|row| row.iter().map(|cell| linked(cell)).collect()).collect();
                text.push_str(&columns(&rows, look.width).unwrap_or_else(|| list(&rows, look.width)));
            }
        }
    }
    if ["crates/", "tests/", "packaging/", "cargo "].iter().any(|word| text.contains(word)) {
        let note = "Commands of cargo, and files in crates/, tests/ and packaging/, are for the sources of \
                    dprobes.";
        text.push('\n');
        text.push_str(&wrapped(note, look.width, "", ""));
    }
    text
}

impl Look {
    fn heading(self, level: usize, text: &str) -> String {
        let text = if level == 1 { text.to_uppercase() } else { text.to_owned() };
        match self.is_bold {
            true => format!("\x1b[1m{text}\x1b[0m\n"),
            false if level > 2 => format!("{text}\n"),
            false => format!("{text}\n{}\n", "-".repeat(width(&text))),
        }
    }
}

/// Text whose links are replaced.
fn linked(text: &str) -> String {
    let mut whole = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['[', '`']) {
        whole.push_str(&rest[..at]);
        rest = &rest[at..];
        let found = match rest.starts_with('[') {
            true => link(rest),
            // Within code, brackets are brackets.
            false => code(rest).map(|code| (code.to_owned(), code.len())),
        };
        let (text, size) = found.unwrap_or_else(|| (rest[..1].to_owned(), 1));
        whole.push_str(&text);
        rest = &rest[size..];
    }
    whole + rest
}

/// The code that a text begins with, with its marks.
fn code(text: &str) -> Option<&str> {
    let end = text[1..].find('`')?;
    Some(&text[..end + 2])
}

/// What is shown for the link that a text begins with, and the link's size.
fn link(text: &str) -> Option<(String, usize)> {
    let (name, rest) = text[1..].split_once("](")?;
    let (target, _) = rest.split_once(')')?;
    if name.contains('[') {
        return None;
    }
    let size = name.len() + target.len() + "[]()".len();
    let file = target.split('#').next().unwrap_or(target);
    let page = file.strip_suffix(".md").and_then(pages::page).map(|page| page.name);
    let path = file.strip_prefix("../");
    let shown = match (page, path) {
        _ if file.is_empty() => name.to_owned(),
        (Some(page), _) if name == file => format!("`dprobes help {page}`"),
        (Some(page), _) => format!("{name} (`dprobes help {page}`)"),
        (None, Some(path)) if pages::example(path).is_some() => format!("{name} (`dprobes help {path}`)"),
        (None, Some(path)) => format!("{name} ({path} in the sources)"),
        (None, None) => format!("{name} ({target})"),
    };
    Some((shown, size))
}

/// The columns that a text takes.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// A text broken into lines, the first and the others behind what they begin with.
fn wrapped(text: &str, limit: usize, first: &str, more: &str) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut is_begun = false;
    for word in text.split_whitespace() {
        if is_begun && width(&line) + 1 + width(word) > limit {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = more.to_owned();
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines + line.trim_end() + "\n"
}

/// A table in columns, if the lines are short enough.
fn columns(rows: &[Vec<String>], limit: usize) -> Option<String> {
    let count = rows.iter().map(Vec::len).max()?;
    let cell = |row: &Vec<String>, place: usize| row.get(place).map_or(0, |cell| width(cell));
    let widths: Vec<usize> =
        (0..count).map(|place| rows.iter().map(|row| cell(row, place)).max().unwrap_or(0)).collect();
    if widths.iter().sum::<usize>() + 2 * (count - 1) > limit {
        return None;
    }
    let mut text = String::new();
    // A first row without a text has no names.
    for row in rows.iter().filter(|row| row.iter().any(|cell| !cell.is_empty())) {
        let cells = row.iter().zip(&widths).map(|(cell, &wide)| format!("{cell:<wide$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    Some(text)
}

/// A table as a list: the first cell of each row, and what the others say of it.
fn list(rows: &[Vec<String>], limit: usize) -> String {
    let Some((names, rows)) = rows.split_first() else { return String::new() };
    let indent = " ".repeat(INDENT);
    let mut text = String::new();
    for row in rows {
        let Some((first, others)) = row.split_first() else { continue };
        text.push_str(&wrapped(first, limit, "", ""));
        for (cell, name) in others.iter().zip(&names[1..]).filter(|(cell, _)| !cell.is_empty()) {
            // The only other column needs no name.
            let label =
                if others.len() > 1 && !name.is_empty() { format!("{name}: ") } else { String::new() };
            text.push_str(&wrapped(&format!("{label}{cell}"), limit, &indent, &indent));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Look = Look { width: 80, is_bold: false };

    #[test]
    fn each_part_is_shown() {
        let page = "\
# A page
See [records.md](records.md#x), [the session](session.md), [below](#b) and `@[x](y)`.

## Part

- one
- two, which is long enough to be broken into two lines, since it has more than eighty columns

| A | B |
|---|---|
| 1 | 2 |

| Name | What | Size |
|---|---|---|
| `x` | a text that is long enough so that the table does not fit into a line of eighty columns | 3 |

```text
  code

```
[c](../crates/x.rs), [m](../examples/malloc.rpn), [b](https://b.org/)
";
        let expected = "\
A PAGE
------

See `dprobes help records`, the session (`dprobes help session`), below and
`@[x](y)`.

Part
----

- one
- two, which is long enough to be broken into two lines, since it has more than
  eighty columns

A  B
1  2

`x`
    What: a text that is long enough so that the table does not fit into a line
    of eighty columns
    Size: 3

      code


c (crates/x.rs in the sources), m (`dprobes help examples/malloc.rpn`), b
(https://b.org/)

Commands of cargo, and files in crates/, tests/ and packaging/, are for the
sources of dprobes.
";
        assert_eq!(shown(page, PLAIN), expected);
    }

    #[test]
    fn no_page_names_a_file_of_the_documentation_and_each_command_for_a_page_works() {
        for page in pages::PAGES {
            let text = shown(page.text, PLAIN);
            assert!(!text.contains("]("), "{}: a link is left", page.name);
            for line in text.lines() {
                let is_elsewhere = line.contains("--report") || line.contains("HTML") || line.contains("://");
                let is_own = line.contains(".md") && !is_elsewhere;
                assert!(!is_own, "{}: {line}", page.name);
            }
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for topic in words.split("`dprobes help ").skip(1).filter_map(|rest| rest.split('`').next()) {
                let is_there = pages::page(topic).is_some() || pages::example(topic).is_some();
                let is_there = is_there || topic.starts_with("examples -o ");
                assert!(is_there || topic.contains("TOPIC"), "{}: no page is `{topic}`", page.name);
            }
            for path in words.split(['`', ' ', '(', ',']).filter(|word| word.starts_with("examples/")) {
                let path = path.trim_end_matches(['.', ')', ';', ':']);
                let is_folder = ["examples/templates", "examples/"].contains(&path);
                let is_there = is_folder || pages::example(path).is_some();
                assert!(is_there || path.starts_with("examples/plugins/unique"), "{}: {path}", page.name);
            }
        }
    }

    #[test]
    fn lines_are_as_long_as_they_may_be() {
        const NARROW: usize = 60;
        for page in pages::PAGES {
            let blocks = markdown::blocks(page.text);
            let is_heading = |line: &str| {
                let is = |block: &Block| matches!(block, Block::Heading(_, text) if linked(text).eq_ignore_ascii_case(line));
                blocks.iter().any(is) || line.bytes().all(|byte| byte == b'-')
            };
            for line in shown(page.text, Look { width: NARROW, is_bold: false }).lines() {
                // A single word is not broken; code is as it is.
                let is_word = line.trim_start_matches("- ").split_whitespace().count() == 1;
                let may_be = is_word || line.starts_with("    ") || is_heading(line);
                assert!(may_be || width(line) <= NARROW, "{}: {line}", page.name);
            }
        }
    }
}
