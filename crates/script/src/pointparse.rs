//! Reads an attach point from its text.

use source::{Diagnostic, Span, nearest, quote};

use crate::ast::At;
use crate::attach_point::{AttachPoint, AttachTarget, Binary, Memory, Number, Process, Unit};
use crate::number;
use crate::provider::{CountedEvent, HARDWARE_EVENTS, Provider, Row, SOFTWARE_EVENTS, TABLE, counted_event};

/// A part of an attach point between colons.
#[derive(Clone, Debug)]
struct Piece {
    text: String,
    /// Where its quotes end, if it has any: what is in them is a name, whatever it looks like.
    quoted: Option<usize>,
    span: Span,
}

impl Piece {
    fn word(&self) -> Option<&str> {
        self.quoted.is_none().then_some(&self.text)
    }

    fn number(&self) -> Option<u64> {
        self.word()
            .filter(|text| text.starts_with(|each: char| each.is_ascii_digit()))
            .and_then(|text| number::value(text).ok())
    }
}

/// Reads the attach point at `span`.
pub(crate) fn parse(text: &str, span: Span) -> Result<AttachPoint, Diagnostic> {
    let at = |start: usize, end: usize| {
        let byte = |offset: usize| span.start.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX));
        Span { start: byte(start), end: byte(end), ..span }
    };
    let name_end = text.find(|each: char| !each.is_ascii_alphanumeric() && each != '_').unwrap_or(text.len());
    let label = (name_end > 0 && text[name_end..].starts_with('=')).then(|| text[..name_end].to_string());
    let start = label.as_ref().map_or(0, |_| name_end + 1);
    let pieces = split(&text[start..], |from, to| at(start + from, start + to))?;
    let Some((first, rest)) = pieces.split_first() else {
        return Err(Diagnostic::error(span, "the attach point is empty").label("expected a provider"));
    };
    let (provider, place) = match first.text.strip_prefix("pid").filter(|rest| !rest.is_empty()) {
        Some(process) => pid(process, first, rest, span)?,
        None => {
            let provider = Provider::named(&first.text).ok_or_else(|| unknown(first))?;
            attach_target(provider, rest, span)?
        }
    };
    Ok(AttachPoint { at: At(span), label, provider, place })
}

fn unknown(first: &Piece) -> Diagnostic {
    let names = TABLE.iter().flat_map(|row| row.names.iter().copied()).filter(|name| name.len() > 2);
    let message = match first.text.is_empty() {
        true => "the attach point has no provider".to_string(),
        false => format!("no provider of probes is called {}", quote(&first.text)),
    };
    Diagnostic::error(first.span, message)
        .label("expected a provider, such as `uprobe`")
        .suggest(nearest(&first.text, names))
}

/// Whether `::` behind a name is a part of it: of a function of C++ or Rust. In D's provider, an
/// empty field means all.
fn is_in_name(pieces: &[Piece], name: &str, behind: &str) -> bool {
    let is_part =
        |each: char| each.is_alphanumeric() || matches!(each, '_' | '*' | '>' | '~' | '?' | ')' | '}');
    let [first, _, ..] = pieces else { return false };
    matches!(Provider::named(&first.text), Some(Provider::Uprobe | Provider::Uretprobe))
        && name.ends_with(is_part)
        && behind.starts_with("::")
        && behind[2..]
            .starts_with(|each: char| each.is_alphanumeric() || matches!(each, '_' | '*' | '~' | '?' | '{'))
}

/// Splits at the colons outside of quotes.
fn split(text: &str, at: impl Fn(usize, usize) -> Span) -> Result<Vec<Piece>, Diagnostic> {
    const MAX_PIECES: usize = 8;
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let (mut quoted, mut inside, mut start) = (None, false, 0);
    let mut characters = text.char_indices();
    while let Some((offset, each)) = characters.next() {
        match each {
            '"' => {
                inside = !inside;
                quoted = Some(piece.len());
            }
            '\\' if inside => piece.extend(characters.next().map(|(_, next)| next)),
            ':' if !inside && is_in_name(&pieces, &piece, &text[offset..]) => {
                piece.push_str("::");
                characters.next();
            }
            ':' if !inside => {
                let text = std::mem::take(&mut piece);
                pieces.push(Piece { text, quoted, span: at(start, offset) });
                (quoted, start) = (None, offset + 1);
                if pieces.len() == MAX_PIECES {
                    let message = format!("an attach point has at most {MAX_PIECES} fields");
                    return Err(Diagnostic::error(at(start, start), message).label("too many"));
                }
            }
            _ => piece.push(each),
        }
    }
    if inside {
        return Err(
            Diagnostic::error(at(start, text.len()), "the quotes are not closed").label("opened here")
        );
    }
    pieces.push(Piece { text: piece, quoted, span: at(start, text.len()) });
    Ok(pieces)
}

/// The message for fields that fit none of the provider's forms.
fn malformed(provider: Provider, span: Span, label: &str) -> Diagnostic {
    let row: &Row = provider.row();
    let forms = row.forms.iter().map(|form| format!("`{form}`")).collect::<Vec<_>>().join(", ");
    Diagnostic::error(span, format!("this is no attach point of `{}`", row.names[0]))
        .label(label)
        .help(format!("write {forms}"))
}

fn attach_target(
    provider: Provider,
    rest: &[Piece],
    span: Span,
) -> Result<(Provider, AttachTarget), Diagnostic> {
    let wrong = |label: &str| malformed(provider, span, label);
    if let Some(empty) = rest.iter().find(|piece| piece.text.is_empty() && provider != Provider::Software) {
        return Err(malformed(provider, empty.span, "the field is empty"));
    }
    let names: Vec<&str> = rest.iter().map(|piece| piece.text.as_str()).collect();
    let place = match provider {
        Provider::Begin | Provider::End => match rest {
            [] => AttachTarget::Only,
            [first, ..] => return Err(malformed(provider, first.span, "nothing follows here")),
        },
        Provider::Own => match names[..] {
            ["signal", signal] if signal.bytes().all(|each| each.is_ascii_alphanumeric()) => {
                AttachTarget::Signal(signal.to_string())
            }
            _ => return Err(wrong("expected `signal` and a signal's name")),
        },
        Provider::Interval | Provider::Profile => period(provider, rest, span)?,
        Provider::Hardware => event(provider, rest, span, HARDWARE_EVENTS)?,
        Provider::Software => event(provider, rest, span, SOFTWARE_EVENTS)?,
        Provider::Kprobe | Provider::Kretprobe | Provider::Fentry | Provider::Fexit => {
            kernel(provider, rest, span)?
        }
        Provider::Tracepoint => match names[..] {
            [group, event] => AttachTarget::Tracepoint(Some(group.to_string()), event.to_string()),
            _ => return Err(wrong("expected a subsystem and an event")),
        },
        Provider::Rawtracepoint => match names[..] {
            [event] => AttachTarget::Tracepoint(None, event.to_string()),
            [group, event] => AttachTarget::Tracepoint(Some(group.to_string()), event.to_string()),
            _ => return Err(wrong("expected an event")),
        },
        Provider::Uprobe | Provider::Uretprobe => return user(provider, rest, span),
        Provider::Usdt => match names[..] {
            [path, name] => {
                AttachTarget::Usdt { binary: binary(path), namespace: None, name: name.to_string() }
            }
            [path, namespace, name] => {
                let namespace = Some(namespace.to_string());
                AttachTarget::Usdt { binary: binary(path), namespace, name: name.to_string() }
            }
            _ => return Err(wrong("expected a program and a probe's name")),
        },
        Provider::Watchpoint | Provider::Asyncwatchpoint => watch(provider, rest, span)?,
        Provider::Iter | Provider::Test | Provider::Bench => {
            AttachTarget::Other(names.into_iter().map(String::from).collect())
        }
    };
    Ok((provider, place))
}

fn binary(path: &str) -> Binary {
    Binary { path: path.to_string(), process: None }
}

/// A number or `$1`.
fn amount(provider: Provider, piece: &Piece) -> Result<Number, Diagnostic> {
    if let Some(index) = piece.text.strip_prefix('$') {
        return match index.parse() {
            Ok(index) if index > 0 => Ok(Number::Positional(index)),
            _ => Err(malformed(provider, piece.span, "expected a number or `$1`")),
        };
    }
    match number::value(&piece.text) {
        Ok(0) => Err(malformed(provider, piece.span, "it must be more than 0")),
        Ok(value) => Ok(Number::Literal(value)),
        Err(why) => Err(malformed(provider, piece.span, why)),
    }
}

fn period(provider: Provider, rest: &[Piece], span: Span) -> Result<AttachTarget, Diagnostic> {
    match rest {
        [count] => Ok(AttachTarget::Period(Unit::Nanoseconds, amount(provider, count)?)),
        [unit, count] => match Unit::ALL.iter().find(|(_, name)| *name == unit.text) {
            Some((found, _)) => Ok(AttachTarget::Period(*found, amount(provider, count)?)),
            None => Err(malformed(provider, unit.span, "expected `us`, `ms`, `s` or `hz`")),
        },
        _ => Err(malformed(provider, span, "expected a period")),
    }
}

fn event(
    provider: Provider,
    rest: &[Piece],
    span: Span,
    events: &[CountedEvent],
) -> Result<AttachTarget, Diagnostic> {
    let (name, count) = match rest {
        [name] => (name, None),
        [name, count] if count.text.is_empty() => (name, None),
        [name, count] => (name, Some(amount(provider, count)?)),
        _ => return Err(malformed(provider, span, "expected an event")),
    };
    match counted_event(provider, &name.text) {
        Some(event) => Ok(AttachTarget::Event(event.name.to_string(), count)),
        None => {
            let names = events.iter().flat_map(|event| [event.name, event.alias]);
            Err(Diagnostic::error(
                name.span,
                format!("`{}` has no event {}", provider.name(), quote(&name.text)),
            )
            .label("expected an event")
            .suggest(nearest(&name.text, names)))
        }
    }
}

/// `name+offset`.
fn with_offset(provider: Provider, piece: &Piece) -> Result<(String, Option<u64>), Diagnostic> {
    let from = piece.quoted.unwrap_or(0);
    let Some(plus) = piece.text[from..].rfind('+').map(|plus| from + plus) else {
        return Ok((piece.text.clone(), None));
    };
    match number::value(&piece.text[plus + 1..]) {
        Ok(offset) if plus > 0 => Ok((piece.text[..plus].to_string(), Some(offset))),
        _ => Err(malformed(provider, piece.span, "expected a function, `+` and a number")),
    }
}

fn kernel(provider: Provider, rest: &[Piece], span: Span) -> Result<AttachTarget, Diagnostic> {
    let (module, function) = match rest {
        [function] => (None, function),
        [module, function] => (Some(module.text.clone()), function),
        _ => return Err(malformed(provider, span, "expected a function")),
    };
    if module.as_deref() == Some("bpf") && matches!(provider, Provider::Fentry | Provider::Fexit) {
        return Err(Diagnostic::error(span, "dprobes does not probe eBPF programs")
            .label("this names an eBPF program")
            .help("it would need the type information of a loaded eBPF program"));
    }
    let (function, offset) = with_offset(provider, function)?;
    if offset.is_some() && provider != Provider::Kprobe {
        return Err(malformed(provider, span, "only `kprobe` takes an offset"));
    }
    Ok(AttachTarget::Kernel { module, function, offset })
}

/// What `uprobe` and `uretprobe` take, with the forms that are ours.
fn user(provider: Provider, rest: &[Piece], span: Span) -> Result<(Provider, AttachTarget), Diagnostic> {
    let Some((path, rest)) = rest.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Err(malformed(provider, span, "expected a program or library, and a function"));
    };
    let mut provider = provider;
    let mut rest = rest;
    if let [all @ .., last] = rest
        && !all.is_empty()
    {
        match last.word() {
            Some("entry") if provider == Provider::Uprobe => rest = all,
            Some("return") => (provider, rest) = (Provider::Uretprobe, all),
            _ => {}
        }
    }
    let binary = binary(&path.text);
    let place = match rest {
        [point] if point.number().is_some() => AttachTarget::Offset(binary, point.number().unwrap_or(0)),
        [function] => {
            let (function, offset) = with_offset(provider, function)?;
            AttachTarget::Function { binary, function, cpp: false, offset }
        }
        [language, function] if language.word() == Some("cpp") => {
            AttachTarget::Function { binary, function: function.text.clone(), cpp: true, offset: None }
        }
        [file, line] if line.number().is_some() => {
            let line = line.number().filter(|line| *line > 0 && *line <= u64::from(u32::MAX));
            let line = line.ok_or_else(|| malformed(provider, span, "lines count from 1"))?;
            AttachTarget::Line { binary, file: file.text.clone(), line }
        }
        [.., last] => {
            let label = "expected `entry`, `return` or a line";
            return Err(malformed(provider, last.span, label));
        }
        [] => return Err(malformed(provider, span, "expected a function")),
    };
    let whole = matches!(place, AttachTarget::Function { offset: None, .. });
    if provider == Provider::Uretprobe && !whole {
        let label = "only a function returns, not an instruction or a line";
        return Err(malformed(provider, span, label));
    }
    Ok((provider, place))
}

/// D's `pidN:module:function:point`.
fn pid(
    process: &str,
    first: &Piece,
    rest: &[Piece],
    span: Span,
) -> Result<(Provider, AttachTarget), Diagnostic> {
    let process = match process {
        "$target" => Process::Target,
        digits => match digits.parse() {
            Ok(number) if number > 0 => Process::Number(number),
            _ => return Err(unknown(first)),
        },
    };
    let [module, function, point] = rest else {
        return Err(malformed(Provider::Uprobe, span, "expected a module, a function and a point"));
    };
    // D's empty field means all.
    let or_all = |text: &str| if text.is_empty() { "*".to_string() } else { text.to_string() };
    let binary = Binary { path: or_all(&module.text), process: Some(process) };
    let function = or_all(&function.text);
    let (provider, offset) = match point.text.as_str() {
        "entry" => (Provider::Uprobe, None),
        "return" => (Provider::Uretprobe, None),
        hexadecimal => match u64::from_str_radix(hexadecimal, 16) {
            Ok(offset) => (Provider::Uprobe, Some(offset)),
            Err(_) => {
                let label = "expected `entry`, `return` or a hexadecimal offset";
                return Err(malformed(Provider::Uprobe, point.span, label));
            }
        },
    };
    Ok((provider, AttachTarget::Function { binary, function, cpp: false, offset }))
}

/// Whether a text can be the name of a variable, or of a part of one: `config.limits[1].soft`.
fn is_variable(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|each| each.is_alphanumeric() || "_.[]$@:".contains(each))
}

fn watch(provider: Provider, rest: &[Piece], span: Span) -> Result<AttachTarget, Diagnostic> {
    let [memory, length, mode] = rest else {
        return Err(malformed(provider, span, "expected an address, a length and a mode"));
    };
    let place = match memory.text.rsplit_once("+arg") {
        Some((function, index)) if !function.is_empty() => match index.parse() {
            Ok(index @ 0..=5) => Memory::Argument(function.to_string(), index),
            _ => return Err(malformed(provider, memory.span, "expected an argument from `arg0` to `arg5`")),
        },
        _ => match number::value(&memory.text) {
            Ok(address) => Memory::Address(address),
            Err(_) if provider == Provider::Watchpoint && is_variable(&memory.text) => {
                Memory::Symbol(memory.text.clone())
            }
            Err(_) => return Err(malformed(provider, memory.span, "expected an address")),
        },
    };
    let length = match number::value(&length.text) {
        Ok(length @ (1 | 2 | 4 | 8)) => length,
        _ => return Err(malformed(provider, length.span, "expected 1, 2, 4 or 8")),
    };
    let mode = match mode.text.as_str() {
        "w" => "w",
        "rw" | "wr" => "rw",
        "x" => "x",
        "r" => return Err(malformed(provider, mode.span, "x86-64 cannot watch reads alone: write `rw`")),
        _ => return Err(malformed(provider, mode.span, "expected `w`, `rw` or `x`")),
    };
    Ok(AttachTarget::Watch { memory: place, length, mode: mode.to_string() })
}

#[cfg(test)]
mod tests;
