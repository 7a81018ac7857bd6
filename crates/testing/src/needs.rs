//! What tests and measurements need of a machine, and how they are skipped if it is missing.
//!
//! Many tests compare the product with other programs: compilers, debuggers, readers of traces. A
//! machine may lack these, or a processor or kernel feature. Then the test ends with a line on
//! standard error, which bypasses the harness, since that would not show it:
//!
//! ```text
//! skipped: convert: ctf: needs babeltrace2
//! ```
//!
//! To forbid skips, set [`DPROBES_SKIP`](VARIABLE) to `no`, or to a list of the tests that may be
//! skipped, separated by commas; `NAME*` means all that begin so. Every other skip then fails its
//! test. What a kernel or a processor need not have is called `optional: ...`.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::unistd::Uid;

/// The environment variable that says which tests may be skipped; all if it is not set.
pub const VARIABLE: &str = "DPROBES_SKIP";

/// The environment variable that makes repetitive tests repeat as often as continuous integration
/// wants. Without it they repeat a few times.
pub const THOROUGH: &str = "DPROBES_THOROUGH";

/// How often to repeat: the first value, or the second if [`THOROUGH`] is set.
pub fn rounds<T>(few: T, many: T) -> T {
    if std::env::var_os(THOROUGH).is_some() { many } else { few }
}

/// Reports that a test, or part of one, did not run. `test` is its name in [`VARIABLE`].
///
/// # Panics
/// If the test may not be skipped.
#[track_caller]
pub fn skipped(test: &str, needs: &str) {
    let line = format!("skipped: {test}: needs {needs}\n");
    // If the line cannot be written, the test is skipped all the same.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let list = std::env::var(VARIABLE).ok();
    assert!(may_skip(list.as_deref(), test), "{line}");
}

/// Whether a list allows a test to be skipped: by its name, or by the beginning of its name and
/// `*`.
fn may_skip(list: Option<&str>, test: &str) -> bool {
    let is_meant = |name: &str| match name.strip_suffix('*') {
        Some(beginning) if !beginning.is_empty() => test.starts_with(beginning),
        _ => name == test,
    };
    list.is_none_or(|list| list.split(',').any(|name| is_meant(name.trim())))
}

/// Whether this process may become another user, and touch what others may not.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The path of an installed program by name, or `None`.
///
/// The distribution's directories come first: an earlier directory in `PATH` may have a script that
/// chooses a program.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let from_path = std::env::var_os("PATH").unwrap_or_default();
    let standard = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"].map(PathBuf::from);
    find_in(standard.into_iter().chain(std::env::split_paths(&from_path)), name)
}

/// The first executable file with this name.
fn find_in(directories: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    directories.map(|directory| directory.join(name)).find(is_program)
}

/// Whether all programs are installed; if not, the test is [`skipped`].
///
/// # Panics
/// If the test may not be skipped.
#[track_caller]
pub fn have(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<&str> =
        programs.iter().copied().filter(|program| find_program(program).is_none()).collect();
    if !missing.is_empty() {
        skipped(test, &missing.join(", "));
    }
    missing.is_empty()
}

/// Ends a test as [`skipped`] if a value is missing. Arguments: the test's name, an `Option`, and
/// what it needs.
#[macro_export]
macro_rules! need {
    ($test:expr, $what:expr, $needs:expr) => {
        match $what {
            Some(value) => value,
            None => return $crate::skipped($test, $needs),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_may_be_skipped_or_none_or_those_of_a_list() {
        assert!(may_skip(None, "convert: spark"));
        for list in ["no", "", "*", "convert", "spark", "convert: perfetto, transactions", "con: *"] {
            assert!(!may_skip(Some(list), "convert: spark"), "{list}");
        }
        for list in ["convert: spark", "transactions, convert: spark", " convert: spark ,x", "convert: *"] {
            assert!(may_skip(Some(list), "convert: spark"), "{list}");
        }
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find_program("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find_program("no program is called so"), None);
    }

    #[test]
    fn only_what_can_be_executed_is_a_program() {
        let scratch = crate::Scratch::new();
        let here = scratch.path();
        let (a, b, c) = (here.join("a"), here.join("b"), here.join("c"));
        std::fs::create_dir_all(a.join("tool")).expect("the temporary directory is writable");
        for (directory, mode) in [(&b, 0o644), (&c, 0o755)] {
            std::fs::create_dir_all(directory).expect("the temporary directory is writable");
            let file = directory.join("tool");
            std::fs::write(&file, "").expect("it was just made");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        let found = |directories: [&PathBuf; 2]| find_in(directories.into_iter().cloned(), "tool");
        let all = (found([&a, &b]), found([&b, &c]));
        assert_eq!(all, (None, Some(c.join("tool"))));
    }
}
