//! The command that a script starts: behind `--`, or in one word.

use std::ffi::OsString;

use crate::Failure;
use crate::arguments::Trace;

/// The command to start, in words.
///
/// # Errors
/// It is not complete.
pub(super) fn command(arguments: &Trace) -> Result<Vec<OsString>, Failure> {
    let Some(text) = &arguments.cmd else { return Ok(arguments.command.clone()) };
    let words = words(text).ok_or_else(|| Failure::new(format!("-c '{text}': a quote is not closed")))?;
    match words.is_empty() {
        true => Err(Failure::new("-c: the command is empty")),
        false => Ok(words.into_iter().map(OsString::from).collect()),
    }
}

/// Splits a command at spaces that are not quoted.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            (each, Some(open)) if each == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().push(characters.next()?),
            (each, Some(_)) => word.get_or_insert_default().push(each),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (each, None) if each.is_whitespace() => words.extend(word.take()),
            (each, None) => word.get_or_insert_default().push(each),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_command_is_split_as_a_shell_does() {
        let split = |text| words(text).map(|words| words.join("|"));
        assert_eq!(split("ls -l /"), Some("ls|-l|/".into()));
        assert_eq!(split(" a 'b c' \"d\\\"e\" f\\ g '' "), Some("a|b c|d\"e|f g|".into()));
        assert_eq!(split("a 'b"), None);
        assert_eq!(split(""), Some(String::new()));
    }
}
