//! Finds the modules among a process's mappings.
//!
//! A file with an executable mapping is a module. The load bias follows from a mapping's file
//! offset and address, and from the segment that contains the offset:
//!
//! ```text
//! file     | headers, rodata | text      | data |
//! segment                    ^ offset, vaddr
//! mapping                       ^ offset', start      bias = start - (vaddr + offset' - offset)
//! ```
//!
//! So all pieces of a text that `mprotect` has split give the same bias, and a file loaded twice
//! gives two.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ImageCache, Module, ModuleError, open};
use crate::maps::{Mapping, maps};
use image::{Image, Segment};

/// Bytes of a page; segments and mappings are rounded to it.
const PAGE: u64 = 4096;

/// Executable memory that belongs to no module.
#[derive(Debug)]
pub struct Skipped {
    /// The file, or the kernel's name for the mapping.
    pub path: PathBuf,
    /// Its addresses.
    pub range: Range<u64>,
    /// Why nothing in it can be probed.
    pub why: String,
}

/// The modules of a process, and its executable memory that belongs to none.
#[derive(Debug)]
pub struct Survey {
    /// By address.
    pub modules: Vec<Module>,
    /// By address. Anonymous executable memory that does not replace a file's text (such as a JIT's
    /// code) is not listed.
    pub skipped: Vec<Skipped>,
}

/// The modules of a process, by address: its executable, the dynamic linker, libraries, the vDSO.
///
/// # Errors
///
/// The process's mappings cannot be read. A single file that cannot be used is only left out;
/// [`survey`] tells why.
pub fn modules(pid: i32, cache: &mut ImageCache) -> Result<Vec<Module>, ModuleError> {
    Ok(survey(pid, cache)?.modules)
}

/// Like [`modules`], from given mappings.
pub fn modules_in(pid: i32, maps: &[Mapping], cache: &mut ImageCache) -> Vec<Module> {
    survey_in(pid, maps, cache).modules
}

/// The modules of a process, and what was left out.
///
/// # Errors
///
/// The process's mappings cannot be read.
pub fn survey(pid: i32, cache: &mut ImageCache) -> Result<Survey, ModuleError> {
    Ok(survey_in(pid, &maps(pid)?, cache))
}

fn survey_in(pid: i32, maps: &[Mapping], cache: &mut ImageCache) -> Survey {
    let mut survey = Survey { modules: Vec::new(), skipped: Vec::new() };
    for (path, mappings) in files(maps) {
        match mappings.iter().copied().find(|mapping| mapping.executable) {
            Some(executable) => survey.add_file(pid, path, &mappings, executable, maps, cache),
            None => survey.add_replaced_text(pid, path, &mappings, maps, cache),
        }
    }
    for mapping in maps.iter().filter(|mapping| mapping.executable) {
        if mapping.label.as_deref() == Some("[vdso]") {
            survey.add_vdso(pid, mapping, cache);
        }
    }
    survey.modules.sort_by_key(|module| module.span().start);
    survey.skipped.sort_by_key(|skipped| skipped.range.start);
    survey
}

/// The kernel's name of the memory files that a tracer maps in a process
/// ([`crate::sealed_memory`]).
const OWN_MEMORY: &str = "/memfd:dprobes";

/// The mappings of each file, by address. A file mapped under two paths counts as two.
fn files(maps: &[Mapping]) -> Vec<(&Path, Vec<&Mapping>)> {
    let key = |mapping: &&Mapping| (mapping.path.clone(), mapping.inode, mapping.device);
    // The tracer's own memory is no module.
    let is_ours =
        |mapping: &Mapping| mapping.deleted && mapping.path.as_deref() == Some(Path::new(OWN_MEMORY));
    let files = maps.iter().filter(|mapping| mapping.path.is_some() && !is_ours(mapping));
    let mut backed: Vec<&Mapping> = files.collect();
    backed.sort_by_cached_key(key);
    let same = |a: &&Mapping, b: &&Mapping| (&a.path, a.inode, a.device) == (&b.path, b.inode, b.device);
    let groups = backed.chunk_by(same);
    groups.filter_map(|group| Some((group.first()?.path.as_deref()?, group.to_vec()))).collect()
}

impl Survey {
    fn add_file(
        &mut self,
        pid: i32,
        path: &Path,
        mappings: &[&Mapping],
        executable: &Mapping,
        maps: &[Mapping],
        cache: &mut ImageCache,
    ) {
        let skip = |mapping: &Mapping, why: String| Skipped {
            path: path.to_owned(),
            range: mapping.start..mapping.end,
            why,
        };
        let image = match open::image(pid, &ordered(mappings, executable), cache) {
            Ok(image) => image,
            Err(error) => return self.skipped.push(skip(executable, error.to_string())),
        };
        let mut instances: BTreeMap<u64, Vec<Mapping>> = BTreeMap::new();
        for mapping in mappings.iter().filter(|mapping| mapping.executable) {
            match biases(&image, mapping).next() {
                Some(bias) => instances.entry(bias).or_default().push((*mapping).clone()),
                None => {
                    let why = format!("no segment of the file covers offset {:#x}", mapping.offset);
                    self.skipped.push(skip(mapping, why));
                }
            }
        }
        for mapping in mappings.iter().filter(|mapping| !mapping.executable) {
            if let Some(bias) = biases(&image, mapping).find(|bias| instances.contains_key(bias))
                && let Some(instance) = instances.get_mut(&bias)
            {
                instance.push((*mapping).clone());
            }
        }
        for (bias, mut mappings) in instances {
            mappings.sort_by_key(|mapping| mapping.start);
            self.skipped.extend(replaced_text(path, &image, bias, maps));
            self.modules.push(Module {
                path: path.to_owned(),
                image: Arc::clone(&image),
                bias,
                mappings,
                device: executable.device,
                inode: executable.inode,
            });
        }
    }

    /// Adds a file whose text is no longer mapped from it: some programs copy their text into huge
    /// pages, which are anonymous memory. Only a file that is followed by anonymous executable
    /// memory is examined.
    fn add_replaced_text(
        &mut self,
        pid: i32,
        path: &Path,
        mappings: &[&Mapping],
        maps: &[Mapping],
        cache: &mut ImageCache,
    ) {
        let followed = |mapping: &&&Mapping| {
            let next = maps.partition_point(|other| other.start < mapping.end);
            maps.get(next).is_some_and(|next| next.start == mapping.end && is_anonymous_code(next))
        };
        let Some(first) = mappings.iter().find(followed) else { return };
        let Ok(image) = open::image(pid, &ordered(mappings, first), cache) else { return };
        if let Some(bias) = biases(&image, first).next() {
            self.skipped.extend(replaced_text(path, &image, bias, maps));
        }
    }

    fn add_vdso(&mut self, pid: i32, mapping: &Mapping, cache: &mut ImageCache) {
        let name = PathBuf::from("[vdso]");
        match open::from_memory(pid, mapping, "[vdso]", cache) {
            Ok(image) => {
                let first = image.segments().first().map_or(0, |segment| segment.vaddr);
                self.modules.push(Module {
                    path: name,
                    image,
                    bias: mapping.start.wrapping_sub(first),
                    mappings: vec![mapping.clone()],
                    device: mapping.device,
                    inode: mapping.inode,
                });
            }
            Err(error) => self.skipped.push(Skipped {
                path: name,
                range: mapping.start..mapping.end,
                why: error.to_string(),
            }),
        }
    }
}

/// The mappings of one file, with a given one first.
fn ordered<'a>(mappings: &[&'a Mapping], first: &'a Mapping) -> Vec<&'a Mapping> {
    let others = mappings.iter().copied().filter(|mapping| !std::ptr::eq(*mapping, first));
    std::iter::once(first).chain(others).collect()
}

/// The possible load biases of a mapping, the likeliest first. The end of one segment and the start
/// of the next can share a page of the file, so segments with the mapping's own rights come first.
fn biases(image: &Image, mapping: &Mapping) -> impl Iterator<Item = u64> {
    let covering = |segment: &&Segment| {
        let first = segment.offset / PAGE * PAGE;
        first <= mapping.offset && mapping.offset < segment.offset.saturating_add(segment.file_size)
    };
    let bias = |segment: &Segment| {
        let distance = mapping.offset.wrapping_sub(segment.offset);
        mapping.start.wrapping_sub(segment.vaddr.wrapping_add(distance))
    };
    let (agree, differ): (Vec<&Segment>, Vec<&Segment>) = image
        .segments()
        .iter()
        .filter(covering)
        .partition(|segment| segment.executable == mapping.executable);
    agree.into_iter().chain(differ).map(bias).collect::<Vec<_>>().into_iter()
}

fn is_anonymous_code(mapping: &Mapping) -> bool {
    mapping.executable
        && mapping.path.is_none()
        && mapping.label.as_deref().is_none_or(|l| l.starts_with("[anon"))
}

/// Anonymous executable memory where an image's text should be.
fn replaced_text<'a>(
    path: &'a Path,
    image: &'a Image,
    bias: u64,
    maps: &'a [Mapping],
) -> impl Iterator<Item = Skipped> + 'a {
    let segments = image.segments().iter().filter(|segment| segment.executable);
    segments.flat_map(move |segment| {
        let start = segment.vaddr.wrapping_add(bias) / PAGE * PAGE;
        let end = segment.vaddr.wrapping_add(segment.mem_size).wrapping_add(bias);
        let replaced = maps
            .iter()
            .filter(move |mapping| is_anonymous_code(mapping) && mapping.start < end && start < mapping.end);
        replaced.map(move |mapping| Skipped {
            path: path.to_owned(),
            range: mapping.start.max(start)..mapping.end.min(end),
            why: "the code has been moved to anonymous memory (huge pages), which has no file".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracers_own_memory_is_no_module() {
        let of = |path: &str, deleted| Mapping {
            path: Some(path.into()),
            deleted,
            ..Mapping::anonymous(0x1000, 0x2000, None)
        };
        // A file of that name in the root directory is an ordinary file, and a program may have
        // memory files of other names.
        let maps = [of(OWN_MEMORY, true), of(OWN_MEMORY, false), of("/memfd:program", true)];
        let found: Vec<&Path> = files(&maps).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, [Path::new(OWN_MEMORY), Path::new("/memfd:program")]);
    }
}
