//! Points of functions: finds the sites of `offset = FUNCTION:POINT` in a module's file.
//!
//! Whether an instruction starts at a site and can be displaced is not checked here, but for each
//! site, as for every probe.

use std::collections::{BTreeMap, BTreeSet};

use image::{Image, Outline, Pattern, Selected};
use rpn::FunctionPoint;

use crate::reason::{Hint, NotPlaced};
use crate::resolve::symbol;

/// The sites of one probe in one module.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// By address: the address in the file's own numbering, and the name in reports.
    pub(crate) sites: Vec<(u64, String)>,
    /// What was left out.
    pub(crate) skipped: Skipped,
    /// Remarks.
    pub(crate) remarks: Vec<String>,
}

/// Why nothing was found.
#[derive(Debug)]
pub(crate) enum Missing {
    /// The module has no such function.
    Function(NotPlaced),
    /// The module has the function, but not this point.
    Point(NotPlaced),
}

impl Missing {
    /// The reason.
    pub(crate) fn reason(self) -> NotPlaced {
        match self {
            Missing::Function(reason) | Missing::Point(reason) => reason,
        }
    }
}

/// What was left out of many sites, and why.
#[derive(Debug, Default)]
pub(crate) struct Skipped(BTreeMap<String, (usize, String)>);

impl Skipped {
    /// Adds a site or function that is left out. Reasons that differ only in numbers are counted
    /// together.
    pub(crate) fn add(&mut self, what: &str, reason: &NotPlaced) {
        let reason = reason.to_string();
        let key: String = reason.chars().filter(|character| !character.is_ascii_hexdigit()).collect();
        self.0.entry(key).or_insert_with(|| (0, format!("{what}: {reason}"))).0 += 1;
    }

    /// The reasons with their counts, the most frequent first, each with an example.
    pub(crate) fn reasons(&self) -> Vec<(usize, String)> {
        let mut reasons: Vec<(usize, String)> = self.0.values().cloned().collect();
        reasons.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        reasons
    }

    /// All of it in one line; `None` if nothing was left out.
    pub(crate) fn line(&self) -> Option<String> {
        let reasons = self.reasons();
        let count: usize = reasons.iter().map(|(count, _)| count).sum();
        let shown = reasons.iter().map(|(count, example)| match count {
            1 => example.clone(),
            more => format!("{example} (and {} more)", more - 1),
        });
        (count > 0).then(|| format!("{count} left out: {}", shown.collect::<Vec<_>>().join("; ")))
    }
}

/// Whether what cannot be probed is left out instead of being an error: for a pattern, and for
/// every instruction of a function.
pub(crate) fn is_lenient(function: &str, point: FunctionPoint) -> bool {
    Pattern::is_one(function) || point == FunctionPoint::Each
}

/// Finds the sites of a probe. `symbols` is the file with the symbols, `module` the one with the
/// code.
pub(crate) fn find(
    function: &str,
    point: FunctionPoint,
    symbols: &Image,
    module: &Image,
) -> Result<Found, Missing> {
    find_named(function, point, symbols, module, false)
}

/// The same, with a name of its own for each return, if it is one function that is meant: those
/// of many would be too many.
pub(crate) fn find_apart(
    function: &str,
    point: FunctionPoint,
    symbols: &Image,
    module: &Image,
) -> Result<Found, Missing> {
    find_named(function, point, symbols, module, !Pattern::is_one(function))
}

fn find_named(
    function: &str,
    point: FunctionPoint,
    symbols: &Image,
    module: &Image,
    apart: bool,
) -> Result<Found, Missing> {
    let mut found = Found::default();
    let functions = select(function, symbols)?;
    let mut targets: BTreeMap<u64, String> = BTreeMap::new();
    let (mut picking, mut resolvers) = (Vec::new(), Vec::new());
    for selected in &functions {
        let implementations = targets_of(selected, symbols);
        match (selected.indirect, implementations.is_empty()) {
            (false, _) => {}
            (true, false) => picking.push(selected.name.as_str()),
            (true, true) => resolvers.push(selected.name.as_str()),
        }
        if implementations.is_empty() {
            targets.entry(selected.vaddr).or_insert_with(|| selected.name.clone());
        }
        for (vaddr, name) in implementations {
            targets.entry(vaddr).or_insert(name);
        }
    }
    found.remarks.extend(remark_on(
        &picking,
        "all implementations that it may choose are probed; other functions may share them",
    ));
    found.remarks.extend(remark_on(
        &resolvers,
        "its implementations are not known, so the probe is on its resolver, which runs once",
    ));
    let apart = apart && targets.len() == 1;
    let mut seen = BTreeSet::new();
    for (vaddr, name) in &targets {
        match sites_of(*vaddr, name, point, apart, symbols, module) {
            Ok((sites, remark)) => {
                found.sites.extend(sites.into_iter().filter(|(site, _)| seen.insert(*site)));
                if let Some(remark) = remark {
                    found.skipped.add(name, &remark);
                }
            }
            Err(reason) if is_lenient(function, point) || targets.len() > 1 => {
                found.skipped.add(name, &reason);
            }
            Err(reason) => return Err(Missing::Point(reason)),
        }
    }
    if found.sites.is_empty() {
        let left_out = found.skipped.line();
        return Err(Missing::Point(left_out.map_or(NotPlaced::NoSite, NotPlaced::AllLeftOut)));
    }
    found.sites.sort();
    Ok(found)
}

/// The functions that a name or pattern selects. An exact name is never treated as a pattern:
/// `operator[]`.
fn select(function: &str, symbols: &Image) -> Result<Vec<Selected>, Missing> {
    let named = symbols.select_named(function);
    if !named.is_empty() {
        return Ok(named);
    }
    if !Pattern::is_one(function) {
        let reason = symbol(function, symbols, &mut |_| {}).err();
        return Err(Missing::Function(reason.unwrap_or_else(|| NotPlaced::NoFunction(function.to_owned()))));
    }
    let pattern = Pattern::new(function).map_err(|error| Missing::Point(error.into()))?;
    let matching = symbols.select_matching(&|name| pattern.matches(name));
    if !matching.is_empty() {
        return Ok(matching);
    }
    let plain: String = function.chars().filter(|character| !"*?[]!".contains(*character)).collect();
    let hint = Hint::near(symbols.nearest_names(&plain));
    Err(Missing::Function(NotPlaced::NoMatch { pattern: function.to_owned(), hint }))
}

/// The remark on indirect functions, if there are any.
fn remark_on(names: &[&str], what: &str) -> Option<String> {
    /// Names shown, at most.
    const SHOWN: usize = 5;
    let shown = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("`{}`", printable::text(name)))
        .collect::<Vec<_>>()
        .join(", ");
    match names.len() {
        0 => None,
        1 => Some(format!("{shown} is an indirect function: {what}")),
        more if more > SHOWN => {
            Some(format!("{shown} and {} more are indirect functions: {what}", more - SHOWN))
        }
        _ => Some(format!("{shown} are indirect functions: {what}")),
    }
}

/// The start and name of a function. For an indirect function, those of its implementations; empty
/// if they are unknown.
fn targets_of(selected: &Selected, symbols: &Image) -> Vec<(u64, String)> {
    let name = &selected.name;
    if !selected.indirect {
        return vec![(selected.vaddr, name.clone())];
    }
    let called = |vaddr: u64| match symbols.function_at(vaddr).filter(|function| function.vaddr == vaddr) {
        Some(function) => function.name.clone(),
        None => format!("{name} (sub_{vaddr:x})"),
    };
    symbols.implementations(selected.vaddr).into_iter().map(|vaddr| (vaddr, called(vaddr))).collect()
}

/// The sites in one function, each with the function's name or its own, and what was left out.
type Sites = (Vec<(u64, String)>, Option<NotPlaced>);

/// The sites in one function. If `apart`, each return has a name of its own.
fn sites_of(
    vaddr: u64,
    name: &str,
    point: FunctionPoint,
    apart: bool,
    symbols: &Image,
    module: &Image,
) -> Result<Sites, NotPlaced> {
    if point == FunctionPoint::Entry {
        return Ok((vec![(vaddr, name.to_owned())], None));
    }
    let outline = outline(vaddr, symbols, module)?;
    let own = outline.parts.first().cloned().unwrap_or(vaddr..vaddr);
    let at = |site: u64| match own.contains(&site) {
        true => format!("{name}+{:#x}", site - vaddr),
        false => match symbols.function_at(site).filter(|part| part.contains(site)) {
            Some(part) => format!("{}+{:#x}", part.name, site - part.vaddr),
            None => format!("{name} ({site:#x})"),
        },
    };
    let unknown = outline.unknown_bytes();
    let remark = (unknown > 0).then_some(NotPlaced::LikeData(unknown));
    match point {
        FunctionPoint::Entry => Ok((Vec::new(), None)),
        FunctionPoint::Return if outline.exits.is_empty() => Err(NotPlaced::NeverReturns),
        FunctionPoint::Return => {
            let name = |site: u64| if apart { at(site) } else { name.to_owned() };
            Ok((outline.exits.iter().map(|(site, _)| (*site, name(*site))).collect(), remark))
        }
        FunctionPoint::Offset(offset) if offset >= own.end - own.start => {
            Err(NotPlaced::BeyondFunction { size: own.end - own.start, offset })
        }
        FunctionPoint::Offset(offset) => Ok((vec![(vaddr + offset, at(vaddr + offset))], None)),
        FunctionPoint::Each => {
            Ok((outline.instructions.iter().map(|site| (*site, at(*site))).collect(), remark))
        }
    }
}

/// Disassembles a function: in the file with the symbols if it also has the code, else in the
/// module.
fn outline(vaddr: u64, symbols: &Image, module: &Image) -> Result<Outline, NotPlaced> {
    let same = symbols.outline(vaddr).ok();
    same.map_or_else(|| module.outline(vaddr).map_err(NotPlaced::NoOutline), Ok)
}

#[cfg(test)]
mod tests {
    use super::{NotPlaced, Skipped};

    #[test]
    fn reasons_that_differ_in_numbers_are_one() {
        let mut skipped = Skipped::default();
        assert_eq!(skipped.line(), None);
        skipped.add("f", &NotPlaced::Unreadable(0x40_1002));
        skipped.add("g", &NotPlaced::Unreadable(0x40_1fff));
        skipped.add("h", &NotPlaced::NoSite);
        let line = skipped.line().expect("something was left out");
        assert_eq!(
            line,
            "3 left out: f: the memory at 0x401002 cannot be read (and 1 more); h: it has no site"
        );
    }
}
