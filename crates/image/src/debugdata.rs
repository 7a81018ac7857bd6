//! Symbols that are stored outside of `.symtab`: in the compressed `.gnu_debugdata`, or in a file
//! of debug information ([`debug_files`](super::debug_files)).
//!
//! Distributions strip `.symtab`. Fedora keeps the functions' names in a small xz-compressed ELF
//! file in the section `.gnu_debugdata` ("MiniDebugInfo" in gdb's manual). Debian puts them into
//! debug packages.

use std::io::Read;

use super::error::ImageError;
use super::headers::{Headers, Section};
use super::source::Source;

/// The most bytes of the compressed section.
const COMPRESSED: u64 = 64 << 20;
/// The most bytes that it may unpack to.
const UNPACKED: u64 = 128 << 20;
/// KiB the decompressor may use; xz's highest preset needs 65 MiB.
const MEMORY: u32 = 70 << 10;

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

/// The symbol table of a file of debug information.
pub(crate) fn symbol_table(source: &Source) -> Result<Option<(Headers, Section)>, ImageError> {
    let headers = Headers::read(source)?;
    let section = headers.section(".symtab").cloned();
    Ok(section.map(|section| (headers, section)))
}
