//! Opens the file that a process has mapped, even if another file is now at its path.
//!
//! The mappings show a path, a device and an inode. The path is looked up from the process's own
//! root, since the process may be in a container. If the device and inode found there equal those
//! of the mapping, it is the file. They may differ for two reasons: the file was replaced (every
//! package update does that), or the file system shows different numbers to `stat` than to the
//! mappings (btrfs and overlayfs do). Then the file is opened through the mapping itself
//! (`/proc/PID/map_files`, which requires CAP_CHECKPOINT_RESTORE), or through `/proc/PID/exe`. If
//! that is not allowed, a file at the path is accepted only if its first page equals the process's
//! mapping of it.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::stat::{major, minor};

use super::{ImageCache, Module, ModuleError};
use crate::maps::Mapping;
use image::{FileId, Image, open_regular};

/// Bytes of a file that are compared with memory.
const COMPARED: usize = 4096;

/// The image of the file that `mappings` map. All of them map the same file.
pub(super) fn image(
    pid: i32,
    mappings: &[&Mapping],
    cache: &mut ImageCache,
) -> Result<Arc<Image>, ModuleError> {
    if let Some(image) = known(pid, mappings[0], cache) {
        return Ok(image);
    }
    let (file, id) = open(pid, mappings)?;
    if let Some(image) = cache.get(&id) {
        return Ok(image);
    }
    let path = mappings[0].path.as_deref().unwrap_or(Path::new("?"));
    let image = Arc::new(Image::from_file(path, file, id)?);
    cache.insert(id, Arc::clone(&image));
    Ok(image)
}

/// Opens the file of a module that a process has mapped, even if another file is now at its path.
///
/// # Errors
///
/// It cannot be opened, or the process has unmapped it and its path leads to another file.
pub fn open_module(pid: i32, module: &Module) -> Result<File, ModuleError> {
    let mappings: Vec<&Mapping> = module.mappings.iter().collect();
    Ok(open(pid, &mappings)?.0)
}

/// The cached image of the file at a mapping's path, if that is the mapped file and has not changed
/// since it was read.
fn known(pid: i32, mapping: &Mapping, cache: &ImageCache) -> Option<Arc<Image>> {
    let metadata = std::fs::metadata(under_root(pid, mapping.path.as_deref()?)).ok()?;
    let id = FileId::of(&metadata);
    if metadata.is_file() && is_mapped(mapping, &id) { cache.get(&id) } else { None }
}

/// An image read from memory: the vDSO has no file.
pub(super) fn from_memory(
    pid: i32,
    mapping: &Mapping,
    name: &str,
    cache: &mut ImageCache,
) -> Result<Arc<Image>, ModuleError> {
    let failed = |cause| ModuleError::Process { pid, action: format!("read {name}"), cause };
    let size = usize::try_from(mapping.end - mapping.start).unwrap_or(usize::MAX);
    if size > 1 << 20 {
        return Err(failed(io::Error::other(format!("it has {size} bytes; at most 1 MiB is read"))));
    }
    let mut bytes = vec![0; size];
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(failed)?;
    memory.read_exact_at(&mut bytes, mapping.start).map_err(failed)?;
    // All processes of a kind have the same vDSO.
    if let Some((_, image)) = cache.in_memory.iter().find(|(known, _)| *known == bytes) {
        return Ok(Arc::clone(image));
    }
    let image = Arc::new(Image::parse(bytes.clone(), Path::new(name))?);
    if cache.in_memory.len() < ImageCache::IN_MEMORY {
        cache.in_memory.push((bytes, Arc::clone(&image)));
    }
    Ok(image)
}

fn open(pid: i32, mappings: &[&Mapping]) -> Result<(File, FileId), ModuleError> {
    let mapping = mappings[0];
    let path = mapping.path.clone().unwrap_or_default();
    let at_path = open_regular(&under_root(pid, &path)).or_else(|error| match error.kind() {
        // The process's root may be inaccessible to the tracer although the file is readable.
        io::ErrorKind::PermissionDenied => open_regular(&path),
        _ => Err(error),
    });
    let at_path = match at_path {
        Ok((file, id)) if is_mapped(mapping, &id) => return Ok((file, id)),
        other => other,
    };
    let range = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
    if let Ok(opened) = open_regular(Path::new(&range)) {
        return Ok(opened);
    }
    if let Ok((file, id)) = open_regular(Path::new(&format!("/proc/{pid}/exe")))
        && is_mapped(mapping, &id)
    {
        return Ok((file, id));
    }
    let replaced = |why: String| ModuleError::Replaced { pid, path: path.clone(), why };
    match at_path {
        Err(error) => Err(replaced(format!("it cannot be opened: {error}"))),
        Ok(_) if mapping.deleted => Err(replaced("it was deleted".to_owned())),
        Ok((file, id)) if is_in_memory(pid, mappings, &file) => Ok((file, id)),
        Ok((_, id)) => Err(replaced(format!(
            "inode {} on device {}:{} is mapped, but the path has inode {} on device {}:{}",
            mapping.inode,
            mapping.device.0,
            mapping.device.1,
            id.inode,
            major(id.device),
            minor(id.device)
        ))),
    }
}

/// A path of the process, as this process reaches it.
pub(super) fn under_root(pid: i32, path: &Path) -> PathBuf {
    let relative: Vec<u8> =
        path.as_os_str().as_bytes().iter().copied().skip_while(|byte| *byte == b'/').collect();
    Path::new(&format!("/proc/{pid}/root")).join(std::ffi::OsStr::from_bytes(&relative))
}

/// Whether `stat` shows the device and inode of the mapping.
pub(super) fn is_mapped(mapping: &Mapping, id: &FileId) -> bool {
    let device = (u32::try_from(major(id.device)), u32::try_from(minor(id.device)));
    mapping.inode == id.inode && device == (Ok(mapping.device.0), Ok(mapping.device.1))
}

/// Whether the start of the file equals the process's mapping of it. The start has the headers,
/// with the sizes and addresses of everything, and in most files the build-id.
fn is_in_memory(pid: i32, mappings: &[&Mapping], file: &File) -> bool {
    let Some(first) = mappings.iter().find(|m| m.offset == 0 && m.readable && !m.writable) else {
        return false;
    };
    let size = COMPARED.min(usize::try_from(first.end - first.start).unwrap_or(COMPARED));
    let mut mapped = vec![0; size];
    let mut stored = vec![0; size];
    let memory = File::open(format!("/proc/{pid}/mem"));
    memory.is_ok_and(|memory| memory.read_exact_at(&mut mapped, first.start).is_ok())
        && file.read_exact_at(&mut stored, 0).is_ok()
        && mapped == stored
}
