//! Shows a text on a terminal by the user's pager.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::{Failure, control, stdout};

/// What shows a text, unless `PAGER` names another command.
const USUAL: &str = "less";
/// The options of `less`: ends at once if the text fits, shows bold text, leaves the text there.
const OPTIONS: &str = "FRX";
/// The exit status of a shell that does not find a command.
const NOT_FOUND: i32 = 127;

/// Shows a text: on a terminal by the pager, if there is one.
pub(super) fn show(text: &str, is_terminal: bool) -> Result<(), Failure> {
    match is_terminal && page(text) {
        true => Ok(()),
        false => stdout::show(text),
    }
}

/// Runs the pager; false if there is none.
fn page(text: &str) -> bool {
    let mut command = match std::env::var("PAGER") {
        Ok(pager) if pager.trim().is_empty() => return false,
        Ok(pager) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &pager]);
            shell
        }
        Err(_) => Command::new(USUAL),
    };
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", OPTIONS);
    }
    // Ctrl-C is for the pager, which goes on.
    control::handle(libc::SIGINT, ignore, true);
    let Ok(mut child) = command.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut pipe) = child.stdin.take() {
        // A pager that is left early closes it.
        let _ = pipe.write_all(text.as_bytes());
    }
    child.wait().is_ok_and(|status| status.code() != Some(NOT_FOUND))
}

extern "C" fn ignore(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {}
