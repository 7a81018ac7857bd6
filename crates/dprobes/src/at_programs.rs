//! `--at MODULE:FUNCTION:POINT` and `--do 'STATEMENTS'`: probes without a program file.
//!
//! They are converted to a program's text, one per module, and then handled like all programs:
//!
//! ```text
//! --at libc.so.6:malloc:entry --at libc.so.6:free:entry --do 'push arg, 0; log 1'
//!
//!     name = "libc.so.6"                  --do:    push arg, 0
//!     vars = 64                                     log 1
//!     gvars = 64
//!     offset = "malloc":entry
//!     #include "--do"
//!     offset = "free":entry
//!     #include "--do"
//! ```
//!
//! With several `--do`, the second one's text is called `--do 2`, and so on.

use std::path::{Path, PathBuf};

use rpn::FunctionPoint;
use serde::{Deserialize, Serialize};

use crate::arguments::{Probes, Program};
use crate::{Failure, points};

/// The name of the generated program in messages.
const AT: &str = "--at";
/// The name of its handler; of several, that of the first.
const DO: &str = "--do";
/// The name of the program that watches a variable.
const WATCH: &str = "watch";
/// Number of local, and of global, variables that a handler may use.
const VARIABLES: u32 = 64;
/// The handler without `--do`: counts hits and records nothing.
const COUNT: &str = "abort\n";
/// The same where records are asked for: each hit is one, without data.
const RECORD: &str = "exit\n";

/// The text of a program that is not in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text {
    program: String,
    handlers: Vec<String>,
}

impl Text {
    /// The program's path in messages.
    pub(crate) fn path() -> PathBuf {
        AT.into()
    }

    /// The program that watches a variable.
    pub(crate) fn of_watch(program: String) -> Text {
        Text { program, handlers: Vec::new() }
    }

    /// The path of that program in messages.
    pub(crate) fn path_of_watch() -> PathBuf {
        WATCH.into()
    }

    /// The same text with its first probepoint only.
    pub(crate) fn first(&self) -> Text {
        let end = self.program.match_indices('\n').map(|(at, _)| at + 1);
        let mut lines = end.map(|end| &self.program[..end]);
        let first = lines.find(|text| text.contains("#include")).unwrap_or(&self.program);
        Text { program: first.to_owned(), handlers: self.handlers.clone() }
    }

    /// The text at a path, if the path is the program's or its handler's.
    pub(crate) fn at(&self, path: &Path) -> Option<&str> {
        let programs = [AT, WATCH].map(|name| (name.to_owned(), &self.program));
        let handlers = self.handlers.iter().enumerate().map(|(number, text)| (handler_name(number), text));
        let mut all = programs.into_iter().chain(handlers);
        all.find_map(|(name, text)| (path == Path::new(&name)).then_some(text.as_str()))
    }
}

/// The name of a handler's text.
fn handler_name(number: usize) -> String {
    if number == 0 { DO.to_owned() } else { format!("{DO} {}", number + 1) }
}

/// The programs of a command line: that of its file, or one per module of its `--at`s. With
/// `records`, hits of the latter are recorded if `--do` does not say what to do.
///
/// # Errors
/// The file is not there, and its name is that of a function.
pub(crate) fn programs(probes: &Probes, records: bool) -> Result<Vec<Program>, Failure> {
    if let Some(file) = &probes.file {
        if let Some(text) = file.to_str().filter(|text| text.contains(':') && !file.exists())
            && points::parse(text).is_ok()
        {
            let shown = printable::text(text);
            return Err(Failure::new(format!(
                "`{shown}` is no program file; functions are given as `--at {shown}`"
            )));
        }
        return Ok(vec![Program {
            file: file.clone(),
            preprocessor: probes.preprocessor.clone(),
            text: None,
        }]);
    }
    let mut handlers: Vec<String> = probes.handlers.texts().iter().map(|text| lines(text)).collect();
    let usual = handlers.len();
    handlers.push(if records { RECORD } else { COUNT }.to_owned());
    let mut modules: Vec<(&str, Vec<Wanted<'_>>)> = Vec::new();
    let ats = probes.at.iter().enumerate();
    for (number, at, point) in ats.flat_map(|(number, at)| at.points.iter().map(move |&it| (number, at, it)))
    {
        let handler = probes.handlers.of(number).unwrap_or(usual);
        let wanted = Wanted { function: &at.function, point, handler };
        match modules.iter_mut().find(|(module, _)| *module == at.module) {
            Some((_, ats)) if ats.contains(&wanted) => {}
            Some((_, ats)) => ats.push(wanted),
            None => modules.push((&at.module, vec![wanted])),
        }
    }
    let program = |(module, ats): (&str, Vec<Wanted<'_>>)| Program {
        file: Text::path(),
        preprocessor: probes.preprocessor.clone(),
        text: Some(Text { program: text(module, &ats, usual > 0), handlers: handlers.clone() }),
    };
    Ok(modules.into_iter().map(program).collect())
}

/// A point of the functions with a name, and the number of its handler.
#[derive(PartialEq, Eq)]
struct Wanted<'a> {
    function: &'a str,
    point: FunctionPoint,
    handler: usize,
}

fn text(module: &str, ats: &[Wanted<'_>], has_handler: bool) -> String {
    let mut text = match module {
        "kernel" | "vmlinux" => "name = vmlinux\nmodtype = kernel\n".to_owned(),
        _ => format!("name = {}\n", quoted(module)),
    };
    if has_handler {
        text += &format!("vars = {VARIABLES}\ngvars = {VARIABLES}\n");
    }
    for Wanted { function, point, handler } in ats {
        text += &format!("offset = {}:{point}\n#include \"{}\"\n", quoted(function), handler_name(*handler));
    }
    text
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Splits a handler's statements into lines, at each `;` outside quotes.
fn lines(statements: &str) -> String {
    let mut quoted = false;
    let mut lines: String = statements
        .chars()
        .map(|character| {
            quoted ^= character == '"';
            if character == ';' && !quoted { '\n' } else { character }
        })
        .collect();
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::arguments::Preprocessor;
    use crate::points::parse;

    /// What is probed, by the options of a command line.
    fn given(options: &[&str]) -> Probes {
        let command = Probes::augment_args(clap::Command::new("dprobes").no_binary_name(true));
        let matches = command.try_get_matches_from(options).expect("they are right");
        Probes::from_arg_matches(&matches).expect("they are right")
    }

    #[test]
    fn of_several_handlers_each_is_for_the_points_before_it() {
        let text = |options: &[&str]| {
            let program = programs(&given(options), false)
                .expect("no file")
                .swap_remove(0)
                .text
                .expect("it is no file");
            let handlers =
                (0..3).filter_map(|number| Some(program.at(handler_name(number).as_ref())?.to_owned()));
            (
                program.program.lines().skip(3).map(str::to_owned).collect::<Vec<_>>().join(" "),
                handlers.collect(),
            )
        };
        let one = "offset = \"f\":entry #include \"--do\" offset = \"g\":entry #include \"--do\"";
        let expected = (one.to_owned(), vec!["log 1\n".to_owned(), "abort\n".into()]);
        assert_eq!(text(&["--at", "a.out:f", "--do", "log 1", "--at", "a.out:g"]), expected);
        assert_eq!(text(&["--do", "log 1", "--at", "a.out:f", "--at", "a.out:g"]), expected);
        let (program, handlers) = text(&[
            "--at",
            "a.out:f",
            "--at",
            "a.out:g",
            "--do",
            "log 1",
            "--at",
            "a.out:f:return",
            "--do",
            "log 2",
            "--at",
            "a.out:h",
        ]);
        let expected = "offset = \"f\":entry #include \"--do\" offset = \"g\":entry #include \"--do\" \
                        offset = \"f\":return #include \"--do 2\" offset = \"h\":entry #include \"--do 3\"";
        assert_eq!(program, expected);
        assert_eq!(handlers, ["log 1\n", "log 2\n", "abort\n"].map(str::to_owned).to_vec());
    }

    #[test]
    fn a_module_has_one_program_and_statements_a_line_each() {
        let ats =
            "libc:malloc:entry a.out:f\"g:return libc:free:entry libc:malloc:entry kernel:vfs_*".split(' ');
        let probes = Probes {
            file: None,
            at: ats.map(|text| parse(text).expect("it is one")).collect(),
            handlers: given(&["--at", "libc:malloc", "--do", "push arg, 0; log 1"]).handlers,
            preprocessor: Preprocessor::default(),
        };
        let texts: Vec<String> = programs(&probes, false)
            .expect("no file")
            .iter()
            .map(|program| program.text.clone().expect("it is no file").program)
            .collect();
        assert_eq!(
            texts,
            [
                "name = \"libc\"\nvars = 64\ngvars = 64\noffset = \"malloc\":entry\n#include \"--do\"\n\
                 offset = \"free\":entry\n#include \"--do\"\n",
                "name = \"a.out\"\nvars = 64\ngvars = 64\noffset = \"f\\\"g\":return\n#include \"--do\"\n",
                "name = vmlinux\nmodtype = kernel\nvars = 64\ngvars = 64\noffset = \"vfs_*\":entry\n#include \"--do\"\n",
            ]
        );
        assert_eq!(lines("a; b \"c;d\"; e"), "a\n b \"c;d\"\n e\n");
    }
}
