//! Reads the part of Markdown that the project's documents use, for the manual pages and for
//! `dprobes help`.

/// A part of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Block<'a> {
    /// A heading and its level, from 1.
    Heading(usize, &'a str),
    /// Lines of one paragraph, joined.
    Paragraph(String),
    /// An item of a list: its mark (`-`, `*` or a number) and its text, joined.
    Item(&'a str, String),
    /// Lines that are shown as they are.
    Code(Vec<&'a str>),
    /// Rows of cells; the first has the names of the columns.
    Table(Vec<Vec<String>>),
}

/// The parts of a document, in their order.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut paragraph = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_within = !paragraph.is_empty();
        // A line of a paragraph may begin with what marks a list elsewhere.
        let item = mark(line).filter(|(mark, _)| !is_within || *mark == "-" || *mark == "*");
        let is_code = line.starts_with("```") || !is_within && line.starts_with("    ");
        if is_within && (item.is_some() || is_code || line.is_empty() || line.starts_with(['#', '|'])) {
            blocks.push(Block::Paragraph(std::mem::take(&mut paragraph)));
        }
        if let Some((level, heading)) = heading(line) {
            blocks.push(Block::Heading(level, heading));
        } else if line.starts_with("```") {
            blocks.push(Block::Code(lines.by_ref().take_while(|line| !line.starts_with("```")).collect()));
        } else if is_code {
            let mut code = vec![&line[4..]];
            while let Some(more) = lines.next_if(|line| line.starts_with("    ")) {
                code.push(&more[4..]);
            }
            blocks.push(Block::Code(code));
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(line));
            }
            // The second line separates the names from the rows.
            if rows.len() > 1 {
                rows.remove(1);
                blocks.push(Block::Table(rows));
            }
        } else if let Some((mark, item)) = item {
            let mut item = item.to_owned();
            while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
                item.push(' ');
                item.push_str(more.trim_start());
            }
            blocks.push(Block::Item(mark, item));
        } else if !line.is_empty() {
            if is_within {
                paragraph.push(' ');
            }
            paragraph.push_str(line);
        }
    }
    if !paragraph.is_empty() {
        blocks.push(Block::Paragraph(paragraph));
    }
    blocks
}

/// A heading's level and text.
fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    text.strip_prefix(' ').filter(|_| level > 0).map(|text| (level, text))
}

/// The mark and the text of an item of a list.
fn mark(line: &str) -> Option<(&str, &str)> {
    let (mark, text) = line.split_once(' ')?;
    let number = mark.strip_suffix('.').filter(|number| !number.is_empty());
    let is_mark = ["-", "*"].contains(&mark)
        || number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    is_mark.then_some((mark, text))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_found() {
        let text = "\
# A *document*
Some text and
- one
  goes on
* other
1. first

    code
      more
Text with 2.
3 is no item
| A | `x|y` |
|---|---|
| 1 | 2 |
```c
# no heading

```
end";
        let item = |mark, text: &str| Block::Item(mark, text.to_owned());
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let expected = [
            Block::Heading(1, "A *document*"),
            Block::Paragraph("Some text and".to_owned()),
            item("-", "one goes on"),
            item("*", "other"),
            item("1.", "first"),
            Block::Code(vec!["code", "  more"]),
            Block::Paragraph("Text with 2. 3 is no item".to_owned()),
            Block::Table(vec![row(["A", "`x|y`"]), row(["1", "2"])]),
            Block::Code(vec!["# no heading", ""]),
            Block::Paragraph("end".to_owned()),
        ];
        assert_eq!(blocks(text), expected);
    }

    #[test]
    fn nothing_is_no_part() {
        assert_eq!(blocks("\n\n|\n"), []);
    }
}
