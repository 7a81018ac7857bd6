//! Whether the file system has room for a core dump.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use crate::reason::NotDumped;

/// Bytes that stay free at least, for others.
const LEFT: u64 = 16 << 20;

/// Checks that a directory has room for a dump of a process with so many bytes of memory without a
/// file: what is needed is at most an eighth more (data of files), and some bytes are left. A file
/// system that does not tell its size is not checked.
///
/// # Errors
/// It has less.
pub(super) fn room_for(directory: &Path, bytes: u64) -> Result<(), NotDumped> {
    let Ok(status) = statvfs(directory) else { return Ok(()) };
    if status.blocks() == 0 {
        return Ok(());
    }
    let free = status.blocks_available().saturating_mul(status.fragment_size());
    fits(bytes, free)
}

fn fits(bytes: u64, free: u64) -> Result<(), NotDumped> {
    let needed = bytes.saturating_add(bytes / 8).saturating_add(LEFT);
    if needed > free { Err(NotDumped::NoRoom { needed, free }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_stays_free() {
        const GIB: u64 = 1 << 30;
        assert_eq!(fits(8 * GIB, 9 * GIB + LEFT), Ok(()));
        let error = fits(8 * GIB, 9 * GIB).expect_err("nothing would be left");
        assert_eq!(error.to_string(), "it may need 9232 MiB, and 9216 MiB are free");
        assert!(room_for(Path::new("/proc"), u64::MAX).is_ok(), "it has no size");
        assert!(room_for(Path::new("."), u64::MAX).is_err());
    }
}
