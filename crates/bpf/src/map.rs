//! Maps: memory that programs and this process share through the kernel.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

use crate::shared::Shared;
use crate::sys::{self, Command, MapBatch, MapCreate, MapElement, address, address_mut, number};

/// What a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Values by key.
    Hash = 1,
    /// Values by index, all there from the start, zero.
    Array = 2,
    /// As [`Array`](Self::Array), with a value for each possible processor.
    PerCpuArray = 6,
    /// As [`Hash`](Self::Hash); the least recently used entry makes room for a new one.
    LruHash = 9,
    /// Maps by index; the value is a descriptor.
    ArrayOfMaps = 12,
    /// A ring of records: [`RingBuffer`](crate::RingBuffer) reads it.
    RingBuf = 27,
}

/// How to create a map.
#[derive(Clone, Copy, Debug)]
pub struct MapSpec<'a> {
    /// What it is.
    pub kind: MapKind,
    /// The name that `bpftool map` shows: up to 15 letters, digits, `_` and `.`.
    pub name: &'a str,
    /// The size of a key in bytes: 4 for arrays, 0 for a ring.
    pub key_size: u32,
    /// The size of a value in bytes: 4 for an array of maps, 0 for a ring.
    pub value_size: u32,
    /// The most entries; for a ring its size in bytes, a power of two and a multiple of a page.
    pub max_entries: u32,
    /// Whether [`Map::share`] will map an array.
    pub mappable: bool,
    /// A map like those that an array of maps will hold.
    pub inner: Option<&'a Map>,
}

impl<'a> MapSpec<'a> {
    /// An array of values.
    pub fn array(name: &'a str, value_size: u32, max_entries: u32) -> Self {
        let kind = MapKind::Array;
        Self { kind, name, key_size: 4, value_size, max_entries, mappable: false, inner: None }
    }

    /// A ring of a size in bytes: a power of two and a multiple of a page.
    pub fn ring(name: &'a str, bytes: u32) -> Self {
        let kind = MapKind::RingBuf;
        Self { kind, name, key_size: 0, value_size: 0, max_entries: bytes, mappable: false, inner: None }
    }
}

/// A map. It lives as long as this descriptor, or a program that uses it.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    kind: MapKind,
    key_size: usize,
    /// The size of a value as bpf(2) reads and writes it.
    value_size: usize,
    /// The size of the values of a mappable array, one after another.
    mappable: Option<usize>,
    max_entries: u32,
    /// Whether a ring has a reader.
    has_reader: Arc<AtomicBool>,
}

/// Why something could not be done with a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The kernel does not create it.
    #[error("the kernel creates no such map: {0}")]
    Create(Errno),
    /// The kernel refuses the access.
    #[error("the kernel refuses access to the map: {0}")]
    Access(Errno),
    /// A key or value does not have the map's size.
    #[error("a key or value of {found} bytes for a map where it has {expected}")]
    Size {
        /// The size given.
        found: usize,
        /// The map's size.
        expected: usize,
    },
    /// The kernel does not map it into memory.
    #[error("the kernel does not map the map into memory: {0}")]
    Map(Errno),
    /// A ring already has a reader.
    #[error("the ring already has a reader")]
    HasReader,
    /// It is not of a kind that can be mapped, or read, this way.
    #[error("the map is of another kind")]
    Kind,
}

/// The only flag that is used. Hashes keep their entries allocated in advance, since a program may
/// interrupt the kernel's allocator.
const MMAPABLE: u32 = 1 << 10;

impl Map {
    /// Creates a map.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn create(spec: &MapSpec<'_>) -> Result<Self, MapError> {
        let mut attribute = MapCreate {
            map_type: spec.kind as u32,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
            map_flags: if spec.mappable { MMAPABLE } else { 0 },
            inner_map_fd: spec.inner.map_or(0, |inner| number(&inner.descriptor)),
            map_name: sys::object_name(spec.name),
            ..Default::default()
        };
        // SAFETY: the argument has no addresses; the command returns a descriptor.
        let descriptor = unsafe { sys::bpf_open(Command::MapCreate, &mut attribute) };
        let descriptor = descriptor.map_err(MapError::Create)?;
        let slot = (spec.value_size as usize).next_multiple_of(8);
        let value_size = match spec.kind {
            MapKind::PerCpuArray => slot * possible_processors().map_err(MapError::Create)?,
            _ => spec.value_size as usize,
        };
        Ok(Self {
            descriptor,
            kind: spec.kind,
            key_size: spec.key_size as usize,
            value_size,
            mappable: spec.mappable.then_some(slot * spec.max_entries as usize),
            max_entries: spec.max_entries,
            has_reader: Arc::default(),
        })
    }

    /// What it is.
    pub fn kind(&self) -> MapKind {
        self.kind
    }

    /// The most entries, or a ring's size.
    pub fn max_entries(&self) -> u32 {
        self.max_entries
    }

    /// The size of a value as [`lookup`](Self::lookup) reads it: for a map with a value for each
    /// processor, the size rounded up to 8 times the number of possible processors.
    pub fn value_size(&self) -> usize {
        self.value_size
    }

    /// The value of a key, or `None` if there is none.
    ///
    /// # Errors
    /// If the key's size is wrong, or the kernel refuses.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
        self.check(key, self.key_size)?;
        let mut value = vec![0; self.value_size];
        let mut attribute = MapElement { value: address_mut(&mut value), ..self.element(key) };
        // SAFETY: the key has the map's key size, and the value is as long as the kernel writes.
        match unsafe { sys::bpf(Command::MapLookup, &mut attribute) } {
            Ok(_) => Ok(Some(value)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(MapError::Access(error)),
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// If a size is wrong, the map is full, or the kernel refuses.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        self.check(key, self.key_size)?;
        self.check(value, self.value_size)?;
        let mut attribute = MapElement { value: address(value), ..self.element(key) };
        // SAFETY: the key and the value have the sizes that the kernel reads.
        unsafe { sys::bpf(Command::MapUpdate, &mut attribute) }.map(drop).map_err(MapError::Access)
    }

    /// Puts a map into an array of maps.
    ///
    /// # Errors
    /// If this is no array of maps, or the kernel refuses.
    pub fn put_map(&self, index: u32, map: &Self) -> Result<(), MapError> {
        if self.kind != MapKind::ArrayOfMaps {
            return Err(MapError::Kind);
        }
        self.update(&index.to_ne_bytes(), &number(&map.descriptor).to_ne_bytes())
    }

    /// Removes a key. Returns whether it was there.
    ///
    /// # Errors
    /// If the key's size is wrong, or the kernel refuses.
    pub fn delete(&self, key: &[u8]) -> Result<bool, MapError> {
        self.check(key, self.key_size)?;
        // SAFETY: the key has the size that the kernel reads.
        match unsafe { sys::bpf(Command::MapDelete, &mut self.element(key)) } {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(MapError::Access(error)),
        }
    }

    /// Gives each key and its value to a function. Entries that come and go meanwhile may be seen
    /// or not.
    ///
    /// # Errors
    /// If the kernel refuses: it has no batches of rings and arrays of maps.
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), MapError> {
        let mut count = self.max_entries.min(256);
        let mut position: Option<[u8; 256]> = None;
        if self.key_size == 0 || self.key_size > 256 || self.value_size == 0 {
            return Err(MapError::Kind);
        }
        loop {
            let mut keys = vec![0; self.key_size * count as usize];
            let mut values = vec![0; self.value_size * count as usize];
            let mut next = [0; 256];
            let mut attribute = MapBatch {
                in_batch: position.as_ref().map_or(0, |position| address(position)),
                out_batch: address_mut(&mut next),
                keys: address_mut(&mut keys),
                values: address_mut(&mut values),
                count,
                map_fd: number(&self.descriptor),
                ..Default::default()
            };
            // SAFETY: there is room for `count` keys and values, and for a position, which is a key
            // or a number of 4 bytes.
            let result = unsafe { sys::bpf(Command::MapLookupBatch, &mut attribute) };
            match result {
                // A bucket has more entries than there is room for.
                Err(Errno::ENOSPC) if count < self.max_entries => {
                    count = count.saturating_mul(2).min(self.max_entries);
                    continue;
                }
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(error) => return Err(MapError::Access(error)),
            }
            let found = attribute.count.min(count) as usize;
            for (key, value) in keys.chunks(self.key_size).zip(values.chunks(self.value_size)).take(found) {
                visit(key, value);
            }
            if result.is_err() {
                return Ok(());
            }
            position = Some(next);
        }
    }

    /// Maps the values of a mappable array into memory, to be read and written while programs run.
    /// Element `n` begins at `n` times the value's size rounded up to 8.
    ///
    /// # Errors
    /// If the map is not mappable, or the kernel refuses.
    pub fn share(&self) -> Result<Shared, MapError> {
        Shared::new(self.as_fd(), self.mappable.ok_or(MapError::Kind)?).map_err(MapError::Map)
    }

    /// Becomes the ring's only reader, if it has none. The reader clears the mark at its end.
    pub(crate) fn become_reader(&self) -> Result<Arc<AtomicBool>, MapError> {
        if self.has_reader.swap(true, Ordering::Acquire) {
            return Err(MapError::HasReader);
        }
        Ok(Arc::clone(&self.has_reader))
    }

    /// What lookups, updates and deletes have in common.
    fn element(&self, key: &[u8]) -> MapElement {
        MapElement { map_fd: number(&self.descriptor), key: address(key), ..Default::default() }
    }

    fn check(&self, bytes: &[u8], expected: usize) -> Result<(), MapError> {
        let found = bytes.len();
        if found == expected { Ok(()) } else { Err(MapError::Size { found, expected }) }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Map {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// How many processors the kernel can ever have: for so many a map with values for each has room.
///
/// # Errors
/// If sysfs does not say it.
pub fn possible_processors() -> Result<usize, Errno> {
    let text = sys::read_file("/sys/devices/system/cpu/possible")?;
    let text = String::from_utf8_lossy(&text);
    // A list of ranges: `0-3,8`. The last number is the highest.
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or(Errno::EINVAL)
}
