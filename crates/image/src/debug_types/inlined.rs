//! Functions that were inlined wherever they are called.

use gimli::{AttributeValue, DwTag};

use super::kinds::NoTypes;
use super::reader::Reader;
use super::scan::{Wish, scan};

/// Whether a function of a name is told of as inlined.
pub(super) fn has(reader: &Reader<'_>, name: &str) -> Result<bool, NoTypes> {
    let wish = |tag: DwTag| match tag {
        gimli::DW_TAG_subprogram => Wish::Show,
        gimli::DW_TAG_namespace | gimli::DW_TAG_module | gimli::DW_TAG_structure_type => Wish::Enter,
        gimli::DW_TAG_class_type => Wish::Enter,
        _ => Wish::Skip,
    };
    let mut found = false;
    for &offset in reader.units {
        // One unit that is damaged does not hide the others.
        let Ok(unit) = reader.unit(offset) else { continue };
        scan(reader, &unit, wish, |seen| {
            let Some(value) = seen.name else { return Ok(()) };
            if reader.dwarf.attr_string(&unit, value)?.slice() == name.as_bytes() {
                let entry = unit.entry(seen.offset)?;
                found |= matches!(
                    entry.attr_value(gimli::DW_AT_inline),
                    Some(AttributeValue::Inline(gimli::DW_INL_inlined | gimli::DW_INL_declared_inlined))
                );
            }
            Ok(())
        })?;
        if found {
            break;
        }
    }
    Ok(found)
}
