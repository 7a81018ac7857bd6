//! The parser: providers, and declarations of types.

mod cursor;
mod meaning;
mod parameter;

use std::collections::HashMap;

use source::{Diagnostic, Messages, Span, nearest, quote};

use self::cursor::Parser;
use self::parameter::passed;
use crate::description::{Description, MAX_ARGUMENTS, Probe, Provider};
use crate::tokens::{Kind, Token};
use crate::types::Type;

/// The longest name of a provider or probe.
const MAX_NAME: usize = 100;
/// What stands outside of a provider.
const WORDS: [&str; 6] = ["provider", "typedef", "struct", "union", "enum", "translator"];

/// Reads the providers of a text.
pub(crate) fn parse(tokens: &[Token<'_>], messages: &mut Messages) -> Description {
    let end = tokens.last().map_or(Span::default(), |last| last.span.after());
    let mut parser = Parser { tokens, at: 0, end, named: HashMap::new(), macros: HashMap::new() };
    let mut description = Description::default();
    while parser.peek().is_some() && !messages.full() {
        let before = parser.at;
        if let Err(message) = parser.declaration(&mut description, messages) {
            messages.add(message);
            parser.recover();
        }
        // A sign that begins nothing ends no declaration either.
        parser.at = parser.at.max(before + 1);
    }
    if description.providers.is_empty() && !messages.has_errors() {
        let message = Diagnostic::error(end, "there is no provider here");
        messages.add(message.help("write `provider NAME { probe NAME(int); };`"));
    }
    description
}

impl<'a> Parser<'_, 'a> {
    fn declaration(
        &mut self,
        description: &mut Description,
        messages: &mut Messages,
    ) -> Result<(), Diagnostic> {
        match self.peek().map_or("", |token| token.text) {
            "provider" => {
                self.at += 1;
                if let Some(provider) = self.provider(messages)? {
                    description.providers.push(provider);
                }
                Ok(())
            }
            "typedef" => {
                self.at += 1;
                self.definition()
            }
            "struct" | "union" | "enum" | "translator" => {
                self.skip_declaration();
                Ok(())
            }
            ";" => {
                self.at += 1;
                Ok(())
            }
            text => {
                let near = nearest(text, WORDS);
                let help = near.map_or("write `provider NAME { probe NAME(int); };`".to_owned(), |near| {
                    format!("did you mean `{near}`?")
                });
                Err(self.expected("`provider`").help(help))
            }
        }
    }

    /// Passes over a declaration whose types are of no use here.
    fn skip_declaration(&mut self) {
        while let Some(token) = self.next() {
            match token.text {
                "{" | "(" => self.skip_to_close(),
                ";" => return,
                _ => {}
            }
        }
    }

    /// `typedef TYPE NAME;`
    fn definition(&mut self) -> Result<(), Diagnostic> {
        let (meaning, name) = self.parameter(true)?;
        self.expect(";", "a definition is `typedef TYPE NAME;`")?;
        if let Some(name) = name {
            self.named.insert(name, meaning);
        }
        Ok(())
    }

    /// A provider, behind its keyword; `None` if a mistake was in it.
    fn provider(&mut self, messages: &mut Messages) -> Result<Option<Provider>, Diagnostic> {
        const FORM: &str = "a provider is `provider NAME { probe NAME(int); };`";
        let name = self.word("the provider's name", FORM)?;
        length(name.text, name.span)?;
        self.expect("{", FORM)?;
        let mut provider = Provider { name: name.text.to_owned(), probes: Vec::new() };
        let mut is_right = true;
        while !self.take("}") {
            if self.peek().is_none() || self.is("provider") {
                return Err(self
                    .expected("`}`")
                    .help("a provider ends with `};`")
                    .related(name.span, "this provider"));
            }
            match self.probe() {
                Ok((probe, span)) => match self.keep(&mut provider, probe, span) {
                    Ok(()) => {}
                    Err(message) => {
                        is_right = false;
                        messages.add(message);
                    }
                },
                Err(message) => {
                    is_right = false;
                    messages.add(message);
                    self.recover_in_provider();
                }
            }
        }
        if !self.take(";") {
            messages.add(
                self.expected("`;`").help("a provider ends with `};`").related(name.span, "this provider"),
            );
            is_right = false;
        }
        Ok(is_right.then_some(provider))
    }

    /// Goes to the next probe, or to the end of the provider.
    fn recover_in_provider(&mut self) {
        while let Some(token) = self.peek() {
            match token.text {
                "}" | "provider" | "probe" => return,
                ";" => {
                    self.at += 1;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Adds a probe, unless its macros have the names of others.
    fn keep(&mut self, provider: &mut Provider, probe: Probe, span: Span) -> Result<(), Diagnostic> {
        let name = provider.macro_name(&probe);
        let enabled = format!("{name}_ENABLED");
        let other = self.macros.get(&name).or_else(|| self.macros.get(&enabled)).copied();
        if let Some(other) = other {
            let message = Diagnostic::error(
                span,
                format!("{} has the macro of another probe, {}", quote(&probe.name), quote(&name)),
            );
            return Err(message
                .label("the second one")
                .help("give one of them another name")
                .related(other, "the first one"));
        }
        self.macros.extend([(name, span), (enabled, span)]);
        provider.probes.push(probe);
        Ok(())
    }

    /// `probe NAME(TYPE NAME, ...) : (TYPE NAME, ...);` and where its name is.
    fn probe(&mut self) -> Result<(Probe, Span), Diagnostic> {
        const FORM: &str = "a probe is `probe NAME(TYPE, TYPE);`";
        if !self.is("probe") {
            let near = self.peek().and_then(|token| nearest(token.text, ["probe"]));
            return Err(self.expected("`probe` or `}`").help(FORM).suggest(near));
        }
        self.at += 1;
        let (name, span) = self.probe_name(FORM)?;
        self.expect("(", FORM)?;
        let arguments = self.parameters(span)?;
        if self.take(":") {
            // What a translator would make of the arguments; the program passes those before.
            self.expect("(", "translated types are in brackets: `: (TYPE, TYPE)`")?;
            self.skip_to_close();
        }
        self.expect(";", FORM)?;
        Ok((Probe { name, arguments }, span))
    }

    /// A name with hyphens in it.
    fn probe_name(&mut self, form: &str) -> Result<(String, Span), Diagnostic> {
        let first = self.word("the probe's name", form)?;
        let (mut name, mut span) = (first.text.to_owned(), first.span);
        while self.take("-") {
            let part =
                self.peek().filter(|token| token.span.start == span.end + 1 && token.kind != Kind::Sign);
            let Some(part) = part else {
                return Err(self.expected("the rest of the name").help("a hyphen joins two parts of a name"));
            };
            self.at += 1;
            name = format!("{name}__{}", part.text);
            span = span.to(part.span);
        }
        if let Some(wrong) = name.chars().find(|letter| !letter.is_ascii_alphanumeric() && *letter != '_') {
            let message =
                Diagnostic::error(span, format!("{} cannot be in a name", quote(&wrong.to_string())));
            return Err(message.help(form));
        }
        length(&name, span)?;
        Ok((name, span))
    }

    /// The types between brackets, of which the first is taken.
    fn parameters(&mut self, probe: Span) -> Result<Vec<Type>, Diagnostic> {
        let mut all = Vec::new();
        if self.take(")") {
            return Ok(all);
        }
        if self.is("void") && self.tokens.get(self.at + 1).is_some_and(|token| token.text == ")") {
            self.at += 2;
            return Ok(all);
        }
        loop {
            let start = self.here();
            let (meaning, _) = self.parameter(false)?;
            let span = start.to(self.tokens[..self.at].last().map_or(start, |last| last.span));
            all.push(passed(meaning, span)?);
            if self.take(")") {
                break;
            }
            self.expect(",", "types are separated by commas: `probe NAME(int, char *);`")?;
        }
        if all.len() > MAX_ARGUMENTS {
            let message = Diagnostic::error(probe, format!("this probe has {} arguments", all.len()));
            return Err(message
                .label(format!("at most {MAX_ARGUMENTS} are possible"))
                .help("pass the address of a struct with them"));
        }
        Ok(all)
    }
}

fn length(name: &str, span: Span) -> Result<(), Diagnostic> {
    if name.len() <= MAX_NAME {
        return Ok(());
    }
    Err(Diagnostic::error(span, format!("this name has {} letters", name.len()))
        .help(format!("a name has at most {MAX_NAME}")))
}
