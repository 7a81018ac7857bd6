//! Temporary directories for tests.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::directories::scratch_directory;

/// An empty directory for the files of one test, removed when dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory where cargo builds.
    ///
    /// # Panics
    /// If it cannot be created.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Scratch {
        let mut builder = tempfile::Builder::new();
        // Programs of other users read in it.
        builder.prefix("scratch-").permissions(Permissions::from_mode(0o755));
        Scratch(builder.tempdir_in(scratch_directory()).expect("a scratch directory can be made"))
    }

    /// Its path, without symbolic links.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, creating directories in its name, and returns its path.
    ///
    /// # Panics
    /// If it cannot be written.
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
