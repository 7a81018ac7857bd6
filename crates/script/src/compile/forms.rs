//! The sizes of values in the frame, in keys and in maps.

use std::rc::Rc;

use crate::check::Records;
use crate::types::{Integer, Opaque, Tag, Type};

/// How a value is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One element of the stack.
    Word,
    /// A string or bytes: a length and the bytes.
    Text,
    /// That many bytes, a multiple of 8.
    Wide(usize),
}

/// What the sizes depend on.
#[derive(Debug)]
pub(super) struct Forms {
    /// The structs of the script.
    pub(super) records: Records,
    /// Bytes of a string.
    pub(super) max_strlen: usize,
}

impl Forms {
    /// The bytes for a string's text.
    pub(super) fn text_bytes(&self) -> usize {
        self.max_strlen.next_multiple_of(8)
    }

    /// The form of a value; `None` if its size is not known.
    pub(super) fn form(&self, ty: &Type) -> Option<Form> {
        Some(match ty {
            Type::Text | Type::Bytes => Form::Text,
            Type::Pointer(_) => Form::Word,
            _ if ty.as_integer().is_some() => Form::Word,
            _ => Form::Wide(self.wide(ty)?),
        })
    }

    fn wide(&self, ty: &Type) -> Option<usize> {
        match ty {
            Type::Tuple(members) => members.iter().try_fold(0usize, |sum, member| {
                sum.checked_add(self.member(member)?).filter(|sum| *sum <= super::frame::LIMIT)
            }),
            Type::Float(_) => Some(8),
            Type::Opaque(opaque) => match opaque {
                Opaque::KernelSymbol | Opaque::Mac | Opaque::User | Opaque::Process => Some(8),
                Opaque::KernelStack
                | Opaque::UserStack
                | Opaque::UserSymbol
                | Opaque::Timestamp
                | Opaque::CgroupPath => Some(16),
                Opaque::Inet => Some(24),
            },
            Type::Array(_, Some(_)) | Type::Named(Tag::Struct | Tag::Union, _) => {
                let size = usize::try_from(self.records.size(ty)?).ok()?;
                Some(size.next_multiple_of(8))
            }
            _ => None,
        }
    }

    /// The bytes of a value as a variable or as a value of a map.
    pub(super) fn stored(&self, ty: &Type) -> Option<usize> {
        Some(match self.form(ty)? {
            Form::Word => 8,
            Form::Text => 8 + self.text_bytes(),
            Form::Wide(bytes) => bytes,
        })
    }

    /// The bytes of a value in a tuple or a key.
    pub(super) fn member(&self, ty: &Type) -> Option<usize> {
        Some(match self.form(ty)? {
            Form::Word => 8,
            Form::Text => self.text_bytes(),
            Form::Wide(bytes) => bytes,
        })
    }

    /// Where a member of a tuple is, and its type.
    pub(super) fn placed<'t>(&self, members: &'t Rc<[Type]>, index: usize) -> Option<(usize, &'t Type)> {
        let before = members.get(..index)?;
        let offset = before.iter().try_fold(0, |sum, member| Some(sum + self.member(member)?))?;
        Some((offset, members.get(index)?))
    }
}

/// How a value is in memory: its bytes and its sign.
pub(super) fn raw(ty: &Type) -> Integer {
    match ty {
        Type::Named(Tag::Enum, _) => Integer { bytes: 4, signed: false },
        _ => ty.as_integer().unwrap_or(Integer::U64),
    }
}
