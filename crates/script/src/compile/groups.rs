//! The handlers that a probe becomes: one, but for static probes (`usdt`).
//!
//! Their arguments are where the program's notes say, which differs from site to site. So an action
//! is compiled once for all sites that have them in the same places.

use crate::ast::{Expr, ExprKind, Probe};
use crate::attach_point::AttachPoint;
use crate::library;
use crate::program_types::{Convention, Probed, ProgramTypes};
use crate::provider::Provider;
use crate::static_sites::{StaticSite, StaticSites};

use crate::walk;

/// What one handler serves.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) points: Vec<AttachPoint>,
    /// The sites of a `usdt` point; `None` for others, and where notes are not known.
    pub(super) sites: Option<Vec<StaticSite>>,
}

/// What the handler serves that is compiled.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// The providers of its points.
    pub(super) providers: Vec<Provider>,
    /// As in [`Group`].
    pub(super) sites: Option<Vec<StaticSite>>,
    /// What is known of the functions of its points, if their arguments are named.
    pub(super) probed: Probed,
    /// Where they have their arguments.
    pub(super) convention: Convention,
    /// The points, whose programs may know types.
    pub(super) homes: Vec<AttachPoint>,
}

impl Served {
    pub(super) fn of(probe: &Probe, group: &Group, programs: &dyn ProgramTypes) -> Served {
        let uses = |names: &[&str]| {
            let is_one = |expr: &Expr| match &expr.kind {
                ExprKind::Name(name) => library::find(name).is_some_and(|entry| names.contains(&entry.name)),
                _ => false,
            };
            let mut found = false;
            let mut see = |expr: &Expr| found = found || walk::any(expr, &is_one);
            walk::of_block(&probe.action, &mut see);
            probe.predicate.iter().for_each(&mut see);
            found
        };
        let probed = match uses(&["args", "retval"]) {
            true => Probed::of(programs, &group.points),
            false => Probed::default(),
        };
        let is_uprobe = |point: &&AttachPoint| point.provider == Provider::Uprobe;
        let convention = match group.points.iter().find(is_uprobe) {
            Some(point) if uses(&["argN"]) => programs.convention(point),
            _ => Convention::default(),
        };
        Served {
            providers: group.points.iter().map(|point| point.provider).collect(),
            sites: group.sites.clone(),
            probed,
            convention,
            homes: group.points.clone(),
        }
    }
}

/// The handlers that a probe becomes. A point without a site has one too: it is checked like the
/// others.
pub(super) fn groups(probe: &Probe, sites: &StaticSites) -> Vec<Group> {
    let is_argument = |expr: &Expr| matches!(&expr.kind, ExprKind::Name(name) if named(name));
    let mut reads = false;
    let mut see = |expr: &Expr| reads = reads || walk::any(expr, &is_argument);
    walk::of_block(&probe.action, &mut see);
    probe.predicate.iter().for_each(&mut see);
    let mut groups: Vec<Group> = Vec::new();
    let mut others = Group::default();
    for point in &probe.points {
        let known = (point.provider == Provider::Usdt).then(|| sites.get(&point.to_string())).flatten();
        let Some(known) = known else {
            others.points.push(point.clone());
            continue;
        };
        let first = groups.len();
        for site in known {
            let is_like = |group: &&mut Group| {
                let like = group.sites.as_ref().and_then(|sites| sites.first());
                !reads || like.is_some_and(|like| like.arguments == site.arguments)
            };
            match groups[first..].iter_mut().find(is_like) {
                Some(Group { sites: Some(sites), .. }) => sites.push(site.clone()),
                _ => groups.push(Group { points: vec![point.clone()], sites: Some(vec![site.clone()]) }),
            }
        }
        if known.is_empty() {
            groups.push(Group { points: vec![point.clone()], sites: Some(Vec::new()) });
        }
    }
    if !others.points.is_empty() {
        groups.insert(0, others);
    }
    groups
}

/// Whether a name is one of an argument.
fn named(name: &str) -> bool {
    library::find(name).is_some_and(|entry| entry.name == "argN")
}
