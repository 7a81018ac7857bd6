//! A cache of images, shared by processes.

use std::collections::HashMap;
use std::sync::Arc;

use image::{FileId, Image};

/// Images that have been read, shared by processes and modules. The key is the file and its state,
/// so a replaced file is read again.
#[derive(Debug, Default)]
pub struct ImageCache {
    images: HashMap<FileId, Arc<Image>>,
    /// Images without a file, by their bytes.
    pub(super) in_memory: Vec<(Vec<u8>, Arc<Image>)>,
}

impl ImageCache {
    /// How many images may be kept before unused ones are dropped.
    const KEPT: usize = 512;
    /// How many images without a file are kept: the vDSO of each kind of process.
    pub(super) const IN_MEMORY: usize = 4;

    /// An empty cache.
    pub fn new() -> ImageCache {
        ImageCache::default()
    }

    pub(super) fn get(&self, id: &FileId) -> Option<Arc<Image>> {
        self.images.get(id).cloned()
    }

    pub(super) fn insert(&mut self, id: FileId, image: Arc<Image>) {
        if self.images.len() >= ImageCache::KEPT {
            self.images.retain(|_, image| Arc::strong_count(image) > 1);
        }
        self.images.insert(id, image);
    }
}
