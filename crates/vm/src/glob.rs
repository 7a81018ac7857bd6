//! Patterns with `*`, `?` and `[a-z]`, against a whole string.

/// Whether all of a string matches a pattern. `*` is any bytes, also none; `?` is one byte;
/// `[abc]` and `[a-z]` are one of these bytes, `[!abc]` is one that is none of these. A bracket
/// that is not closed is a byte like others.
///
/// It takes time in proportion to the product of both lengths.
pub(crate) fn matches(text: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // The last star: what follows it in the pattern, and where the string goes on behind it.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(place) == Some(&b'*') {
            place += 1;
            star = Some((place, at));
            continue;
        }
        if at == text.len() && place == pattern.len() {
            return true;
        }
        let one = text.get(at).and_then(|byte| one(*byte, pattern.get(place..)?));
        match (one, star) {
            (Some(length), _) => (at, place) = (at + 1, place + length),
            // The star takes one byte more.
            (None, Some((behind, from))) if from < text.len() => {
                star = Some((behind, from + 1));
                (at, place) = (from + 1, behind);
            }
            (None, _) => return false,
        }
    }
}

/// The length of a pattern's first part, if a byte matches it.
fn one(byte: u8, pattern: &[u8]) -> Option<usize> {
    match pattern.first()? {
        b'?' => Some(1),
        b'[' => match class(byte, pattern) {
            Some((true, length)) => Some(length),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(1),
        },
        literal => (byte == *literal).then_some(1),
    }
}

/// Whether a byte is in a class of bytes, and the length of the class; `None` if it is not closed.
/// A closing bracket that comes first is one of its bytes.
fn class(byte: u8, pattern: &[u8]) -> Option<(bool, usize)> {
    let negated = pattern.get(1) == Some(&b'!');
    let first = if negated { 2 } else { 1 };
    let (mut place, mut found) = (first, false);
    loop {
        let low = *pattern.get(place)?;
        if low == b']' && place > first {
            return Some((found != negated, place + 1));
        }
        match (pattern.get(place + 1), pattern.get(place + 2)) {
            (Some(b'-'), Some(high)) if *high != b']' => {
                found |= (low..=*high).contains(&byte);
                place += 3;
            }
            _ => {
                found |= low == byte;
                place += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by its definition: each star is tried for every length.
    fn by_definition(text: &[u8], pattern: &[u8]) -> bool {
        match pattern.first() {
            None => text.is_empty(),
            Some(b'*') => (0..=text.len()).any(|length| by_definition(&text[length..], &pattern[1..])),
            Some(_) => text.first().is_some_and(|byte| {
                one(*byte, pattern).is_some_and(|length| by_definition(&text[1..], &pattern[length..]))
            }),
        }
    }

    #[test]
    fn patterns_match_whole_strings() {
        let is = |text: &str, pattern: &str| matches(text.as_bytes(), pattern.as_bytes());
        assert!(is("libc.so.6", "lib*.so.*") && !is("libc.so.6", "lib*.so") && is("", "*") && is("", ""));
        assert!(is("abc", "a?c") && !is("ac", "a?c") && is("a/b", "a*b") && !is("x", ""));
        assert!(is("b7", "[a-c][0-9]") && !is("d7", "[a-c][0-9]") && is("d", "[!a-c]") && !is("b", "[!a-c]"));
        assert!(is("]", "[]]") && is("-", "[a-]") && is("[x", "[x") && !is("x", "[x"));
    }

    proptest! {
        #[test]
        fn it_is_what_the_definition_says(text in "[ab\\[-]{0,12}", pattern in "[ab*?\\[\\]!-]{0,8}") {
            prop_assert_eq!(
                matches(text.as_bytes(), pattern.as_bytes()),
                by_definition(text.as_bytes(), pattern.as_bytes())
            );
        }
    }
}
