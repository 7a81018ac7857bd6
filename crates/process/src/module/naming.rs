//! Whether a name means a module.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, fstat};

use super::Module;

pub(super) fn is_named(module: &Module, name: &str, root: &Path) -> bool {
    if name.is_empty() {
        return false;
    }
    if !name.contains('/') {
        return module.path.file_name().is_some_and(|own| own.as_bytes() == name.as_bytes())
            || module.image.soname() == Some(name)
            || is_link_beside(module, name, root);
    }
    let path = Path::new(name);
    leads_to(module, path, root)
        || std::fs::metadata(path).is_ok_and(|found| {
            use std::os::unix::fs::MetadataExt;
            is_file(module, found.dev(), found.ino())
        })
        || module.path == path
}

/// A link of that name in the module's directory, as `libc.so.6` is to `libc-2.31.so`.
fn is_link_beside(module: &Module, name: &str, root: &Path) -> bool {
    module.path.is_absolute()
        && module.path.parent().is_some_and(|directory| leads_to(module, &directory.join(name), root))
}

/// Whether a path leads to the module's file, seen from a root. The kernel resolves it: a link to an absolute path
/// stays under that root, as it does for the process.
fn leads_to(module: &Module, path: &Path, root: &Path) -> bool {
    let found = || -> Option<FileStat> {
        let root = File::open(root).ok()?;
        let how =
            OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
        let file = openat2(root.as_fd(), path, how).ok()?;
        fstat(file).ok()
    };
    path.is_absolute() && found().is_some_and(|found| is_file(module, found.st_dev, found.st_ino))
}

/// Whether `stat` of some path shows the file the image was read from. Both numbers are from `stat`, so file systems
/// that show others in the mappings do not matter.
fn is_file(module: &Module, device: u64, inode: u64) -> bool {
    module.image.file_id().is_some_and(|id| (id.device, id.inode) == (device, inode))
}
