//! Tokens of a description, and the preprocessor's lines in it.
//!
//! `#pragma` lines, `#ident`, a first line `#!...` and the line numbers that a preprocessor leaves
//! (`# 1 "file"`) are passed over. `#define NAME TOKENS` is known, since descriptions use it for
//! types. What chooses or includes text needs a real preprocessor.

use std::collections::HashMap;

use source::{Diagnostic, Messages, SourceId, Span, quote};

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// Its text.
    pub(crate) text: &'a str,
    /// Where it is; for what a `#define` brought, where its name is.
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word: a name or a keyword.
    Word,
    /// A number, a string in quotes, an operator: one that only stands where it is passed over, or
    /// in an array's length.
    Other,
    /// `{ } ( ) [ ] , ; : *` and `-`.
    Sign,
}

/// The most tokens that a name can stand for.
const MAX_BODY: usize = 64;
/// The most tokens of a text.
const MAX_TOKENS: usize = 1 << 20;

/// The tokens of a text.
pub(crate) fn tokens<'a>(source: SourceId, text: &'a str, messages: &mut Messages) -> Vec<Token<'a>> {
    let mut scanner = Scanner { source, text, at: 0 };
    let mut defined: HashMap<&str, Vec<Token<'_>>> = HashMap::new();
    let mut tokens = Vec::new();
    let mut at_line_start = true;
    while !messages.full() {
        at_line_start |= scanner.blank();
        let start = scanner.at;
        match scanner.rest().chars().next() {
            None => break,
            Some('#') if at_line_start => scanner.directive(&mut defined, messages),
            Some('/') if scanner.rest().starts_with("/*") || scanner.rest().starts_with("//") => {
                scanner.comment(messages);
                continue;
            }
            Some(first) => match scanner.token(first) {
                Ok(token) => expand(token, &defined, &mut tokens),
                Err(message) => messages.add(message),
            },
        }
        at_line_start = false;
        debug_assert!(scanner.at > start, "each turn goes forward");
        if tokens.len() > MAX_TOKENS {
            let span = scanner.span(start, scanner.at);
            let message =
                Diagnostic::error(span, format!("there are more than {MAX_TOKENS} words and signs"));
            messages
                .add(message.label("the rest is not read").help("divide the description into several files"));
            break;
        }
    }
    tokens
}

/// Adds a token, or what its name stands for, at its place.
fn expand<'a>(token: Token<'a>, defined: &HashMap<&str, Vec<Token<'a>>>, tokens: &mut Vec<Token<'a>>) {
    match defined.get(token.text).filter(|_| token.kind == Kind::Word) {
        Some(body) => tokens.extend(body.iter().map(|part| Token { span: token.span, ..*part })),
        None => tokens.push(token),
    }
}

struct Scanner<'a> {
    source: SourceId,
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let byte = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Span { source: self.source, start: byte(start), end: byte(end) }
    }

    /// Passes white space and joined lines; whether a line ended, or the text begins.
    fn blank(&mut self) -> bool {
        let mut line = self.at == 0;
        loop {
            let rest = self.rest();
            if let Some(joined) = rest.strip_prefix("\\\n").or_else(|| rest.strip_prefix("\\\r\n")) {
                self.at = self.text.len() - joined.len();
                continue;
            }
            match rest.chars().next() {
                Some(blank) if blank.is_whitespace() => {
                    line |= blank == '\n';
                    self.at += blank.len_utf8();
                }
                _ => return line,
            }
        }
    }

    fn comment(&mut self, messages: &mut Messages) {
        let start = self.at;
        let rest = self.rest();
        self.at += match rest.starts_with("//") {
            true => rest.find('\n').unwrap_or(rest.len()),
            false => match rest[2..].find("*/") {
                Some(end) => end + 4,
                None => {
                    let span = self.span(start, start + 2);
                    let message = Diagnostic::error(span, "this comment does not end");
                    messages.add(message.label("it begins here").help("end it with `*/`"));
                    rest.len()
                }
            },
        };
    }

    fn token(&mut self, first: char) -> Result<Token<'a>, Diagnostic> {
        let start = self.at;
        let rest = self.rest();
        let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let (length, kind) = match first {
            _ if is_word(first) => {
                let kind = if first.is_ascii_digit() { Kind::Other } else { Kind::Word };
                (rest.find(|it| !is_word(it)).unwrap_or(rest.len()), kind)
            }
            '{' | '}' | '(' | ')' | '[' | ']' | ',' | ';' | ':' | '*' | '-' => (1, Kind::Sign),
            '"' | '\'' => match quoted(rest, first) {
                Some(length) => (length, Kind::Other),
                None => {
                    self.at += rest.find('\n').unwrap_or(rest.len());
                    let span = self.span(start, start + 1);
                    let message = Diagnostic::error(span, "this text does not end in its line");
                    return Err(message.label("it begins here").help(format!("end it with `{first}`")));
                }
            },
            '.' | '<' | '>' | '/' | '+' | '=' | '&' | '|' | '!' | '?' | '%' | '^' | '~' | '@' => {
                (1, Kind::Other)
            }
            _ => {
                self.at += first.len_utf8();
                let span = self.span(start, self.at);
                let message =
                    Diagnostic::error(span, format!("{} has no meaning here", quote(&first.to_string())));
                return Err(message.help("names have letters, digits and underscores of ASCII"));
            }
        };
        self.at += length;
        Ok(Token { text: &rest[..length], span: self.span(start, self.at), kind })
    }

    /// A preprocessor's line, to its end.
    fn directive(&mut self, defined: &mut HashMap<&'a str, Vec<Token<'a>>>, messages: &mut Messages) {
        let start = self.at;
        let end = self.line_end();
        let line = &self.text[start + 1..end];
        let word = line.split_whitespace().next().unwrap_or("");
        match word {
            // Only the first line of a text is one for an interpreter.
            _ if line.starts_with('!') && start == 0 => {}
            "" | "pragma" | "ident" | "line" => {}
            _ if word.starts_with(|first: char| first.is_ascii_digit()) => {}
            "define" => {
                if let Err(message) = self.define(start, end, defined, messages) {
                    messages.add(message);
                }
            }
            "undef" => {
                let name = line.split_whitespace().nth(1).unwrap_or("");
                defined.remove(name);
            }
            _ => {
                let message = Diagnostic::error(
                    self.span(start, end),
                    format!("`#{}` is not possible here", source::printable(word)),
                );
                let message = message.label("only `#pragma` and `#define NAME TYPE` are");
                messages
                    .add(message.help(
                        "have the C preprocessor read the file: `gcc -E -x c FILE | dprobes header -`",
                    ));
            }
        }
        self.at = end;
    }

    /// The end of the line, which `\` before a line's end continues.
    fn line_end(&self) -> usize {
        let mut end = self.at;
        loop {
            end += self.text[end..].find('\n').unwrap_or(self.text.len() - end);
            let line = &self.text[self.at..end];
            if end == self.text.len() || !(line.ends_with('\\') || line.ends_with("\\\r")) {
                return end;
            }
            end += 1;
        }
    }

    /// `#define NAME TOKENS`, from `start` to `end`.
    fn define(
        &mut self,
        start: usize,
        end: usize,
        defined: &mut HashMap<&'a str, Vec<Token<'a>>>,
        messages: &mut Messages,
    ) -> Result<(), Diagnostic> {
        let mut line = Scanner { source: self.source, text: &self.text[..end], at: start + 1 };
        let mut body: Vec<Token<'a>> = Vec::new();
        // `define` itself, then the name.
        line.blank();
        line.token('d')?;
        line.blank();
        let first = line.rest().chars().next().unwrap_or(' ');
        let name = if first == ' ' { None } else { Some(line.token(first)?) };
        let Some(name) = name.filter(|name| name.kind == Kind::Word) else {
            let message = Diagnostic::error(self.span(start, end), "`#define` defines no name");
            return Err(message.help("write `#define NAME TYPE`"));
        };
        if line.rest().starts_with('(') {
            let message = Diagnostic::error(name.span, "a macro with parameters is not possible here");
            return Err(message.help("write `#define NAME TYPE`, or have the C preprocessor read the file: `gcc -E -x c FILE | dprobes header -`"));
        }
        loop {
            line.blank();
            let rest = line.rest();
            let Some(first) = rest.chars().next() else { break };
            if rest.starts_with("/*") || rest.starts_with("//") {
                line.comment(messages);
                continue;
            }
            expand(line.token(first)?, defined, &mut body);
            if body.len() > MAX_BODY {
                let message =
                    Diagnostic::error(name.span, format!("{} stands for too much", quote(name.text)));
                return Err(
                    message.help(format!("a name stands for a type, of at most {MAX_BODY} words and signs"))
                );
            }
        }
        defined.insert(name.text, body);
        Ok(())
    }
}

/// The length of a text in quotes.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\n' => return None,
            '\\' => {
                letters.next();
            }
            _ if letter == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}
