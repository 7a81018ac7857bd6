//! Finds the landing pads of exceptions: reads the call site tables (`.gcc_except_table`) as the
//! Itanium C++ ABI's personality routines do.
//!
//! ```text
//!   u8 encoding of the base, [base]     omitted (0xff): the function's start
//!   u8 encoding of types, [uleb128]     omitted, or the distance to the types
//!   u8 encoding of the call sites, uleb128 their bytes
//!   each: start, length, landing pad (0: none), uleb128 action
//! ```

use super::Image;

/// The most bytes of one table that are read.
const TABLE: u64 = 1 << 16;
/// The most landing pads of a file.
const PADS: usize = 1 << 22;
/// `DW_EH_PE_omit`.
const OMITTED: u8 = 0xff;

/// The landing pads of all functions.
pub(crate) fn exception_pads(image: &Image) -> Vec<u64> {
    let mut found = Vec::new();
    for &(function, table) in image.frames().exception_tables() {
        if found.len() >= PADS {
            break;
        }
        let segment = image.headers.segments.iter().find(|it| it.offset_of_address(table).is_some());
        let Some(size) = segment.map(|segment| (segment.file_end() - table).min(TABLE)) else { continue };
        let Some(bytes) = image.data(table, size) else { continue };
        pads(&bytes, function, &mut found);
    }
    found
}

/// Adds the landing pads of one table. It stops at damage and at encodings that compilers do not
/// write.
fn pads(bytes: &[u8], function: u64, found: &mut Vec<u64>) -> Option<()> {
    let mut reader = Reader { bytes };
    // No compiler writes a base of its own.
    if reader.byte()? != OMITTED {
        return None;
    }
    if reader.byte()? != OMITTED {
        reader.uleb()?;
    }
    let encoding = reader.byte()?;
    let length = usize::try_from(reader.uleb()?).ok()?;
    let mut sites = Reader { bytes: reader.bytes.get(..length)? };
    while !sites.bytes.is_empty() {
        sites.number(encoding)?;
        sites.number(encoding)?;
        let pad = sites.number(encoding)?;
        sites.uleb()?;
        if pad != 0 {
            found.push(function.wrapping_add(pad));
        }
    }
    Some(())
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number of a call site: `DW_EH_PE_uleb128`, `udata2`, `udata4`, `udata8`.
    fn number(&mut self, encoding: u8) -> Option<u64> {
        let size = match encoding {
            0x01 => return self.uleb(),
            0x02 => 2,
            0x03 => 4,
            0x04 => 8,
            _ => return None,
        };
        let mut whole = [0; 8];
        whole[..size].copy_from_slice(self.take(size)?);
        Some(u64::from_le_bytes(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::pads;

    fn found(bytes: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        pads(bytes, 0x1000, &mut found);
        found
    }

    #[test]
    fn pads_are_distances_from_the_function() {
        // Two call sites, one with a pad at 0x90 (two bytes in uleb128).
        let table = [0xff, 0x9b, 0x10, 0x01, 0x09, 0, 5, 0x90, 0x01, 1, 5, 9, 0, 0, 0xee];
        assert_eq!(found(&table), [0x1090]);
        let wide = [0xff, 0xff, 0x03, 0x0d, 0, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 0];
        assert_eq!(found(&wide), [0x1007]);
    }

    #[test]
    fn damage_ends_a_table() {
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[0xff, 0xff, 0x01, 0x7f, 0, 5]), []);
        assert_eq!(found(&[0x1b, 0, 0, 0, 0]), []);
        assert_eq!(found(&[0xff, 0xff, 0x01, 0x04, 0xff, 0xff, 0xff, 0xff]), []);
        assert_eq!(found(&[0xff, 0xff, 0x09, 0x04, 1, 2, 3, 4]), []);
    }
}
