//! Macros: their definition and substitution.

use std::rc::Rc;

use source::{Diagnostic, SourceId, SourceLocation, Span, quote};

use crate::lex::{Kind, Lexer, Token};

/// The parameter that stands for the rest of the arguments.
const VARIADIC_PARAMETER: &str = "__VA_ARGS__";

/// Maximum number of parameters of a macro; C requires at least 127.
const MAX_PARAMETERS: usize = 127;

/// A macro.
#[derive(Debug)]
pub(crate) struct Macro {
    /// The name in its definition.
    pub(crate) span: Span,
    /// `None` for a macro without parentheses.
    pub(crate) parameters: Option<Vec<Rc<str>>>,
    /// Whether the last parameter takes all remaining arguments.
    pub(crate) takes_rest: bool,
    body: Vec<Token>,
}

/// An argument: as written, and with its macros expanded.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) written: Vec<Token>,
    pub(crate) expanded: Vec<Token>,
}

impl Macro {
    /// Parses what follows `#define`: `NAME body`, or `NAME(parameters) body`.
    pub(crate) fn parse(define: &Token, line: Vec<Token>) -> Result<(Rc<str>, Macro), Diagnostic> {
        let name = match line.first() {
            Some(name)
                if name.kind == Kind::Name
                    && &*name.text != "defined"
                    && &*name.text != VARIADIC_PARAMETER =>
            {
                name.clone()
            }
            Some(other) => {
                return Err(Diagnostic::error(
                    other.place,
                    format!("{} cannot be a macro's name", other.describe()),
                )
                .label("expected a name"));
            }
            None => {
                return Err(Diagnostic::error(define.place.after(), "a macro without a name")
                    .label("expected a name"));
            }
        };
        let called = line.get(1).is_some_and(|token| token.is("(") && !token.spaced);
        let (parameters, takes_rest, body_start) = if called {
            let (parameters, takes_rest, end) = parse_parameters(&line, 2)?;
            (Some(parameters), takes_rest, end)
        } else {
            (None, false, 1)
        };
        let body = line[body_start..].to_vec();
        if let Some(bad) = body.first().filter(|it| it.is("##")).or(body.last().filter(|it| it.is("##"))) {
            return Err(Diagnostic::error(bad.place, "`##` at the start or end of a macro's body")
                .label("expected a token on both sides"));
        }
        let macro_ = Macro { span: name.place.span, parameters, takes_rest, body };
        macro_.check_hashes()?;
        Ok((name.text, macro_))
    }

    /// Checks that in a macro with parameters each `#` is followed by a parameter.
    fn check_hashes(&self) -> Result<(), Diagnostic> {
        if self.parameters.is_none() {
            return Ok(());
        }
        for (at, hash) in self.body.iter().enumerate().filter(|(_, token)| token.is("#")) {
            if self.body.get(at + 1).and_then(|next| self.parameter(next)).is_none() {
                return Err(Diagnostic::error(hash.place, "`#` is not followed by a parameter")
                    .label("expected one of the macro's parameters after it"));
            }
        }
        Ok(())
    }

    /// Whether another definition is equivalent.
    pub(crate) fn says_the_same(&self, other: &Macro) -> bool {
        let texts =
            |macro_: &Macro| -> Vec<Rc<str>> { macro_.body.iter().map(|it| it.text.clone()).collect() };
        self.parameters == other.parameters
            && self.takes_rest == other.takes_rest
            && texts(self) == texts(other)
    }

    /// The number of tokens in the body.
    pub(crate) fn length(&self) -> usize {
        self.body.len()
    }

    fn parameter(&self, token: &Token) -> Option<usize> {
        let parameters = self.parameters.as_ref().filter(|_| token.kind == Kind::Name)?;
        parameters.iter().position(|parameter| *parameter == token.text)
    }

    /// The tokens that a use of the macro produces; `use_` is the macro's name at the use.
    /// `Ok(None)` if there would be more than `room` tokens.
    pub(crate) fn substitute(
        &self,
        use_: &Token,
        arguments: &[Argument],
        room: usize,
    ) -> Result<Option<Vec<Token>>, Diagnostic> {
        let mut out: Vec<Token> = Vec::new();
        let mut pasting = false;
        let mut at = 0;
        while let Some(token) = self.body.get(at) {
            at += 1;
            if token.is("##") {
                pasting = true;
                continue;
            }
            let pasted_next = self.body.get(at).is_some_and(|next| next.is("##"));
            let own = |mut token: Token| {
                token.place = SourceLocation {
                    span: use_.place.span,
                    spelled: token.place.spelled.or(Some(token.place.span)),
                };
                token
            };
            let mut piece = match self.parameter(token) {
                _ if token.is("#") && self.parameters.is_some() => {
                    let index = self.body.get(at).and_then(|next| self.parameter(next));
                    at += 1;
                    let written = index.and_then(|index| arguments.get(index)).map(|it| &it.written[..]);
                    vec![own(Token {
                        kind: Kind::Text,
                        text: spell(written.unwrap_or(&[])).into(),
                        ..token.clone()
                    })]
                }
                Some(index) => match arguments.get(index) {
                    None => Vec::new(),
                    Some(argument) if pasting || pasted_next => argument.written.clone(),
                    Some(argument) => argument.expanded.clone(),
                },
                None => vec![own(token.clone())],
            };
            if let Some(first) = piece.first_mut() {
                first.spaced = token.spaced;
            }
            if std::mem::take(&mut pasting) && !piece.is_empty() && !out.is_empty() {
                let left = out.pop().expect("it is not empty");
                let right = piece.remove(0);
                out.push(paste(&left, &right, use_)?);
            }
            if out.len() + piece.len() > room {
                return Ok(None);
            }
            out.append(&mut piece);
        }
        for (index, token) in out.iter_mut().enumerate() {
            token.starts_line = index == 0 && use_.starts_line;
        }
        if let Some(first) = out.first_mut() {
            first.spaced = use_.spaced;
        }
        Ok(Some(out))
    }
}

/// Parses `a, b, ...)` from `line[at]` on. Returns the names, whether the last takes the rest, and
/// the index after.
fn parse_parameters(line: &[Token], mut at: usize) -> Result<(Vec<Rc<str>>, bool, usize), Diagnostic> {
    let mut names: Vec<Rc<str>> = Vec::new();
    let expected = |at: usize, what: &str| {
        let place = match line.get(at) {
            Some(token) => token.place,
            None => line[line.len() - 1].place.after(),
        };
        Err(Diagnostic::error(place, "the macro's parameters are not well formed")
            .label(format!("expected {what}")))
    };
    if line.get(at).is_some_and(|token| token.is(")")) {
        return Ok((names, false, at + 1));
    }
    loop {
        let mut takes_rest = false;
        match line.get(at) {
            Some(token) if names.len() == MAX_PARAMETERS => {
                return Err(Diagnostic::error(token.place, "a macro with too many parameters")
                    .label(format!("expected at most {MAX_PARAMETERS}")));
            }
            Some(token) if token.is("...") => {
                takes_rest = true;
                names.push(VARIADIC_PARAMETER.into());
            }
            Some(token) if token.kind == Kind::Name => {
                if names.contains(&token.text) {
                    return Err(Diagnostic::error(
                        token.place,
                        format!("the parameter {} is given twice", quote(&token.text)),
                    )
                    .label("expected another name"));
                }
                names.push(token.text.clone());
            }
            _ => return expected(at, "a parameter's name"),
        }
        match line.get(at + 1) {
            Some(token) if token.is(")") => return Ok((names, takes_rest, at + 2)),
            Some(token) if token.is(",") && !takes_rest => at += 2,
            _ => return expected(at + 1, if takes_rest { "`)`" } else { "`,` or `)`" }),
        }
    }
}

/// The source text of tokens, with single spaces.
pub(crate) fn spell(tokens: &[Token]) -> String {
    let mut text = String::new();
    for (index, token) in tokens.iter().enumerate() {
        if index > 0 && token.spaced {
            text.push(' ');
        }
        match token.kind {
            Kind::Text => text.extend(["\"", &token.text, "\""]),
            _ => text.push_str(&token.text),
        }
    }
    text
}

/// `left##right`: joins two tokens to one.
fn paste(left: &Token, right: &Token, use_: &Token) -> Result<Token, Diagnostic> {
    let text = format!("{}{}", left.text, right.text);
    let mut lexer = Lexer::new(SourceId(0), text.as_str().into());
    let plain = ![left.kind, right.kind].contains(&Kind::Text);
    match (lexer.next(), lexer.next()) {
        (Some(token), None) if plain && *token.text == text => {
            let place = SourceLocation { span: use_.place.span, spelled: left.place.spelled };
            Ok(Token { place, spaced: left.spaced, ..token })
        }
        _ => {
            Err(Diagnostic::error(use_.place, format!("`##` makes {}, which is not one token", quote(&text)))
                .label("expected one name, number or sign"))
        }
    }
}
