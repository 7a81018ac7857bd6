//! A program that probes many instructions of the library in random order.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use super::subject::Library;
use crate::other;
use crate::soundness::Sites;
use crate::soundness::random::Random;

/// Writes a program with a counting probe at `count` random instructions, in random order, the same
/// each time. binutils find the instructions.
///
/// # Errors
/// If there is no objdump, or the library has fewer instructions.
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
