//! Prints a script in its normal form: full names of providers, numbers in decimal, one statement a
//! line, and only the parentheses that are needed. What is printed parses to the same tree.

mod expression;
mod statement;

use crate::ast::{Field, FieldKind, Item, Parameter, Record, Script, SettingValue};
use crate::types::Type;

use statement::Printer;

/// The script in its normal form.
pub fn print(script: &Script) -> String {
    items(script, false)
}

/// The script in its normal form. A comment behind each assignment tells the type.
pub fn print_typed(script: &Script) -> String {
    items(script, true)
}

/// The first line of a statement.
pub(crate) fn head(statement: &crate::ast::Statement) -> String {
    let mut printer = Printer::new(false);
    printer.statement(statement);
    printer.finish().lines().next().unwrap_or("").trim().to_string()
}

/// An expression.
pub(crate) fn expression(value: &crate::ast::Expr) -> String {
    Printer::new(false).value(value)
}

fn items(script: &Script, typed: bool) -> String {
    let mut printer = Printer::new(typed);
    for (index, item) in script.items.iter().enumerate() {
        if index > 0 {
            printer.line("");
        }
        match item {
            Item::Config(settings) => {
                printer.line("config = {");
                for setting in settings {
                    let value = match &setting.value {
                        SettingValue::Word(word) => word.clone(),
                        SettingValue::Number(number) => number.to_string(),
                        SettingValue::Text(text) => expression::text(text),
                    };
                    printer.line(&format!("    {} = {value};", setting.name));
                }
                printer.line("}");
            }
            Item::Map(map) => {
                printer.line(&format!("let @{} = {}({});", map.name, map.kind, map.entries));
            }
            Item::Record(found) => record(&mut printer, found, "", "\n"),
            Item::Enumeration(found) => {
                let name = found.name.as_ref().map_or(String::new(), |name| format!("{name} "));
                printer.line(&format!("enum {name}{{"));
                for (name, value) in &found.values {
                    printer.line(&format!("    {name} = {value},"));
                }
                printer.line("}");
            }
            Item::Macro(found) => {
                let parameters: Vec<String> = found
                    .parameters
                    .iter()
                    .map(|parameter| match parameter {
                        Parameter::Local(name) => format!("${name}"),
                        Parameter::Map(name) => format!("@{name}"),
                        Parameter::Expression(name) => name.clone(),
                    })
                    .collect();
                printer.line(&format!("macro {}({})", found.name, parameters.join(", ")));
                printer.braces(&found.body);
            }
            Item::Probe(probe) => {
                let points: Vec<String> = probe.points.iter().map(ToString::to_string).collect();
                printer.line(&points.join(",\n"));
                if let Some(predicate) = &probe.predicate {
                    let predicate = printer.value(predicate);
                    // `/*` would begin a comment.
                    let space = if predicate.starts_with('*') { " " } else { "" };
                    printer.line(&format!("/{space}{predicate}/"));
                }
                printer.braces(&probe.action);
            }
        }
    }
    printer.finish()
}

/// A struct or union. `end` follows its brace.
fn record(printer: &mut Printer, found: &Record, indent: &str, end: &str) {
    let name = found.name.as_ref().map_or(String::new(), |name| format!("{name} "));
    printer.line(&format!("{indent}{} {name}{{", found.tag.word()));
    let inner = format!("{indent}    ");
    for Field { name, kind, bits, .. } in &found.fields {
        let name = name.as_deref().unwrap_or("");
        match kind {
            FieldKind::Inner(found) => {
                let space = if name.is_empty() { "" } else { " " };
                record(printer, found, &inner, &format!("{space}{name};"));
            }
            FieldKind::Plain(ty) => {
                let bits = bits.map_or(String::new(), |bits| format!(" : {bits}"));
                printer.line(&format!("{inner}{}{bits};", declaration(ty, name)));
            }
        }
    }
    printer.line(&format!("{indent}}}{}", end.trim_end_matches('\n')));
}

/// A declaration as C writes it: the lengths of an array follow the name.
fn declaration(ty: &Type, name: &str) -> String {
    let mut lengths = String::new();
    let mut base = ty;
    while let Type::Array(inner, length) = base {
        lengths.push_str(&format!("[{}]", length.map_or(String::new(), |length| length.to_string())));
        base = inner;
    }
    let base = base.to_string();
    let space = if base.ends_with('*') { "" } else { " " };
    format!("{base}{space}{name}{lengths}")
}
