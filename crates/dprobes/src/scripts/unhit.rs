//! Attach points that name a function and had no hit.

use std::collections::BTreeMap;

use engine::Report;
use image::Pattern;
use script::{AttachPoint, AttachTarget, Provider};

use super::places::Places;
use crate::messages::tell;
use crate::{silent, summary};

/// Tells of functions that were named exactly, and had no hit while they were probed.
pub(super) fn tell_of(report: &Report, places: &Places, pids: &[i32]) {
    let mut hits: BTreeMap<u32, u64> = BTreeMap::new();
    // What is waited for was told.
    for probe in report.probes.iter().filter(|probe| probe.address.is_some()) {
        let all = hits.entry(probe.minor).or_default();
        *all = all.saturating_add(probe.counts.hits);
    }
    let silent = hits.into_iter().filter(|(_, hits)| *hits == 0).map(|(number, _)| number as usize);
    let silent: Vec<(&AttachPoint, &str)> = silent
        .filter_map(|number| Some((places.points.get(number)?, &*places.names.get(number)?.0)))
        .filter(|(point, _)| is_exact(point))
        .collect();
    let told = silent.iter().filter(|(point, _)| !silent.iter().any(|(other, _)| is_implied(point, other)));
    let told: Vec<&(&AttachPoint, &str)> = told.collect();
    let lines = summary::without_a_hit(told.iter().map(|(_, name)| printable::text(name).into_owned()));
    lines.lines().for_each(|line| tell(&format!("note: {line}")));
    if told.is_empty() {
        return;
    }
    let modules = silent::of_processes(pids);
    for (point, _) in told {
        let AttachTarget::Function { binary, function, .. } = &point.place else { continue };
        let provider = if matches!(point.provider, Provider::Uretprobe) { "uretprobe" } else { "uprobe" };
        let likely = silent::why(&binary.path, function, &modules, |place| format!("{provider}:{place}"));
        likely.into_iter().for_each(|line| tell(&format!("note: {line}")));
    }
}

/// Whether an attach point is a function, and no pattern.
fn is_exact(point: &AttachPoint) -> bool {
    match &point.place {
        AttachTarget::Function { binary, function, .. } => {
            !Pattern::is_one(function) && !Pattern::is_one(&binary.path)
        }
        AttachTarget::Kernel { function, .. } => !Pattern::is_one(function),
        _ => false,
    }
}

/// Whether it goes without saying that an attach point had no hit if another had none: a function
/// that is not called does not return.
fn is_implied(point: &AttachPoint, other: &AttachPoint) -> bool {
    let is_return = matches!(point.provider, Provider::Uretprobe | Provider::Kretprobe | Provider::Fexit);
    let is_entry = matches!(other.provider, Provider::Uprobe | Provider::Kprobe | Provider::Fentry);
    is_return && is_entry && point.place == other.place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_exact_and_a_return_is_implied() {
        let text = "uprobe:a.out:f, uretprobe:a.out:f, uprobe:a.out:f*, uretprobe:a.out:g, interval:s:1 { }";
        let checked = script::check_with(&rpn::DiskFiles, "points".as_ref(), text, &[]);
        let points: Vec<AttachPoint> = checked
            .script
            .items
            .iter()
            .filter_map(|item| if let script::Item::Probe(probe) = item { Some(probe) } else { None })
            .flat_map(|probe| probe.points.clone())
            .collect();
        let exact: Vec<bool> = points.iter().map(is_exact).collect();
        assert_eq!(exact, [true, true, false, true, false]);
        assert!(is_implied(&points[1], &points[0]) && !is_implied(&points[3], &points[0]));
        assert!(!is_implied(&points[0], &points[1]));
    }
}
