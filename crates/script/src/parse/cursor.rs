//! The position of the parser, and what all of its parts need.

use source::{Diagnostic, Messages, Span, nearest, quote};

use crate::ast::{At, Expr, ExprKind, MAX_HEIGHT};
use crate::token::{Placed, Token};

/// The maximum depth of parts in parts. The normal form of a tree of the maximum height needs two
/// for each of its levels, so it can be read again.
const MAX_DEPTH: usize = 2 * MAX_HEIGHT as usize + 20;

/// The words that are no names.
pub(crate) const KEYWORDS: &[&str] = &[
    "break", "config", "continue", "else", "for", "if", "import", "let", "macro", "offsetof", "return",
    "sizeof", "unroll", "while", "struct", "union", "enum", "true", "false",
];

/// A position in the tokens.
pub(crate) struct Cursor<'a> {
    tokens: &'a [Placed],
    at: usize,
    messages: &'a mut Messages,
    depth: usize,
    /// Whether a `/` before `{` ends the expression.
    pub(crate) in_predicate: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(tokens: &'a [Placed], messages: &'a mut Messages) -> Cursor<'a> {
        Cursor { tokens, at: 0, messages, depth: 0, in_predicate: false }
    }

    /// The token `ahead` of the next one.
    pub(crate) fn ahead(&self, ahead: usize) -> &'a Token {
        self.placed(self.at + ahead).map_or(&Token::End, |placed| &placed.token)
    }

    fn placed(&self, index: usize) -> Option<&'a Placed> {
        self.tokens.get(index).or(self.tokens.last())
    }

    pub(crate) fn peek(&self) -> &'a Token {
        self.ahead(0)
    }

    /// The place of the next token.
    pub(crate) fn span(&self) -> Span {
        self.placed(self.at).map_or(Span::default(), |placed| placed.span)
    }

    /// The place of the last token taken.
    pub(crate) fn last(&self) -> Span {
        self.placed(self.at.saturating_sub(1)).map_or(Span::default(), |placed| placed.span)
    }

    /// From a place to the last token taken.
    pub(crate) fn since(&self, start: Span) -> At {
        At(start.to(self.last()))
    }

    pub(crate) fn next(&mut self) -> &'a Token {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len());
        token
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Takes a sign if it is next.
    pub(crate) fn take(&mut self, sign: &str) -> bool {
        let found = self.peek().is(sign);
        if found {
            self.next();
        }
        found
    }

    /// Takes a word if it is next.
    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek().is_word(word);
        if found {
            self.next();
        }
        found
    }

    /// Takes a sign, or says that it is missing.
    pub(crate) fn expect(&mut self, sign: &str) -> Result<(), Diagnostic> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("expected `{sign}`"))),
        }
    }

    /// The message for the next token where something else was expected.
    pub(crate) fn unexpected(&self, expected: &str) -> Diagnostic {
        let found = self.peek();
        // What is missing at the end of a line is shown there.
        let span = if *found == Token::End { self.last().after() } else { self.span() };
        Diagnostic::error(span, format!("{} is not expected here", found.describe())).label(expected)
    }

    /// A name that is no keyword.
    pub(crate) fn name(&mut self, what: &str) -> Result<String, Diagnostic> {
        match self.peek() {
            Token::Name(name) if !KEYWORDS.contains(&&**name) => {
                self.next();
                Ok(name.to_string())
            }
            Token::Name(name) => Err(Diagnostic::error(self.span(), format!("{} is a keyword", quote(name)))
                .label(format!("expected {what}"))),
            _ => Err(self.unexpected(&format!("expected {what}"))),
        }
    }

    pub(crate) fn report(&mut self, message: Diagnostic) {
        self.messages.add(message);
    }

    /// Whether there are so many messages that parsing can end.
    pub(crate) fn full(&self) -> bool {
        self.messages.full()
    }

    /// Parses a part one level deeper.
    pub(crate) fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Cursor<'a>) -> Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        if self.depth >= MAX_DEPTH {
            return Err(too_deep(self.span()));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// An expression from `start` to the last token taken.
    pub(crate) fn build(&self, start: Span, kind: ExprKind) -> Result<Expr, Diagnostic> {
        let expr = Expr::new(self.since(start), kind);
        if expr.height() > MAX_HEIGHT { Err(too_deep(start)) } else { Ok(expr) }
    }

    /// Suggests a keyword that is similar to the next token.
    pub(crate) fn suggest(&self, message: Diagnostic, words: &[&'static str]) -> Diagnostic {
        match self.peek() {
            Token::Name(name) | Token::Point(name) => message.suggest(nearest(name, words.iter().copied())),
            _ => message,
        }
    }
}

pub(crate) fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(span, "the script is nested too deep")
        .label("one level too many")
        .help("keep a part in a variable")
}
