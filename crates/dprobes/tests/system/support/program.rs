//! Probe programs that several tests need.

use std::fmt::Write;
use std::path::Path;

/// Counts, and logs nothing: point number i (from 0) has minor code i + 1 and counts in local
/// variable i.
pub(crate) fn counting<P: AsRef<str>>(module: &Path, points: impl IntoIterator<Item = P>) -> String {
    let mut handlers = String::new();
    let mut count = 0;
    for point in points {
        let point = point.as_ref();
        let minor = count + 1;
        write!(handlers, "offset = {point}\nminor = {minor}\ninc lv, {count}\nexit\n")
            .expect("a string takes it");
        count += 1;
    }
    format!("name = \"{}\"\nmodtype = user\nmajor = 1\nvars = {count}\n{handlers}", module.display())
}

/// The text of a program for the server under test: it logs the argument of each call of
/// `server_work`, and what the call returns.
pub(crate) fn calls_of_work(module: &Path) -> String {
    let name = module.to_str().expect("text");
    format!(
        "name = \"{name}\"\nmodtype = user\nmajor = 3\n\
         offset = server_work\nminor = 1\npush r, rdi\nlog 1\nexit\n\
         offset = \"server_work\":return\nminor = 2\npush r, rax\npush r, rdi\nlog 2\nexit\n"
    )
}
