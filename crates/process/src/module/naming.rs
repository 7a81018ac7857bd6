//! Decides whether a user's module name matches a module.

use std::borrow::Cow;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, fstat};

use super::Module;
use crate::library;
use image::Pattern;

pub(super) fn is_named(module: &Module, name: &str, root: &Path) -> bool {
    if name.is_empty() {
        return false;
    }
    if !name.contains('/') {
        let own = module.path.file_name().unwrap_or_default();
        return own.as_bytes() == name.as_bytes()
            || module.image.soname() == Some(name)
            || is_without_version(module, name)
            || is_link_beside(module, name, root)
            || name == PROGRAM && is_program(module, root)
            || matches_pattern(module, name);
    }
    let path = Path::new(name);
    leads_to(module, path, root)
        || std::fs::metadata(path).is_ok_and(|found| {
            use std::os::unix::fs::MetadataExt;
            is_file(module, found.dev(), found.ino())
        })
        || module.path == path
}

/// DTrace's name, in its `pid` provider, for the process's own program.
const PROGRAM: &str = "a.out";

/// The names of a module: its file's, and its DT_SONAME.
fn names(module: &Module) -> impl Iterator<Item = Cow<'_, str>> {
    let own = module.path.file_name().map(|own| own.to_string_lossy());
    own.into_iter().chain(module.image.soname().map(Cow::Borrowed))
}

/// Whether a name is a library's without `.so` and its version, or without all or part of its
/// version: `libc`, `libc.so`.
fn is_without_version(module: &Module, name: &str) -> bool {
    names(module).any(|own| library::is_without_version(&own, name))
}

/// Whether a module is the program that its process executes.
fn is_program(module: &Module, root: &Path) -> bool {
    std::fs::metadata(root.with_file_name("exe")).is_ok_and(|found| {
        use std::os::unix::fs::MetadataExt;
        is_file(module, found.dev(), found.ino())
    })
}

/// Whether a name is a pattern that matches a module's name. No pattern matches the vDSO.
fn matches_pattern(module: &Module, name: &str) -> bool {
    Pattern::is_one(name)
        && module.path.is_absolute()
        && Pattern::new(name).is_ok_and(|pattern| names(module).any(|own| pattern.matches(&own)))
}

/// Whether a link of that name in the module's directory leads to it, as `libc.so.6` does to
/// `libc-2.31.so`.
fn is_link_beside(module: &Module, name: &str, root: &Path) -> bool {
    module.path.is_absolute()
        && module.path.parent().is_some_and(|directory| leads_to(module, &directory.join(name), root))
}

/// Whether a path leads to the module's file, seen from a root. The kernel resolves it, so that a
/// link to an absolute path stays under that root, as it does for the process.
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

/// Whether `stat` of some path shows the file that the image was read from. Both pairs of numbers
/// come from `stat`, so it does not matter if the file system shows different ones in the mappings.
fn is_file(module: &Module, device: u64, inode: u64) -> bool {
    module.image.file_id().is_some_and(|id| (id.device, id.inode) == (device, inode))
}
