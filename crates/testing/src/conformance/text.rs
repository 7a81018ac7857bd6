//! Numbers and bytes in the format of the case files.

use std::collections::BTreeMap;
use vm::Word;

/// The values of names in numbers.
pub type Labels = BTreeMap<String, u64>;

/// A number: terms joined by `+` and `-`, truncated to the word. A term is a decimal or `0x`
/// number, `bits` (the word's bits), `bytes` (its bytes), `3bytes` (three times that), `min` (the
/// least signed word) or `@label` (its offset in the code).
pub(crate) fn number(text: &str, word: Word, labels: &Labels) -> u64 {
    word.truncate(sum(text, word, labels))
}

/// The sum of a number's terms, truncated to 64 bits.
fn sum(text: &str, word: Word, labels: &Labels) -> u64 {
    let mut sum = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let negative = rest.starts_with('-');
        rest = rest.trim_start_matches(['+', '-']);
        let end = rest.find(['+', '-']).unwrap_or(rest.len());
        let (term, after) = rest.split_at(end);
        let value = match term {
            "bits" => word.bits().into(),
            "bytes" => word.bytes() as u64,
            "min" => 1 << (word.bits() - 1),
            _ => match (term.strip_prefix("0x"), term.strip_prefix('@')) {
                (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
                (_, Some(label)) => labels.get(label).copied(),
                _ => match term.strip_suffix("bytes") {
                    Some(factor) => factor.parse::<u64>().ok().map(|factor| factor * word.bytes() as u64),
                    None => term.parse().ok(),
                },
            }
            .unwrap_or_else(|| panic!("`{term}` in `{text}` is no number")),
        };
        sum = if negative { sum.wrapping_sub(value) } else { sum.wrapping_add(value) };
        rest = after;
    }
    sum
}

/// Numbers, each with an optional prefix `COUNT*`.
pub(crate) fn numbers(tokens: &[String], word: Word, labels: &Labels) -> Vec<u64> {
    let parts = tokens.iter().map(|token| repeated(token, word, labels));
    parts.flat_map(|(count, token)| vec![number(token, word, labels); count]).collect()
}

/// Bytes: `"text"` (with `\0`, `\n`, `\\`, `\"`), numbers of 1, 2, 4, 8 or the word's bytes with
/// prefix `b:` `h:` `d:` `q:` `w:` (little-endian), or two hexadecimal digits; each with an
/// optional prefix `COUNT*`.
pub(crate) fn bytes(tokens: &[String], word: Word, labels: &Labels) -> Vec<u8> {
    let mut bytes = Vec::new();
    for token in tokens {
        let (count, item) = repeated(token, word, labels);
        let sized = |digits, size| sum(digits, word, labels).to_le_bytes()[..size].to_vec();
        let item = match item.split_at_checked(2) {
            Some(("b:", digits)) => sized(digits, 1),
            Some(("h:", digits)) => sized(digits, 2),
            Some(("d:", digits)) => sized(digits, 4),
            Some(("q:", digits)) => sized(digits, 8),
            Some(("w:", digits)) => number(digits, word, labels).to_le_bytes()[..word.bytes()].to_vec(),
            _ if item.starts_with('"') => quoted(item),
            _ => vec![u8::from_str_radix(item, 16).unwrap_or_else(|_| panic!("`{item}` is no byte"))],
        };
        bytes.extend(item.repeat(count));
    }
    bytes
}

/// A token's count and the item that it repeats.
fn repeated<'a>(token: &'a str, word: Word, labels: &Labels) -> (usize, &'a str) {
    match token.split_once('*') {
        Some((count, item)) if !count.contains('"') => {
            (number(count, word, labels).try_into().expect("a count"), item)
        }
        _ => (1, token),
    }
}

/// The bytes of a quoted text.
fn quoted(text: &str) -> Vec<u8> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let inner = inner.unwrap_or_else(|| panic!("{text} has no end"));
    let mut bytes = Vec::new();
    let mut characters = inner.bytes();
    while let Some(byte) = characters.next() {
        bytes.push(match byte {
            b'\\' => match characters.next() {
                Some(b'0') => 0,
                Some(b'n') => b'\n',
                Some(other) => other,
                None => panic!("{text} ends in a backslash"),
            },
            byte => byte,
        });
    }
    bytes
}

/// The words of a line; quoted text is part of one word. `//` starts a comment.
pub(crate) fn tokens(line: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut characters = line.chars().peekable();
    let mut inside = false;
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                inside = !inside;
                token.push('"');
            }
            '\\' if inside => {
                token.push('\\');
                token.extend(characters.next());
            }
            '/' if !inside && characters.peek() == Some(&'/') => break,
            character if !inside && character.is_whitespace() => {
                if !token.is_empty() {
                    tokens.push(std::mem::take(&mut token));
                }
            }
            character => token.push(character),
        }
    }
    if !token.is_empty() {
        tokens.push(token);
    }
    tokens
}
