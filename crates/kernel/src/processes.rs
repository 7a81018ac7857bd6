//! The processes that filtered handlers are run for, as a map of the kernel's.

use std::sync::Arc;

use bpf::{Map as BpfMap, MapError, MapKind, MapSpec};

/// Numbers of processes. Programs look up whether the current one is among them.
#[derive(Debug)]
pub struct Processes {
    pub(crate) map: BpfMap,
}

impl Processes {
    /// No process yet, with room for so many.
    ///
    /// # Errors
    /// If the kernel refuses the map.
    pub fn create(most: u32) -> Result<Arc<Processes>, MapError> {
        let map = BpfMap::create(&MapSpec {
            kind: MapKind::Hash,
            name: "dp_processes",
            key_size: 4,
            value_size: 4,
            max_entries: most.max(1),
            mappable: false,
            inner: None,
        })?;
        Ok(Arc::new(Processes { map }))
    }

    /// The processes.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn list(&self) -> Result<Vec<u32>, MapError> {
        let mut all = Vec::new();
        self.map.for_each(|key, _| {
            all.extend(key.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)));
        })?;
        Ok(all)
    }

    /// Adds a process.
    ///
    /// # Errors
    /// If they are too many, or the kernel refuses.
    pub fn add(&self, pid: u32) -> Result<(), MapError> {
        self.map.update(&pid.to_ne_bytes(), &[1, 0, 0, 0])
    }

    /// Removes a process, if it is among them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(&self, pid: u32) -> Result<(), MapError> {
        self.map.delete(&pid.to_ne_bytes()).map(drop)
    }

    /// Sets which they are.
    ///
    /// # Errors
    /// If they are too many, or the kernel refuses.
    pub fn set(&self, pids: &[u32]) -> Result<(), MapError> {
        for pid in self.list()? {
            if !pids.contains(&pid) {
                self.remove(pid)?;
            }
        }
        pids.iter().try_for_each(|pid| self.add(*pid))
    }
}
