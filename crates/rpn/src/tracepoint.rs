//! How a program names tracepoints of the kernel: `SYSTEM:NAME`.
//!
//! Both parts are names of directories in tracefs, so no other characters are accepted, whoever
//! wrote the program or the PPDF.

/// The system and the name; `None` if the text is not `SYSTEM:NAME`. The name may be a pattern.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let (system, name) = text.split_once(':')?;
    let is_part = |part: &str, signs: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|it| is_plain(it) || signs.contains(it))
    };
    (is_part(system, "-") && is_part(name, "-*?[]!")).then_some((system, name))
}

/// Whether `SYSTEM:NAME` can be written without quotes.
pub(crate) fn is_unquoted(system: &str, name: &str) -> bool {
    system.chars().chain(name.chars()).all(is_plain)
}

/// Whether a name or a number of the language may contain the character.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracepoint_is_two_names_of_directories() {
        assert_eq!(split("sched:sched_switch"), Some(("sched", "sched_switch")));
        assert_eq!(split("9p:9p_*"), Some(("9p", "9p_*")));
        let wrong = [
            "", "sched", ":", "sched:", ":a", "a:b:c", "a*:b", "..:b", "a:..", "a:b/c", "a/b:c", "a:b c",
            "é:b",
        ];
        for wrong in wrong {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn patterns_and_signs_need_quotes() {
        assert!(is_unquoted("9p", "a.b_c"));
        assert!(!is_unquoted("a-b", "c") && !is_unquoted("a", "b*"));
    }
}
