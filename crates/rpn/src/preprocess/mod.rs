//! The preprocessor: that of C, built in (manual, "Preprocessor directives" and "Substitution").
//!
//! It supports `#define` with and without arguments, `#undef`, `#include`, `#if`, `#ifdef`,
//! `#ifndef`, `#elif`, the manual's own `#elseif`, `#else`, `#endif`, `#error` and `#warning`. `-D`
//! definitions are read first, as a source of their own. The output is one list of tokens, each
//! with its place in the source.
//!
//! Its work is bounded, whatever the text: size of each file and of all files, number and depth of
//! inclusions, and tokens read and made.

mod directive;
mod expand;
mod macros;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::vec;

use source::{Diagnostic, Files, MAX_FILE_BYTES, Messages, SourceId, Sources, Span, quote};

use crate::lex::{Kind, Lexer, Token, is_name};
use directive::Conditional;
use macros::Macro;

pub(crate) use macros::spell;

/// Maximum number of tokens read from files and made by macros.
const MAX_TOKENS: usize = 2_000_000;

/// Maximum size of all files in bytes; a file included twice counts twice.
const MAX_BYTES: usize = 16 << 20;

/// Maximum number of inclusions.
const MAX_INCLUDES: usize = 1000;

/// Maximum depth of inclusions.
const MAX_INCLUDE_DEPTH: usize = 32;

/// The name of the source that holds the `-D` definitions.
const COMMAND_LINE: &str = "<command line>";

/// The inputs of the preprocessor.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) defines: &'a [(String, String)],
    pub(crate) include_dirs: &'a [PathBuf],
}

/// A source of tokens.
enum Frame {
    File(Box<OpenFile>),
    Tokens { tokens: vec::IntoIter<Token>, macro_name: Option<Rc<str>> },
}

impl Frame {
    fn tokens(tokens: Vec<Token>, macro_name: Option<Rc<str>>) -> Frame {
        Frame::Tokens { tokens: tokens.into_iter(), macro_name }
    }
}

/// A file that is being read.
struct OpenFile {
    lexer: Lexer,
    path: PathBuf,
    identity: PathBuf,
    conditionals: Vec<Conditional>,
}

/// The preprocessor. Its results are `output`, `sources` and `messages`.
pub(crate) struct Preprocessor<'a> {
    setting: Inputs<'a>,
    pub(crate) sources: Sources,
    pub(crate) messages: Messages,
    pub(crate) output: Vec<Token>,
    macros: HashMap<Rc<str>, Rc<Macro>>,
    /// Macros whose bodies are being read.
    disabled: HashSet<Rc<str>>,
    frames: Vec<Frame>,
    /// Frames below this index are not read: an argument or a directive's line is expanded in
    /// isolation.
    floor: usize,
    /// Nesting depth of isolated expansions.
    depth: usize,
    /// Tokens that may still be read or made.
    room: usize,
    /// Whether the token limit was exceeded. Then the output is not usable.
    pub(crate) exhausted: bool,
    bytes: usize,
    includes: usize,
}

impl<'a> Preprocessor<'a> {
    /// Preprocesses the program `text`, which is at `path`, with all files that it includes.
    pub(crate) fn run(setting: Inputs<'a>, path: &Path, text: &str) -> Preprocessor<'a> {
        let mut this = Preprocessor {
            setting,
            sources: Sources::default(),
            messages: Messages::default(),
            output: Vec::new(),
            macros: HashMap::new(),
            disabled: HashSet::new(),
            frames: Vec::new(),
            floor: 0,
            depth: 0,
            room: MAX_TOKENS,
            exhausted: false,
            bytes: text.len(),
            includes: 0,
        };
        this.define_from_command_line();
        let source = this.open(path, text, None);
        this.drain();
        let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let span = Span { source, start: end, end };
        this.output.push(Token {
            kind: Kind::End,
            text: "the end of the file".into(),
            place: span.into(),
            starts_line: true,
            spaced: true,
            frozen: false,
        });
        this
    }

    /// Converts `-D name=value` to `#define name value`, and reads these lines.
    fn define_from_command_line(&mut self) {
        let mut text = String::new();
        let mut wrong = Vec::new();
        for (name, value) in self.setting.defines {
            let start = text.len();
            // `-D 'f(x)=x+1'` defines a macro with a parameter, as in C compilers.
            let plain = name.split('(').next().unwrap_or("");
            let line = format!("#define {name} {value}");
            text.push_str(&line.replace(['\n', '\r'], " "));
            text.push('\n');
            if !is_name(plain) || line.contains(['\n', '\r']) {
                wrong.push((start, name.clone()));
                text.truncate(start);
                text.push_str(&format!("// {}\n", name.escape_debug()));
            }
        }
        if text.is_empty() {
            return;
        }
        let source = self.open(Path::new(COMMAND_LINE), &text, None);
        for (start, name) in wrong {
            let start = u32::try_from(start).unwrap_or(u32::MAX);
            self.messages.add(
                Diagnostic::error(
                    Span { source, start, end: start },
                    format!("-D {}: not a definition", quote(&name)),
                )
                .label("expected a name and a value on one line"),
            );
        }
        self.drain();
    }

    /// Pushes a text to be read next.
    fn open(&mut self, path: &Path, text: &str, included: Option<Span>) -> SourceId {
        let text: Arc<str> = text.into();
        let source = self.sources.add(path.display().to_string(), text.clone(), included);
        self.frames.push(Frame::File(Box::new(OpenFile {
            lexer: Lexer::new(source, text),
            path: path.to_owned(),
            identity: self.setting.files.identity(path),
            conditionals: Vec::new(),
        })));
        source
    }

    /// Reads until no input is left.
    fn drain(&mut self) {
        loop {
            if self.exhausted {
                self.frames.clear();
                return;
            }
            if self.at_directive() {
                self.directive();
            } else if let Some(token) = self.take() {
                if self.skipping() {
                    continue;
                }
                if let Some(token) = self.expand(token) {
                    self.emit(token);
                }
            } else if !self.close_file() {
                return;
            }
        }
    }

    fn emit(&mut self, token: Token) {
        match token.kind {
            Kind::Unknown => self.messages.add(
                Diagnostic::error(token.place, format!("unexpected character {}", quote(&token.text)))
                    .label("nothing in the language starts with it"),
            ),
            Kind::OpenComment => self.messages.add(open_comment(&token)),
            Kind::OpenText => {
                self.messages.add(
                    Diagnostic::error(token.place, "this string has no end")
                        .label("expected a closing `\"` on this line"),
                );
                self.output.push(Token { kind: Kind::Text, ..token });
            }
            _ => self.output.push(token),
        }
    }

    /// The next token above the floor; `None` at the end of a file or of an isolated expansion.
    fn take(&mut self) -> Option<Token> {
        while self.frames.len() > self.floor {
            let token = match self.frames.last_mut()? {
                Frame::File(file) => file.lexer.next(),
                Frame::Tokens { tokens, .. } => tokens.next(),
            };
            match token {
                Some(token) => {
                    self.spend(1, &token);
                    return (!self.exhausted).then_some(token);
                }
                None if matches!(self.frames.last(), Some(Frame::File(_))) => return None,
                None => self.close_macro(),
            }
        }
        None
    }

    /// Whether the next token above the floor is this sign.
    fn peek_is(&mut self, sign: &str) -> bool {
        while self.frames.len() > self.floor {
            match self.frames.last_mut() {
                Some(Frame::File(file)) => return file.lexer.peek().is_some_and(|token| token.is(sign)),
                Some(Frame::Tokens { tokens, .. }) => match tokens.as_slice().first() {
                    Some(token) => return token.is(sign),
                    None => self.close_macro(),
                },
                None => return false,
            }
        }
        false
    }

    /// Whether a directive is next: a `#` that starts a line of a file.
    fn at_directive(&mut self) -> bool {
        while self.frames.len() > self.floor {
            match self.frames.last_mut() {
                Some(Frame::File(file)) => {
                    return file.lexer.peek().is_some_and(|token| token.starts_line && token.is("#"));
                }
                Some(Frame::Tokens { tokens, .. }) if tokens.as_slice().is_empty() => self.close_macro(),
                _ => return false,
            }
        }
        false
    }

    /// Leaves a macro's body and enables its name again.
    fn close_macro(&mut self) {
        if let Some(Frame::Tokens { macro_name: Some(name), .. }) = self.frames.pop() {
            self.disabled.remove(&name);
        }
    }

    /// Leaves a file. Returns whether another one is open.
    fn close_file(&mut self) -> bool {
        let Some(Frame::File(file)) = self.frames.pop() else { return false };
        for open in file.conditionals.iter().filter(|_| !self.exhausted) {
            self.messages.add(
                Diagnostic::error(open.span, "this condition has no end")
                    .label("expected an `#endif` for it"),
            );
        }
        !self.frames.is_empty()
    }

    /// The file that is being read, under any macros.
    fn file(&mut self) -> Option<&mut OpenFile> {
        self.frames.iter_mut().rev().find_map(|frame| match frame {
            Frame::File(file) => Some(&mut **file),
            Frame::Tokens { .. } => None,
        })
    }

    /// Whether a condition excludes the current text.
    fn skipping(&mut self) -> bool {
        // Inside an excluded group every inner condition is inactive too.
        self.file().and_then(|file| file.conditionals.last()).is_some_and(|innermost| !innermost.active)
    }

    /// Counts tokens read or made. Beyond the limit it reports an error and stops the preprocessor.
    fn spend(&mut self, tokens: usize, at: &Token) {
        match self.room.checked_sub(tokens) {
            Some(rest) => self.room = rest,
            None => {
                if !std::mem::replace(&mut self.exhausted, true) {
                    self.messages.add(Diagnostic::error(at.place, "the program is too large").label(
                        format!("more than {MAX_TOKENS} tokens up to here, macro expansions included"),
                    ));
                }
                self.room = 0;
                self.output.clear();
            }
        }
    }
}

fn open_comment(token: &Token) -> Diagnostic {
    Diagnostic::error(token.place, "this comment has no end").label("expected a `*/` after it")
}
