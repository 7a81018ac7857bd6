//! Reads a script and the files that it names: preprocessor lines are obeyed, and what is left are
//! tokens.
//!
//! Attach points have a syntax of their own: `uprobe:/bin/bash:readline` is one token. So the
//! reader follows where an item of the script begins: with a keyword, or else with attach points.
//!
//! The input is bounded: size and number of files, and the tokens that names defined by `#define`
//! become.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use source::{Diagnostic, Files, Messages, SourceId, Sources, Span, quote};

use crate::conditions::Conditions;
use crate::scan::Scanner;
use crate::token::{Placed, Token};

/// The maximum size of a file in bytes.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 20;
/// The maximum number of files.
pub(crate) const MAX_FILES: usize = 64;
/// The maximum number of tokens; also of uses of names defined by `#define`.
pub(crate) const MAX_TOKENS: usize = 200_000;
/// The maximum depth of files that name files, and of defined names in defined names.
const MAX_DEPTH: usize = 16;

/// The words that begin an item that is no probe.
const KEYWORDS: &[&str] = &["config", "let", "struct", "union", "enum", "macro", "typedef", "fn", "const"];

/// An item that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// The braces that are open.
    braces: usize,
    /// Whether the predicate is not ended: its braces do not end the item.
    predicate: bool,
    /// Whether it ends with a semicolon only.
    semicolon: bool,
}

/// What `#define` gave a name.
#[derive(Clone, Debug)]
pub(crate) struct Define {
    pub(crate) tokens: Rc<[Placed]>,
    pub(crate) span: Span,
}

/// What a reader works with.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) files: &'a dyn Files,
    /// Directories searched for named files, after the naming file's own.
    pub(crate) directories: &'a [PathBuf],
}

/// Reads files into tokens.
pub(crate) struct Reader<'a> {
    access: Access<'a>,
    pub(crate) sources: Sources,
    pub(crate) messages: Messages,
    pub(crate) tokens: Vec<Placed>,
    pub(crate) defines: BTreeMap<String, Define>,
    /// Headers in `<>`, which are not read.
    pub(crate) unread: Vec<(String, Span)>,
    read: BTreeSet<PathBuf>,
    files: usize,
    work: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(access: Access<'a>) -> Reader<'a> {
        Reader {
            access,
            sources: Sources::default(),
            messages: Messages::default(),
            tokens: Vec::new(),
            defines: BTreeMap::new(),
            unread: Vec::new(),
            read: BTreeSet::new(),
            files: 0,
            work: 0,
        }
    }

    /// Reads the script and ends it.
    pub(crate) fn script(&mut self, path: &Path, text: &str) {
        self.read.insert(self.access.files.identity(path));
        let end = self.text(path, text, None, 0);
        self.tokens.push(Placed { token: Token::End, span: end });
    }

    /// Whether to stop: too many messages or tokens.
    fn full(&self) -> bool {
        self.messages.full() || self.work >= MAX_TOKENS
    }

    /// Counts work; reports once that it is too much.
    fn works(&mut self, span: Span) -> bool {
        if self.work < MAX_TOKENS {
            self.work += 1;
            if self.work == MAX_TOKENS {
                let message = format!("the script has more than {MAX_TOKENS} tokens");
                self.messages.add(Diagnostic::error(span, message).label("the rest is not read"));
            }
        }
        self.work < MAX_TOKENS
    }

    /// Reads a text; returns the place of its end.
    fn text(&mut self, path: &Path, text: &str, named: Option<Span>, depth: usize) -> Span {
        let text: Arc<str> = text.into();
        let source: SourceId = self.sources.add(path.display().to_string(), text.clone(), named);
        let mut scanner = Scanner::new(source, text);
        // The interpreter's line: `#!/usr/bin/env dprobes`.
        if scanner.rest().starts_with("#!") {
            scanner.line();
        }
        let mut conditions = Conditions::default();
        let mut item: Option<Open> = None;
        loop {
            if let Err(message) = scanner.skip_blanks() {
                self.messages.add(message);
            }
            if self.full() || scanner.rest().is_empty() {
                break;
            }
            if scanner.rest().starts_with('#') && scanner.starts_line() {
                let mut line = scanner.line();
                self.directive(&mut line, path, depth, &mut conditions);
                if conditions.skipping() {
                    self.skip(&mut scanner, &mut conditions);
                }
                continue;
            }
            if item.is_none() {
                match scanner.word() {
                    "import" => {
                        self.import(&mut scanner, path, depth);
                        continue;
                    }
                    word if KEYWORDS.contains(&word) => {
                        item = Some(Open { semicolon: word == "typedef", ..Open::default() });
                    }
                    _ => match scanner.attach_point() {
                        Ok(Some(point)) => {
                            self.push(point);
                            if self.more_points(&mut scanner) {
                                continue;
                            }
                            item = Some(Open { predicate: self.slash(&mut scanner), ..Open::default() });
                        }
                        Ok(None) => {}
                        Err(message) => {
                            self.messages.add(message);
                            continue;
                        }
                    },
                }
                if item.is_some() && scanner.rest().is_empty() {
                    continue;
                }
            }
            self.item_token(&mut scanner, &mut item);
        }
        if let Some(open) = conditions.open() {
            let message = Diagnostic::error(open, "the condition has no `#endif`").label("begins here");
            self.messages.add(message);
        }
        scanner.here()
    }

    /// Takes a comma after an attach point; whether there is one.
    fn more_points(&mut self, scanner: &mut Scanner) -> bool {
        self.take(scanner, ',')
    }

    /// Takes the `/` that begins a predicate; whether there is one.
    fn slash(&mut self, scanner: &mut Scanner) -> bool {
        self.take(scanner, '/')
    }

    fn take(&mut self, scanner: &mut Scanner, sign: char) -> bool {
        if !is_next(scanner, sign) {
            return false;
        }
        if let Ok(placed) = scanner.token() {
            self.push(placed);
        }
        true
    }

    /// Reads a token of an item, and sees whether the item ends with it.
    fn item_token(&mut self, scanner: &mut Scanner, item: &mut Option<Open>) {
        match scanner.token() {
            Err(message) => {
                // A value that cannot be read stays a value, so that nothing else is reported.
                if scanner.is_value(message.span) {
                    self.push(Placed { token: Token::Positional(1), span: message.span });
                }
                self.messages.add(message);
            }
            Ok(Placed { token: Token::End, .. }) => {}
            Ok(placed) => {
                let open = item.unwrap_or_default();
                *item = match &placed.token {
                    Token::Sign("{") => Some(Open { braces: open.braces + 1, ..open }),
                    Token::Sign("}") => {
                        let left = Open { braces: open.braces.saturating_sub(1), ..open };
                        (left.braces > 0 || left.predicate || left.semicolon).then_some(left)
                    }
                    Token::Sign(";") if open.braces == 0 => None,
                    Token::Sign("/") if open.braces == 0 && is_next(scanner, '{') => {
                        item.map(|open| Open { predicate: false, ..open })
                    }
                    _ => *item,
                };
                self.expand(placed);
            }
        }
    }

    fn push(&mut self, placed: Placed) {
        if self.works(placed.span) {
            self.tokens.push(placed);
        }
    }

    /// Adds a token, or what `#define` gave it.
    fn expand(&mut self, placed: Placed) {
        let mut active: Vec<Rc<str>> = Vec::new();
        self.expand_in(placed, &mut active);
    }

    fn expand_in(&mut self, placed: Placed, active: &mut Vec<Rc<str>>) {
        if let Token::Name(name) = &placed.token
            && let Some(define) = self.defines.get(&**name)
            && !active.contains(name)
            && active.len() < MAX_DEPTH
        {
            let tokens = define.tokens.clone();
            active.push(name.clone());
            for inner in &*tokens {
                if !self.works(placed.span) {
                    break;
                }
                self.expand_in(Placed { token: inner.token.clone(), span: placed.span }, active);
            }
            active.pop();
        } else {
            self.push(placed);
        }
    }

    /// Skips lines until a condition holds.
    fn skip(&mut self, scanner: &mut Scanner, conditions: &mut Conditions) {
        while conditions.skipping() && !scanner.rest().is_empty() {
            let mut line = scanner.line();
            scanner.advance(1);
            if line.rest().trim_start().starts_with('#') {
                let mut messages = std::mem::take(&mut self.messages);
                conditions.line(&mut line, &self.defines, &mut messages);
                self.messages = messages;
            }
        }
    }

    /// Obeys a preprocessor line.
    fn directive(&mut self, line: &mut Scanner, path: &Path, depth: usize, conditions: &mut Conditions) {
        let mut messages = std::mem::take(&mut self.messages);
        let taken = conditions.line(line, &self.defines, &mut messages);
        self.messages = messages;
        if taken {
            return;
        }
        let start = line.offset();
        line.advance(1);
        let result = line.token().and_then(|word| match word.token {
            Token::Name(name) if &*name == "define" => self.define(line),
            Token::Name(name) if &*name == "undef" => {
                let name = name_of(line)?.0;
                self.defines.remove(&*name);
                Ok(())
            }
            Token::Name(name) if &*name == "include" => self.include(line, path, depth),
            Token::End => Ok(()),
            other => Err(Diagnostic::error(
                line.span_from(start),
                format!("preprocessor line {} is not supported", other.describe()),
            )
            .label("not obeyed")
            .help("there are #define, #undef, #include, #ifdef, #ifndef, #else and #endif")),
        });
        if let Err(message) = result {
            self.messages.add(message);
        }
    }

    fn define(&mut self, line: &mut Scanner) -> Result<(), Diagnostic> {
        let (name, span) = name_of(line)?;
        if line.rest().starts_with('(') {
            return Err(Diagnostic::error(span, "a `#define` with parameters is not supported")
                .label("has parameters")
                .help(format!("write a macro of the language: `macro {name}(x) {{ ... }}`")));
        }
        let mut tokens = Vec::new();
        loop {
            let placed = line.token()?;
            if placed.token == Token::End {
                break;
            }
            if !self.works(placed.span) {
                return Ok(());
            }
            tokens.push(placed);
        }
        let define = Define { tokens: tokens.into(), span };
        if let Some(first) = self.defines.insert(name.to_string(), define) {
            let message = format!("{} is defined again", quote(&name));
            self.messages.add(
                Diagnostic::warning(span, message)
                    .label("replaces the first one")
                    .related(first.span, "first defined here"),
            );
        }
        Ok(())
    }

    fn include(&mut self, line: &mut Scanner, path: &Path, depth: usize) -> Result<(), Diagnostic> {
        line.skip_blanks()?;
        let start = line.offset();
        if let Some(rest) = line.rest().strip_prefix('<') {
            let name = rest.split('>').next().unwrap_or("").trim().to_string();
            let length = line.rest().trim_end().len();
            line.advance(length);
            self.unread.push((name, line.span_from(start)));
            return Ok(());
        }
        let placed = line.token()?;
        match &placed.token {
            Token::Text(name) => {
                let name = String::from_utf8_lossy(name).into_owned();
                self.file(&name, placed.span, path, depth, false);
                Ok(())
            }
            other => {
                Err(Diagnostic::error(placed.span, format!("a file cannot be called {}", other.describe()))
                    .label("expected a file's name in double quotes"))
            }
        }
    }

    /// `import "name";`
    fn import(&mut self, scanner: &mut Scanner, path: &Path, depth: usize) {
        let first = scanner.token().map(|word| word.span).unwrap_or_else(|_| scanner.here());
        match scanner.token() {
            Ok(Placed { token: Token::Text(name), span }) => {
                let name = String::from_utf8_lossy(&name).into_owned();
                if name == "stdlib" || name.starts_with("stdlib/") {
                    // The library is always there.
                } else if name.ends_with(".bt") {
                    self.file(&name, span, path, depth, true);
                } else {
                    let message = format!("{} cannot be imported", quote(&name));
                    self.messages.add(Diagnostic::error(span, message).label("not a script").help(
                        "scripts, whose names end in `.bt`, can be imported; directories, C and eBPF objects \
                         cannot",
                    ));
                }
            }
            Ok(other) => self.messages.add(
                Diagnostic::error(other.span, format!("{} cannot be imported", other.token.describe()))
                    .label("expected a file's name in double quotes"),
            ),
            Err(message) => self.messages.add(message),
        }
        let mut ahead = scanner.clone();
        match ahead.token() {
            Ok(Placed { token: Token::Sign(";"), .. }) => *scanner = ahead,
            _ => self.messages.add(
                Diagnostic::error(first, "the import does not end with `;`")
                    .label("expected `;` after the name"),
            ),
        }
    }

    /// Reads a file that the script names. A script is imported once.
    fn file(&mut self, name: &str, span: Span, from: &Path, depth: usize, once: bool) {
        let mut fail = |message: String, label: &str| {
            self.messages.add(Diagnostic::error(span, message).label(label));
        };
        if depth >= MAX_DEPTH {
            return fail(format!("files name each other more than {MAX_DEPTH} deep"), "too deep");
        }
        if self.files >= MAX_FILES {
            return fail(format!("the script names more than {MAX_FILES} files"), "too many");
        }
        let own = from.parent().unwrap_or(Path::new(""));
        let directories = std::iter::once(own).chain(self.access.directories.iter().map(PathBuf::as_path));
        for path in directories.map(|directory| directory.join(name)) {
            let bytes = match self.access.files.read(&path, MAX_FILE_BYTES, true) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return fail(format!("{} cannot be read: {error}", quote(name)), "named here"),
                Ok(bytes) => bytes,
            };
            let Ok(text) = String::from_utf8(bytes) else {
                return fail(format!("{} is not UTF-8", quote(name)), "named here");
            };
            if self.read.insert(self.access.files.identity(&path)) || !once {
                self.files += 1;
                self.text(&path, &text, Some(span), depth + 1);
            }
            return;
        }
        fail(format!("there is no file {}", quote(name)), "named here");
    }
}

/// The name that a preprocessor line is about.
pub(crate) fn name_of(line: &mut Scanner) -> Result<(Rc<str>, Span), Diagnostic> {
    let placed = line.token()?;
    match placed.token {
        Token::Name(name) => Ok((name, placed.span)),
        other => Err(Diagnostic::error(placed.span, format!("{} is no name", other.describe()))
            .label("expected a name")),
    }
}

/// Whether a character is next, after blanks. A comment that is not closed is reported where the
/// next token is read.
fn is_next(scanner: &Scanner, character: char) -> bool {
    let mut ahead = scanner.clone();
    ahead.skip_blanks().is_ok() && ahead.rest().starts_with(character)
}
