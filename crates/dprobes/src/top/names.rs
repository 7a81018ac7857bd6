//! Names of probes in a column that may be too narrow for them.

/// A name in at most `width` columns: in the middle of a longer one, what does not fit is left out,
/// since its module and its point are at its ends.
pub(super) fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let first: String = name.chars().take(kept - kept / 2).collect();
    let last: String = name.chars().skip(length - kept / 2).collect();
    let dots = if width > 0 { "…" } else { "" };
    format!("{first}{dots}{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_long_name_are_kept() {
        assert_eq!(shortened("a.out:parse:entry", 17), "a.out:parse:entry");
        assert_eq!(shortened("libc.so.6:a_long_name:return", 15), "libc.so…:return");
        for width in 0..30 {
            let short = shortened("µ:ααααααααααααααααααααααααα:ω", width);
            assert_eq!(short.chars().count(), width.min(29), "{short}");
        }
    }
}
