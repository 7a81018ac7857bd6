//! Directories.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The directory in which cargo builds, found from the test program's path; else the repository's
/// `target`.
fn build_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let built = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").exists());
    built.map_or_else(|| repository().join("target"), Path::to_path_buf)
}

/// The directory for files of tests; created if missing.
///
/// # Panics
/// If it cannot be created.
pub fn scratch_directory() -> PathBuf {
    made(&build_directory().join("tmp"))
}

/// The directory for programs that tests build once; created if missing.
pub(crate) fn program_directory() -> PathBuf {
    made(&build_directory().join("test-targets"))
}

/// The directory of the kernel that is booted in virtual machines; it may be missing.
pub(crate) fn machine_directory() -> PathBuf {
    build_directory().join("machine")
}

fn made(directory: &Path) -> PathBuf {
    std::fs::create_dir_all(directory).expect("a directory can be made where cargo builds");
    directory.canonicalize().expect("it was made")
}
