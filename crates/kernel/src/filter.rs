//! Which threads are probed: by user, by name, by control group.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bytes of a thread's name in the kernel (`TASK_COMM_LEN`).
pub(crate) const NAME: usize = 16;

/// What a thread has to be for its hits to count. All that is given has to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// The number of its user: the real one, as of the machine's first user namespace.
    pub user: Option<u32>,
    /// Its name.
    pub name: Option<ThreadName>,
    /// A control group that it is in, or in one below it.
    pub cgroup: Option<Cgroup>,
}

/// The name of a thread: of 1 to 15 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadName(pub(crate) [u8; NAME]);

impl ThreadName {
    /// A name; `None` if no thread can have it.
    pub fn new(name: &str) -> Option<ThreadName> {
        let fits = (1..NAME).contains(&name.len()) && !name.contains('\0');
        fits.then(|| {
            let mut padded = [0; NAME];
            padded[..name.len()].copy_from_slice(name.as_bytes());
            ThreadName(padded)
        })
    }
}

/// A control group of the unified hierarchy (cgroup2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cgroup {
    pub(crate) id: u64,
    /// How far it is below the root, which is at 0.
    pub(crate) level: u32,
}

/// Why a directory is no control group that threads can be compared with.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It is a directory of something else.
    #[error("it is no control group of the unified hierarchy (cgroup2)")]
    Other,
    /// The root is not visible, so its level is not known.
    #[error("from inside a control group namespace its level in the hierarchy cannot be seen")]
    InNamespace,
}

impl Cgroup {
    /// The control group of a directory.
    ///
    /// # Errors
    /// It is none, or its level cannot be found.
    pub fn of(directory: &Path) -> Result<Cgroup, CgroupError> {
        let directory = directory.canonicalize()?;
        let id = directory.metadata()?.ino();
        let mut level = 0;
        let mut root = None;
        for (above, directory) in directory.ancestors().enumerate() {
            if !is_cgroup(directory) {
                break;
            }
            (level, root) = (above as u32, Some(directory));
        }
        let root = root.ok_or(CgroupError::Other)?;
        // Every group but the root of all says what happens in it.
        if root.join("cgroup.events").exists() {
            return Err(CgroupError::InNamespace);
        }
        Ok(Cgroup { id, level })
    }
}

/// Whether a directory is one of cgroup2's file system.
fn is_cgroup(directory: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_bytes()) else { return false };
    nix::sys::statfs::statfs(&*path)
        .is_ok_and(|it| it.filesystem_type() == nix::sys::statfs::CGROUP2_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_1_to_15_bytes() {
        assert!(ThreadName::new("fifteen letters").is_some());
        for wrong in ["", "sixteen letters!", "a\0b"] {
            assert_eq!(ThreadName::new(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn other_directories_are_no_control_groups() {
        assert!(matches!(Cgroup::of(Path::new("/")), Err(CgroupError::Other)));
        assert!(matches!(Cgroup::of(Path::new("/no/such")), Err(CgroupError::Unreadable(_))));
    }
}
