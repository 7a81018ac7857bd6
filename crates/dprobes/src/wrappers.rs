//! Commands that begin with a wrapper (`env ./app`, `sh -c './app'`): `a.out` is the wrapper, and
//! its functions are seldom meant.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::scripts::program_named;

/// Adds to the failure of a command what `a.out` is, if it was probed and another program may have
/// been meant.
pub(crate) fn explain(failure: Failure, probes_program: bool, command: &[OsString]) -> Failure {
    let Some(inner) = wrapped(command).filter(|_| probes_program) else { return failure };
    let (first, inner) = (Path::new(&command[0]), printable::path(Path::new(&inner)).to_string());
    let status = failure.status();
    let text = format!(
        "{}\ndprobes: note: `a.out` is the program that is executed first, `{}`; if it executes `{inner}`, that is \
         probed by its name: `{inner}:FUNCTION`",
        failure.text(),
        printable::path(first)
    );
    Failure::complete(text).with_status(status)
}

/// The name of the first program among the arguments of a command.
fn wrapped(command: &[OsString]) -> Option<OsString> {
    let words = command.iter().skip(1).filter_map(|word| word.to_str());
    let words = words.flat_map(str::split_whitespace).filter(|word| !word.starts_with('-'));
    let mut programs = words.filter_map(|word| match word.contains('/') {
        true => Some(PathBuf::from(word)).filter(|path| is_program(path)),
        false => program_named(word.as_ref()),
    });
    programs.next()?.file_name().map(OsString::from)
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_behind_a_wrapper_is_named() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            wrapped(&words).map(|name| name.to_string_lossy().into_owned())
        };
        assert_eq!(of(&["env", "A=1", "/bin/ls", "/tmp"]).as_deref(), Some("ls"));
        assert_eq!(of(&["sh", "-c", "cd /tmp; /bin/cat x"]).as_deref(), Some("cat"));
        assert_eq!(of(&["/bin/ls", "/tmp", "-l"]), None);
        let command = ["env", "/bin/ls"].map(OsString::from);
        let told = explain(Failure::new("no").with_status(125), true, &command);
        assert!(told.text().starts_with("dprobes: error: no\n") && told.text().contains("`ls:FUNCTION`"));
        assert_eq!(told.status(), 125);
        assert_eq!(explain(Failure::new("no"), false, &command).text(), "dprobes: error: no");
    }
}
