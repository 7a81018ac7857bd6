//! Sites of static probes in a case: `site POINT = NAME: ARGUMENTS`.
//!
//! Arguments are separated by `;`. Each begins with its size, `s4` or `u8`, and goes on with
//! `= NUMBER`, `REGISTER`, `REGISTER >> BITS` or `[BASE + INDEX * SCALE + NUMBER]` (0 is written for
//! a register that is not there), or `?`.

use dprobes_script::{Parameters, SiteArgument, SitePlace, StaticSite};
use vm::Register;

/// Adds a site; `text` is what follows `site`.
pub(crate) fn add(parameters: &mut Parameters, text: &str) {
    let (point, site) = text.split_once(" = ").expect("an attach point and a site");
    let sites = parameters.sites.entry(point.to_string()).or_default();
    if site == "none" {
        return;
    }
    let (name, arguments) = site.split_once(": ").expect("a name and arguments");
    let offset = 0x1000 + sites.len() as u64;
    sites.push(StaticSite {
        file: "/bin/x".into(),
        name: name.into(),
        offset,
        semaphore: None,
        arguments: arguments.split("; ").filter(|text| *text != "-").map(argument).collect(),
    });
}

fn argument(text: &str) -> SiteArgument {
    let (size, place) = text.split_once(' ').expect("a size and a place");
    let (signed, bytes) = match size.split_at(1) {
        ("s", bytes) => (true, bytes),
        (_, bytes) => (false, bytes),
    };
    let place = match place.split_once(' ').unwrap_or((place, "")) {
        ("?", _) => None,
        ("=", number) => Some(SitePlace::Constant(number.parse().expect("a number"))),
        (first, _) if first.starts_with('[') => {
            let words: Vec<&str> = place.trim_matches(['[', ']']).split([' ', '+', '*']).collect();
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            let [base, index, scale, displacement] = words[..] else { panic!("{place}") };
            Some(SitePlace::Memory {
                base: register(base),
                index: register(index).map(|index| (index, scale.parse().expect("a scale"))),
                displacement: displacement.parse().expect("a number"),
            })
        }
        (name, shift) => {
            let shift = shift.trim_start_matches(">> ").parse().unwrap_or(0);
            Some(SitePlace::Register(register(name).expect("a register"), shift))
        }
    };
    SiteArgument { bytes: bytes.parse().expect("a size"), signed, place }
}

fn register(name: &str) -> Option<Register> {
    Register::ALL.iter().copied().find(|register| register.name() == name)
}
