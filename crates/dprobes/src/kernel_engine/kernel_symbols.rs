//! Where the kernel's symbols are from: `/proc/kallsyms`, or the System.map of `--sym`. All who ask
//! for symbols of the kernel ask here.
//!
//! | asked for | from a System.map |
//! |---|---|
//! | places of probes (`kernel`) | where the running kernel has them |
//! | functions that a pattern means (`functions`) | the same; the file's names alone if nothing tells where the kernel is |
//! | names of addresses, addresses of names (`names`) | the same, and the modules' from `/proc/kallsyms` if it shows them |
//!
//! Modules are not in the file: their symbols are always those of `/proc/kallsyms`.

use std::collections::BTreeSet;

use image::Pattern;

use super::in_kernel::{self, Kernel, MapNotPlaced, SystemMap};
use super::kernel_names::KernelNames;

/// The source of the kernel's symbols.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KernelSymbols<'a>(Option<&'a SystemMap>);

impl<'a> KernelSymbols<'a> {
    /// The file, if there is one; else `/proc/kallsyms`.
    pub(crate) fn new(map: Option<&'a SystemMap>) -> KernelSymbols<'a> {
        KernelSymbols(map)
    }

    /// What is known of the kernel itself.
    ///
    /// # Errors
    /// The symbols cannot be read, are hidden, or are of another kernel.
    pub(super) fn kernel(self) -> Result<Kernel, String> {
        match self.0 {
            Some(map) => Kernel::of_map(map),
            None => Kernel::read(None),
        }
    }

    /// The symbols of the kernel and its modules, by address and by name.
    ///
    /// # Errors
    /// As [`kernel`](KernelSymbols::kernel).
    pub(crate) fn names(self) -> Result<KernelNames, String> {
        match self.0 {
            Some(map) => KernelNames::of_map(map),
            None => KernelNames::read(),
        }
    }

    /// The functions of the kernel, or of a module, that a pattern means, sorted.
    ///
    /// # Errors
    /// They cannot be read, or there is none.
    pub(crate) fn functions(self, pattern: &str, module: Option<&str>) -> Result<Vec<String>, String> {
        let compiled = Pattern::new(pattern).map_err(|error| error.to_string())?;
        let own = self.0.filter(|_| module.is_none());
        if let Some(Err(MapNotPlaced::Other(reason))) = own.map(SystemMap::running) {
            return Err(reason.clone());
        }
        if module.is_none()
            && let Ok(names) = self.kernel().and_then(|kernel| kernel.probeable(pattern))
        {
            return Ok(names);
        }
        // If the kernel hides addresses, names are all that can be told.
        let names = match own {
            Some(map) => {
                let code = map.linked().iter().filter(|symbol| symbol.is_code);
                let matching = code.filter(|symbol| compiled.matches(&symbol.name));
                matching.map(|symbol| symbol.name.clone()).collect::<BTreeSet<_>>().into_iter().collect()
            }
            None => {
                in_kernel::names(&compiled, module).map_err(|error| format!("/proc/kallsyms: {error}"))?
            }
        };
        match names.is_empty() {
            true => Err(format!("no function of the kernel matches `{pattern}`")),
            false => Ok(names),
        }
    }
}
