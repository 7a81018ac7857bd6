//! Converts the part of Markdown that the project's documents use to roff for `man`: headings,
//! paragraphs, lists, code, emphasis and tables.
//!
//! A table with a column "What ..." describes one thing per row and becomes a list; any other stays
//! a table, for `tbl`. (The crate roff has no tables, and no names for `^`, `~` and arrows;
//! clap_mangen writes the other page with it.)

/// Converts a document to roff. Its first heading has level 2.
pub(crate) fn from_markdown(text: &str) -> String {
    let mut page = String::new();
    let mut lines = text.lines().peekable();
    let mut paragraph = String::new();
    while let Some(line) = lines.next() {
        let marked = line.starts_with(['#', '|', '`']) || line.starts_with("- ") || line.is_empty();
        if marked && !line.starts_with('`') || line.starts_with("```") {
            end_paragraph(&mut page, &mut paragraph);
        }
        if let Some(heading) = line.strip_prefix("## ") {
            page.push_str(&format!(".SH \"{}\"\n", inline(heading).to_uppercase()));
        } else if let Some(heading) = line.strip_prefix("### ") {
            page.push_str(&format!(".SS \"{}\"\n", inline(heading)));
        } else if line.starts_with("```") {
            page.push_str(".PP\n.nf\n.RS 4\n");
            for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                page.push_str(&guarded(&escaped(line)));
            }
            page.push_str(".RE\n.fi\n");
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(line));
            }
            table(&mut page, &rows);
        } else if let Some(item) = line.strip_prefix("- ") {
            page.push_str(".IP \\(bu 2\n");
            let mut item = item.to_string();
            while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
                item.push(' ');
                item.push_str(more.trim_start());
            }
            page.push_str(&guarded(&inline(&item)));
        } else if !line.is_empty() {
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    end_paragraph(&mut page, &mut paragraph);
    page
}

fn end_paragraph(page: &mut String, paragraph: &mut String) {
    if !paragraph.is_empty() {
        page.push_str(".PP\n");
        page.push_str(&guarded(&inline(paragraph.trim_end())));
        paragraph.clear();
    }
}

/// The cells of a row; `|` within code is not a border.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut code = false;
    for character in line.trim().trim_start_matches('|').chars() {
        code ^= character == '`';
        match (character, cells.last_mut()) {
            ('|', _) if !code => cells.push(String::new()),
            (_, Some(cell)) => cell.push(character),
            (_, None) => {}
        }
    }
    // The empty cell after the last border.
    cells.pop();
    cells.into_iter().map(|cell| cell.trim().to_string()).collect()
}

fn table(page: &mut String, rows: &[Vec<String>]) {
    let (names, rows) = match rows {
        [names, _, rows @ ..] => (names, rows),
        _ => return,
    };
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
