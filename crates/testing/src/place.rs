//! Where things are.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The directory in which cargo builds, as the test program lies in it; else `target` of the repository.
fn build_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let built = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").exists());
    built.map_or_else(|| repository().join("target"), Path::to_path_buf)
}

/// The directory for what tests write, made.
///
/// # Panics
/// It cannot be made.
pub fn scratch_directory() -> PathBuf {
    made(&build_directory().join("tmp"))
}

/// The directory for programs that tests build once, made.
pub(crate) fn program_directory() -> PathBuf {
    made(&build_directory().join("test-targets"))
}

fn made(directory: &Path) -> PathBuf {
    std::fs::create_dir_all(directory).expect("a directory can be made where cargo builds");
    directory.canonicalize().expect("it was made")
}
