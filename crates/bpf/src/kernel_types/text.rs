//! Types as C writes them.

use super::{DEPTH, KernelType, KernelTypes};
use crate::btf::{kind, word};

impl KernelTypes {
    /// A type as C writes it: `struct file *`, `char[16]`.
    pub fn text(&self, of: KernelType) -> String {
        self.text_within(of, DEPTH)
    }

    fn text_within(&self, of: KernelType, depth: usize) -> String {
        let (Some(raw), Some(depth)) = (self.raw(of), depth.checked_sub(1)) else { return "void".into() };
        let inner = || self.text_within(KernelType(raw.third), depth);
        let named = |keyword: &str| match self.string(raw.name) {
            name if name.is_empty() => format!("{keyword} (anonymous)"),
            name => format!("{keyword} {name}"),
        };
        match raw.kind {
            kind::POINTER => match inner() {
                text if text.ends_with('*') => format!("{text}*"),
                text => format!("{text} *"),
            },
            kind::ARRAY => {
                let element = KernelType(word(&self.bytes, raw.rest).unwrap_or(0));
                let length = word(&self.bytes, raw.rest + 8).unwrap_or(0);
                // The outer dimension is written first.
                let text = self.text_within(element, depth);
                match text.split_once('[') {
                    Some((element, rest)) => format!("{element}[{length}][{rest}"),
                    None => format!("{text}[{length}]"),
                }
            }
            kind::STRUCT => named("struct"),
            kind::UNION => named("union"),
            kind::FORWARD => named(if raw.flag { "union" } else { "struct" }),
            kind::ENUM | kind::ENUM64 => named("enum"),
            kind::CONST => match inner() {
                text if text.ends_with('*') => format!("{text} const"),
                text => format!("const {text}"),
            },
            kind::VOLATILE => format!("volatile {}", inner()),
            kind::RESTRICT | kind::TYPE_TAG => inner(),
            kind::PROTOTYPE | kind::FUNCTION => "void ()".into(),
            _ => self.string(raw.name),
        }
    }
}
