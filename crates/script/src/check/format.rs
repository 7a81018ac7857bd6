//! Formats, as of `printf`.

use source::{Diagnostic, Span, quote};

use crate::ast::Expr;
use crate::check::unify;
use crate::types::Type;

/// What a conversion shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Number,
    Address,
    Text,
    Bytes,
    Float,
}

/// A conversion of a format.
#[derive(Clone, Debug)]
struct Conversion {
    text: String,
    shows: Shows,
}

/// Checks the values of a format.
pub(crate) fn check(format: &[u8], span: Span, values: &[Expr]) -> Result<(), Diagnostic> {
    let conversions = conversions(format, span)?;
    if conversions.len() != values.len() {
        let at = match values.get(conversions.len()) {
            Some(extra) => extra.span(),
            None => span,
        };
        let message =
            format!("the format shows {}, but there {}", count(conversions.len()), are(values.len()));
        let label = if values.len() > conversions.len() { "is not shown" } else { "needs more values" };
        return Err(Diagnostic::error(at, message).label(label));
    }
    for (conversion, value) in conversions.iter().zip(values) {
        let (fits, expected) = match conversion.shows {
            Shows::Number => (is_number(&value.ty), "a number"),
            Shows::Address => (unify::is_address(&value.ty), "a pointer or a number"),
            Shows::Text => (unify::is_shown_as_text(&value.ty), "a string"),
            Shows::Float => (matches!(value.ty, Type::Float(_)), "a floating-point number"),
            Shows::Bytes => (
                matches!(value.ty, Type::Unknown | Type::Bytes | Type::Array(..)),
                "bytes, as `buf()` gives them",
            ),
        };
        if !fits {
            let message = format!("{} cannot show a value of type `{}`", quote(&conversion.text), value.ty);
            let help = match (&value.ty, conversion.shows) {
                (Type::Pointer(_), Shows::Text) => Some("read the string with `str()`"),
                (Type::Integer(_), Shows::Text) => Some("use `%d`, or read a string with `str()`"),
                (Type::Text, _) => Some("use `%s`"),
                (Type::Float(_), _) => Some("use `%g`, `%f` or `%e`"),
                (_, Shows::Float) => Some("use `%d`: only `double` and `float` of a program have a fraction"),
                (Type::Bytes, _) => Some("use `%r`"),
                _ => None,
            };
            let message = Diagnostic::error(value.span(), message).label(format!("expected {expected}"));
            return Err(match help {
                Some(help) => message.help(help),
                None => message,
            });
        }
    }
    Ok(())
}

fn is_number(ty: &Type) -> bool {
    matches!(ty, Type::Unknown | Type::Pointer(_)) || ty.as_integer().is_some()
}

fn count(conversions: usize) -> String {
    if conversions == 1 { "1 value".into() } else { format!("{conversions} values") }
}

fn are(values: usize) -> String {
    match values {
        0 => "is none".into(),
        1 => "is 1".into(),
        _ => format!("are {values}"),
    }
}

fn conversions(format: &[u8], span: Span) -> Result<Vec<Conversion>, Diagnostic> {
    let mut found = Vec::new();
    let mut rest = format;
    while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
        rest = &rest[percent..];
        let flags = 1 + rest[1..].iter().take_while(|byte| b"-+ #0'".contains(byte)).count();
        let width =
            flags + rest[flags..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        let size = width + rest[width..].iter().take_while(|byte| b"hlLqjzt".contains(byte)).count();
        let shows = match rest.get(size) {
            Some(b'%') => None,
            Some(b'd' | b'i' | b'u' | b'x' | b'X' | b'o' | b'c') => Some(Shows::Number),
            Some(b'p') => Some(Shows::Address),
            Some(b's') => Some(Shows::Text),
            Some(b'r') => Some(Shows::Bytes),
            Some(b'g') if rest.get(size + 1) == Some(&b'r') => Some(Shows::Number),
            Some(b'f' | b'F' | b'e' | b'E' | b'g' | b'G') => Some(Shows::Float),
            _ => {
                let end = (size + 1).min(rest.len());
                let text = String::from_utf8_lossy(&rest[..end]).into_owned();
                return Err(Diagnostic::error(
                    span,
                    format!("the format has no conversion {}", quote(&text)),
                )
                .label("in this format")
                .help("there are %d %i %u %x %X %o %c %p %s %f %e %g %r %rh %rx %gr and %%"));
            }
        };
        // `%rx` and `%rh` show bytes in other ways, `%gr` has two letters.
        let second = match (rest.get(size), rest.get(size + 1)) {
            (Some(b'r'), Some(b'x' | b'h')) | (Some(b'g'), Some(b'r')) => 2,
            _ => 1,
        };
        let end = size + second;
        if let Some(shows) = shows {
            found.push(Conversion { text: String::from_utf8_lossy(&rest[..end]).into_owned(), shows });
        }
        rest = &rest[end..];
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_found() {
        let all = |format: &str| -> Vec<String> {
            let found = conversions(format.as_bytes(), Span::default()).unwrap();
            found.into_iter().map(|conversion| conversion.text).collect()
        };
        assert_eq!(all("%d %-6.2llx|%% %s"), ["%d", "%-6.2llx", "%s"]);
        assert_eq!(all("%r %rx %rh %gr %c%p"), ["%r", "%rx", "%rh", "%gr", "%c", "%p"]);
        assert_eq!(all("%g %gr%G%.3f %-10.2Le"), ["%g", "%gr", "%G", "%.3f", "%-10.2Le"]);
        assert!(conversions(b"50%", Span::default()).is_err());
        assert!(conversions(b"%y", Span::default()).is_err());
        assert!(conversions(b"%*d", Span::default()).is_err());
    }
}
