//! Finds the files that programs name: on disk, before a process maps them, and among the mappings
//! of all processes, or of one.
//!
//! ```text
//! name = /opt/app/bin/app     the file at that path; what that path leads to for other processes
//! name = libc.so.6, libc      the library directories and the search path; mapped files so named
//! name = lib*.so              mapped files only: a pattern may match anything
//! ```
//!
//! A file is known by the device and inode that the mappings show, so that it is opened and read
//! once, however many processes map it. A process is looked at again when its size has changed, as
//! it does when something is mapped; one in a few is looked at in any case.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::{FileId, Image, Pattern, open_regular};
use process::{ImageCache, Mapping};

/// One process in this many is looked at in each round although its size is the same.
const TURNS: i32 = 32;

/// Directories of programs, beside those of `PATH`.
const PROGRAMS: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A file that is a module of some program.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The index of the name.
    pub(super) name: usize,
    /// Its path, as the first process that maps it sees it.
    pub(super) path: PathBuf,
    pub(super) image: Arc<Image>,
    /// Keeps the file's inode, whatever happens to its path.
    pub(super) file: Arc<File>,
}

/// A mapped file, as `/proc/PID/maps` shows it.
type Key = ((u32, u32), u64, PathBuf);

/// The files that a list of names leads to.
#[derive(Debug)]
pub(super) struct Files {
    names: Vec<String>,
    /// The process whose mappings count; `None`: all.
    only: Option<i32>,
    cache: ImageCache,
    /// The size in pages of each process that was looked at.
    sizes: HashMap<i32, u64>,
    /// The mapped files that were looked at.
    seen: HashSet<Key>,
    /// The files that were found for each name.
    found: HashSet<(usize, u64, u64)>,
    round: i32,
}

impl Files {
    pub(super) fn new(names: Vec<String>, only: Option<i32>) -> Files {
        Files {
            names,
            only,
            cache: ImageCache::new(),
            sizes: HashMap::new(),
            seen: HashSet::new(),
            found: HashSet::new(),
            round: 0,
        }
    }

    /// Whether a file was found for a name.
    pub(super) fn has(&self, name: usize) -> bool {
        self.found.iter().any(|(of, ..)| *of == name)
    }

    /// The files that the names lead to on disk. Those that were found before are left out.
    pub(super) fn installed(&mut self) -> Vec<Found> {
        let mut all = Vec::new();
        for name in 0..self.names.len() {
            for path in candidates(&self.names[name]) {
                let Ok((file, id)) = open_regular(&path) else { continue };
                if !self.found.contains(&key(name, &id)) {
                    let image = file.try_clone().and_then(|file| self.image(&path, file, id));
                    all.extend(image.ok().and_then(|image| self.note(name, path, image, file, &id)));
                }
            }
        }
        all
    }

    /// The files at paths that the programs name and that were not there before.
    pub(super) fn appeared(&mut self) -> Vec<Found> {
        let waits = |name: &usize| self.names[*name].contains('/') && !self.has(*name);
        match (0..self.names.len()).any(|name| waits(&name)) {
            true => self.installed(),
            false => Vec::new(),
        }
    }

    fn image(&mut self, path: &Path, file: File, id: FileId) -> io::Result<Arc<Image>> {
        Image::from_file(path, file, id).map(Arc::new).map_err(io::Error::other)
    }

    fn note(
        &mut self,
        name: usize,
        path: PathBuf,
        image: Arc<Image>,
        file: File,
        id: &FileId,
    ) -> Option<Found> {
        let is_new = self.found.insert(key(name, id));
        is_new.then(|| Found { name, path, image, file: Arc::new(file) })
    }

    /// Looks at the mappings of processes that may have changed. Returns the files that were not
    /// found before.
    pub(super) fn mapped(&mut self) -> Vec<Found> {
        self.round = (self.round + 1) % TURNS;
        let all = self.only.map_or_else(processes, |pid| vec![pid]);
        let mut sizes = HashMap::with_capacity(all.len());
        let mut found = Vec::new();
        let own = std::process::id() as i32;
        for pid in all.into_iter().filter(|pid| *pid != own) {
            let Some(size) = size(pid) else { continue };
            let is_same = self.sizes.get(&pid) == Some(&size);
            sizes.insert(pid, size);
            // A kernel thread has no size.
            if size > 0 && !(is_same && pid % TURNS != self.round) {
                found.extend(self.look(pid));
            }
        }
        self.sizes = sizes;
        found
    }

    /// Looks at the mappings of one process.
    fn look(&mut self, pid: i32) -> Vec<Found> {
        // The process may have ended.
        let Ok(maps) = process::maps(pid) else { return Vec::new() };
        let key = |mapping: &Mapping| Some((mapping.device, mapping.inode, mapping.path.clone()?));
        let new: HashSet<Key> = maps
            .iter()
            .filter(|mapping| mapping.executable)
            .filter_map(key)
            .filter(|key| !self.seen.contains(key))
            .collect();
        if new.is_empty() {
            return Vec::new();
        }
        let of_new: Vec<Mapping> =
            maps.into_iter().filter(|mapping| key(mapping).is_some_and(|key| new.contains(&key))).collect();
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let mut found = Vec::new();
        for module in process::modules_in(pid, &of_new, &mut self.cache) {
            for name in 0..self.names.len() {
                if !module.is_named(&self.names[name], &root) {
                    continue;
                }
                let (Some(id), Ok(file)) =
                    (module.image.file_id().copied(), process::open_module(pid, &module))
                else {
                    continue;
                };
                found.extend(self.note(name, module.path.clone(), Arc::clone(&module.image), file, &id));
            }
        }
        self.seen.extend(new);
        found
    }
}

fn key(name: usize, id: &FileId) -> (usize, u64, u64) {
    (name, id.device, id.inode)
}

/// The paths on disk that a module's name may lead to.
fn candidates(name: &str) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![name.into()];
    }
    if Pattern::is_one(name) || name.is_empty() {
        return Vec::new();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(PROGRAMS.map(PathBuf::from));
    let programs = directories.map(|directory| directory.join(name)).filter(|path| path.is_file());
    process::libraries_named(name).into_iter().chain(programs).collect()
}

/// The processes of this machine.
fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| number(&entry.file_name())).collect()
}

fn number(name: &OsStr) -> Option<i32> {
    name.to_str()?.parse().ok()
}

/// The size of a process in pages; 0 for a kernel thread and for a process that has ended.
fn size(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_files_on_disk_once() {
        let own = std::env::current_exe().expect("this is a program");
        let mut files = Files::new(vec![own.display().to_string(), "libc".into(), "*".into()], None);
        let found = files.installed();
        assert_eq!(found.iter().filter(|found| found.name == 0).count(), 1);
        assert!(found.iter().any(|found| found.name == 1), "{found:?}");
        assert!(files.has(0) && files.has(1) && !files.has(2));
        assert!(files.installed().is_empty() && files.appeared().is_empty());
    }

    #[test]
    fn what_processes_have_mapped_is_found_once() {
        let mut child = std::process::Command::new("/bin/cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("cat starts");
        let mut files = Files::new(vec!["a.out".into()], Some(child.id() as i32));
        let mut found = Vec::new();
        // Until the child has executed its program.
        for _ in 0..1000 {
            found.extend(files.mapped());
            if found.iter().any(|found| found.path.ends_with("cat") || found.path.ends_with("coreutils")) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(found.iter().any(|found| found.image.entry() != 0), "{found:?}");
        for _ in 0..TURNS {
            assert!(files.mapped().is_empty());
        }
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(files.mapped().is_empty());
    }

    #[test]
    fn a_path_that_appears_later_is_found_then() {
        let scratch = testing::Scratch::new();
        let path = scratch.path().join("later");
        let mut files = Files::new(vec![path.display().to_string()], Some(std::process::id() as i32));
        assert!(files.installed().is_empty() && files.appeared().is_empty() && files.mapped().is_empty());
        fs::copy(std::env::current_exe().expect("this is a program"), &path).expect("there is room");
        assert_eq!(files.appeared().len(), 1);
        assert!(files.appeared().is_empty());
    }
}
