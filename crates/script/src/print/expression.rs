//! Prints strings, and the parts of expressions that have no statements in them.

use crate::ast::{ExprKind, Local};

/// A string in quotes.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for each in chunk.valid().chars() {
            match each {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                _ if each == ' ' || each.is_ascii_graphic() || each.is_alphanumeric() => out.push(each),
                _ => {
                    for byte in each.encode_utf8(&mut [0; 4]).bytes() {
                        out.push_str(&format!("\\x{byte:02x}"));
                    }
                }
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}

/// A scratch variable. Those of a macro's use have its number, which keeps them apart.
pub(crate) fn local(local: &Local) -> String {
    match local.usage {
        0 => format!("${}", local.name),
        usage => format!("${}__{usage}", local.name),
    }
}

/// How strongly the outermost operator of an expression binds: 0 for the ternary operator, 1 to 10
/// for those between values, 11 for those before a value, 12 for all else.
pub(crate) fn rank(kind: &ExprKind) -> u8 {
    match kind {
        ExprKind::Ternary(..) => 0,
        ExprKind::Binary(operator, ..) => operator.rank(),
        ExprKind::Unary(..) | ExprKind::Cast(..) | ExprKind::Step { before: true, .. } => 11,
        _ => 12,
    }
}
