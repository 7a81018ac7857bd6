//! Directives: lines that start with `#`.

use std::io;
use std::path::{Path, PathBuf};

use source::{Diagnostic, Keep, Span, nearest, printable, quote};

use super::macros::Macro;
use super::{Frame, MAX_BYTES, MAX_FILE_BYTES, MAX_INCLUDE_DEPTH, MAX_INCLUDES, Preprocessor};
use crate::cursor::Cursor;
use crate::expression::{self, Grammar};
use crate::lex::{Kind, Token};

/// An `#if` whose `#endif` has not been read.
pub(super) struct Conditional {
    /// The `#if`.
    pub(super) span: Span,
    /// Whether the current branch is kept.
    pub(super) active: bool,
    /// Whether later branches are excluded: one was kept, or all are excluded.
    decided: bool,
    /// The `#else`, once it has been read.
    otherwise: Option<Span>,
}

const DIRECTIVES: &[&str] = &[
    "define", "undef", "include", "if", "ifdef", "ifndef", "elif", "elseif", "else", "endif", "error",
    "warning",
];

impl Preprocessor<'_> {
    /// Reads a directive, whose `#` is next.
    pub(super) fn directive(&mut self) {
        let Some(hash) = self.take() else { return };
        let mut line = self.rest_of_line();
        if line.is_empty() {
            return;
        }
        let word = line.remove(0);
        let name = if word.kind == Kind::Name { word.text.to_ascii_lowercase() } else { String::new() };
        let place = hash.place.to(word.place);
        let skipping = self.skipping();
        let done = match name.as_str() {
            "if" | "ifdef" | "ifndef" => self.open_conditional(&name, &word, line),
            "elif" | "elseif" => self.next_branch(&name, &word, line),
            "else" => self.otherwise(&word),
            "endif" => self.end_conditional(&word),
            _ if skipping => Ok(()),
            "define" => self.define(&word, line),
            "undef" => self.undefine(&word, &line),
            "include" => self.include(&word, line),
            "error" => Err(Diagnostic::error(place, self.said(&line)).label("`#error` stands here")),
            "warning" => {
                let warning = Diagnostic::warning(place, self.said(&line)).label("`#warning` stands here");
                self.messages.add(warning);
                Ok(())
            }
            _ => {
                let near = nearest(&name, DIRECTIVES.iter().copied()).map(|near| format!("#{near}"));
                let found = quote(&format!("#{}", word.text));
                Err(Diagnostic::error(place, format!("no directive is called {found}"))
                    .label("expected a directive of the preprocessor")
                    .suggest(near))
            }
        };
        done.or_report(&mut self.messages);
    }

    /// The tokens up to the end of the line.
    fn rest_of_line(&mut self) -> Vec<Token> {
        let mut line = Vec::new();
        loop {
            let more =
                self.file().is_some_and(|file| file.lexer.peek().is_some_and(|token| !token.starts_line));
            match if more { self.take() } else { None } {
                Some(token) if token.kind == Kind::OpenComment => {
                    self.messages.add(super::open_comment(&token))
                }
                Some(token) => line.push(token),
                None => return line,
            }
        }
    }

    /// The message of `#error`: its line as written.
    fn said(&self, line: &[Token]) -> String {
        let text = match (line.first(), line.last()) {
            (Some(first), Some(last)) => self.sources.text(first.place.span.to(last.place.span)),
            _ => "",
        };
        let text = text.trim_matches('"').trim();
        if text.is_empty() { "an error set by the program".into() } else { printable(text) }
    }

    fn define(&mut self, word: &Token, line: Vec<Token>) -> Result<(), Diagnostic> {
        let (name, macro_) = Macro::parse(word, line)?;
        let span = macro_.span;
        if let Some(before) = self.macros.get(&name).filter(|before| !before.says_the_same(&macro_)) {
            let warning = Diagnostic::warning(span, format!("the macro {} is redefined", quote(&name)))
                .label("this definition applies from here on")
                .related(before.span, "first defined here")
                .help("to redefine it, `#undef` it first");
            self.messages.add(warning);
        }
        self.macros.insert(name, macro_.into());
        Ok(())
    }

    fn undefine(&mut self, word: &Token, line: &[Token]) -> Result<(), Diagnostic> {
        let name = one_name(word, line)?;
        self.macros.remove(&name.text);
        Ok(())
    }

    fn open_conditional(&mut self, name: &str, word: &Token, line: Vec<Token>) -> Result<(), Diagnostic> {
        let skipping = self.skipping();
        // If the condition is invalid, both branches are excluded: one message is enough.
        let truth = match name {
            _ if skipping => Ok(None),
            "if" => self.condition(word, line).map(Some),
            _ => one_name(word, &line)
                .map(|macro_name| Some(self.macros.contains_key(&macro_name.text) == (name == "ifdef"))),
        };
        let active = matches!(truth, Ok(Some(true)));
        let decided = !matches!(truth, Ok(Some(false)));
        let conditional = Conditional { span: word.place.span, active, decided, otherwise: None };
        if let Some(file) = self.file() {
            file.conditionals.push(conditional);
        }
        truth.map(|_| ())
    }

    fn next_branch(&mut self, name: &str, word: &Token, line: Vec<Token>) -> Result<(), Diagnostic> {
        let conditional = self.innermost(word)?;
        if let Some(otherwise) = conditional.otherwise {
            let again = Diagnostic::error(word.place, format!("`#{name}` after `#else`"));
            return Err(again.label("expected `#endif`").related(otherwise, "the `#else`"));
        }
        let decided = conditional.decided;
        conditional.active = false;
        if decided {
            return Ok(());
        }
        // The manual's `#elseif` continues an `#ifdef`, so a name alone asks whether it is defined.
        let truth = match &line[..] {
            [only] if name == "elseif" && only.kind == Kind::Name => Ok(self.macros.contains_key(&only.text)),
            _ => self.condition(word, line),
        };
        let conditional = self.innermost(word)?;
        conditional.active = matches!(truth, Ok(true));
        conditional.decided = !matches!(truth, Ok(false));
        truth.map(|_| ())
    }

    fn otherwise(&mut self, word: &Token) -> Result<(), Diagnostic> {
        let conditional = self.innermost(word)?;
        if let Some(otherwise) = conditional.otherwise {
            return Err(Diagnostic::error(word.place, "a second `#else`")
                .label("expected `#endif`")
                .related(otherwise, "the first one"));
        }
        conditional.otherwise = Some(word.place.span);
        conditional.active = !conditional.decided;
        conditional.decided = true;
        Ok(())
    }

    fn end_conditional(&mut self, word: &Token) -> Result<(), Diagnostic> {
        self.innermost(word)?;
        if let Some(file) = self.file() {
            file.conditionals.pop();
        }
        Ok(())
    }

    /// The conditional to which a word such as `#else` belongs.
    fn innermost(&mut self, word: &Token) -> Result<&mut Conditional, Diagnostic> {
        let innermost = self.file().and_then(|file| file.conditionals.last_mut());
        innermost.ok_or_else(|| {
            Diagnostic::error(word.place, format!("`#{}` without an `#if`", word.text))
                .label("expected an `#if`, `#ifdef` or `#ifndef` before it in this file")
        })
    }

    /// Computes the condition of an `#if`.
    fn condition(&mut self, word: &Token, line: Vec<Token>) -> Result<bool, Diagnostic> {
        let line = self.replace_defined(line)?;
        let mut tokens = self.expand_list(line);
        let end = tokens.last().map_or(word.place, |last| last.place);
        tokens.push(Token {
            kind: Kind::End,
            text: "the end of the line".into(),
            place: end.after(),
            ..word.clone()
        });
        if let [_] = tokens[..] {
            return Err(Diagnostic::error(
                word.place.after(),
                format!("`#{}` without a condition", word.text),
            )
            .label("expected an expression"));
        }
        let mut cursor = Cursor::new(&tokens);
        let condition =
            expression::parse(&mut cursor, Grammar::Condition, "a number or a name", &mut self.messages)?;
        let next = cursor.peek();
        if next.kind != Kind::End {
            return Err(Diagnostic::error(
                next.place,
                format!("unexpected {} in a condition", next.describe()),
            )
            .label("expected an operator, or the end of the line"));
        }
        condition.condition()
    }

    /// Replaces `defined NAME` and `defined(NAME)` by 1 or 0.
    fn replace_defined(&self, line: Vec<Token>) -> Result<Vec<Token>, Diagnostic> {
        let mut out = Vec::with_capacity(line.len());
        let mut rest = &line[..];
        while let [token, after @ ..] = rest {
            rest = after;
            if !(token.kind == Kind::Name && &*token.text == "defined") {
                out.push(token.clone());
                continue;
            }
            let (name, after) = match after {
                [open, name, close, after @ ..] if open.is("(") && close.is(")") => (name, after),
                [name, after @ ..] => (name, after),
                [] => (token, after),
            };
            if name.kind != Kind::Name || std::ptr::eq(name, token) {
                return Err(Diagnostic::error(token.place, "`defined` without a name")
                    .label("expected `defined NAME` or `defined(NAME)`"));
            }
            let text = if self.macros.contains_key(&name.text) { "1" } else { "0" };
            out.push(Token { kind: Kind::Number, text: text.into(), ..token.clone() });
            rest = after;
        }
        Ok(out)
    }

    /// `#include "file"`, which is searched in the including file's directory first, and
    /// `#include <file>`.
    fn include(&mut self, word: &Token, line: Vec<Token>) -> Result<(), Diagnostic> {
        let line = if line.first().is_some_and(|first| first.kind == Kind::Name) {
            self.expand_list(line)
        } else {
            line
        };
        let (name, place, beside) = match (line.first(), line.last()) {
            (Some(text), _) if text.kind == Kind::Text && line.len() == 1 => {
                (text.text.to_string(), text.place, true)
            }
            (Some(first), Some(last)) if first.is("<") && last.is(">") && line.len() > 2 => {
                let inner =
                    Span { start: first.place.span.end, end: last.place.span.start, ..first.place.span };
                (self.sources.text(inner).to_string(), first.place.to(last.place), false)
            }
            (first, _) => {
                let place = first.map_or(word.place.after(), |first| first.place);
                return Err(Diagnostic::error(place, "`#include` without a file")
                    .label("expected `\"file\"` or `<file>`"));
            }
        };
        let wrong = |message: String, label: &str| Diagnostic::error(place, message).label(label);
        let shown = quote(&name);
        let deep = self.frames.iter().filter(|frame| matches!(frame, Frame::File(_))).count();
        if deep > MAX_INCLUDE_DEPTH {
            let label = format!("more than {MAX_INCLUDE_DEPTH} nested files");
            return Err(wrong(format!("{shown} is included too deeply"), &label));
        }
        self.includes += 1;
        if self.includes > MAX_INCLUDES {
            return Err(wrong(
                format!("too many files are included: {shown}"),
                &format!("more than {MAX_INCLUDES}"),
            ));
        }
        let (path, bytes) = self.find(&name, beside).map_err(|error| {
            let reason = match error.kind() {
                io::ErrorKind::NotFound => "no such file in the directories searched".to_string(),
                io::ErrorKind::FileTooLarge => format!("the file is larger than {MAX_FILE_BYTES} bytes"),
                _ => error.to_string(),
            };
            let wrong =
                wrong(format!("{shown} cannot be included: {reason}"), "expected a file that can be read");
            let help = if beside {
                "`-I DIR` adds a directory to search"
            } else {
                "`-I DIR` adds a directory to search; <...> is searched only in these"
            };
            if error.kind() == io::ErrorKind::NotFound { wrong.help(help) } else { wrong }
        })?;
        let identity = self.setting.files.identity(&path);
        let open = |frame: &Frame| matches!(frame, Frame::File(file) if file.identity == identity);
        if self.frames.iter().any(open) {
            return Err(wrong(format!("{shown} includes itself"), "this file is being read already")
                .help("put what both need into a file of its own"));
        }
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MAX_BYTES {
            let label = format!("more than {MAX_BYTES} bytes with this file");
            return Err(wrong(format!("the files included are too large: {shown}"), &label));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            wrong(format!("{shown} is not text"), &format!("byte {at} is not UTF-8"))
        })?;
        self.open(&path, &text, Some(place.span));
        Ok(())
    }

    /// Searches the directories for a file, in order.
    fn find(&mut self, name: &str, beside: bool) -> io::Result<(PathBuf, Vec<u8>)> {
        let files = self.setting.files;
        let own = self.file().and_then(|file| file.path.parent().map(Path::to_owned));
        let own = own.into_iter().filter(|_| beside);
        for directory in own.chain(self.setting.include_dirs.iter().cloned()) {
            let path = directory.join(name);
            match files.read(&path, MAX_FILE_BYTES, true) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => return found.map(|bytes| (path, bytes)),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The single name that a directive takes.
fn one_name<'t>(word: &Token, line: &'t [Token]) -> Result<&'t Token, Diagnostic> {
    match line {
        [name] if name.kind == Kind::Name => Ok(name),
        [] => Err(Diagnostic::error(word.place.after(), format!("`#{}` without a name", word.text))
            .label("expected a macro's name")),
        [name, extra, ..] if name.kind == Kind::Name => {
            Err(Diagnostic::error(extra.place, format!("unexpected {} after a name", extra.describe()))
                .label("expected the end of the line"))
        }
        [other, ..] => Err(Diagnostic::error(other.place, format!("{} is not a name", other.describe()))
            .label("expected a macro's name")),
    }
}
