//! Why something is not done: one enum for each family of reasons.
//!
//! A reason is a value until it is shown: what decides, counts or passes it on asks for its kind,
//! and its text is made here alone, by `Display`. Texts name what was found and, if there is one,
//! the remedy.
//!
//! | file | enum | why |
//! |---|---|---|
//! | `not_placed` | [`NotPlaced`] | a probepoint is no site |
//! | `jump` | [`NoJump`] | a site is no jump |
//! | `copy` | `NotCopied` | an arming is not copied to a process |
//! | `trap` | [`NotArmed`] | sites are not armed at all |
//! | `memory` | [`NotMapped`] | a process has no memory for probes |
//! | `hold` | [`NotHeld`] | threads are not held |
//! | `process` | [`NotProbed`] | a process is not probed |
//! | `version` | [`NoVersion`] | a program is not for a machine |
//! | `plan` | [`NotCovered`] | no jumps can be planned for a file |
//! | `dump` | `NotDumped`, `NotKept` | no core dump is written; what an instruction changed is not known |
//! | `fork` | `NotForked` | a process is held while its core dump is written |
//! | `undo` | `NotUndone` | the changes of a killed tracer stay |
//! | `cause` | `Cause` | the error of another crate or of the system, within a reason |

mod cause;
mod copy;
mod dump;
mod fork;
mod hold;
mod jump;
mod memory;
mod not_placed;
mod plan;
mod process;
mod trap;
mod undo;
mod version;

pub use cause::Cause;
pub use hold::NotHeld;
pub use jump::{NoJump, What};
pub use memory::NotMapped;
pub use not_placed::{CodeRanges, Hint, NotPlaced};
pub use plan::NotCovered;
pub use process::NotProbed;
pub use trap::NotArmed;
pub use version::NoVersion;

pub(crate) use copy::NotCopied;
pub(crate) use dump::{NotDumped, NotKept};
pub(crate) use fork::NotForked;
pub(crate) use undo::NotUndone;

#[cfg(test)]
mod tests {
    use rpn::ModuleFile;

    use super::*;

    fn text(reason: impl ToString) -> String {
        reason.to_string()
    }

    #[test]
    fn another_file_is_told_by_what_differs() {
        let advice = "the PPDF was built for another build of the module; build it again for this one";
        let of = |expected: &[u8], size, build_id: &[u8]| {
            let expected = ModuleFile { path: "a".to_owned(), build_id: expected.to_vec(), size };
            text(NotPlaced::OtherFile { expected: Box::new(expected), build_id: build_id.to_vec(), size: 7 })
        };
        let told = of(&[1, 0xab], 7, &[2]);
        assert_eq!(told, format!("build-id 01ab expected, build-id 02 found: {advice}"));
        assert_eq!(of(&[1], 7, &[]), format!("build-id 01 expected, no build-id found: {advice}"));
        assert_eq!(of(&[], 5, &[]), format!("a file of 5 bytes expected, one of 7 found: {advice}"));
    }

    #[test]
    fn a_name_that_is_not_found_is_told_with_what_may_help() {
        let of = |hint| text(NotPlaced::NoSymbol { name: "f".to_owned(), hint });
        assert_eq!(of(Hint::near(Vec::new())), "no symbol `f`; `dprobes list` shows the functions");
        let near = Hint::near(vec!["g".to_owned(), "h".to_owned()]);
        assert_eq!(of(near.clone()), "no symbol `f`; did you mean `g`, `h`?");
        assert_eq!(
            of(Hint::Imported),
            "no symbol `f`; it is called from here and is in another module; `*` for the module means any"
        );
        assert!(of(Hint::Inlined).contains("into its callers"));
        assert!(NotPlaced::NoMatch { pattern: "f*".to_owned(), hint: near }.suggests_names());
        assert!(!NotPlaced::NoMatch { pattern: "f*".to_owned(), hint: Hint::List }.suggests_names());
    }

    #[test]
    fn a_reason_within_another_speaks_for_itself() {
        let there = NotMapped::TooMany { there: 9, own: 4, most: 8 };
        let jump = NoJump::from(there.clone());
        assert_eq!(text(&jump), text(&there));
        assert_eq!(text(NotPlaced::NoJump(jump.clone())), format!("no jump can stand there: {there}"));
        let module = "/lib/a".into();
        assert_eq!(text(NotProbed::Module { module, reason: jump.into() }), format!("/lib/a: {there}"));
        let crowded = |own| text(NoJump::Crowded(own));
        let alone = "other probes around it leave no room for a jump";
        assert_eq!(crowded(None), alone);
        let own = patch::tactic::Reason::Entered;
        assert_eq!(crowded(Some(own)), format!("{alone} ({own})"));
    }

    #[test]
    fn where_code_is_is_told_as_ranges() {
        let of = |ranges: &[(u64, u64)]| text(NotPlaced::Outside(CodeRanges(ranges.to_vec())));
        let place = "this place is outside the code of the module";
        assert_eq!(of(&[]), format!("{place}; it has none at all"));
        assert_eq!(
            of(&[(0x1000, 0x2000), (0x3000, 0x3001)]),
            format!("{place}; its code is at offset 0x1000 to 0x1fff, 0x3000 to 0x3000")
        );
    }
}
