//! The summary on the terminal: for each source file how many of its lines were reached, and a
//! total.

use std::fmt::Write;
use std::path::Path;

use super::measured::{Measured, Part};
use crate::messages::count;

/// The summary. Paths below `here` are shown relative to it.
pub(super) fn text(measured: &Measured, branches: bool, here: Option<&Path>) -> String {
    let (mut lines, mut ways, mut undecided) = (Part::default(), Part::default(), 0);
    let mut rows = vec![Row::heading(branches)];
    for (path, file) in &measured.files {
        lines += file.line_part();
        ways += file.branch_part();
        undecided += file.undecided();
        let short = here.and_then(|here| Path::new(path).strip_prefix(here).ok());
        let name = printable::path(short.unwrap_or(Path::new(path))).to_string();
        rows.push(Row::new(name, file.line_part(), branches.then(|| file.branch_part())));
    }
    rows.push(Row::new("total".to_owned(), lines, branches.then_some(ways)));
    let mut text = table(&rows);
    // Writing to a string cannot fail.
    if undecided > 0 {
        let ways = count(undecided, "way");
        let _ = writeln!(text, "{ways} of conditional jumps are undecided, and not counted");
    }
    if measured.unmeasured > 0 {
        let sites = count(measured.unmeasured, "instruction");
        let _ = writeln!(text, "{sites} cannot be probed: lines that begin only there are not counted");
    }
    text
}

/// One row: the name, and then cells that are aligned at the right.
struct Row(String, Vec<String>);

impl Row {
    fn heading(branches: bool) -> Row {
        let branches: &[&str] = if branches { &["branches", ""] } else { &[] };
        let cells = ["lines", ""].iter().chain(branches).map(|cell| (*cell).to_owned());
        Row("file".to_owned(), cells.collect())
    }

    fn new(name: String, lines: Part, branches: Option<Part>) -> Row {
        let cells = |part: Part| {
            let percent = if part.all == 0 { "-".to_owned() } else { format!("{:.1}%", part.percent()) };
            [format!("{}/{}", part.reached, part.all), percent]
        };
        Row(name, cells(lines).into_iter().chain(branches.into_iter().flat_map(cells)).collect())
    }
}

fn table(rows: &[Row]) -> String {
    let name = rows.iter().map(|Row(name, _)| name.chars().count()).max().unwrap_or(0);
    let columns = rows.first().map_or(0, |Row(_, cells)| cells.len());
    let width = |column: usize| rows.iter().map(|Row(_, cells)| cells[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for Row(first, cells) in rows {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("  {cell:>width$}"));
        let line = format!("{first:name$}{}", cells.collect::<String>());
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::branches::Taken;
    use super::super::measured::File;
    use super::*;

    #[test]
    fn files_are_aligned_and_summed_up() {
        let file = |lines: &[(u64, bool)]| File { lines: lines.iter().copied().collect(), ..File::default() };
        let mut first = file(&[(1, true), (2, true), (3, false)]);
        first.branches.insert(2, vec![[Taken::Yes, Taken::No], [Taken::Undecided; 2]]);
        let files = [("/w/a.c".to_owned(), first), ("/usr/include/b.h".to_owned(), file(&[(9, true)]))];
        let measured = Measured { files: files.into(), unmeasured: 1 };
        let here = Some(Path::new("/w"));
        assert_eq!(
            text(&measured, false, here).lines().take(4).collect::<Vec<_>>(),
            [
                "file              lines",
                "/usr/include/b.h    1/1  100.0%",
                "a.c                 2/3   66.7%",
                "total               3/4   75.0%",
            ]
        );
        let all = text(&measured, true, here);
        assert!(all.contains("\n/usr/include/b.h    1/1  100.0%       0/0      -\n"), "{all}");
        assert!(all.contains("total               3/4   75.0%       1/2  50.0%\n"), "{all}");
        assert!(all.contains("2 ways of conditional jumps are undecided"), "{all}");
        assert!(all.contains("1 instruction cannot be probed"), "{all}");
    }
}
