//! Whether an argument of functions points to text, as debug information has it.

use std::path::Path;
use std::rc::Rc;

use script::{Functions, Item, Surroundings};

use super::programs::Programs;
use super::scope::{Scope, program_named};
use crate::arguments::Traced;

/// Whether an argument of this name is a `char *` in all functions of these attach points that have
/// it. Without debug information this is not known.
pub(crate) fn points_to_text(points: &str, name: &str, traced: &Traced) -> bool {
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
    let mut known = functions.filter_map(|of| type_of(&of, name)).peekable();
    known.peek().is_some() && known.all(|text| is_text(&text))
}

/// The type of the argument that is called so.
fn type_of(functions: &Functions, name: &str) -> Option<String> {
    let arguments = &functions.signature.as_ref().ok()?.arguments;
    arguments.iter().find(|argument| argument.name == name).map(|argument| argument.text.clone())
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
