//! Patterns for names, in the syntax of shells and DTrace's `pid` provider.

/// A pattern: `*` matches any characters, `?` one, `[abc]` and `[a-z]` one of these, `[!abc]` one
/// that is none of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(glob::Pattern);

/// A pattern is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid pattern `{pattern}`: {problem}")]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// A bracket is not closed.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        // For paths `**` has another meaning; in a name it is the same as one star.
        let mut single = String::with_capacity(text.len());
        for character in text.chars() {
            if character != '*' || !single.ends_with('*') {
                single.push(character);
            }
        }
        glob::Pattern::new(&single)
            .map(Pattern)
            .map_err(|error| PatternError { pattern: text.to_owned(), problem: error.msg })
    }

    /// Whether a text contains characters that make it a pattern.
    pub fn is_one(text: &str) -> bool {
        text.contains(['*', '?', '['])
    }

    /// Whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.matches(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).expect("it is one").matches(name)
    }

    #[test]
    fn patterns_match_whole_names() {
        assert!(matches("mem*", "memcpy") && matches("*", "") && matches("m?m[cs]*", "memset"));
        assert!(!matches("mem", "memcpy") && !matches("mem[!c]*", "memcpy"));
        assert!(matches("a/*::**f", "a/b/c::f"), "a slash is a character, two stars are one");
        assert!(Pattern::new("mem[").is_err());
        assert!(Pattern::is_one("m[ab]") && !Pattern::is_one("operator()"));
    }

    #[test]
    fn a_pattern_of_many_stars_is_done_soon() {
        let started = std::time::Instant::now();
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
        assert!(started.elapsed().as_secs() < 5);
    }
}
