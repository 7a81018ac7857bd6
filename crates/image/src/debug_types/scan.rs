//! Goes through the entries of a unit, and skips what is inside of those that are not of interest.

use gimli::{AttributeValue, DwTag, Unit, UnitOffset};

use super::kinds::NoTypes;
use super::reader::{Bytes, Reader};

/// An entry that is passed: its tag, its place, and its name if it has one.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) tag: DwTag,
    pub(super) offset: UnitOffset,
    pub(super) name: Option<AttributeValue<Bytes<'a>>>,
    /// Whether it only declares.
    pub(super) declares: bool,
}

/// What a scan does with the entries of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing; its children are skipped.
    Skip,
    /// It is shown; its children are skipped.
    Show,
    /// Its children are visited.
    Enter,
    /// It is shown, and its children are visited.
    ShowAndEnter,
}

/// Visits the entries of a unit.
pub(super) fn scan<'a>(
    reader: &Reader<'a>,
    unit: &Unit<Bytes<'a>>,
    wish: impl Fn(DwTag) -> Wish,
    mut see: impl FnMut(Seen<'a>) -> Result<(), NoTypes>,
) -> Result<(), NoTypes> {
    let mut raw = unit.entries_raw(None)?;
    // The depth of the entry where `raw` began, and that of the entries whose ancestors are all
    // entered.
    let (mut base, mut open) = (0isize, 0isize);
    while !raw.is_empty() {
        reader.spend(1)?;
        let (offset, depth) = (raw.next_offset(), base.saturating_add(raw.next_depth()));
        let Some(abbreviation) = raw.read_abbreviation()? else {
            if depth <= 1 {
                break;
            }
            open = open.min(depth - 1);
            continue;
        };
        let tag = abbreviation.tag();
        let wish = if offset == unit.header.root_offset() { Wish::Enter } else { wish(tag) };
        if depth > open {
            raw.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        open = depth;
        let enters = matches!(wish, Wish::Enter | Wish::ShowAndEnter);
        let shows = matches!(wish, Wish::Show | Wish::ShowAndEnter);
        if enters && abbreviation.has_children() {
            open = depth + 1;
        }
        let skips = !enters && abbreviation.has_children();
        if !shows && !skips {
            raw.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let (mut name, mut sibling, mut declares) = (None, None, false);
        for attribute in abbreviation.attributes() {
            let found = raw.read_attribute(*attribute)?;
            match found.name() {
                gimli::DW_AT_name => name = Some(found.value()),
                gimli::DW_AT_declaration => declares = matches!(found.value(), AttributeValue::Flag(true)),
                gimli::DW_AT_sibling => {
                    if let AttributeValue::UnitRef(next) = found.value() {
                        sibling = Some(next);
                    }
                }
                _ => {}
            }
        }
        if shows {
            see(Seen { tag, offset, name, declares })?;
        }
        // Forward only, so that a scan ends.
        if let Some(next) = sibling.filter(|next| skips && *next > raw.next_offset()) {
            raw = unit.entries_raw(Some(next))?;
            base = depth;
        }
    }
    Ok(())
}
