//! The types of fields of tracepoints' records, as tracefs declares them.
//!
//! ```text
//! pid_t pid;  size:4; signed:1;           int32
//! int dfd;  size:8; signed:0;             int64: an argument of a system call has a whole word
//! const char * filename;                  int8 *
//! char comm[16];                          int8[16]
//! __data_loc char[] filename;             int8 *: behind the record's fixed part
//! ```

use std::rc::Rc;

use kernel::tracepoints::{Field, FieldAccess};
use script::{Integer, Tag, Type};

/// The type of a field; `None` if programs do not see it. `named` tells the kernel's types by name.
pub(super) fn of(field: &Field, named: &mut dyn FnMut(Tag, &str) -> Option<Type>) -> Option<Type> {
    let text = text(field);
    Some(match field.access {
        FieldAccess::Hidden | FieldAccess::Constant(_) => return None,
        FieldAccess::Thread => Type::signed(4),
        FieldAccess::Word { .. } => Type::U64,
        FieldAccess::Integer { size, .. } => match text.strip_suffix('*') {
            Some(to) if size == 8 => Type::Pointer(Rc::new(pointed(to, named))),
            _ if text == "bool" => Type::Bool,
            _ => Type::Integer(Integer { bytes: size, signed: field.signed || is_signed(&text) }),
        },
        FieldAccess::Located { .. } => {
            let element = text.trim_start_matches("__data_loc ").trim_start_matches("__rel_loc ");
            Type::Pointer(Rc::new(pointed(element.trim_end_matches("[]"), named)))
        }
        FieldAccess::Inline { .. } => match text.split_once('[') {
            Some((element, length)) => array(field, element, length, named),
            None => structure(&text, named)
                .unwrap_or_else(|| Type::Foreign(printable::text(&text).as_ref().into(), field.size)),
        },
    })
}

/// The type of a field as C writes it, without the field's name.
pub(super) fn text(field: &Field) -> String {
    let declaration = field.declaration.trim();
    let (named, length) = match declaration.split_once('[') {
        Some((named, length)) => (named, format!("[{length}")),
        None => (declaration, String::new()),
    };
    let before = named.trim_end().strip_suffix(field.name.as_str()).unwrap_or(named);
    // `__data_loc char[] filename`: the brackets are before the name.
    let length = length.split(']').next().map_or_else(String::new, |length| {
        if length.is_empty() { String::new() } else { format!("{length}]") }
    });
    format!("{}{length}", before.trim())
}

/// Whether a word of C is of an integer type with a sign. A field with 8 bytes that is declared so
/// is called unsigned in tracefs if it is an argument of a system call.
fn is_signed(text: &str) -> bool {
    matches!(text.trim_start_matches("const "), "char" | "short" | "int" | "long" | "long long" | "ssize_t")
}

/// What an address leads to.
fn pointed(text: &str, named: &mut dyn FnMut(Tag, &str) -> Option<Type>) -> Type {
    let text = text.trim().trim_start_matches("const ").trim_end_matches("const").trim();
    match text.strip_suffix('*') {
        Some(to) => Type::Pointer(Rc::new(pointed(to, named))),
        None => match integer(text) {
            Some(integer) => Type::Integer(integer),
            None => structure(text, named).unwrap_or(Type::Void),
        },
    }
}

/// A struct or a union.
fn structure(text: &str, named: &mut dyn FnMut(Tag, &str) -> Option<Type>) -> Option<Type> {
    match text.split_once(' ')? {
        ("struct", name) => named(Tag::Struct, name.trim()),
        ("union", name) => named(Tag::Union, name.trim()),
        _ => None,
    }
}

fn integer(text: &str) -> Option<Integer> {
    let (bytes, signed) = match text {
        "char" | "s8" | "__s8" | "int8_t" | "signed char" => (1, true),
        "unsigned char" | "u8" | "__u8" | "uint8_t" => (1, false),
        "short" | "s16" | "__s16" | "int16_t" => (2, true),
        "unsigned short" | "u16" | "__u16" | "uint16_t" | "__be16" | "__le16" => (2, false),
        "int" | "s32" | "__s32" | "int32_t" | "pid_t" => (4, true),
        "unsigned int" | "unsigned" | "u32" | "__u32" | "uint32_t" | "__be32" | "__le32" => (4, false),
        "long" | "long long" | "s64" | "__s64" | "int64_t" | "ssize_t" | "loff_t" => (8, true),
        "unsigned long" | "unsigned long long" | "u64" | "__u64" | "uint64_t" | "size_t" => (8, false),
        _ => return None,
    };
    Some(Integer { bytes, signed })
}

/// An array in the record. Its length may be an expression, but its bytes are known.
fn array(
    field: &Field,
    element: &str,
    length: &str,
    named: &mut dyn FnMut(Tag, &str) -> Option<Type>,
) -> Type {
    let element = element.trim();
    let known = length.trim_end_matches(']').trim().parse::<u32>().ok().filter(|length| *length > 0);
    let bytes = match (integer(element), known) {
        (Some(integer), _) => u32::from(integer.bytes),
        (None, Some(length)) => field.size / length,
        (None, None) => 0,
    };
    let inner = match (integer(element), bytes) {
        (Some(integer), _) => Type::Integer(integer),
        (None, 1 | 2 | 4 | 8) if structure(element, named).is_none() => {
            Type::Integer(Integer { bytes: bytes as u8, signed: field.signed })
        }
        _ => structure(element, named).unwrap_or(Type::Integer(Integer { bytes: 1, signed: false })),
    };
    let count = field.size.checked_div(bytes).unwrap_or(field.size);
    match bytes {
        0 => Type::Array(Rc::new(Type::unsigned(1)), Some(count)),
        _ => Type::Array(Rc::new(inner), Some(count)),
    }
}

#[cfg(test)]
mod tests {
    use kernel::tracepoints::Format;

    use super::*;

    fn parsed(line: &str) -> (String, String) {
        let format = Format::parse(&format!("name: x\nID: 7\nformat:\n\tfield:{line}\n")).expect("it is one");
        let mut named = |tag: Tag, name: &str| (name == "file").then(|| Type::Named(tag, name.into()));
        let ty = of(&format.fields[0], &mut named).map_or_else(|| "none".to_owned(), |ty| ty.to_string());
        (ty, text(&format.fields[0]))
    }

    #[test]
    fn types_are_those_of_the_declarations() {
        for (line, ty, text) in [
            ("pid_t pid;\toffset:8;\tsize:4;\tsigned:1;", "int32", "pid_t"),
            ("int dfd;\toffset:16;\tsize:8;\tsigned:0;", "int64", "int"),
            ("unsigned int fd;\toffset:16;\tsize:8;\tsigned:0;", "uint64", "unsigned int"),
            ("const char * filename;\toffset:24;\tsize:8;\tsigned:0;", "int8 *", "const char *"),
            ("const char *const *argv;\toffset:24;\tsize:8;\tsigned:0;", "int8 **", "const char *const *"),
            ("char comm[16];\toffset:8;\tsize:16;\tsigned:0;", "int8[16]", "char[16]"),
            ("__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;", "int8 *", "__data_loc char[]"),
            ("__rel_loc u32[] name;\toffset:8;\tsize:4;\tsigned:0;", "uint32 *", "__rel_loc u32[]"),
            ("unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;", "uint64[6]", "unsigned long[6]"),
            ("u8 address[6 + 2];\toffset:16;\tsize:8;\tsigned:0;", "uint8[8]", "u8[6 + 2]"),
            ("struct file * file;\toffset:16;\tsize:8;\tsigned:0;", "struct file *", "struct file *"),
            ("struct file whole;\toffset:16;\tsize:24;\tsigned:0;", "struct file", "struct file"),
            ("struct nobody whole;\toffset:16;\tsize:24;\tsigned:0;", "struct nobody", "struct nobody"),
            ("void * p;\toffset:16;\tsize:8;\tsigned:0;", "void *", "void *"),
            ("bool on;\toffset:16;\tsize:1;\tsigned:0;", "bool", "bool"),
            ("enum zone type;\toffset:16;\tsize:4;\tsigned:0;", "uint32", "enum zone"),
            ("int common_pid;\toffset:4;\tsize:4;\tsigned:1;", "int32", "int"),
            ("unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;", "none", "unsigned char"),
        ] {
            assert_eq!(parsed(line), (ty.to_owned(), text.to_owned()), "{line}");
        }
    }
}
