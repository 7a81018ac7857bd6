//! Images that several processes share.

use std::collections::HashMap;
use std::sync::Arc;

use image::{FileId, Image};

/// Images that have been read, to be shared by processes and modules. Keyed by file and state, so a file that was
/// replaced is read again.
#[derive(Debug, Default)]
pub struct ImageCache {
    images: HashMap<FileId, Arc<Image>>,
    /// What has no file, by its bytes.
    pub(super) in_memory: Vec<(Vec<u8>, Arc<Image>)>,
}

impl ImageCache {
    /// Images that are kept though no module uses them.
    const KEPT: usize = 512;
    /// Images without a file: the vDSO of each kind of process.
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
