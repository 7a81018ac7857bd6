//! Where the probes of a program are in a file: the same places as for the other engines, less what
//! the kernel's probes cannot have.
//!
//! In: an `Object`, and the image of a file. Out: `Plan`: the places of its probes there, and which
//! have none, with the reason (`engine::reason::NotPlaced`, or that the kernel cannot probe there).

use engine::Refused;
use engine::reason::NotPlaced;
use image::{Image, Machine};
use kernel::Condition;
use rpn::{FunctionPoint, Location, Object};

use super::mishandled::mishandled;

/// A place of a probe in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSite {
    /// The probe's index in its program.
    pub(super) probe: usize,
    /// The offset in the file.
    pub(super) offset: u64,
    /// For points of functions, the function; with the offset from its start, where the points are
    /// single instructions.
    pub(super) function: String,
    /// For a conditional jump out of a function: the condition under which the function is left
    /// there.
    pub(super) condition: Option<Condition>,
}

/// The places of a program in a file.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// By probe, then by address.
    pub(super) places: Vec<FileSite>,
    /// The probes that have no place there, and why.
    pub(super) refused: Vec<Refused>,
    /// Remarks on probepoints: the index of the probe, and the text.
    pub(super) remarks: Vec<(usize, String)>,
}

/// Finds the places of all probes of a program that are not over. `symbols`: the file with the
/// symbols, if it is not the module. `verify`: whether opcodes and instruction boundaries are
/// checked.
pub(super) fn plan(
    object: &Object,
    module: &Image,
    symbols: Option<&Image>,
    verify: bool,
    is_over: impl Fn(usize) -> bool,
) -> Plan {
    let mut plan = Plan::default();
    let sequences = module.restartable_sequences();
    let is_64_bit = module.machine() == Machine::X86_64;
    let places = object.probes.iter().enumerate().filter(|(_, definition)| definition.watch.is_none());
    for (probe, definition) in places.filter(|(probe, _)| !is_over(*probe)) {
        let mut refuse = |reason| {
            plan.refused.push(Refused {
                module: module.path().display().to_string(),
                point: definition.point.clone(),
                probe,
                reason,
            });
        };
        let found = match engine::sites_in(object, probe, symbols, module, verify) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(reason) => {
                refuse(reason);
                continue;
            }
        };
        let is_return = matches!(definition.location, Location::Points { point: FunctionPoint::Return, .. });
        let mut left_out = LeftOut::default();
        let mut places = Vec::with_capacity(found.sites.len());
        for site in &found.sites {
            let restartable = sequences.iter().any(|sequence| sequence.contains(&site.vaddr));
            let mishandled = mishandled(&site.bytes, is_64_bit);
            match if is_return { condition(&site.bytes) } else { Ok(None) } {
                _ if restartable => left_out.add(&site.function, RESTARTABLE),
                _ if mishandled.is_some() => left_out.add(&site.function, mishandled.unwrap_or_default()),
                Err(reason) => left_out.add(&site.function, reason),
                Ok(condition) => places.push(FileSite {
                    probe,
                    offset: site.offset,
                    function: site.function.clone(),
                    condition,
                }),
            }
        }
        match left_out.line() {
            Some(_) if found.sites.len() == 1 => refuse(NotPlaced::Other(left_out.first())),
            Some(reason) if places.is_empty() => refuse(NotPlaced::Other(reason)),
            line => plan.remarks.extend(found.remarks.into_iter().chain(line).map(|text| (probe, text))),
        }
        plan.places.extend(places);
    }
    plan
}

/// Why a restartable sequence is not probed.
const RESTARTABLE: &str =
    "it is in a restartable sequence (rseq), and a probe would take the thread out of it unseen";

/// Sites that are left out, by reason: how many, and the function of the first.
#[derive(Debug, Default)]
pub(super) struct LeftOut(Vec<(String, String, usize)>);

impl LeftOut {
    pub(super) fn add(&mut self, function: &str, reason: &str) {
        match self.0.iter_mut().find(|(known, ..)| known == reason) {
            Some((.., count)) => *count += 1,
            None => self.0.push((reason.to_owned(), function.to_owned(), 1)),
        }
    }

    /// The first reason.
    fn first(&self) -> String {
        self.0.first().map(|(reason, ..)| reason.clone()).unwrap_or_default()
    }

    /// All of it in one line; `None` if nothing was left out.
    pub(super) fn line(&self) -> Option<String> {
        let count: usize = self.0.iter().map(|(.., count)| count).sum();
        let shown = self.0.iter().map(|(reason, function, count)| {
            let named = if function.is_empty() { String::new() } else { format!("{function}: ") };
            match count {
                1 => format!("{named}{reason}"),
                more => format!("{named}{reason} (and {} more)", more - 1),
            }
        });
        (count > 0).then(|| format!("{count} left out: {}", shown.collect::<Vec<_>>().join("; ")))
    }
}

/// The condition under which an exit of a function leaves it; `None`: always.
fn condition(instruction: &[u8]) -> Result<Option<Condition>, &'static str> {
    // Branch hints, and the prefix of `bnd`.
    let rest = instruction.iter().position(|byte| !matches!(byte, 0x2e | 0x3e | 0xf2));
    match rest.map(|start| &instruction[start..]) {
        Some([opcode @ 0x70..=0x7f, ..] | [0x0f, opcode @ 0x80..=0x8f, ..]) => {
            Ok(Some(Condition::of_opcode(*opcode)))
        }
        Some([0xe0..=0xe3, ..] | [0x67, 0xe0..=0xe3, ..]) => {
            Err("it leaves the function depending on a count, which the kernel engine does not follow")
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conditional_jump_has_its_condition() {
        assert_eq!(condition(&[0x74, 0x10]), Ok(Some(Condition::of_opcode(0x74))));
        assert_eq!(condition(&[0x3e, 0x0f, 0x8f, 0, 0, 0, 0]), Ok(Some(Condition::of_opcode(0x7f))));
        for always in [&[0xc3][..], &[0xeb, 0x10], &[0xf2, 0xe9, 0, 0, 0, 0], &[0xff, 0xe0], &[0xf3, 0xc3]] {
            assert_eq!(condition(always), Ok(None), "{always:x?}");
        }
        assert!(condition(&[0xe3, 0x10]).is_err() && condition(&[0x67, 0xe3, 0x10]).is_err());
    }

    #[test]
    fn what_is_left_out_is_counted_by_reason() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.line(), None);
        left_out.add("f", "one");
        left_out.add("g", "two");
        left_out.add("h", "one");
        assert_eq!(left_out.line().as_deref(), Some("3 left out: f: one (and 1 more); g: two"));
    }
}
