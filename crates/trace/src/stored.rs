//! What a store says of how its records are shown: its templates, and lines for the records of
//! programs without any.

use std::collections::HashMap;
use std::sync::Arc;

use crate::line::{Function, Functions, LineProbe, LoggedForms};
use crate::store::{Info, Lookup, Site};
use crate::template::{Problem, StoredTemplates, Template};
use crate::{Items, Text};

/// The templates of a store, and the mistakes of each that is not used.
pub fn templates(info: &Info) -> (StoredTemplates, Vec<Vec<Problem>>) {
    let mut wrong = Vec::new();
    let compiled = info.templates.iter().filter_map(|stored| {
        let format = stored.format.as_deref().map(plain);
        let description = plain(&stored.description);
        match Template::compile(stored.major, stored.minor, &description, format.as_deref()) {
            Ok(template) => Some((stored.program, template)),
            Err(problems) => {
                wrong.push(problems);
                None
            }
        }
    });
    (StoredTemplates::of(compiled), wrong)
}

/// A text of the store without characters that a terminal would interpret.
fn plain(text: &str) -> String {
    text.replace(|each: char| !printable::is_plain(each) && !matches!(each, '\n' | '\t'), ".")
}

/// The programs of a store, with the head of their lines and their probes.
#[derive(Debug)]
pub struct StoredLines {
    items: Items,
    programs: HashMap<u32, (Items, Arc<[LineProbe]>)>,
}

impl StoredLines {
    /// The programs of a store, for lines with these items; none if records are not shown as lines.
    pub fn new(info: &Info, items: Option<Items>) -> StoredLines {
        let Some(items) = items else { return StoredLines { items: Items::NONE, programs: HashMap::new() } };
        let lookup = Lookup::new(info);
        let mut probes: HashMap<u32, Vec<LineProbe>> = HashMap::new();
        for probe in &info.probes {
            let own = probes.entry(probe.program).or_default();
            // Their numbers go from 0 on, unless the file is forged or has lost some.
            if probe.number as usize != own.len() {
                continue;
            }
            let module = lookup.module_of(probe.program);
            let major = lookup.program(probe.program).map_or(0, |program| program.major);
            let logged = probe.logged.as_deref().map_or(LoggedForms::UNKNOWN, LoggedForms::parse);
            own.push(LineProbe::new(module, &probe.point, (major, probe.minor), logged));
        }
        let of = |(number, probes): (u32, Vec<LineProbe>)| {
            let has = lookup.program(number).map_or(items, |program| items.and(program.items));
            (number, (has, probes.into()))
        };
        StoredLines { items, programs: probes.into_iter().map(of).collect() }
    }

    /// Has the next record shown as one of a program.
    pub fn show(&self, program: u32, text: &mut Text) {
        match self.programs.get(&program) {
            Some((items, probes)) => text.set_probes(*items, probes),
            None => text.set_probes(self.items, &Arc::default()),
        }
    }
}

/// The functions at the sites of a store.
pub fn functions(info: &Info) -> Arc<dyn Functions> {
    Arc::new(Sites::new(info))
}

/// The functions of the sites of a store.
#[derive(Debug)]
struct Sites {
    /// By process and address. Children have their parents' sites, and no facts of their own:
    /// theirs are found by the address alone, if it is the same function in all processes.
    own: HashMap<(u32, u64), Function>,
    shared: HashMap<u64, Option<Function>>,
}

impl Sites {
    fn new(info: &Info) -> Sites {
        let lookup = Lookup::new(info);
        let mut sites = Sites { own: HashMap::new(), shared: HashMap::new() };
        for site in &info.sites {
            let Some(function) = function(site, &lookup) else { continue };
            let shared = sites.shared.entry(site.address).or_insert_with(|| Some(function.clone()));
            if shared.as_ref() != Some(&function) {
                *shared = None;
            }
            sites.own.insert((site.pid, site.address), function);
        }
        sites
    }
}

impl Functions for Sites {
    fn at(&self, pid: u32, address: u64) -> Option<Function> {
        let own = self.own.get(&(pid, address));
        own.or_else(|| self.shared.get(&address)?.as_ref()).cloned()
    }
}

/// The function of a site.
fn function(site: &Site, lookup: &Lookup<'_>) -> Option<Function> {
    let (name, offset) = match site.symbol.rsplit_once("+0x") {
        Some((name, offset)) => (name, u64::from_str_radix(offset, 16).ok()?),
        None => (site.symbol.as_str(), 0),
    };
    let path = lookup.module(site.module).map_or("", |module| module.path.as_str());
    let module = path.rsplit('/').next().unwrap_or_default().to_owned();
    (!name.is_empty()).then(|| Function { module, name: name.to_owned(), offset })
}
