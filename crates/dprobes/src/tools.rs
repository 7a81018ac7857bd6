//! `dprobes tools`: scripts that come with the command.
//!
//! A script begins with comments: `// NAME - what it shows`, an empty one, then its help.

use std::process::ExitCode;

use crate::arguments::{RunTool, Tools, ToolsAction, of_script};
use crate::{Failure, scripts, stdout};

/// The scripts, by name.
macro_rules! tools {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../tools/", $name, ".bt")))),*]
    };
}

const TOOLS: [(&str, &str); 12] = tools!(
    "hosts" "locks" "mallocs" "memleak" "opens" "plockstat" "pygc" "pyimports" "readlines" "sleeps" "threads"
    "tls"
);

/// Lists, shows or runs tools.
pub(crate) fn tools(arguments: &Tools) -> Result<ExitCode, Failure> {
    match &arguments.action {
        None | Some(ToolsAction::List) => stdout::show(&list())?,
        Some(ToolsAction::Show { name }) => stdout::show(find(name)?)?,
        Some(ToolsAction::Run(run)) => return self::run(run),
    }
    Ok(ExitCode::SUCCESS)
}

/// The tools and what they show.
fn list() -> String {
    let width = TOOLS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, text): &(&str, &str)| format!("{name:<width$}  {}\n", summary(text));
    let lines: String = TOOLS.iter().map(line).collect();
    format!(
        "{lines}\n`dprobes tools show NAME` has the help of one, `dprobes tools run NAME -p PID` runs it.\n"
    )
}

/// What a tool shows, in one line.
fn summary(text: &str) -> &str {
    text.lines().next().and_then(|line| line.split_once(" - ")).map_or("", |(_, summary)| summary)
}

fn find(name: &str) -> Result<&'static str, Failure> {
    let found = TOOLS.iter().find(|(other, _)| *other == name).map(|(_, text)| *text);
    found.ok_or_else(|| {
        let near = source::nearest(name, TOOLS.iter().map(|(name, _)| *name));
        let near =
            near.map_or_else(|| "`dprobes tools` lists them".to_owned(), |near| format!("`{near}` is one"));
        Failure::new(format!("no tool is called {}; {near}", source::quote(name)))
    })
}

fn run(arguments: &RunTool) -> Result<ExitCode, Failure> {
    let Some((name, parameters)) = arguments.words.split_first() else { return Ok(ExitCode::FAILURE) };
    let RunTool { traced, printed, .. } = arguments;
    scripts::trace(&of_script(find(name)?.to_owned(), parameters, traced, printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_right_and_says_what_it_is() {
        for (name, text) in TOOLS {
            let checked = script::check_with(&rpn::DiskFiles, name.as_ref(), text, &[]);
            assert!(!checked.has_errors(), "{}", checked.render(false));
            assert!(text.starts_with(&format!("// {name} - ")) && !summary(text).is_empty(), "{name}");
            assert!(text.contains(&format!("//   dprobes tools run {name} ")), "{name}: no example");
            let is_short = |line: &str| line.chars().count() <= 100;
            assert!(text.lines().all(is_short), "{name}");
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tools");
        let files = std::fs::read_dir(folder).expect("the folder of tools");
        assert_eq!(files.count(), TOOLS.len(), "a script is not listed");
        assert!(find("memleek").is_err_and(|failure| failure.message().contains("`memleak`")));
    }
}
