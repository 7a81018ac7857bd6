//! Types as parameters and definitions spell them.

use source::{Diagnostic, Span};

use super::cursor::Parser;
use super::meaning::{Meaning, Words};
use crate::tokens::Kind;
use crate::types::{self, Type};

impl<'a> Parser<'_, 'a> {
    /// A type with or without a name: what it is, and the name. A definition needs one.
    pub(super) fn parameter(&mut self, defines: bool) -> Result<(Meaning, Option<&'a str>), Diagnostic> {
        let start = self.here();
        let mut meaning = self.specifiers(defines)?;
        while self.take("*") || self.qualifier() {
            if self.tokens[self.at - 1].text == "*" {
                meaning = Meaning::Type(Type::Pointer);
            }
        }
        let mut name = None;
        if self.take("(") {
            // `int (*name)(char)`, the address of a function.
            self.expect("*", "the address of a function is `int (*name)(int)`")?;
            name = self.name();
            self.expect(")", "the address of a function is `int (*name)(int)`")?;
            self.expect("(", "the address of a function is `int (*name)(int)`")?;
            self.skip_to_close();
            meaning = Meaning::Type(Type::Function);
        } else if let Some(found) = self.name() {
            name = Some(found);
        }
        while self.take("[") {
            self.skip_to_close();
            meaning = Meaning::Type(Type::Pointer);
        }
        if defines && name.is_none() {
            return Err(Diagnostic::error(start.to(self.here()), "this type is given no name")
                .help("a definition is `typedef TYPE NAME;`"));
        }
        Ok((meaning, name))
    }

    pub(super) fn name(&mut self) -> Option<&'a str> {
        let token = self.peek().filter(|token| token.kind == Kind::Word)?;
        self.at += 1;
        Some(token.text)
    }

    pub(super) fn qualifier(&mut self) -> bool {
        const QUALIFIERS: [&str; 8] = [
            "const",
            "volatile",
            "restrict",
            "__const",
            "__volatile__",
            "__restrict",
            "__extension__",
            "register",
        ];
        let is = self.peek().is_some_and(|token| QUALIFIERS.contains(&token.text));
        self.at += usize::from(is);
        is
    }

    /// The words of a type: `unsigned long`, `struct file`, `id_t`.
    pub(super) fn specifiers(&mut self, defines: bool) -> Result<Meaning, Diagnostic> {
        let start = self.here();
        let mut words = Words::default();
        loop {
            if self.qualifier() {
                continue;
            }
            let Some(token) = self.peek() else { break };
            if !words.add(token.text) {
                break;
            }
            self.at += 1;
        }
        if !words.is_empty() {
            let span = start.to(self.tokens[self.at - 1].span);
            return words.meaning().ok_or_else(|| {
                let message = Diagnostic::error(span, "no probe passes values of such a type");
                message.help("types are as in C: `unsigned long`, `char *`, `struct file *`, `uint32_t`")
            });
        }
        const FORM: &str = "a probe is `probe NAME(TYPE, TYPE);`";
        if self.is("...") || self.is(".") {
            let message = Diagnostic::error(self.here(), "a probe has a fixed number of arguments");
            return Err(message.help(FORM));
        }
        let token = self.word("a type", FORM)?;
        match token.text {
            "struct" | "union" | "enum" => {
                let tag = self.peek().filter(|it| it.kind == Kind::Word);
                self.at += usize::from(tag.is_some());
                let has_body = defines && self.take("{");
                if has_body {
                    self.skip_to_close();
                }
                match tag {
                    None if !has_body => Err(self.expected("the type's name").help(FORM)),
                    Some(tag) if token.text == "enum" => {
                        Ok(Meaning::Type(Type::Named(format!("enum {}", tag.text))))
                    }
                    // Compilers make enums of this size, unless a value is larger.
                    None if token.text == "enum" => {
                        Ok(types::number("unsigned int").map_or(Meaning::Nothing, Meaning::Type))
                    }
                    _ => Ok(Meaning::Whole),
                }
            }
            "probe" | "provider" | "typedef" | "translator" => {
                self.at -= 1;
                Err(self.expected("a type").help(FORM))
            }
            name => Ok(match self.named.get(name) {
                Some(meaning) => meaning.clone(),
                None => Meaning::Type(types::known(name).unwrap_or_else(|| Type::Named(name.to_owned()))),
            }),
        }
    }
}

/// The type of an argument, if values of it can be passed.
pub(super) fn passed(meaning: Meaning, span: Span) -> Result<Type, Diagnostic> {
    let wrong = |what: &str, help: &str| {
        Diagnostic::error(span, what).label("cannot be passed to a probe").help(help)
    };
    match meaning {
        Meaning::Type(found) => Ok(found),
        Meaning::Whole => Err(wrong("a struct or union is passed", "pass its address: `struct NAME *`")),
        Meaning::Nothing => {
            Err(wrong("`void` is not a value", "a probe without arguments is `probe NAME();`"))
        }
    }
}
