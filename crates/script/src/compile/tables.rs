//! The constants and the maps of a script.

use std::collections::BTreeMap;

use maps::{Kind, MapInfo};
use source::{Diagnostic, Span};

use crate::ast::{Item, Script};
use crate::check::Facts;
use crate::compiled::{Map, Settings};
use crate::types::{Aggregate, Type};

use super::forms::Forms;

/// The frames that a stack has at most.
pub(super) const MOST_FRAMES: u64 = 127;

/// Literals, each once.
#[derive(Debug, Default)]
pub(super) struct Constants {
    all: Vec<Vec<u8>>,
    numbers: BTreeMap<Vec<u8>, u64>,
}

impl Constants {
    /// The number of a text.
    pub(super) fn number(&mut self, text: &[u8]) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.all.push(text.to_vec());
        self.numbers.insert(text.to_vec(), number);
        number
    }

    /// The number of the first of some texts whose numbers follow each other.
    pub(super) fn block(&mut self, texts: &[&str]) -> u64 {
        // The key is none that a single text has.
        let key: Vec<u8> = texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect();
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.all.extend(texts.iter().map(|text| text.as_bytes().to_vec()));
        self.numbers.insert(key, number);
        number
    }

    /// The number of a new literal of one word, which the runtime sets.
    pub(super) fn own(&mut self) -> usize {
        self.all.push(vec![0; 8]);
        self.all.len() - 1
    }

    /// All in the order of their numbers.
    pub(super) fn finish(self) -> Vec<Vec<u8>> {
        self.all
    }
}

/// The maps of a script.
#[derive(Debug)]
pub(super) struct Maps {
    all: Vec<Map>,
    numbers: BTreeMap<String, u16>,
    /// The parameters of the kinds that have some, once a function stated them.
    stated: BTreeMap<u16, [i64; 3]>,
    stacks: Option<u16>,
    child: Option<u16>,
    entries: u32,
}

impl Maps {
    /// The maps that the checker found.
    pub(super) fn new(script: &Script, facts: &Facts, settings: &Settings, forms: &Forms) -> Maps {
        let mut maps = Maps {
            all: Vec::new(),
            numbers: BTreeMap::new(),
            stated: BTreeMap::new(),
            stacks: None,
            child: None,
            entries: settings.max_map_keys,
        };
        let declared: BTreeMap<&str, (u64, bool)> = script
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Map(map) => Some((map.name.as_str(), (map.entries, map.kind.contains("lru")))),
                _ => None,
            })
            .collect();
        for (name, types) in &facts.maps {
            let (entries, evicts) = match declared.get(name.as_str()) {
                Some((entries, evicts)) => (u32::try_from(*entries).unwrap_or(u32::MAX), *evicts),
                None => (settings.max_map_keys, false),
            };
            let kind = kind(&types.value);
            let size = |bytes: Option<usize>| bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(0);
            let value = match kind {
                Kind::Plain => size(forms.stored(&types.value)),
                Kind::Avg | Kind::Stats => 16,
                _ => 8,
            };
            let info = MapInfo {
                kind: kind as u32,
                signed: u32::from(matches!(kind, Kind::Count)) ^ 1,
                key: types.key.as_ref().map_or(0, |key| size(forms.member(key))),
                value,
                entries: if types.key.is_some() { entries } else { 1 },
                copies: 1,
                evicts: u32::from(evicts && types.key.is_some()),
                ..MapInfo::default()
            };
            let Ok(number) = u16::try_from(maps.all.len()) else { break };
            maps.numbers.insert(name.clone(), number);
            maps.all.push(Map {
                name: name.clone(),
                key: types.key.clone(),
                value: types.value.clone(),
                info,
            });
        }
        maps
    }

    /// A map by its name.
    pub(super) fn find(&self, name: &str) -> Option<(u16, &Map)> {
        let number = *self.numbers.get(name)?;
        Some((number, self.all.get(usize::from(number))?))
    }

    /// The map of stacks, with room for so many frames of each.
    pub(super) fn stacks(&mut self, frames: u64) -> Option<u16> {
        let size = u32::try_from(frames.clamp(1, MOST_FRAMES) * 8).unwrap_or(0);
        if self.stacks.is_none() {
            let number = u16::try_from(self.all.len()).ok()?;
            let info = MapInfo {
                kind: Kind::Stacks as u32,
                key: size,
                entries: self.entries,
                copies: 1,
                ..MapInfo::default()
            };
            self.all.push(Map { name: String::new(), key: None, value: Type::Bytes, info });
            self.stacks = Some(number);
        }
        let number = self.stacks?;
        let info = &mut self.all.get_mut(usize::from(number))?.info;
        info.key = info.key.max(size);
        Some(number)
    }

    /// The map in which the runtime puts the number of the process that it starts.
    pub(super) fn child(&mut self) -> Option<u16> {
        if self.child.is_none() {
            let number = u16::try_from(self.all.len()).ok()?;
            let info = MapInfo { value: 8, entries: 1, copies: 1, ..MapInfo::default() };
            self.all.push(Map { name: String::new(), key: None, value: Type::U64, info });
            self.child = Some(number);
        }
        self.child
    }

    /// That map, if a handler reads it.
    pub(super) fn child_if_read(&self) -> Option<usize> {
        self.child.map(usize::from)
    }

    /// A function sets a map: whether its numbers are signed, and the parameters of its kind.
    pub(super) fn state(
        &mut self,
        number: u16,
        signed: bool,
        parameters: [i64; 3],
        span: Span,
    ) -> Result<(), Diagnostic> {
        let first = *self.stated.entry(number).or_insert(parameters);
        let Some(map) = self.all.get_mut(usize::from(number)) else { return Ok(()) };
        if first != parameters {
            let message = format!("map `@{}` is set by functions with different parameters", map.name);
            return Err(Diagnostic::error(span, message)
                .label("the parameters differ from those before")
                .help("use the same ones everywhere, or another map"));
        }
        [map.info.a, map.info.b, map.info.c] = parameters;
        map.info.signed &= u32::from(signed);
        Ok(())
    }

    /// All maps by their number.
    pub(super) fn finish(self) -> Vec<Map> {
        self.all
    }
}

/// The kind of a map with values of a type.
fn kind(value: &Type) -> Kind {
    let Type::Aggregate(aggregate) = value else { return Kind::Plain };
    match aggregate {
        Aggregate::Avg => Kind::Avg,
        Aggregate::Count => Kind::Count,
        Aggregate::Hist => Kind::Hist,
        Aggregate::Lhist => Kind::Lhist,
        Aggregate::Max => Kind::Max,
        Aggregate::Min => Kind::Min,
        Aggregate::Stats => Kind::Stats,
        Aggregate::Sum => Kind::Sum,
        Aggregate::Tseries => Kind::Tseries,
    }
}
