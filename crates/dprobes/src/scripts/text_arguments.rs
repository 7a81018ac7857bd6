//! Whether an argument of functions points to text, as debug information has it.

use std::path::Path;
use std::rc::Rc;

use script::{Functions, Item, Surroundings};

use super::programs::Programs;
use super::scope::{Scope, program_named};
use crate::arguments::Traced;

/// The name of an argument, given by its name or as `arg0`, that is a `char *` in all functions of
/// these attach points that have it. Without debug information this is not known.
pub(crate) fn text_argument(points: &str, argument: &str, traced: &Traced) -> Option<String> {
    let pids = traced.processes.ids();
    let command = traced.command.first().and_then(|word| program_named(word));
    let system_wide = pids.is_empty() && traced.command.is_empty();
    let scope = Scope {
        pids: &pids,
        command: command.as_deref(),
        system_wide,
        by_kernel: system_wide,
        ..Scope::default()
    };
    let around =
        Surroundings { files: &rpn::DiskFiles, directories: &[], programs: Rc::new(Programs::new(&scope)) };
    let checked = script::check_text_in(&around, Path::new("latency"), &format!("{points} {{ }}"));
    let probes =
        checked.script.items.iter().filter_map(|it| if let Item::Probe(it) = it { Some(it) } else { None });
    let functions = probes.flat_map(|probe| &probe.points);
    let functions = functions.filter_map(|point| checked.programs().functions(point).ok()).flatten();
    let known: Vec<(String, String)> = functions.filter_map(|of| named(&of, argument)).collect();
    known.iter().all(|(_, text)| is_text(text)).then(|| known.first().map(|(name, _)| name.clone()))?
}

/// The name and the type of an argument.
fn named(functions: &Functions, argument: &str) -> Option<(String, String)> {
    let arguments = &functions.signature.as_ref().ok()?.arguments;
    let number = argument.strip_prefix("arg").and_then(|number| number.parse::<usize>().ok());
    let found = match number {
        // Floats are passed elsewhere, and are not counted.
        Some(number) => arguments.iter().filter(|it| !is_float(&it.text)).nth(number),
        None => arguments.iter().find(|it| it.name == argument),
    };
    found.map(|found| (found.name.clone(), found.text.clone()))
}

fn is_float(declared: &str) -> bool {
    !declared.contains('*') && declared.split_whitespace().any(|word| matches!(word, "float" | "double"))
}

/// Whether a type is that of a string in C.
fn is_text(declared: &str) -> bool {
    let words = declared.split_inclusive('*').flat_map(str::split_whitespace);
    words.filter(|word| !["const", "volatile", "restrict"].contains(word)).collect::<String>() == "char*"
}

#[cfg(test)]
mod tests {
    use super::is_text;

    #[test]
    fn strings_are_pointers_to_char() {
        for text in ["char *", "const char *", "char*", "const char * const"] {
            assert!(is_text(text), "{text}");
        }
        for other in ["char **", "char", "unsigned char *", "const void *", "struct constant *"] {
            assert!(!is_text(other), "{other}");
        }
    }
}
