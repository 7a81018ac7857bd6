//! Reading within bounds: a cursor that knows where in the file it is, and what it is reading.

use std::collections::BTreeMap;

use super::error::Damaged;
use super::tag::Tag;

/// A stretch of the file, and the place in it.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    /// What is left.
    rest: &'a [u8],
    /// Where that starts in the file.
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// The bytes of a file from `offset` on.
    pub(super) fn new(bytes: &'a [u8], offset: usize) -> Cursor<'a> {
        Cursor { rest: bytes, offset }
    }

    /// Where in the file it is.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// An error here.
    pub(super) fn wrong(
        &self,
        what: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Damaged {
        Damaged { offset: self.offset, what: what.into(), found: found.into(), expected: expected.into() }
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: usize, what: &str) -> Result<Cursor<'a>, Damaged> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.wrong(what, format!("{} left", bytes(self.len())), bytes(length)));
        };
        let taken = Cursor { rest: taken, offset: self.offset };
        self.rest = rest;
        self.offset += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Damaged> {
        let taken = self.take(N, what)?;
        Ok(std::array::from_fn(|place| taken.rest[place]))
    }

    pub(super) fn tag(&mut self, what: &str) -> Result<Tag, Damaged> {
        self.array(what).map(Tag)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, Damaged> {
        self.array(what).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, Damaged> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, Damaged> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, Damaged> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self, what: &str) -> Result<i64, Damaged> {
        self.array(what).map(i64::from_le_bytes)
    }

    /// A `u32` that is an index or an offset here.
    pub(super) fn index(&mut self, what: &str) -> Result<usize, Damaged> {
        self.u32(what).map(|index| index as usize)
    }

    /// A `u32` from 0 to `most`.
    pub(super) fn up_to(&mut self, most: u32, what: &str) -> Result<u32, Damaged> {
        let here = *self;
        let value = self.u32(what)?;
        match value <= most {
            true => Ok(value),
            false => Err(here.wrong(what, value.to_string(), format!("at most {most}"))),
        }
    }

    /// A byte that is 0 or 1.
    pub(super) fn flag(&mut self, what: &str) -> Result<bool, Damaged> {
        let here = *self;
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(here.wrong(what, other.to_string(), "0 or 1")),
        }
    }

    /// One of some values, by its place among them.
    pub(super) fn one_of<T: Copy>(&mut self, values: &[T], what: &str) -> Result<T, Damaged> {
        let here = *self;
        let place = self.u8(what)?;
        let value = values.get(usize::from(place)).copied();
        value.ok_or_else(|| here.wrong(what, place.to_string(), format!("less than {}", values.len())))
    }

    /// All bytes that are left.
    pub(super) fn all(&mut self) -> &'a [u8] {
        let all = self.rest;
        self.offset += all.len();
        self.rest = &[];
        all
    }

    /// All that is left, as text that may stand in a message: UTF-8 without control characters.
    pub(super) fn text(&mut self, what: &str) -> Result<String, Damaged> {
        let here = *self;
        let text = std::str::from_utf8(self.all()).map_err(|error| Damaged {
            offset: here.offset + error.valid_up_to(),
            ..here.wrong(what, "another byte", "UTF-8")
        })?;
        match text.char_indices().find(|(_, character)| character.is_control()) {
            None => Ok(text.to_owned()),
            Some((place, character)) => Err(Damaged {
                offset: here.offset + place,
                ..here.wrong(what, character.escape_default().to_string(), "text without control characters")
            }),
        }
    }

    /// Text after its length.
    pub(super) fn string(&mut self, what: &str) -> Result<String, Damaged> {
        let length = self.index(what)?;
        self.take(length, what)?.text(what)
    }

    /// Makes sure that nothing is left.
    pub(super) fn end(&self, what: &str) -> Result<(), Damaged> {
        match self.len() {
            0 => Ok(()),
            more => Err(self.wrong(what, format!("{} more", bytes(more)), "the end")),
        }
    }
}

/// Bytes, counted: `1 byte`, `2 bytes`.
pub(super) fn bytes(count: usize) -> String {
    format!("{count} byte{}", if count == 1 { "" } else { "s" })
}

/// A list of fields, each taken out once.
pub(super) struct Fields<'a> {
    fields: BTreeMap<Tag, Cursor<'a>>,
    /// The end of the list, where a field that is missing should have been.
    end: Cursor<'a>,
    what: String,
}

impl<'a> Fields<'a> {
    /// Reads the fields up to the end; `what` names their owner.
    pub(super) fn read(mut cursor: Cursor<'a>, what: String) -> Result<Fields<'a>, Damaged> {
        let mut fields = BTreeMap::new();
        while cursor.len() > 0 {
            let here = cursor;
            let tag = cursor.tag(&what)?;
            let name = format!("{what}, {tag}");
            let length = cursor.index(&name)?;
            let value = cursor.take(length, &name)?;
            if fields.insert(tag, value).is_some() {
                return Err(here.wrong(name, "a second one", "one"));
            }
        }
        Ok(Fields { fields, end: cursor, what })
    }

    /// The value of a field, if it is there; all of it has to be read.
    pub(super) fn find<T>(
        &mut self,
        tag: Tag,
        read: impl FnOnce(&mut Cursor<'a>, &str) -> Result<T, Damaged>,
    ) -> Result<Option<T>, Damaged> {
        let Some(mut cursor) = self.fields.remove(&tag) else { return Ok(None) };
        let name = format!("{}, {tag}", self.what);
        let value = read(&mut cursor, &name)?;
        cursor.end(&name)?;
        Ok(Some(value))
    }

    /// The value of a field that has to be there.
    pub(super) fn get<T>(
        &mut self,
        tag: Tag,
        read: impl FnOnce(&mut Cursor<'a>, &str) -> Result<T, Damaged>,
    ) -> Result<T, Damaged> {
        let end = self.end;
        let found = self.find(tag, read)?;
        found.ok_or_else(|| end.wrong(self.what.as_str(), "none", format!("a field {tag}")))
    }

    /// Makes sure that no field is left that has to be understood.
    pub(super) fn end(self) -> Result<(), Damaged> {
        match self.fields.into_iter().find(|(tag, _)| tag.is_required()) {
            None => Ok(()),
            Some((tag, value)) => Err(value.wrong(
                self.what,
                format!("the field {tag}"),
                "fields that this version of dprobes knows",
            )),
        }
    }
}
