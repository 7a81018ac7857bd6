//! Checks the files that a program needs besides its own: its module, and the file of `--sym`.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use image::{Image, ImageError};
use rpn::{ModuleKind, Object};

use crate::Failure;
use crate::kernel_engine::{KernelSymbols, SystemMap};

/// Checks that the file of `name =`, if it exists, can be a module: dprobes would wait in vain
/// for a file that cannot. A missing file may still appear, and a name without a slash is looked up
/// in the processes.
///
/// # Errors
/// The file is not a regular file, or not an ELF file.
pub(crate) fn check_module(object: &Object, program: &Path) -> Result<(), Failure> {
    let refuse = |error: &ImageError| {
        Failure::new(format!(
            "{}: `name = {}`: {error}; name a program or a shared library",
            printable::path(program),
            object.module
        ))
    };
    if !object.module.contains('/') {
        return Ok(());
    }
    match Image::open(Path::new(&object.module)) {
        Err(error @ ImageError::NotElf { .. }) => Err(refuse(&error)),
        // A directory, a pipe, a device.
        Err(error @ ImageError::Io { .. }) if is_no_file(&error) => Err(refuse(&error)),
        _ => Ok(()),
    }
}

fn is_no_file(error: &ImageError) -> bool {
    matches!(error, ImageError::Io { cause, .. } if cause.kind() == ErrorKind::InvalidInput)
}

/// Opens the file of `--sym`, which gives a program's symbols. For a program of the kernel it is
/// read later.
///
/// # Errors
/// It cannot be read, is not an ELF file, or has no symbols of code; it is of another build than
/// the module, if the module is given by its path; or the program is a PPDF, which needs no
/// symbols, or one of a kernel module.
pub(crate) fn of(object: &Object, sym: Option<&Path>) -> Result<Option<Arc<Image>>, Failure> {
    let Some(sym) = sym else { return Ok(None) };
    match object.kind {
        ModuleKind::User => {}
        // A System.map, which is no ELF file: the kernel engine reads it.
        ModuleKind::Kernel => return Ok(None),
        ModuleKind::KernelModule => {
            return Err(Failure::new(
                "--sym: the symbols of a loaded kernel module are those of /proc/kallsyms: leave --sym out",
            ));
        }
    }
    if object.file.is_some() {
        return Err(Failure::new("a PPDF has its symbols resolved already: --sym is given when it is built"));
    }
    let symbols = open(sym)?;
    if object.module.contains('/')
        && let Ok(module) = Image::open(Path::new(&object.module))
    {
        engine::symbols_of(&symbols, &module).map_err(Failure::new)?;
    }
    Ok(Some(symbols))
}

/// The file of `--sym` of a script.
#[derive(Debug, Default)]
pub(crate) struct OfScript {
    /// That of a probed program or library.
    pub(crate) program: Option<Arc<Image>>,
    /// The kernel's System.map.
    pub(crate) kernel: Option<Arc<SystemMap>>,
}

impl OfScript {
    /// Reads the file, if one was named. What it is, its beginning tells.
    ///
    /// # Errors
    /// It cannot be read, or has no symbols.
    pub(crate) fn read(sym: Option<&Path>) -> Result<OfScript, Failure> {
        let Some(sym) = sym else { return Ok(OfScript::default()) };
        match SystemMap::is_one(sym) {
            true => {
                let map = SystemMap::read(sym).map_err(Failure::new)?;
                Ok(OfScript { kernel: Some(Arc::new(map)), ..OfScript::default() })
            }
            false => Ok(OfScript { program: Some(open(sym)?), ..OfScript::default() }),
        }
    }

    /// Where the kernel's symbols are from.
    pub(crate) fn of_kernel(&self) -> KernelSymbols<'_> {
        KernelSymbols::new(self.kernel.as_deref())
    }
}

/// Opens a file of symbols.
///
/// # Errors
/// It cannot be read, is not an ELF file, or has no symbols of code.
pub(crate) fn open(sym: &Path) -> Result<Arc<Image>, Failure> {
    let symbols = Image::open(sym).map_err(|error| Failure::new(format!("--sym: {error}")))?;
    check(&symbols)?;
    Ok(Arc::new(symbols))
}

/// Checks that a file of symbols has any.
///
/// # Errors
/// It has none.
pub(crate) fn check(symbols: &Image) -> Result<(), Failure> {
    match symbols.functions().is_empty() {
        false => Ok(()),
        true => Err(Failure::new(format!(
            "--sym: {} has no symbols of code: it was stripped, too, or holds something else",
            printable::path(symbols.path())
        ))),
    }
}
