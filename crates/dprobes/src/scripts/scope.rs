//! The processes and files that attach points are found in.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::Image;
use process::ImageCache;
use rpn::{FunctionPoint, Site};
use script::ProbedFile;

use crate::kernel_engine::KernelSymbols;

/// What attach points are found in. By default these are the files on disk, of no process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scope<'a> {
    /// The processes that are probed.
    pub(super) pids: &'a [i32],
    /// The command that is started.
    pub(super) command: Option<&'a Path>,
    /// Whether patterns are replaced by what they match, in any case.
    pub(super) expands: bool,
    /// Whether all processes are probed, and the kernel.
    pub(super) system_wide: bool,
    /// Whether the kernel runs the script.
    pub(super) by_kernel: bool,
    /// A file with the symbols and types of one of the files.
    pub(super) symbols: Option<&'a Arc<Image>>,
    /// Where the kernel's symbols are from.
    pub(super) kernel: KernelSymbols<'a>,
    /// Whether opcodes and instruction boundaries are not verified.
    pub(super) unverified: bool,
}

/// A file that a name means.
#[derive(Debug)]
pub(super) struct Found {
    /// Where it is: as the process that has mapped it sees it, else on disk.
    pub(super) path: PathBuf,
    /// Its contents.
    pub(super) image: Arc<Image>,
}

impl<'a> Scope<'a> {
    /// The file with the symbols of a file, if it is another.
    pub(super) fn symbols_of(&self, image: &Image) -> Option<&'a Arc<Image>> {
        self.symbols.filter(|symbols| engine::symbols_of(symbols, image).is_ok())
    }

    /// Why the file of `--sym` is not that of a file's symbols, if so.
    pub(super) fn difference(&self, image: &Image) -> Option<String> {
        Some(engine::symbols_of(self.symbols?, image).err()?.to_string())
    }

    /// The files that a name means now: those that the processes have mapped, or else those that
    /// are on disk. A file may still come later.
    pub(super) fn images(&self, file: &str, cache: &mut ImageCache) -> Vec<Found> {
        let mut found = Vec::new();
        for &pid in self.pids {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            let modules = process::modules(pid, cache).unwrap_or_default();
            let named = modules.into_iter().filter(|module| module.is_named(file, &root));
            found.extend(named.map(|module| Found { path: module.path, image: module.image }));
        }
        if !found.is_empty() {
            return found;
        }
        let paths = match (file.contains('/'), self.command) {
            (true, _) => vec![PathBuf::from(file)],
            (false, Some(command)) if is_named(command, file) => vec![command.to_owned()],
            (false, _) => {
                let mut paths = process::libraries_named(file);
                paths.extend(paths.is_empty().then(|| program_named(OsStr::new(file))).flatten());
                paths
            }
        };
        let open = |path: PathBuf| Some(Found { image: Arc::new(Image::open(&path).ok()?), path });
        paths.into_iter().filter_map(open).collect()
    }
}

/// The files that a name means: in running processes, or else on disk. `a.out` is the command.
pub(crate) fn files_named(
    pids: &[i32],
    command: Option<&Path>,
    name: &str,
    cache: &mut ImageCache,
) -> Vec<(PathBuf, Arc<Image>)> {
    let scope = Scope { pids, command, ..Scope::default() };
    scope.images(name, cache).into_iter().map(|Found { path, image }| (path, image)).collect()
}

/// The module of a program or library, as the engine names it.
pub(super) fn module(binary: &ProbedFile) -> String {
    let path = &binary.path;
    match path.contains('/') {
        true => std::path::absolute(path).map_or_else(|_| path.clone(), |path| path.display().to_string()),
        false => path.clone(),
    }
}

/// Whether a name is that of a library whose functions are in the C library today: since glibc
/// 2.34,
/// and in musl. The files are still there, but empty.
pub(super) fn may_be_in_libc(name: &str) -> bool {
    ["libpthread", "libdl", "librt", "libutil", "libanl"].contains(&without_version(name))
}

/// Whether a name, or a path, is that of the C library.
pub(super) fn is_libc(path: &str) -> bool {
    without_version(path.rsplit('/').next().unwrap_or(path)) == "libc"
}

/// `libc` for `libc.so.6`.
fn without_version(name: &str) -> &str {
    name.split_once(".so").map_or(name, |(library, _)| library)
}

/// The file that the first word of a command means: a path, or a program in PATH.
pub(crate) fn program_named(command: &OsStr) -> Option<PathBuf> {
    let path = Path::new(command);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let directories = std::env::var_os("PATH")?;
    std::env::split_paths(&directories).map(|directory| directory.join(path)).find(|path| path.is_file())
}

/// Whether a name without a slash means the command.
fn is_named(command: &Path, name: &str) -> bool {
    name == "a.out" || command.file_name().is_some_and(|file| file == name)
}

/// The function of a site, without the offset of the instruction that was asked for.
pub(super) fn function_of(site: &Site, at: FunctionPoint) -> String {
    let FunctionPoint::Offset(offset) = at else { return site.function.clone() };
    let suffix = format!("+{offset:#x}");
    site.function.strip_suffix(&*suffix).unwrap_or(&site.function).to_owned()
}
