//! Reads the verifier's log.
//!
//! ```text
//! 0: R1=ctx() R10=fp0
//! 0: (79) r2 = *(u64 *)(r3 +0)
//! R3 !read_ok
//! processed 1 insns (limit 1000000) max_states_per_insn 0 ...
//! ```

/// The number of the last instruction that the log lists: the one that is refused.
pub(crate) fn refused_insn(log: &str) -> Option<u32> {
    let numbers = log.lines().rev().filter_map(|line| {
        let (number, rest) = line.split_once(": ")?;
        if rest.starts_with('(') { number.trim().parse().ok() } else { None }
    });
    numbers.chain(structural(log)).next()
}

/// The number in a message about the program's form, before anything is executed: `unreachable
/// insn 5`, `jump out of range from insn 3 to 9`.
fn structural(log: &str) -> Option<u32> {
    let words: Vec<&str> = log.split_whitespace().collect();
    words.windows(2).find(|pair| pair[0] == "insn").and_then(|pair| pair[1].parse().ok())
}

/// The last line that is neither statistics nor the state of registers.
pub(crate) fn reason(log: &str) -> Option<&str> {
    let statistics = ["processed ", "verification time ", "stack depth ", "mark_precise"];
    let mut lines = log.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    lines.find(|line| !statistics.iter().any(|start| line.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_instruction_listed_is_refused() {
        let log = "0: R1=ctx() R10=fp0\n0: (b7) r2 = 0 ; R2_w=0\n1: (79) r2 = *(u64 *)(r2 +0)\n\
                   R2 invalid mem access 'scalar'\nprocessed 2 insns (limit 1000000)\n";
        assert_eq!((refused_insn(log), reason(log)), (Some(1), Some("R2 invalid mem access 'scalar'")));
    }

    #[test]
    fn messages_about_the_form_name_the_instruction_in_the_text() {
        let log = "unreachable insn 5\nprocessed 0 insns (limit 1000000)\n";
        assert_eq!((refused_insn(log), reason(log)), (Some(5), Some("unreachable insn 5")));
    }

    #[test]
    fn a_log_without_instructions_names_none() {
        assert_eq!((refused_insn(""), reason("")), (None, None));
        assert_eq!(refused_insn("0: R1=ctx()\n"), None);
    }
}
