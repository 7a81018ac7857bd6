//! Converts the part of Markdown that the project's documents use to roff for `man`: headings,
//! paragraphs, lists, code, emphasis and tables.
//!
//! A table with a column "What ..." describes one thing per row and becomes a list; any other stays
//! a table, for `tbl`. (The crate roff has no tables, and no names for `^`, `~` and arrows;
//! clap_mangen writes the other page with it.)

use crate::markdown::{self, Block};

/// Converts a document to roff. Its first heading has level 2.
pub(crate) fn from_markdown(text: &str) -> String {
    let mut page = String::new();
    for block in markdown::blocks(text) {
        match block {
            Block::Heading(2, heading) => {
                page.push_str(&format!(".SH \"{}\"\n", inline(heading).to_uppercase()));
            }
            Block::Heading(_, heading) => page.push_str(&format!(".SS \"{}\"\n", inline(heading))),
            Block::Code(lines) => {
                page.push_str(".PP\n.nf\n.RS 4\n");
                lines.iter().for_each(|line| page.push_str(&guarded(&escaped(line))));
                page.push_str(".RE\n.fi\n");
            }
            Block::Table(rows) => table(&mut page, &rows),
            Block::Item("-" | "*", item) => {
                page.push_str(&format!(".IP \\(bu 2\n{}", guarded(&inline(&item))));
            }
            Block::Item(number, item) => {
                page.push_str(&format!(".IP {number} 4\n{}", guarded(&inline(&item))));
            }
            Block::Paragraph(text) => page.push_str(&format!(".PP\n{}", guarded(&inline(&text)))),
        }
    }
    page
}

fn table(page: &mut String, rows: &[Vec<String>]) {
    let Some((names, rows)) = rows.split_first() else { return };
    match names.iter().position(|name| name.starts_with("What ")) {
        Some(what) => descriptions(page, names, what, rows),
        None => columns(page, names, rows),
    }
}

/// A list: the name in the first column, its description, then the other columns with their names,
/// an example last.
fn descriptions(page: &mut String, names: &[String], what: usize, rows: &[Vec<String>]) {
    for row in rows {
        let cell = |place: usize| row.get(place).map_or("", String::as_str);
        page.push_str(&format!(".TP\n{}", guarded(&inline(cell(0)))));
        page.push_str(&guarded(&inline(cell(what))));
        let mut rest = Vec::new();
        let mut example = "";
        for (place, name) in names.iter().enumerate().skip(1).filter(|(place, _)| *place != what) {
            match (name.as_str(), cell(place)) {
                ("Example", cell) => example = cell,
                (_, "" | "-") => {}
                (name, cell) => rest.push(format!("{name}: {}", inline(cell))),
            }
        }
        if !rest.is_empty() {
            page.push_str(&format!(".br\n{}", guarded(&rest.join("; "))));
        }
        if !example.is_empty() {
            page.push_str(&format!(".br\nExample: {}\n", inline(example)));
        }
    }
}

/// A table for `tbl`, with long cells broken into lines.
fn columns(page: &mut String, names: &[String], rows: &[Vec<String>]) {
    const LONG: usize = 24;
    let format = |mark: &str| vec![mark; names.len()].join(" ");
    page.push_str(&format!(".PP\n.TS\n{}\n{}.\n", format("lb"), format("l")));
    page.push_str(&names.iter().map(|name| inline(name)).collect::<Vec<_>>().join("\t"));
    for row in rows {
        let cell = |text: &String| match text.len() {
            0..LONG => inline(text),
            _ => format!("T{{\n{}T}}", guarded(&inline(text))),
        };
        page.push('\n');
        page.push_str(&row.iter().map(cell).collect::<Vec<_>>().join("\t"));
    }
    page.push_str("\n.TE\n");
}

/// Text with code in bold and emphasis in italics.
fn inline(text: &str) -> String {
    let mut shown = String::new();
    for (place, part) in text.split('`').enumerate() {
        if place % 2 == 1 {
            shown.push_str(&format!("\\fB{}\\fP", escaped(part)));
            continue;
        }
        for (place, part) in part.split('*').enumerate() {
            match place % 2 {
                1 => shown.push_str(&format!("\\fI{}\\fP", escaped(part))),
                _ => shown.push_str(&escaped(part)),
            }
        }
    }
    shown
}

/// Text escaped for roff: `-` as typed, backslashes not taken for commands.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('→', "\\(->")
        .replace('^', "\\(ha")
        .replace('~', "\\(ti")
}

/// A line that roff does not take for a request, whatever it starts with.
fn guarded(line: &str) -> String {
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}\n"),
        false => format!("{line}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_markup_has_its_request() {
        let text = "\
Some *text* with `a-b` and
a second line.

## A heading

- one
  goes on
- .two

```rpn
    push '\\n'
.x
```
| Name | What it is | Code |
|---|---|---|
| `x | y` | A thing. | 1 → 2 |

| A | B |
|---|---|
| 1 | something long enough to be broken |
";
        let expected = "\
.PP
Some \\fItext\\fP with \\fBa\\-b\\fP and a second line.
.SH \"A HEADING\"
.IP \\(bu 2
one goes on
.IP \\(bu 2
\\&.two
.PP
.nf
.RS 4
    push '\\en'
\\&.x
.RE
.fi
.TP
\\fBx | y\\fP
A thing.
.br
Code: 1 \\(-> 2
.PP
.TS
lb lb
l l.
A\tB
1\tT{
something long enough to be broken
T}
.TE
";
        assert_eq!(from_markdown(text), expected);
    }
}
