//! What handlers log, and how a record's bytes are split by it.
//!
//! A record does not say what its bytes are: `log 2` writes two words and nothing else. The
//! instructions of the handler say it. A *form* is the sequence of what one way through the handler
//! logs; a handler has a form for each way that differs. As text, in a trace store, a form is a
//! number for so many words and a `p` for each item with a prefix (a string, memory, variables),
//! and forms are separated by `|`: `2p|1` is "two words and a string, or a word".

use super::Functions;
use crate::Record;
use crate::template::Prefixed;

/// Most forms of a handler. One with more is unknown.
const MAX_FORMS: usize = 16;
/// Most pieces of a form.
const MAX_PIECES: usize = 64;

/// What an instruction logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Piece {
    /// So many words, without a prefix.
    Words(u16),
    /// An item with a prefix, which says what it is and how long.
    Prefixed,
}

/// The forms that the records of a probe may have. The default is that they are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedForms(Vec<Vec<Piece>>);

/// A part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// A word.
    Word(&'a [u8]),
    /// An item with a prefix.
    Item(Prefixed<'a>),
    /// Bytes of which nothing is known.
    Bytes(&'a [u8]),
}

impl LoggedForms {
    /// Nothing is known.
    pub const UNKNOWN: LoggedForms = LoggedForms(Vec::new());

    /// These forms; unknown if they are too many or too long.
    pub fn new(forms: impl IntoIterator<Item = Vec<Piece>>) -> LoggedForms {
        let mut all: Vec<Vec<Piece>> = Vec::new();
        for form in forms {
            if form.len() > MAX_PIECES || all.len() == MAX_FORMS {
                return LoggedForms::UNKNOWN;
            }
            all.push(form);
        }
        LoggedForms(all)
    }

    /// The forms of a text; unknown if it is none.
    pub fn parse(text: &str) -> LoggedForms {
        let form = |text: &str| {
            let mut pieces = Vec::new();
            let mut rest = text;
            while let Some(first) = rest.chars().next() {
                let end = rest.find(|each: char| !each.is_ascii_digit()).unwrap_or(rest.len());
                match rest[..end].parse() {
                    Ok(words) => pieces.push(Piece::Words(words)),
                    Err(_) if first == 'p' => pieces.push(Piece::Prefixed),
                    Err(_) => return None,
                }
                rest = &rest[end.max(1)..];
                // Between the numbers of two instructions.
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            Some(pieces)
        };
        match text {
            "?" => LoggedForms::UNKNOWN,
            _ => text
                .split('|')
                .map(form)
                .collect::<Option<Vec<_>>>()
                .map_or(LoggedForms::UNKNOWN, LoggedForms::new),
        }
    }

    /// The forms as a text.
    pub fn text(&self) -> String {
        let form = |form: &Vec<Piece>| {
            let mut text = String::new();
            for piece in form {
                match piece {
                    Piece::Words(words) if text.ends_with(|last: char| last.is_ascii_digit()) => {
                        text.push_str(&format!(",{words}"));
                    }
                    Piece::Words(words) => text.push_str(&words.to_string()),
                    Piece::Prefixed => text.push('p'),
                }
            }
            text
        };
        match self.0.as_slice() {
            [] => "?".to_owned(),
            forms => forms.iter().map(form).collect::<Vec<_>>().join("|"),
        }
    }

    /// The values of a record as text, each after a blank; addresses with names if functions are
    /// known.
    pub fn values(&self, record: &Record, functions: Option<&dyn Functions>) -> Vec<u8> {
        let mut out = Vec::new();
        super::value::append(&self.decode(&record.data, record.word), record, functions, &mut out);
        out
    }

    /// Splits the bytes of a record. If no form fits them exactly, or several do that split them
    /// differently, they are split into words if they are whole words, else not at all.
    pub(super) fn decode<'a>(&self, data: &'a [u8], word: usize) -> Vec<Part<'a>> {
        let word = if word == 4 { 4 } else { 8 };
        let mut fits = self.0.iter().filter_map(|form| split(form, data, word));
        let first = fits.next();
        match first {
            Some(parts) if fits.all(|other| other == parts) => parts,
            _ if data.len().is_multiple_of(word) => data.chunks(word).map(Part::Word).collect(),
            _ => vec![Part::Bytes(data)],
        }
    }
}

/// Splits all of the data by a form.
fn split<'a>(form: &[Piece], data: &'a [u8], word: usize) -> Option<Vec<Part<'a>>> {
    let mut rest = data;
    let mut parts = Vec::new();
    for piece in form {
        match piece {
            Piece::Words(words) => {
                let (own, after) = rest.split_at_checked(usize::from(*words) * word)?;
                parts.extend(own.chunks(word).map(Part::Word));
                rest = after;
            }
            Piece::Prefixed => {
                let (item, after) = Prefixed::split(rest, word)?;
                parts.push(Part::Item(item));
                rest = after;
            }
        }
    }
    rest.is_empty().then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn forms() -> impl Strategy<Value = LoggedForms> {
        let piece = prop_oneof![(1..300_u16).prop_map(Piece::Words), Just(Piece::Prefixed)];
        proptest::collection::vec(proptest::collection::vec(piece, 0..8), 0..6).prop_map(LoggedForms)
    }

    proptest! {
        #[test]
        fn forms_are_read_as_they_are_written(forms in forms()) {
            prop_assert_eq!(LoggedForms::parse(&forms.text()), forms);
        }

        #[test]
        fn any_text_is_read(text in ".{0,40}") {
            let _ = LoggedForms::parse(&text);
        }

        #[test]
        fn decoding_loses_and_invents_no_byte(
            forms in forms(),
            data in proptest::collection::vec(any::<u8>(), 0..100),
            word in prop_oneof![Just(4_usize), Just(8)],
        ) {
            let bytes = |part: &Part<'_>| match part {
                Part::Word(bytes) | Part::Bytes(bytes) => bytes.len(),
                Part::Item(item) => item.length(),
            };
            let parts = forms.decode(&data, word);
            prop_assert_eq!(parts.iter().map(bytes).sum::<usize>(), data.len());
        }
    }

    #[test]
    fn too_many_forms_are_none() {
        let many = (0..40).map(|words| vec![Piece::Words(words)]);
        assert_eq!(LoggedForms::new(many), LoggedForms::UNKNOWN);
        assert_eq!(LoggedForms::parse("1|x"), LoggedForms::UNKNOWN);
        assert_eq!(LoggedForms::parse("99999999"), LoggedForms::UNKNOWN);
    }
}
