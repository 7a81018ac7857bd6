//! The files of a trace in parts: all get to their places at the end, or none.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::outfile::{self, PendingFile};

/// The files that were begun. Dropping it without settling undoes what was begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingFiles(Rc<RefCell<Begun>>);

#[derive(Debug, Default)]
struct Begun {
    /// Each file stays open until it is in its place.
    files: Vec<(File, PendingFile)>,
    /// The directories that were made for them, the inner ones last.
    directories: Vec<PathBuf>,
}

impl PendingFiles {
    /// Begins a file at a path in a directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn begin(&self, directory: &Path, path: &str) -> io::Result<File> {
        let place = directory.join(path);
        let mut begun = self.0.borrow_mut();
        if let Some(parent) = place.parent() {
            let missing: Vec<PathBuf> =
                parent.ancestors().take_while(|each| !each.exists()).map(Path::to_owned).collect();
            fs::create_dir_all(parent)?;
            begun.directories.extend(missing.into_iter().rev());
        }
        let (file, pending) = outfile::begin(&place)?;
        let written = file.try_clone()?;
        begun.files.push((file, pending));
        Ok(written)
    }

    /// Puts all files in their places.
    ///
    /// # Errors
    /// One cannot be put there.
    pub(crate) fn commit(&self) -> io::Result<()> {
        let mut begun = self.0.borrow_mut();
        begun.files.iter_mut().try_for_each(|(_, pending)| pending.commit())?;
        begun.directories.clear();
        Ok(())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.files.clear();
        // Fails where something is in them.
        self.directories.iter().rev().for_each(|directory| {
            let _ = fs::remove_dir(directory);
        });
    }
}
