//! Reads files and detects changes of them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::problem::Mistake;

/// The greatest size of a template file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Identifies a state of a file, to detect changes. None: the file cannot be accessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp(Option<[i64; 6]>);

impl Stamp {
    /// The present state of a path.
    pub(super) fn of(path: &Path) -> Stamp {
        Stamp(path.metadata().ok().map(|metadata| Stamp::numbers(&metadata)))
    }

    fn numbers(metadata: &Metadata) -> [i64; 6] {
        [
            metadata.dev().cast_signed(),
            metadata.ino().cast_signed(),
            metadata.size().cast_signed(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            // Tools that copy a file's modification time do not copy this one.
            metadata.ctime_nsec(),
        ]
    }
}

/// Reads a file as text. If it is not UTF-8, also returns a mistake.
///
/// # Errors
/// It cannot be read, is no regular file, or is too large.
pub(super) fn text(path: &Path) -> io::Result<(String, Vec<Mistake>)> {
    // Other files may block, or never end.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!(
            "is larger than {MAX_BYTES} bytes, the limit for a template file"
        )));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => (text, Vec::new()),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let mistake = Mistake::new(at..at + 1, "the file is not in UTF-8", "text in UTF-8 expected");
            (String::from_utf8_lossy(error.as_bytes()).into_owned(), vec![mistake])
        }
    })
}
