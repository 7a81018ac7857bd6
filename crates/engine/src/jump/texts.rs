//! Code of modules, kept for when it is mapped or probed again.
//!
//! A program that is executed again and again has the same libraries each time, and a session
//! probes them again and again. Most pages of their code are the file's own, which the page map
//! says; those that are the process's are read and compared. So of code that is known little is
//! read.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use image::Image;
use process::{Mapping, Module, Page, PageMap};

use super::stack::KnownStacks;
use crate::space::Space;

/// Bytes that are kept at most.
const MOST: usize = 64 << 20;

/// Some code, and where it is entered in the middle of instructions, which takes a look at all of
/// it.
#[derive(Debug)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    entered: OnceCell<Vec<u64>>,
}

impl Kept {
    pub(super) fn of(bytes: Vec<u8>) -> Kept {
        Kept { bytes, entered: OnceCell::new() }
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The addresses inside of instructions to which it jumps, from its start on, ascending.
    pub(super) fn entered(&self) -> &[u64] {
        self.entered.get_or_init(|| patch::entered_anywhere(&self.bytes, 0))
    }
}

/// A mapping of a file: the image, which stays as long as it is known here; where in the file, and
/// how many bytes.
type Key = (*const Image, u64, u64);

/// The code that is kept.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    known: HashMap<Key, (Arc<Image>, Rc<Kept>)>,
    bytes: usize,
    /// What was found out about the stacks of its functions.
    pub(super) stacks: KnownStacks,
}

fn key(module: &Module, mapping: &Mapping) -> Key {
    (Arc::as_ptr(&module.image), mapping.offset, mapping.end - mapping.start)
}

/// Whether it is one of the module's file, and nobody else's writing is seen in it.
fn is_of(module: &Module, mapping: &Mapping) -> bool {
    !mapping.shared && mapping.inode != 0 && (mapping.device, mapping.inode) == (module.device, module.inode)
}

impl Texts {
    /// The code of a module's mapping, if it is known, and the process has it unchanged but for its
    /// sites.
    pub(super) fn known(&self, space: &Space, module: &Module, mapping: &Mapping) -> Option<Rc<Kept>> {
        let (_, kept) = self.known.get(&key(module, mapping)).filter(|_| is_of(module, mapping))?;
        let mut own = Vec::new();
        let pages = PageMap::open(space.code.process).ok()?;
        let mut note = |run: process::Run| {
            if run.page == Page::Private {
                own.push(run.addresses);
            }
        };
        pages.runs(mapping.start..mapping.end, &mut note).ok()?;
        let mut bytes = Vec::new();
        for addresses in own {
            let from = usize::try_from(addresses.start - mapping.start).ok()?;
            let expected =
                kept.bytes.get(from..from + usize::try_from(addresses.end - addresses.start).ok()?)?;
            bytes.resize(expected.len(), 0);
            space.code.memory.peek(addresses.start, &mut bytes).ok()?;
            space.sites.hide(addresses.start, &mut bytes);
            if bytes != expected {
                return None;
            }
        }
        Some(Rc::clone(kept))
    }

    /// Some code, if it is kept.
    pub(super) fn kept(&self, code: &Rc<Kept>) -> Option<Rc<Kept>> {
        let is_kept = self.known.values().any(|(_, kept)| Rc::ptr_eq(kept, code));
        is_kept.then(|| Rc::clone(code))
    }

    /// Keeps the code of a module's mapping, if it is as it stands in the file.
    pub(super) fn keep(&mut self, module: &Module, mapping: &Mapping, kept: &Rc<Kept>) {
        let is_the_files = || {
            let stored = module.image.file_bytes(mapping.offset, kept.bytes.len() as u64);
            stored.is_some_and(|stored| stored == kept.bytes)
        };
        if !is_of(module, mapping) || kept.bytes.len() > MOST || !is_the_files() {
            return;
        }
        if self.bytes + kept.bytes.len() > MOST {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += kept.bytes.len();
        self.known.insert(key(module, mapping), (Arc::clone(&module.image), Rc::clone(kept)));
    }
}
