//! Writes a tracefile as lcov and genhtml read it.
//!
//! ```text
//! TN:
//! SF:/src/a.c                          a source file
//! FN:12,main                           a function and its first line
//! FNDA:1,main                          whether it was called
//! FNF:1 FNH:1                          functions, and those called (each on a line of its own)
//! BRDA:14,0,1,1                        line, number of the jump there, way, whether taken
//! BRF:2 BRH:1                          ways, and those taken
//! DA:12,1                              a line, and whether it was reached
//! LF:5 LH:4                            lines, and those reached
//! end_of_record
//! ```
//!
//! All counts are 0 or 1. Ways that are undecided are left out. Paths and names are the measured
//! program's: they are escaped, so that none is more than its line.

use std::fmt::Write;

use super::branches::Taken;
use super::measured::{File, Measured};

/// The tracefile.
pub(super) fn tracefile(measured: &Measured) -> String {
    let mut text = String::from("TN:\n");
    for (path, file) in &measured.files {
        // Writing to a string cannot fail.
        let _ = record(&mut text, path, file);
    }
    text
}

fn record(text: &mut String, path: &str, file: &File) -> std::fmt::Result {
    writeln!(text, "SF:{}", printable::text(path))?;
    for (line, name) in file.functions.keys() {
        writeln!(text, "FN:{line},{}", printable::text(name))?;
    }
    for ((_, name), is_called) in &file.functions {
        writeln!(text, "FNDA:{},{}", u8::from(*is_called), printable::text(name))?;
    }
    let functions = file.function_part();
    writeln!(text, "FNF:{}\nFNH:{}", functions.all, functions.reached)?;
    for (line, jumps) in &file.branches {
        for (number, ways) in jumps.iter().enumerate() {
            for (way, taken) in ways.iter().enumerate() {
                let taken = match taken {
                    Taken::Unreached => "-",
                    Taken::No => "0",
                    Taken::Yes => "1",
                    Taken::Undecided => continue,
                };
                writeln!(text, "BRDA:{line},{number},{way},{taken}")?;
            }
        }
    }
    let branches = file.branch_part();
    if branches.all > 0 {
        writeln!(text, "BRF:{}\nBRH:{}", branches.all, branches.reached)?;
    }
    for (line, is_reached) in &file.lines {
        writeln!(text, "DA:{line},{}", u8::from(*is_reached))?;
    }
    let lines = file.line_part();
    writeln!(text, "LF:{}\nLH:{}\nend_of_record", lines.all, lines.reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_lines_of_their_own() {
        let file = File {
            lines: [(1, false)].into(),
            functions: [((1, "f\nDA:1,1".to_owned()), false)].into(),
            ..File::default()
        };
        let path = "/a.c\nend_of_record\x1b[2J".to_owned();
        let text = tracefile(&Measured { files: [(path, file)].into(), unmeasured: 0 });
        assert_eq!(text.lines().filter(|line| line.starts_with("DA:")).collect::<Vec<_>>(), ["DA:1,0"]);
        assert_eq!(text.lines().filter(|line| *line == "end_of_record").count(), 1);
        assert!(!text.contains('\x1b'), "{text:?}");
    }

    #[test]
    fn a_file_has_its_functions_branches_and_lines() {
        let file = File {
            lines: [(3, true), (4, true), (6, false)].into(),
            functions: [((3, "main".to_owned()), true), ((6, "f".to_owned()), false)].into(),
            branches: [
                (4, vec![[Taken::Yes, Taken::Undecided], [Taken::No, Taken::Yes]]),
                (6, vec![[Taken::Unreached; 2]]),
            ]
            .into(),
            unproven: 0,
        };
        let measured = Measured { files: [("/src/a.c".to_owned(), file)].into(), unmeasured: 0 };
        assert_eq!(
            tracefile(&measured),
            "TN:\nSF:/src/a.c\nFN:3,main\nFN:6,f\nFNDA:1,main\nFNDA:0,f\nFNF:2\nFNH:1\n\
             BRDA:4,0,0,1\nBRDA:4,1,0,0\nBRDA:4,1,1,1\nBRDA:6,0,0,-\nBRDA:6,0,1,-\nBRF:5\nBRH:2\n\
             DA:3,1\nDA:4,1\nDA:6,0\nLF:3\nLH:2\nend_of_record\n"
        );
    }
}
