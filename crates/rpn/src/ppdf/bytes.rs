//! Bounds-checked reading: a cursor that knows its offset in the file, for error messages.

use std::collections::BTreeMap;

use super::error::Damaged;
use super::tag::Tag;

/// A part of the file that is still to be read.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    /// The bytes left.
    rest: &'a [u8],
    /// Their offset in the file.
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor over `bytes`, which are at `offset` in the file.
    pub(super) fn new(bytes: &'a [u8], offset: usize) -> Cursor<'a> {
        Cursor { rest: bytes, offset }
    }

    /// The current offset in the file.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// An error at the current offset.
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

    /// Reads a `u32` that is an index or an offset.
    pub(super) fn index(&mut self, what: &str) -> Result<usize, Damaged> {
        self.u32(what).map(|index| index as usize)
    }

    /// Reads a `u32` from 0 to `most`.
    pub(super) fn up_to(&mut self, most: u32, what: &str) -> Result<u32, Damaged> {
        let here = *self;
        let value = self.u32(what)?;
        match value <= most {
            true => Ok(value),
            false => Err(here.wrong(what, value.to_string(), format!("at most {most}"))),
        }
    }

    /// Reads a byte that must be 0 or 1.
    pub(super) fn flag(&mut self, what: &str) -> Result<bool, Damaged> {
        let here = *self;
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(here.wrong(what, other.to_string(), "0 or 1")),
        }
    }

    /// Reads a byte that is an index into `values`, and returns that value.
    pub(super) fn one_of<T: Copy>(&mut self, values: &[T], what: &str) -> Result<T, Damaged> {
        let here = *self;
        let place = self.u8(what)?;
        let value = values.get(usize::from(place)).copied();
        value.ok_or_else(|| here.wrong(what, place.to_string(), format!("less than {}", values.len())))
    }

    /// Reads all bytes that are left.
    pub(super) fn all(&mut self) -> &'a [u8] {
        let all = self.rest;
        self.offset += all.len();
        self.rest = &[];
        all
    }

    /// Reads all that is left as text fit for messages: UTF-8 without control characters.
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

    /// Reads a length, then a text of that length.
    pub(super) fn string(&mut self, what: &str) -> Result<String, Damaged> {
        let length = self.index(what)?;
        self.take(length, what)?.text(what)
    }

    /// Fails if any bytes are left.
    pub(super) fn end(&self, what: &str) -> Result<(), Damaged> {
        match self.len() {
            0 => Ok(()),
            more => Err(self.wrong(what, format!("{} more", bytes(more)), "the end")),
        }
    }
}

/// A count of bytes: `1 byte`, `2 bytes`.
pub(super) fn bytes(count: usize) -> String {
    format!("{count} byte{}", if count == 1 { "" } else { "s" })
}

/// A list of fields. Each field can be taken out once.
pub(super) struct Fields<'a> {
    fields: BTreeMap<Tag, Cursor<'a>>,
    /// The end of the list: the offset for errors about missing fields.
    end: Cursor<'a>,
    what: String,
}

impl<'a> Fields<'a> {
    /// Reads fields up to the end; `what` names their owner, for errors.
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

    /// The value of an optional field; `read` must consume all of it.
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

    /// The value of a required field.
    pub(super) fn get<T>(
        &mut self,
        tag: Tag,
        read: impl FnOnce(&mut Cursor<'a>, &str) -> Result<T, Damaged>,
    ) -> Result<T, Damaged> {
        let end = self.end;
        let found = self.find(tag, read)?;
        found.ok_or_else(|| end.wrong(self.what.as_str(), "none", format!("a field {tag}")))
    }

    /// Fails if a field is left that a reader must understand.
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
