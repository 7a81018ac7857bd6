//! Keeps the code of modules for when they are mapped or probed again.
//!
//! A program that is executed repeatedly maps the same libraries each time, and a session probes
//! them repeatedly. By the page map, most pages of their code are the file's own; only pages that
//! are private to the process are read and compared.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use image::Image;
use process::{Mapping, Module};

use super::stack::KnownStacks;

mod space;

/// The most bytes that are kept.
const MAX_BYTES: usize = 64 << 20;

/// Some code, and where it jumps into the middle of instructions (found on demand: it takes a scan
/// of all code).
#[derive(Debug)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    entered: OnceCell<Vec<u64>>,
}

impl Kept {
    pub(super) fn of(bytes: Vec<u8>) -> Kept {
        Kept { bytes, entered: OnceCell::new() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The offsets inside instructions to which it jumps, ascending.
    pub(super) fn entered(&self) -> &[u64] {
        self.entered.get_or_init(|| patch::entered_anywhere(&self.bytes, 0))
    }
}

/// A mapping of a file: its image (kept alive here), the offset in the file, and the size.
type Key = (*const Image, u64, u64);

#[derive(Debug, Default)]
pub(crate) struct CodeCache {
    known: HashMap<Key, (Arc<Image>, Rc<Kept>)>,
    bytes: usize,
    pub(super) stacks: KnownStacks,
}

fn key(module: &Module, mapping: &Mapping) -> Key {
    (Arc::as_ptr(&module.image), mapping.offset, mapping.end - mapping.start)
}

/// Whether it is a private mapping of the module's file.
fn is_of(module: &Module, mapping: &Mapping) -> bool {
    !mapping.shared && mapping.inode != 0 && (mapping.device, mapping.inode) == (module.device, module.inode)
}

impl CodeCache {
    /// The same code, if it is kept.
    pub(super) fn kept(&self, code: &Rc<Kept>) -> Option<Rc<Kept>> {
        let is_kept = self.known.values().any(|(_, kept)| Rc::ptr_eq(kept, code));
        is_kept.then(|| Rc::clone(code))
    }

    /// Keeps the code of a module's mapping, if it equals the file's.
    pub(super) fn keep(&mut self, module: &Module, mapping: &Mapping, kept: &Rc<Kept>) {
        let is_the_files = || {
            let stored = module.image.file_bytes(mapping.offset, kept.bytes.len() as u64);
            stored.is_some_and(|stored| stored == kept.bytes)
        };
        if !is_of(module, mapping) || kept.bytes.len() > MAX_BYTES || !is_the_files() {
            return;
        }
        if self.bytes + kept.bytes.len() > MAX_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += kept.bytes.len();
        self.known.insert(key(module, mapping), (Arc::clone(&module.image), Rc::clone(kept)));
    }
}
