//! The items of a script.

use source::{Diagnostic, Span};

use super::cursor::Cursor;
use super::{definition, expression, statement};
use crate::ast::{Item, Macro, MapDeclaration, Parameter, Probe, Script, Setting, SettingValue};
use crate::pointparse;
use crate::token::Token;
use crate::types::Tag;

/// The maximum number of attach points of one probe, and of parameters of a macro.
const MAX_MEMBERS: usize = 1024;

/// All items.
pub(crate) fn script(cursor: &mut Cursor<'_>) -> Script {
    let mut script = Script::default();
    loop {
        while cursor.take(";") {}
        if *cursor.peek() == Token::End || cursor.full() {
            return script;
        }
        let before = cursor.position();
        match item(cursor) {
            Ok(item) => script.items.extend(item),
            Err(message) => {
                cursor.report(message);
                if cursor.position() == before {
                    cursor.next();
                }
                recover(cursor);
            }
        }
    }
}

/// Skips to the next item: behind the braces that are open or come next, or to an attach point.
fn recover(cursor: &mut Cursor<'_>) {
    let mut open = 0usize;
    loop {
        match cursor.peek() {
            Token::End => return,
            Token::Point(_) if open == 0 => return,
            Token::Sign("{") => open += 1,
            Token::Sign("}") => {
                open = open.saturating_sub(1);
                // What follows is an attach point or a keyword, or the braces go on.
                if open == 0 {
                    cursor.next();
                    return;
                }
            }
            _ => {}
        }
        cursor.next();
    }
}

fn item(cursor: &mut Cursor<'_>) -> Result<Option<Item>, Diagnostic> {
    let start = cursor.span();
    let word = match cursor.peek() {
        Token::Point(_) => return probe(cursor, start).map(|probe| Some(Item::Probe(probe))),
        Token::Name(word) => &**word,
        _ => return Err(cursor.unexpected("expected an attach point or a definition")),
    };
    Ok(Some(match word {
        "config" => config(cursor)?,
        "let" => map_declaration(cursor)?,
        "struct" | "union" if definition::only_named(cursor).is_some() => {
            cursor.next();
            cursor.next();
            return Ok(None);
        }
        "struct" => Item::Record(definition::record(cursor, Tag::Struct, false)?),
        "union" => Item::Record(definition::record(cursor, Tag::Union, false)?),
        "enum" => Item::Enumeration(definition::enumeration(cursor)?),
        "macro" => Item::Macro(definition_of_macro(cursor)?),
        "typedef" => {
            let message = cursor
                .unexpected("`typedef` is not supported")
                .help("define `struct name { ... }` and write `struct name`");
            cursor.report(message);
            statement::recover(cursor, true);
            return Ok(None);
        }
        "fn" => {
            return Err(cursor
                .unexpected("functions cannot be defined")
                .help("write `macro name(x) { ... }`"));
        }
        _ => return Err(cursor.unexpected("expected an attach point or a definition")),
    }))
}

fn config(cursor: &mut Cursor<'_>) -> Result<Item, Diagnostic> {
    cursor.next();
    cursor.expect("=")?;
    cursor.expect("{")?;
    let mut settings = Vec::new();
    while !cursor.take("}") {
        let start = cursor.span();
        let name = cursor.name("the name of a setting")?;
        cursor.expect("=")?;
        let value = match cursor.peek() {
            Token::Name(word) => SettingValue::Word(word.to_string()),
            Token::Integer(value) => SettingValue::Number(*value),
            Token::Text(text) => SettingValue::Text(text.to_vec()),
            _ => return Err(cursor.unexpected("expected a word, a number or a string")),
        };
        cursor.next();
        settings.push(Setting { at: cursor.since(start), name, value });
        if !cursor.take(";") {
            cursor.expect("}")?;
            break;
        }
    }
    Ok(Item::Config(settings))
}

/// `let @name = hash(100);`
fn map_declaration(cursor: &mut Cursor<'_>) -> Result<Item, Diagnostic> {
    let start = cursor.span();
    cursor.next();
    let name = match cursor.peek() {
        Token::Map(name) => name.to_string(),
        _ => return Err(cursor.unexpected("expected a map, such as `@x`")),
    };
    cursor.next();
    cursor.expect("=")?;
    let kind = cursor.name("a kind of map, such as `hash`")?;
    cursor.expect("(")?;
    let entries = match cursor.peek() {
        Token::Integer(entries) if *entries > 0 => *entries,
        _ => return Err(cursor.unexpected("expected the maximum number of entries")),
    };
    cursor.next();
    cursor.expect(")")?;
    let at = cursor.since(start);
    cursor.expect(";")?;
    Ok(Item::Map(MapDeclaration { at, name, kind, entries }))
}

fn definition_of_macro(cursor: &mut Cursor<'_>) -> Result<Macro, Diagnostic> {
    cursor.next();
    let start = cursor.span();
    let name = cursor.name("the name of a macro")?;
    let at = cursor.since(start);
    cursor.expect("(")?;
    let mut parameters = Vec::new();
    while !cursor.peek().is(")") {
        parameters.push(match cursor.peek() {
            Token::Local(name) => {
                cursor.next();
                Parameter::Local(name.to_string())
            }
            Token::Map(name) => {
                cursor.next();
                Parameter::Map(name.to_string())
            }
            _ => Parameter::Expression(cursor.name("a parameter: `$name`, `@name` or `name`")?),
        });
        if parameters.len() > MAX_MEMBERS {
            return Err(cursor.unexpected("too many parameters"));
        }
        if !cursor.take(",") {
            break;
        }
    }
    cursor.expect(")")?;
    let body = statement::block(cursor, true)?;
    Ok(Macro { at, name, parameters, body })
}

fn probe(cursor: &mut Cursor<'_>, start: Span) -> Result<Probe, Diagnostic> {
    let mut points = Vec::new();
    let mut good = true;
    loop {
        match cursor.peek() {
            Token::Point(text) => match pointparse::parse(text, cursor.span()) {
                Ok(point) => points.push(point),
                Err(message) => {
                    good = false;
                    cursor.report(message);
                }
            },
            _ => return Err(cursor.unexpected("expected an attach point")),
        }
        cursor.next();
        if points.len() > MAX_MEMBERS {
            return Err(cursor.unexpected("too many attach points"));
        }
        // A comma may stand at the end of the list.
        if !cursor.take(",") || !matches!(cursor.peek(), Token::Point(_)) {
            break;
        }
    }
    let at = cursor.since(start);
    let predicate = match cursor.take("/") {
        true => {
            cursor.in_predicate = true;
            let predicate = expression::expression(cursor);
            cursor.in_predicate = false;
            let predicate = predicate?;
            if !cursor.take("/") {
                return Err(cursor.unexpected("expected `/` at the end of the predicate"));
            }
            Some(predicate)
        }
        false => None,
    };
    if !cursor.peek().is("{") {
        let words: &[&str] = &["config", "macro", "struct", "union", "enum", "import"];
        let message = match (&predicate, good) {
            (None, true) => cursor.unexpected("expected `,`, a predicate in `/ /`, or `{`"),
            // The attach point was no attach point: perhaps a keyword was meant.
            (None, false) => {
                let message = cursor.unexpected("expected `{` after the attach points");
                cursor.suggest(message, words)
            }
            (Some(_), _) => cursor.unexpected("expected `{` after the predicate"),
        };
        return Err(message);
    }
    let action = statement::block(cursor, false)?;
    Ok(Probe { at, points, predicate, action })
}
