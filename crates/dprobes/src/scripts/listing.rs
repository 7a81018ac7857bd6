//! `dprobes trace -l`: the attach points that a script, or one attach point, means; with `-v`,
//! their arguments and types.

use std::path::Path;
use std::process::ExitCode;

use image::Pattern;
use script::{AttachPoint, AttachTarget, Checked, Provider};

use super::command::command;
use super::scope::{Scope, program_named};
use super::{places, source};
use crate::arguments::Trace;
use crate::{Failure, stdout, symbols};

/// Shows what would be probed.
pub(super) fn list(arguments: &Trace) -> Result<ExitCode, Failure> {
    let alone = match &*arguments.script {
        // An attach point alone.
        [point] if arguments.text.is_none() && !point.contains('{') && !Path::new(point).is_file() => {
            Some(point.as_str())
        }
        _ => None,
    };
    if let Some(events) = alone.and_then(events) {
        stdout::show(&events?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let listed = alone.map(|point| format!("{point} {{ }}"));
    let command = command(arguments)?;
    let pids = arguments.processes.ids();
    let path = command.first().and_then(|command| program_named(command));
    let system_wide = pids.is_empty() && command.is_empty();
    let symbols = symbols::OfScript::read(arguments.sym.as_deref())?;
    let scope = Scope {
        pids: &pids,
        command: path.as_deref(),
        expands: true,
        system_wide,
        by_kernel: system_wide,
        symbols: symbols.program.as_ref(),
        kernel: symbols.of_kernel(),
        unverified: arguments.printed.firing.dont_verify_opcodes,
    };
    let (checked, compiled) = source::compile_text(arguments, listed.as_deref(), &scope)?;
    let places = places::find(&compiled, &checked.sources, &scope)?;
    let mut lines = String::new();
    for ((name, function), point) in places.names.iter().zip(&places.points) {
        lines.push_str(&format!("{name}\n"));
        if arguments.verbose {
            lines.push_str(&described(&checked, point, function));
        }
    }
    stdout::show(&printable::lines(&lines))?;
    Ok(ExitCode::SUCCESS)
}

/// The events of `software:PATTERN` or `hardware:PATTERN`, as bpftrace lists them; `None` for
/// other attach points.
fn events(point: &str) -> Option<Result<String, Failure>> {
    let (name, event) = point.trim().split_once(':')?;
    let row = script::TABLE.iter().find(|row| row.names.contains(&name))?;
    let all = script::counted_events(row.provider)?;
    if !Pattern::is_one(event) {
        return None;
    }
    let matching = |pattern: Pattern| {
        let names = all.iter().filter(|event| pattern.matches(event.name));
        names.map(|event| format!("{}:{}:\n", row.names[0], event.name)).collect::<String>()
    };
    let lines = Pattern::new(event).map(matching).map_err(|error| Failure::new(error.to_string()));
    Some(lines.and_then(|lines| match lines.is_empty() {
        true => {
            Err(Failure::new(format!("no event of `{}` matches `{}`", row.names[0], printable::text(event))))
        }
        false => Ok(lines),
    }))
}

/// The arguments of a function, and what it returns, with their types: a line for each.
fn described(checked: &Checked, point: &AttachPoint, function: &str) -> String {
    let mut point = point.clone();
    match &mut point.place {
        AttachTarget::Function { function: meant, offset: None, .. } => *meant = function.to_owned(),
        AttachTarget::Kernel { .. } | AttachTarget::Tracepoint(..) => {}
        _ => return String::new(),
    }
    let Ok(functions) = checked.programs().functions(&point) else { return String::new() };
    let Some(Ok(signature)) = functions.first().map(|it| &it.signature) else { return String::new() };
    let mut lines = String::new();
    if point.provider != Provider::Uretprobe {
        for argument in signature.arguments.iter().filter(|it| it.name != "common_pid") {
            lines.push_str(&format!("    {}\n", declared(&argument.text, &argument.name)));
        }
    }
    let returns = matches!(point.provider, Provider::Uretprobe | Provider::Fexit);
    lines.extend(signature.result.iter().map(|result| match returns {
        true => format!("    {}\n", declared(&result.text, "retval")),
        // At the entry it is not there yet.
        false => format!("    returns {}\n", result.text),
    }));
    lines
}

/// A declaration as C writes it: `char comm[16]`.
fn declared(text: &str, name: &str) -> String {
    match text.split_once('[') {
        Some((element, length)) if !text.starts_with("__") => {
            format!("{} {name}[{length}", element.trim_end())
        }
        _ => format!("{text} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_listed_by_patterns() {
        let lines = events("software:*faults").expect("it is one").expect("some match");
        assert_eq!(
            lines,
            "software:page-faults:\nsoftware:minor-faults:\nsoftware:major-faults:\nsoftware:alignment-faults:\nsoftware:emulation-faults:\n"
        );
        assert!(events("h:cache*").is_some_and(|lines| lines.is_ok_and(|lines| lines.lines().count() == 2)));
        assert!(events("hardware:nothing*").is_some_and(|lines| lines.is_err()));
        assert!(events("software:page-faults").is_none() && events("kprobe:vfs_*").is_none());
    }

    #[test]
    fn arrays_are_declared_as_c_does() {
        assert_eq!(declared("char[16]", "comm"), "char comm[16]");
        assert_eq!(declared("const char *", "name"), "const char * name");
        assert_eq!(declared("__data_loc char[]", "name"), "__data_loc char[] name");
    }
}
