//! The maps and constants of a case: what its lines say, and what a run is given and leaves.

use std::sync::atomic::AtomicU64;

use maps::{Entry, Kind, MapInfo, Maps, Value};
use vm::Word;

use super::text::{self, Labels};

/// Processors for which aggregates have copies.
const PROCESSORS: usize = 4;

/// The names of the kinds of maps, by their numbers.
const KINDS: [&str; 11] =
    ["plain", "count", "sum", "min", "max", "avg", "stats", "hist", "lhist", "tseries", "stacks"];

/// The maps and constants of a case.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) infos: Vec<MapInfo>,
    /// The constants of each class.
    constants: [Vec<Vec<u8>>; 3],
}

/// What is in a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its entries, by their keys.
    pub entries: Vec<Entry>,
    /// How many updates were lost.
    pub lost: u64,
}

/// What is in each of some maps.
pub fn contents(maps: &Maps<'_>) -> Vec<Content> {
    let content = |map| {
        let mut entries = maps.view(map);
        sort(&mut entries);
        Content { entries, lost: maps.lost(map) }
    };
    (0..maps.infos.len()).map(content).collect()
}

impl Tables {
    /// Adds the map of a line `MAP KIND KEY VALUE ENTRIES A B C`.
    pub(crate) fn add_map(&mut self, line: &[String], labels: &Labels) {
        let number = |place: usize| match line.get(place).map(String::as_str) {
            None => 0,
            Some(text) => match kind(text) {
                Some(kind) => kind as u64,
                None => text::number(text, Word::W8, labels),
            },
        };
        let (signed, name) = match line[1].strip_prefix("signed-") {
            Some(name) => (1, name),
            None => (0, line[1].as_str()),
        };
        let kind = kind(name).unwrap_or_else(|| panic!("no kind of maps is called {name}"));
        self.infos.push(MapInfo {
            kind: kind as u32,
            signed,
            key: number(2) as u32,
            value: number(3) as u32,
            entries: number(4) as u32,
            a: number(5) as i64,
            b: number(6) as i64,
            c: number(7) as i64,
            ..MapInfo::default()
        });
    }

    /// Adds the constant of a line `TEXT CLASS BYTES`.
    pub(crate) fn add_text(&mut self, line: &[String], word: Word, labels: &Labels) {
        let class = text::number(&line[1], word, labels) as usize;
        self.constants[class].push(text::bytes(&line[2..], word, labels));
    }

    /// Plans the maps, and makes their words.
    pub(crate) fn words(&mut self) -> Vec<AtomicU64> {
        let count = maps::plan(&mut self.infos, PROCESSORS, usize::MAX).expect("maps that can be made");
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    /// The constants as [`vm::Constants`] has them.
    pub(crate) fn constants(&self) -> Vec<u8> {
        let all: Vec<&Vec<u8>> = self.constants.iter().flatten().collect();
        let mut bytes = Vec::new();
        let mut push = |number: usize| bytes.extend((number as u32).to_le_bytes());
        self.constants.iter().for_each(|class| push(class.len()));
        let mut start = 4 * (self.constants.len() + 2 * all.len());
        for text in &all {
            push(start);
            push(text.len());
            start += text.len();
        }
        all.into_iter().for_each(|text| bytes.extend(text));
        bytes
    }
}

/// The kind of maps with this name.
fn kind(name: &str) -> Option<Kind> {
    let number = KINDS.iter().position(|kind| *kind == name)?;
    Kind::from_number(number as u32)
}

/// Expects the entry of a line `map MAP KEY = VALUE`.
pub(crate) fn expect_entry(
    line: &[String],
    infos: &[MapInfo],
    contents: &mut [Content],
    word: Word,
    labels: &Labels,
) {
    let map = text::number(&line[1], Word::W8, labels) as usize;
    let equals = line.iter().position(|token| token == "=").expect("`=` between key and value");
    let info = &infos[map];
    let mut key = text::bytes(&line[2..equals], word, labels);
    assert!(key.len() <= info.key as usize, "a key of {} bytes", key.len());
    key.resize(info.key as usize, 0);
    let value = value(info, &line[equals + 1..], word, labels);
    let entries = &mut contents[map].entries;
    if info.key == 0 {
        entries.clear();
    }
    entries.push(Entry { key, value });
    sort(entries);
}

/// Sorts entries by all that is known of them: keys of different lengths may look the same.
fn sort(entries: &mut [Entry]) {
    entries.sort_by_cached_key(|entry| format!("{entry:?}"));
}

/// The value that some tokens say, of a map of this kind.
fn value(info: &MapInfo, tokens: &[String], word: Word, labels: &Labels) -> Value {
    let number = |text: &str| text::number(text, Word::W8, labels);
    let pairs = || tokens.iter().map(|token| token.split_once(':').expect("`:` in a pair"));
    match info.kind() {
        Kind::Plain | Kind::Stacks => {
            let mut bytes = text::bytes(tokens, word, labels);
            assert!(bytes.len() <= info.value as usize, "a value of {} bytes", bytes.len());
            bytes.resize(info.value as usize, 0);
            Value::Bytes(bytes)
        }
        Kind::Count | Kind::Sum | Kind::Min | Kind::Max => Value::Number(number(&tokens[0])),
        Kind::Avg => Value::Avg { count: number(&tokens[0]), sum: number(&tokens[1]) },
        Kind::Stats => Value::Stats { count: number(&tokens[0]), sum: number(&tokens[1]) },
        Kind::Hist | Kind::Lhist => {
            let mut buckets = vec![0; info.value as usize / 8];
            pairs().for_each(|(bucket, count)| buckets[number(bucket) as usize] = number(count));
            Value::Buckets(buckets)
        }
        Kind::Tseries => {
            let interval =
                |(start, value): (&str, &str)| (number(start) as i64, (value != "-").then(|| number(value)));
            Value::Series(pairs().map(interval).collect())
        }
    }
}
