//! Reads one token at a time from a text.

use std::rc::Rc;
use std::sync::Arc;

use source::{Diagnostic, SourceId, Span, quote};

use crate::number;
use crate::provider::Provider;
use crate::token::{Placed, SIGNS, Token};

/// The maximum length of a string or an attach point in bytes.
const MAX_LENGTH: usize = 4096;

/// A position in a text.
#[derive(Clone, Debug)]
pub(crate) struct Scanner {
    text: Arc<str>,
    source: SourceId,
    at: usize,
    end: usize,
}

impl Scanner {
    pub(crate) fn new(source: SourceId, text: Arc<str>) -> Scanner {
        let end = text.len();
        Scanner { text, source, at: 0, end }
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &str {
        &self.text[self.at..self.end]
    }

    pub(crate) fn span_from(&self, start: usize) -> Span {
        let byte = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Span { source: self.source, start: byte(start), end: byte(self.at) }
    }

    /// The empty span here.
    pub(crate) fn here(&self) -> Span {
        self.span_from(self.at)
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.end);
    }

    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Takes the rest of the line, without its newline and with joined lines; gives a scanner for
    /// it.
    pub(crate) fn line(&mut self) -> Scanner {
        let start = self.at;
        while let Some(newline) = self.rest().find('\n') {
            let line = &self.rest()[..newline];
            let joined = line.trim_end_matches('\r').ends_with('\\');
            self.advance(newline);
            if !joined {
                return Scanner { at: start, end: self.at, ..self.clone() };
            }
            self.advance(1);
        }
        self.at = self.end;
        Scanner { at: start, end: self.at, ..self.clone() }
    }

    /// Whether only spaces precede this position on its line.
    pub(crate) fn starts_line(&self) -> bool {
        let before = &self.text[..self.at];
        let line = before.rfind('\n').map_or(before, |newline| &before[newline + 1..]);
        line.trim().is_empty()
    }

    /// Skips spaces, joined lines and comments.
    pub(crate) fn skip_blanks(&mut self) -> Result<(), Diagnostic> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            if blank > 0 {
                self.advance(blank);
            } else if rest.starts_with("\\\n") || rest.starts_with("\\\r\n") {
                self.advance(2);
            } else if rest.starts_with("//") {
                let end = rest.find('\n').unwrap_or(rest.len());
                self.advance(end);
            } else if let Some(inside) = rest.strip_prefix("/*") {
                let Some(end) = inside.find("*/") else {
                    let start = self.at;
                    self.advance(2);
                    let span = self.span_from(start);
                    self.at = self.end;
                    return Err(Diagnostic::error(span, "the comment is not closed")
                        .label("opened here")
                        .help("end it with `*/`"));
                };
                self.advance(end + 4);
            } else {
                return Ok(());
            }
        }
    }

    /// Whether what is at a place of this text would be a value.
    pub(crate) fn is_value(&self, span: Span) -> bool {
        let text = self.text.get(span.start as usize..).unwrap_or("");
        text.starts_with(|each: char| each.is_ascii_digit() || matches!(each, '"' | '\'' | '@' | '$'))
    }

    fn while_name(&self, from: usize) -> usize {
        let rest = &self.rest()[from..];
        from + rest.find(|each: char| !each.is_ascii_alphanumeric() && each != '_').unwrap_or(rest.len())
    }

    /// The name here, without taking it; empty if there is none.
    pub(crate) fn word(&self) -> &str {
        match self.rest().starts_with(|each: char| each.is_ascii_alphabetic() || each == '_') {
            true => &self.rest()[..self.while_name(0)],
            false => "",
        }
    }

    /// The next token, after blanks; [`Token::End`] at the end. After an error the place is behind
    /// what is wrong.
    pub(crate) fn token(&mut self) -> Result<Placed, Diagnostic> {
        self.skip_blanks()?;
        let start = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok(Placed { token: Token::End, span: self.here() });
        };
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                let name: Rc<str> = self.word().into();
                self.advance(name.len());
                Ok(Token::Name(name))
            }
            '0'..='9' => {
                let end = self.while_name(0);
                let value = number::value(&self.rest()[..end]);
                self.advance(end);
                value.map(Token::Integer).map_err(|why| {
                    Diagnostic::error(self.span_from(start), format!("this is no number: {why}"))
                        .label("expected a number")
                })
            }
            '@' => {
                let end = self.while_name(1);
                let name: Rc<str> = self.rest()[1..end].into();
                self.advance(end);
                match name.starts_with(|each: char| each.is_ascii_digit()) {
                    false => Ok(Token::Map(name)),
                    true => Err(Diagnostic::error(
                        self.span_from(start),
                        "a map's name cannot begin with a digit",
                    )
                    .label("expected a letter or `_` after `@`")),
                }
            }
            '$' => self.dollar(start),
            '"' => self.string(start),
            _ => match SIGNS.iter().find(|sign| self.rest().starts_with(**sign)) {
                Some(sign) => {
                    self.advance(sign.len());
                    Ok(Token::Sign(sign))
                }
                None => {
                    // A character in quotes is one mistake.
                    let quoted =
                        self.rest()[first.len_utf8()..].find('\'').filter(|at| first == '\'' && *at <= 4);
                    self.advance(quoted.map_or(first.len_utf8(), |at| at + 2));
                    let text = first.to_string();
                    Err(Diagnostic::error(
                        self.span_from(start),
                        format!("{} has no meaning here", quote(&text)),
                    )
                    .label("not part of the language")
                    .help(match first {
                        '\'' => "strings are in double quotes; write a character as its number",
                        '#' => "a preprocessor line begins with `#`, at the start of its line",
                        _ => "remove it",
                    }))
                }
            },
        }?;
        Ok(Placed { token, span: self.span_from(start) })
    }

    fn dollar(&mut self, start: usize) -> Result<Token, Diagnostic> {
        if self.rest().starts_with("$#") {
            self.advance(2);
            return Ok(Token::PositionalCount);
        }
        let end = self.while_name(1);
        let name: Rc<str> = self.rest()[1..end].into();
        self.advance(end);
        if !name.starts_with(|each: char| each.is_ascii_digit()) {
            return match name.is_empty() {
                false => Ok(Token::Local(name)),
                true => Err(Diagnostic::error(self.span_from(start), "a name is missing after `$`")
                    .label("expected a name, such as `$x`")),
            };
        }
        match name.parse() {
            Ok(index) if index > 0 => Ok(Token::Positional(index)),
            _ => Err(Diagnostic::error(self.span_from(start), "this is no positional parameter")
                .label("expected `$1`, `$2` and so on")),
        }
    }

    fn string(&mut self, start: usize) -> Result<Token, Diagnostic> {
        let mut bytes = Vec::new();
        let mut wrong = None;
        self.advance(1);
        loop {
            let Some(each) = self.rest().chars().next().filter(|each| *each != '\n') else {
                return Err(Diagnostic::error(self.span_from(start), "the string is not closed")
                    .label("opened here")
                    .help("a string ends with `\"` on the same line; write a newline as `\\n`"));
            };
            let from = self.at;
            self.advance(each.len_utf8());
            match each {
                '"' => break,
                '\\' => match self.escape() {
                    Some(byte) => bytes.push(byte),
                    None => {
                        wrong.get_or_insert_with(|| {
                            Diagnostic::error(self.span_from(from), "this escape is not known")
                                .label("expected \\n, \\t, \\r, \\\\, \\\", \\0nn or \\xnn")
                        });
                    }
                },
                _ => bytes.extend_from_slice(each.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if bytes.len() > MAX_LENGTH {
            let message = format!("the string is longer than {MAX_LENGTH} bytes");
            wrong = Some(Diagnostic::error(self.span_from(start), message).label("too long"));
        }
        wrong.map_or(Ok(Token::Text(bytes.into())), Err)
    }

    /// The byte of the escape after a backslash.
    fn escape(&mut self) -> Option<u8> {
        let first = self.rest().chars().next()?;
        let simple = match first {
            'n' => Some(b'\n'),
            't' => Some(b'\t'),
            'r' => Some(b'\r'),
            '\\' | '"' => Some(first as u8),
            _ => None,
        };
        if simple.is_some() {
            self.advance(1);
            return simple;
        }
        let (skip, base, most) = match first {
            'x' => (1, 16, 2),
            '0'..='7' => (0, 8, 3),
            _ => {
                // The newline stays: the string ends with its line.
                self.advance(if first == '\n' { 0 } else { first.len_utf8() });
                return None;
            }
        };
        self.advance(skip);
        let digits = self.rest().chars().take(most).take_while(|each| each.is_digit(base)).count();
        let value = u8::from_str_radix(&self.rest()[..digits], base).ok();
        self.advance(digits);
        value
    }

    /// Takes an attach point, if there is one here. It ends with a space, a comma, `{`, or the `/`
    /// of a predicate.
    pub(crate) fn attach_point(&mut self) -> Result<Option<Placed>, Diagnostic> {
        let start = self.at;
        let rest = self.rest();
        let mut shown = rest.len().min(MAX_LENGTH);
        while !rest.is_char_boundary(shown) {
            shown -= 1;
        }
        let whole = &rest[..shown];
        let mut quoted = false;
        let mut field = 0;
        let mut end = whole.len();
        let mut characters = whole.char_indices();
        while let Some((offset, each)) = characters.next() {
            match each {
                '"' => quoted = !quoted,
                '\\' if quoted => {
                    characters.next();
                }
                '\n' => {
                    end = offset;
                    break;
                }
                _ if quoted => {}
                ':' => field += 1,
                '/' if in_path(whole, offset, field) => {}
                ',' | '{' | '}' | ';' | '/' => {
                    end = offset;
                    break;
                }
                _ if each.is_whitespace() => {
                    end = offset;
                    break;
                }
                _ => {}
            }
        }
        let text: Rc<str> = whole[..end].into();
        if end == MAX_LENGTH || shown < rest.len() && end == shown {
            let message = format!("the attach point is longer than {MAX_LENGTH} bytes");
            let here = self.here();
            self.advance(rest.find(char::is_whitespace).unwrap_or(rest.len()));
            return Err(Diagnostic::error(here, message).label("starts here"));
        }
        self.advance(end);
        let span = self.span_from(start);
        Ok((!text.is_empty()).then_some(Placed { token: Token::Point(text), span }))
    }
}

/// Whether the `/` at `offset` belongs to a path in this field of an attach point.
fn in_path(point: &str, offset: usize, field: usize) -> bool {
    let provider = point.split(':').next().unwrap_or("");
    let provider = provider.rsplit('=').next().unwrap_or("");
    let found = Provider::named(provider);
    let user = matches!(found, Some(Provider::Uprobe | Provider::Uretprobe | Provider::Usdt))
        || found.is_none() && provider.starts_with("pid");
    match field {
        1 if user => true,
        // A source file: `src/main.c:12`.
        2 if found == Some(Provider::Uprobe) => {
            let rest = &point[offset..];
            let rest = &rest[..rest
                .find(|each: char| each.is_whitespace() || ",{};".contains(each))
                .unwrap_or(rest.len())];
            rest.split_once(':').is_some_and(|(_, line)| line.starts_with(|each: char| each.is_ascii_digit()))
        }
        2 => found == Some(Provider::Iter),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        let mut scanner = Scanner::new(SourceId(0), text.into());
        let mut all = Vec::new();
        loop {
            match scanner.token() {
                Ok(Placed { token: Token::End, .. }) => return all,
                Ok(placed) => all.push(placed.token),
                Err(message) => all.push(Token::Point(message.message.into())),
            }
        }
    }

    #[test]
    fn tokens_are_as_long_as_they_can_be() {
        let expected = [Token::Local("a".into()), Token::Sign("<<="), Token::Integer(1), Token::Sign("..")];
        assert_eq!(tokens("$a<<=1.."), expected);
        assert_eq!(tokens("$# $12"), [Token::PositionalCount, Token::Positional(12)]);
        assert_eq!(tokens("@ @x"), [Token::Map("".into()), Token::Map("x".into())]);
        assert_eq!(tokens("a/*/ b */c// d"), [Token::Name("a".into()), Token::Name("c".into())]);
    }

    #[test]
    fn strings_have_bytes() {
        assert_eq!(tokens(r#""\033[1m\x41\n\"""#), [Token::Text(b"\x1b[1mA\n\""[..].into())]);
        assert_eq!(tokens("\"a\\q\""), [Token::Point("this escape is not known".into())]);
        assert_eq!(tokens("\"a\\777\""), [Token::Point("this escape is not known".into())]);
        assert_eq!(tokens("\"a"), [Token::Point("the string is not closed".into())]);
    }

    #[test]
    fn an_attach_point_ends_where_its_predicate_begins() {
        let point = |text: &str| {
            let mut scanner = Scanner::new(SourceId(0), text.into());
            let found = scanner.attach_point().unwrap().map(|placed| placed.token);
            (found, scanner.rest().to_string())
        };
        let of = |text: &str, rest: &str| (Some(Token::Point(text.into())), rest.to_string());
        assert_eq!(point("kprobe:f/pid == 1/ {"), of("kprobe:f", "/pid == 1/ {"));
        assert_eq!(point("uprobe:/bin/a:f/1/{"), of("uprobe:/bin/a:f", "/1/{"));
        assert_eq!(point("uprobe:/bin/a:src/b.c:12/1/{"), of("uprobe:/bin/a:src/b.c:12", "/1/{"));
        assert_eq!(point("u:a:cpp:\"a, b{\", k"), of("u:a:cpp:\"a, b{\"", ", k"));
        assert_eq!(point("{"), (None, "{".to_string()));
    }
}
