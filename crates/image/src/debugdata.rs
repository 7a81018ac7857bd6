//! Finds symbols that are stored outside of `.symtab`: in the compressed `.gnu_debugdata` and in
//! separate debug files.
//!
//! Distributions strip `.symtab`. Fedora keeps the functions' names in a small xz-compressed ELF
//! file in the section `.gnu_debugdata` ("MiniDebugInfo" in gdb's manual). Debian puts them into
//! debug packages, whose files are below `/usr/lib/debug/.build-id`, named by the build-id.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::ImageError;
use super::headers::{Headers, Section};
use super::hex::hex;
use super::source::{Source, open_regular};

/// The most bytes of the compressed section.
const COMPRESSED: u64 = 64 << 20;
/// The most bytes that it may unpack to.
const UNPACKED: u64 = 128 << 20;
/// KiB the decompressor may use; xz's highest preset needs 65 MiB.
const MEMORY: u32 = 70 << 10;
/// The directory of debug packages' files.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Unpacks `.gnu_debugdata`.
pub(crate) fn unpack(source: &Source, section: &Section) -> Result<Source, ImageError> {
    let packed = source.read(".gnu_debugdata", section.offset, section.size, COMPRESSED)?;
    let reader = lzma_rust2::XzReader::new_mem_limit(packed.as_slice(), false, MEMORY);
    let mut bytes = Vec::new();
    reader.take(UNPACKED + 1).read_to_end(&mut bytes).map_err(|cause| {
        source.damaged(".gnu_debugdata", section.offset, format!("it cannot be decompressed: {cause}"))
    })?;
    if bytes.len() as u64 > UNPACKED {
        let cause = format!("it decompresses to more than {UNPACKED} bytes");
        return Err(source.damaged(".gnu_debugdata", section.offset, cause));
    }
    Ok(Source::memory(&source.path().join(".gnu_debugdata"), bytes))
}

/// The path of the installed debug file of a build-id. The file may not exist.
pub(crate) fn installed_file(build_id: &[u8]) -> Option<PathBuf> {
    installed_path(Path::new(DEBUG_FILES), build_id)
}

/// Opens the installed debug file of a build-id, if there is one.
pub(crate) fn installed(build_id: &[u8]) -> Option<Source> {
    let path = installed_file(build_id)?;
    let (file, id) = open_regular(&path).ok()?;
    Some(Source::file(&path, file, id.size))
}

fn installed_path(root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    Some(root.join(hex(&[*first])).join(format!("{}.debug", hex(rest))))
}

/// The symbol table of a file of debug information.
pub(crate) fn symbol_table(source: &Source) -> Result<Option<(Headers, Section)>, ImageError> {
    let headers = Headers::read(source)?;
    let section = headers.section(".symtab").cloned();
    Ok(section.map(|section| (headers, section)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_names_its_debug_file() {
        let path = installed_path(Path::new("/d"), &[0xab, 0x01, 0xff]).unwrap();
        assert_eq!(path, Path::new("/d/ab/01ff.debug"));
        assert_eq!(installed_path(Path::new("/d"), &[0xab]), None);
        assert_eq!(installed_path(Path::new("/d"), &[]), None);
    }
}
