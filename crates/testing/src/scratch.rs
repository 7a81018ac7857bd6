//! Directories of tests.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::place::scratch_directory;

/// A directory for the files of one test, empty, removed when dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// A new one, where cargo builds.
    ///
    /// # Panics
    /// It cannot be made.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Scratch {
        let mut builder = tempfile::Builder::new();
        // Programs of other users read in it.
        builder.prefix("scratch-").permissions(Permissions::from_mode(0o755));
        Scratch(builder.tempdir_in(scratch_directory()).expect("a scratch directory can be made"))
    }

    /// Where it is, without symbolic links.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, in a directory of its own if its name has one, and gives its path.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        let directory = path.parent().unwrap_or(self.path());
        std::fs::create_dir_all(directory).expect("a scratch directory can be made");
        std::fs::write(&path, text).expect("a scratch file can be written");
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_has_its_files_and_goes_with_them() {
        let (one, other) = (Scratch::new(), Scratch::new());
        assert_ne!(one.path(), other.path());
        let file = one.file("a/b.txt", "text");
        assert_eq!(std::fs::read_to_string(&file).expect("it was written"), "text");
        let path = one.path().to_path_buf();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }
}
