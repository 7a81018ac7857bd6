//! Many instructions of the library, in no order: a program with a probe for each.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use super::subject::Library;
use crate::other;
use crate::soundness::Sites;
use crate::soundness::random::Random;

/// Writes a program with a counting probe at each of so many instructions, chosen at random and in random order: the same each time. Where
/// they are is what binutils say.
///
/// # Errors
/// There is no objdump, or the library has fewer.
pub fn random_program(library: &Library, count: usize, directory: &Path) -> io::Result<PathBuf> {
    let mut offsets: Vec<u64> = Sites::of(library.path())?.sites.iter().map(|site| site.offset).collect();
    if offsets.len() < count {
        return Err(other(format!("the library has {} instructions only", offsets.len())));
    }
    Random::new(1).shuffle(&mut offsets);
    let mut text = String::from("name = \"libmany.so\"\n");
    for offset in &offsets[..count] {
        let _ = writeln!(text, "offset = {offset:#x} abort");
    }
    let path = directory.join(format!("random-{count}.rpn"));
    std::fs::write(&path, text)?;
    Ok(path)
}
