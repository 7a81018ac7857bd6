//! Caches which modules of a process a program's module name refers to.
//!
//! A name is looked up in the file system as the process sees it, which takes several system calls.
//! That is done once for each module and name, when the module is first seen. Later changes in the
//! file system do not matter.

use std::collections::HashMap;
use std::path::Path;

use process::Module;

use crate::module_key::{ModuleKey, module_key};

/// Names kept for a process, at most.
const KEPT: usize = 1 << 16;

/// For each name and module of one address space, whether the name refers to the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    known: HashMap<String, HashMap<ModuleKey, bool>>,
    count: usize,
}

impl Named {
    /// Whether a name refers to a module, in the file system of thread `tid`.
    pub(crate) fn is(&mut self, module: &Module, name: &str, tid: i32) -> bool {
        let key = module_key(module);
        if let Some(&known) = self.known.get(name).and_then(|modules| modules.get(&key)) {
            return known;
        }
        let is = is_named(module, name, tid);
        if self.count >= KEPT {
            *self = Named::default();
        }
        self.count += 1;
        self.known.entry(name.to_owned()).or_default().insert(key, is);
        is
    }

    /// Forgets unmapped modules: others may be mapped at their addresses.
    pub(crate) fn retain(&mut self, is_mapped: impl Fn(&ModuleKey) -> bool) {
        self.known.values_mut().for_each(|modules| modules.retain(|key, _| is_mapped(key)));
        self.known.retain(|_, modules| !modules.is_empty());
        self.count = self.known.values().map(HashMap::len).sum();
    }
}

/// Whether a name refers to a module, in the file system of thread `tid`.
pub(crate) fn is_named(module: &Module, name: &str, tid: i32) -> bool {
    module.is_named(name, Path::new(&format!("/proc/{tid}/root")))
}
