//! Which of a process's modules the programs name.
//!
//! A name is followed in the file system, as the process sees it, which takes several calls: once for each module and name, when the module
//! is seen first. What the name leads to later does not change what the module is.

use std::collections::HashMap;
use std::path::Path;

use process::Module;

use crate::space::{ModuleKey, module_key};

/// Names at most that are kept for a process.
const KEPT: usize = 1 << 16;

/// What the names that programs give their modules mean in one address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    known: HashMap<String, HashMap<ModuleKey, bool>>,
    count: usize,
}

impl Named {
    /// Whether a module is the one that a program names, as its process sees files; `tid` is a thread of the process.
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

    /// Forgets the modules that are not mapped any more: others may come to their places.
    pub(crate) fn retain(&mut self, is_mapped: impl Fn(&ModuleKey) -> bool) {
        self.known.values_mut().for_each(|modules| modules.retain(|key, _| is_mapped(key)));
        self.known.retain(|_, modules| !modules.is_empty());
        self.count = self.known.values().map(HashMap::len).sum();
    }
}

/// Whether a module is the one that a program names, as its process sees files.
pub(crate) fn is_named(module: &Module, name: &str, tid: i32) -> bool {
    module.is_named(name, Path::new(&format!("/proc/{tid}/root")))
}
