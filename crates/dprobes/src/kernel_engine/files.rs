//! Finds the files that programs name: on disk, before a process maps them, and among the mappings
//! of all processes, or of one.
//!
//! In: names of modules. Out: `Found`: files, each once, as they are installed or appear among
//! mappings.
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
    /// The process in which it is probed; all if there is none.
    pub(super) process: Option<i32>,
}

/// A mapped file, as `/proc/PID/maps` shows it.
type Key = ((u32, u32), u64, PathBuf);

/// The files that a list of names leads to.
#[derive(Debug)]
pub(super) struct Files {
    names: Vec<String>,
    /// The processes in which files are probed; `None`: all.
    only: Option<Vec<i32>>,
    /// A process that has not executed its program yet: what it maps does not count.
    held: Option<i32>,
    cache: ImageCache,
    /// The size in pages of each process that was looked at.
    sizes: HashMap<i32, u64>,
    /// The mapped files that were looked at, in all processes or in one.
    seen: HashSet<(Option<i32>, Key)>,
    /// The files that were found for each name, in all processes or in one.
    found: HashSet<(usize, u64, u64, Option<i32>)>,
    round: i32,
}

impl Files {
    pub(super) fn new(names: Vec<String>, only: Option<Vec<i32>>) -> Files {
        Files {
            names,
            only,
            held: None,
            cache: ImageCache::new(),
            sizes: HashMap::new(),
            seen: HashSet::new(),
            found: HashSet::new(),
            round: 0,
        }
    }

    /// A process does not map what it will, until `None` is set.
    pub(super) fn hold(&mut self, process: Option<i32>) {
        self.held = process;
    }

    /// From now on, files are probed in this process too. Returns those that are on disk.
    pub(super) fn follow(&mut self, process: i32) -> Vec<Found> {
        match &mut self.only {
            Some(only) if !only.contains(&process) => {
                only.push(process);
                self.installed()
            }
            _ => Vec::new(),
        }
    }

    /// A process has ended.
    pub(super) fn forget(&mut self, process: i32) {
        self.only.iter_mut().for_each(|only| only.retain(|other| *other != process));
        self.seen.retain(|(of, _)| *of != Some(process));
        self.found.retain(|(.., of)| *of != Some(process));
    }

    /// The processes in which a file is probed that is found on disk.
    fn scopes(&self) -> Vec<Option<i32>> {
        self.only.as_ref().map_or_else(|| vec![None], |only| only.iter().copied().map(Some).collect())
    }

    /// Whether a file was found for a name.
    pub(super) fn has(&self, name: usize) -> bool {
        self.found.iter().any(|(of, ..)| *of == name)
    }

    /// The files that the names lead to on disk. Those that were found before are left out.
    pub(super) fn installed(&mut self) -> Vec<Found> {
        let mut all = Vec::new();
        let scopes = self.scopes();
        for name in 0..self.names.len() {
            for path in candidates(&self.names[name]) {
                let Ok((file, id)) = open_regular(&path) else { continue };
                let new: Vec<Option<i32>> = scopes
                    .iter()
                    .copied()
                    .filter(|scope| !self.found.contains(&key(name, &id, *scope)))
                    .collect();
                if new.is_empty() {
                    continue;
                }
                let Ok(image) = file.try_clone().and_then(|file| self.image(&path, file, id)) else {
                    continue;
                };
                let file = Arc::new(file);
                for process in new {
                    let (path, image, file) = (path.clone(), Arc::clone(&image), Arc::clone(&file));
                    all.extend(self.note(Found { name, path, image, file, process }, &id));
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

    fn note(&mut self, found: Found, id: &FileId) -> Option<Found> {
        self.found.insert(key(found.name, id, found.process)).then_some(found)
    }

    /// Looks at the mappings of processes that may have changed. Returns the files that were not
    /// found before.
    pub(super) fn mapped(&mut self) -> Vec<Found> {
        if self.names.iter().all(String::is_empty) {
            return Vec::new();
        }
        self.round = (self.round + 1) % TURNS;
        let all = self.only.clone().unwrap_or_else(processes);
        let mut sizes = HashMap::with_capacity(all.len());
        let mut found = Vec::new();
        let own = std::process::id() as i32;
        let held = self.held;
        for pid in all.into_iter().filter(|pid| *pid != own && Some(*pid) != held) {
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
        let scope = self.only.is_some().then_some(pid);
        let key = |mapping: &Mapping| Some((scope, (mapping.device, mapping.inode, mapping.path.clone()?)));
        let new: HashSet<(Option<i32>, Key)> = maps
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
                let (path, image, file) = (module.path.clone(), Arc::clone(&module.image), Arc::new(file));
                found.extend(self.note(Found { name, path, image, file, process: scope }, &id));
            }
        }
        self.seen.extend(new);
        found
    }
}

fn key(name: usize, id: &FileId, process: Option<i32>) -> (usize, u64, u64, Option<i32>) {
    (name, id.device, id.inode, process)
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
        let mut files = Files::new(vec!["a.out".into()], Some(vec![child.id() as i32]));
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
        let mut files = Files::new(vec![path.display().to_string()], Some(vec![std::process::id() as i32]));
        assert!(files.installed().is_empty() && files.appeared().is_empty() && files.mapped().is_empty());
        fs::copy(std::env::current_exe().expect("this is a program"), &path).expect("there is room");
        assert_eq!(files.appeared().len(), 1);
        assert!(files.appeared().is_empty());
        // A process that is followed from now on has it too, once.
        let parent = std::os::unix::process::parent_id() as i32;
        let found: Vec<Option<i32>> = files.follow(parent).iter().map(|found| found.process).collect();
        assert_eq!(found, [Some(parent)]);
        assert!(files.follow(parent).is_empty());
        files.forget(parent);
        assert_eq!(files.follow(parent).len(), 1);
    }
}
