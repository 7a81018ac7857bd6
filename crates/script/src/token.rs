//! Tokens.

use std::rc::Rc;

use source::{Span, quote};

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name or keyword.
    Name(Rc<str>),
    /// `$name`.
    Local(Rc<str>),
    /// `@name`, or `@`.
    Map(Rc<str>),
    /// `$1`.
    Positional(u32),
    /// `$#`.
    PositionalCount,
    /// A number.
    Integer(u64),
    /// A string.
    Text(Rc<[u8]>),
    /// An operator or punctuation sign.
    Sign(&'static str),
    /// An attach point.
    Point(Rc<str>),
    /// The end of the script.
    End,
}

/// A token and its place; for one that `#define` made, the place of the name's use.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) token: Token,
    pub(crate) span: Span,
}

/// All signs; longer ones precede their prefixes.
pub(crate) const SIGNS: &[&str] = &[
    "<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--", "+=", "-=", "*=", "/=", "%=",
    "&=", "|=", "^=", "->", "..", "{", "}", "(", ")", "[", "]", ",", ";", ":", "?", ".", "=", "<", ">", "+",
    "-", "*", "/", "%", "&", "|", "^", "!", "~",
];

impl Token {
    /// Whether it is this sign.
    pub(crate) fn is(&self, sign: &str) -> bool {
        matches!(self, Token::Sign(each) if *each == sign)
    }

    /// Whether it is this word.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Name(each) if &**each == word)
    }

    /// The token as messages show it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Token::Name(name) | Token::Point(name) => quote(name),
            Token::Local(name) => quote(&format!("${name}")),
            Token::Map(name) => quote(&format!("@{name}")),
            Token::Positional(index) => format!("`${index}`"),
            Token::PositionalCount => "`$#`".into(),
            Token::Integer(value) => format!("`{value}`"),
            Token::Text(_) => "a string".into(),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end of the script".into(),
        }
    }
}
