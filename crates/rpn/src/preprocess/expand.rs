//! Macro expansion.
//!
//! Tokens come from a stack of frames: the files being read, and above them the bodies of the
//! macros being expanded. A macro is disabled while its body is on the stack, so that it does not
//! expand within itself; a name found there is frozen for good, as in C.

use std::rc::Rc;

use source::{Diagnostic, Keep, quote};

use super::macros::{Argument, Macro};
use super::{Frame, Preprocessor};
use crate::lex::{Kind, Token};

/// Maximum nesting of macro calls within arguments.
const MAX_NESTING: usize = 48;

impl Preprocessor<'_> {
    /// Expands a token. Returns a token for the output; `None` if its expansion was pushed to be
    /// read next, or if a message was given.
    pub(super) fn expand(&mut self, mut token: Token) -> Option<Token> {
        if token.kind != Kind::Name || token.frozen {
            return Some(token);
        }
        if let Some(text) = self.predefined(&token) {
            return Some(text);
        }
        let Some(macro_) = self.macros.get(&token.text).cloned() else {
            return Some(token);
        };
        if self.disabled.contains(&token.text) {
            token.frozen = true;
            return Some(token);
        }
        let arguments = match &macro_.parameters {
            None => Vec::new(),
            Some(_) if !self.peek_is("(") => return Some(token),
            Some(parameters) => match self.arguments(&token, &macro_, parameters.len()) {
                // The limit was reached within the call, which has been reported.
                Err(_) if self.exhausted => return None,
                arguments => arguments.or_report(&mut self.messages)?,
            },
        };
        let made = macro_.substitute(&token, &arguments, self.room).or_report(&mut self.messages)?;
        // Tokens made take memory until they are read, and an empty body still takes time.
        self.spend(made.as_ref().map_or(0, Vec::len) + macro_.length() + 1, &token);
        match made {
            Some(tokens) => {
                self.disabled.insert(token.text.clone());
                self.frames.push(Frame::tokens(tokens, Some(token.text)));
            }
            None => self.spend(usize::MAX, &token),
        }
        None
    }

    /// `__LINE__` and `__FILE__`.
    fn predefined(&self, token: &Token) -> Option<Token> {
        let (kind, text) = match &*token.text {
            "__LINE__" => (Kind::Number, self.sources.line(token.place.span).to_string()),
            "__FILE__" => (Kind::Text, self.sources.name(token.place.span.source).to_string()),
            _ => return None,
        };
        Some(Token { kind, text: text.into(), ..token.clone() })
    }

    /// Reads the arguments of a call, beginning with its `(`.
    fn arguments(
        &mut self,
        name: &Token,
        macro_: &Rc<Macro>,
        wanted: usize,
    ) -> Result<Vec<Argument>, Diagnostic> {
        let unfinished = |token: &Token| {
            Diagnostic::error(token.place, format!("the call of the macro {} has no end", quote(&token.text)))
                .label("expected a `)` after its arguments")
        };
        let mut written: Vec<Vec<Token>> = vec![Vec::new()];
        let mut depth = 0usize;
        self.take();
        loop {
            if self.at_directive() {
                return Err(unfinished(name));
            }
            let Some(token) = self.take() else { return Err(unfinished(name)) };
            if token.is(")") && depth == 0 {
                break;
            }
            let all_given = written.len() == wanted && macro_.takes_rest;
            if token.is(",") && depth == 0 && !all_given {
                written.push(Vec::new());
                continue;
            }
            depth = if token.is("(") { depth + 1 } else { depth - usize::from(token.is(")")) };
            written.last_mut().expect("there is one from the start").push(token);
        }
        if wanted == 0 && written.len() == 1 && written[0].is_empty() {
            written.clear();
        }
        if macro_.takes_rest && written.len() + 1 == wanted {
            written.push(Vec::new());
        }
        if written.len() != wanted {
            let plural = if wanted == 1 { "" } else { "s" };
            let found = written.len();
            return Err(Diagnostic::error(
                name.place,
                format!("the macro {} takes {wanted} argument{plural}, not {found}", quote(&name.text)),
            )
            .label(format!("expected {wanted} argument{plural}"))
            .related(macro_.span, "defined here"));
        }
        if self.depth >= MAX_NESTING {
            return Err(Diagnostic::error(
                name.place,
                "macro calls are nested too deeply in each other's arguments",
            )
            .label(format!("more than {MAX_NESTING} levels")));
        }
        let expand = |written: Vec<Token>| Argument { expanded: self.expand_list(written.clone()), written };
        Ok(written.into_iter().map(expand).collect())
    }

    /// Expands tokens in isolation: an argument, or a directive's line.
    pub(super) fn expand_list(&mut self, tokens: Vec<Token>) -> Vec<Token> {
        let floor = std::mem::replace(&mut self.floor, self.frames.len());
        self.depth += 1;
        self.frames.push(Frame::tokens(tokens, None));
        let mut out = Vec::new();
        while let Some(token) = self.take() {
            out.extend(self.expand(token));
        }
        self.frames.truncate(self.floor);
        self.depth -= 1;
        self.floor = floor;
        out
    }
}
