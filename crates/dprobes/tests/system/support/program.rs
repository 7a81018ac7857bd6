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
