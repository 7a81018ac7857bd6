//! How types go together.

use std::rc::Rc;

use crate::types::{Aggregate, Integer, Opaque, Tag, Type};

/// The type of a variable of type `have` after a value of type `new`; `None` if there is none. A
/// number stated in the script takes the type of the variable if that has it.
pub(crate) fn join(have: &Type, new: &Type, stated: Option<u64>) -> Option<Type> {
    if let (Type::Pointer(_), Some(0)) = (have, stated) {
        return Some(have.clone());
    }
    match (have, new) {
        (Type::Void, _) | (_, Type::Void) if have != new => None,
        (Type::Unknown, other) | (other, Type::Unknown) => Some(other.clone()),
        (Type::Aggregate(_), _) | (_, Type::Aggregate(_)) => (have == new).then(|| have.clone()),
        (have, new) if have == new => Some(have.clone()),
        (Type::Tuple(have), Type::Tuple(new)) if have.len() == new.len() => {
            let members: Option<Vec<Type>> =
                have.iter().zip(new.iter()).map(|(have, new)| join(have, new, None)).collect();
            Some(Type::Tuple(members?.into()))
        }
        (Type::Pointer(have), Type::Pointer(new)) => match (&**have, &**new) {
            (Type::Void | Type::Unknown, _) => Some(Type::Pointer(new.clone())),
            (_, Type::Void | Type::Unknown) => Some(Type::Pointer(have.clone())),
            _ => None,
        },
        (Type::Array(inner, None), Type::Array(other, length))
        | (Type::Array(inner, length), Type::Array(other, None))
            if inner == other =>
        {
            Some(Type::Array(inner.clone(), *length))
        }
        _ => {
            let (have, new) = (have.as_integer()?, new.as_integer()?);
            match stated {
                Some(value) if have.holds(value) => Some(Type::Integer(have)),
                _ => Some(Type::Integer(have.common(new)?)),
            }
        }
    }
}

/// The type that a variable gets from a value: what is read from a map with a function is a number.
pub(crate) fn stored(ty: &Type) -> Type {
    match ty {
        Type::Aggregate(_) => ty.as_integer().map_or_else(|| ty.clone(), Type::Integer),
        _ => ty.clone(),
    }
}

/// Whether a value is true or false.
pub(crate) fn is_condition(ty: &Type) -> bool {
    matches!(ty, Type::Unknown | Type::Pointer(_)) || ty.as_integer().is_some()
}

/// Whether a value is a string, or bytes that can be read as one.
pub(crate) fn is_text(ty: &Type) -> bool {
    match ty {
        Type::Unknown | Type::Text => true,
        Type::Array(inner, _) => is_byte(inner),
        _ => false,
    }
}

/// Whether a type is an integer of one byte.
pub(crate) fn is_byte(ty: &Type) -> bool {
    matches!(ty, Type::Integer(Integer { bytes: 1, .. }))
}

/// Whether a value is an address.
pub(crate) fn is_address(ty: &Type) -> bool {
    matches!(ty, Type::Unknown | Type::Pointer(_)) || ty.as_integer().is_some()
}

/// The integer type of a calculation with two integers, of which `None` is a number stated in the
/// script. Integers are calculated in 64 bits; unsigned only if a value may need that.
pub(crate) fn calculated(left: Option<Integer>, right: Option<Integer>) -> Type {
    let wide = |side: Option<Integer>| side == Some(Integer::U64);
    if wide(left) || wide(right) { Type::U64 } else { Type::I64 }
}

/// Whether a value of type `from` can be cast to `to`; the type of the result.
pub(crate) fn cast(
    from: &Type,
    to: &Type,
    size: impl Fn(&Type) -> Option<u64>,
) -> Result<Type, &'static str> {
    let done = Ok(to.clone());
    match (from, to) {
        (_, Type::Void) => Err("nothing can be cast to `void`"),
        (_, Type::Unknown) | (Type::Unknown, _) => done,
        (_, Type::Named(Tag::Struct | Tag::Union, _)) => {
            Err("only a pointer to a struct can be cast: write `(struct name *)`")
        }
        (_, Type::Aggregate(_) | Type::Opaque(_) | Type::Tuple(_) | Type::Foreign(..)) => {
            Err("nothing can be cast to this type")
        }
        (_, Type::Named(Tag::Alias, _)) => Err("it is not known what this type is"),
        (from, to) if from == to => done,
        (_, Type::Text) => {
            if is_text(from) {
                done
            } else {
                Err("use `str()` to read a string")
            }
        }
        (_, Type::Bytes) => Err("use `buf()` to read bytes"),
        (_, Type::Pointer(_)) => {
            if is_address(from) {
                done
            } else {
                Err("only an integer or a pointer is an address")
            }
        }
        (Type::Array(inner, _), Type::Integer(_)) => {
            if !matches!(**inner, Type::Integer(_)) {
                return Err("only an array of integers is a number");
            }
            if size(from).is_some_and(|from| Some(from) != size(to)) {
                return Err("array and number have different sizes");
            }
            done
        }
        (_, Type::Array(inner, length)) => array(from, to, inner, *length, size),
        (Type::Pointer(_) | Type::Float(_), Type::Integer(_)) => done,
        (_, Type::Float(_)) => Err("no floating-point number can be made here"),
        (from, Type::Integer(_) | Type::Bool | Type::Named(Tag::Enum, _)) => match from {
            Type::Pointer(_) => done,
            _ if from.as_integer().is_some() => done,
            Type::Aggregate(_) => Err("a histogram is no number"),
            Type::Text => Err("a string is no number"),
            _ => Err("this is no number"),
        },
    }
}

/// The cast to an array of integers. Without a length, the value's size decides.
fn array(
    from: &Type,
    to: &Type,
    inner: &Rc<Type>,
    length: Option<u32>,
    size: impl Fn(&Type) -> Option<u64>,
) -> Result<Type, &'static str> {
    let Type::Integer(element) = **inner else {
        return Err("only an array of integers can be made by a cast");
    };
    let bytes = match from {
        Type::Text if is_byte(inner) => return Ok(to.clone()),
        Type::Array(of, _) if matches!(**of, Type::Integer(_)) => size(from),
        _ => from.as_integer().map(|integer| u64::from(integer.bytes)),
    };
    let Some(bytes) = bytes else {
        return Err("only an integer or an array of integers can be cast to an array");
    };
    match length {
        // A stated number has the size that its array needs.
        Some(length)
            if u64::from(length) * u64::from(element.bytes) != bytes && matches!(from, Type::Array(..)) =>
        {
            Err("the arrays have different sizes")
        }
        Some(length)
            if u64::from(length) * u64::from(element.bytes) > 8 && !matches!(from, Type::Array(..)) =>
        {
            Err("an integer has at most 8 bytes")
        }
        Some(length)
            if u64::from(length) * u64::from(element.bytes) < bytes && !matches!(from, Type::Array(..)) =>
        {
            Err("number and array have different sizes")
        }
        Some(_) => Ok(to.clone()),
        None => {
            let length = u32::try_from(bytes / u64::from(element.bytes)).ok().filter(|length| *length > 0);
            Ok(Type::Array(inner.clone(), length))
        }
    }
}

/// Whether `%s` shows a value.
pub(crate) fn is_shown_as_text(ty: &Type) -> bool {
    is_text(ty)
        || matches!(
            ty,
            Type::Bool
                | Type::Bytes
                | Type::Named(Tag::Enum, _)
                | Type::Opaque(
                    Opaque::KernelStack
                        | Opaque::UserStack
                        | Opaque::KernelSymbol
                        | Opaque::UserSymbol
                        | Opaque::Inet
                        | Opaque::Mac
                        | Opaque::Timestamp
                        | Opaque::CgroupPath
                        | Opaque::User
                        | Opaque::Process
                )
        )
}

/// Whether a value of a map with this function is only for printing.
pub(crate) fn is_only_printed(ty: &Type) -> bool {
    matches!(ty, Type::Aggregate(Aggregate::Hist | Aggregate::Lhist | Aggregate::Stats | Aggregate::Tseries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_grows_and_stays_what_it_is() {
        let of = |bytes| Type::unsigned(bytes);
        assert_eq!(join(&of(1), &of(4), None), Some(of(4)));
        assert_eq!(join(&Type::signed(1), &of(1), Some(5)), Some(Type::signed(1)));
        assert_eq!(join(&Type::signed(1), &of(1), Some(200)), Some(Type::signed(2)));
        assert_eq!(join(&Type::U64, &Type::I64, None), None);
        assert_eq!(join(&Type::Text, &of(1), None), None);
        assert_eq!(join(&Type::Void.pointer(), &of(1).pointer(), None), Some(of(1).pointer()));
        assert_eq!(join(&of(1).pointer(), &of(2).pointer(), None), None);
        assert_eq!(join(&of(1).pointer(), &of(1), Some(0)), Some(of(1).pointer()));
        let tuple = |all: &[Type]| Type::Tuple(all.into());
        assert_eq!(
            join(&tuple(&[of(1), Type::Text]), &tuple(&[of(2), Type::Text]), None),
            Some(tuple(&[of(2), Type::Text]))
        );
        assert_eq!(join(&tuple(&[of(1)]), &tuple(&[]), None), None);
    }
}
