//! Chooses the event class of each record, and describes classes in `metadata`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};

use super::class::Class;
use super::fields::Fields;
use super::packet::Packet;
use crate::template::{Template, Value};
use crate::{Items, Record};

/// The most event classes; all probes beyond share one more.
const MAX_CLASSES: usize = 1 << 15;

/// What is known of a probe.
#[derive(Debug)]
struct Point {
    name: String,
    items: Items,
}

/// Identifies an event class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// Records of a probe as raw bytes.
    Raw { program: u32, probe: u32 },
    /// Records of a probe with the fields of a template, given by its index. Another text for the
    /// same codes makes another class.
    Typed { program: u32, probe: u32, template: usize, short_words: bool, has_rest: bool },
    /// Records as raw bytes, of probes beyond the limit.
    Other,
}

/// The size of the cache of classes.
const RECENT: usize = 256;

/// The event classes of a trace.
#[derive(Debug)]
pub(super) struct Classes {
    points: HashMap<(u32, u32), Point>,
    /// All templates so far, each once.
    templates: Vec<Template>,
    /// The indexes of the templates with these codes.
    alike: HashMap<(u32, u32), Vec<usize>>,
    /// The index of the template for these codes: in `own`, of programs with templates of their
    /// own; in `places`, of all others.
    own: HashMap<u32, HashMap<(u32, u32), usize>>,
    places: HashMap<(u32, u32), usize>,
    table: Table,
    /// A cache, indexed by the last digits of the probe's number.
    recent: Vec<Option<Recent>>,
}

/// The classes that have been described.
#[derive(Debug)]
struct Table {
    metadata: File,
    classes: Vec<Class>,
    keys: HashMap<Key, usize>,
}

/// What determines the class of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecordKind {
    program: u32,
    probe: u32,
    codes: (u32, u32),
    short_words: bool,
}

impl RecordKind {
    fn key(self, template: Option<usize>, has_rest: bool) -> Key {
        let RecordKind { program, probe, short_words, .. } = self;
        match template {
            Some(template) => Key::Typed { program, probe, template, short_words, has_rest },
            None => Key::Raw { program, probe },
        }
    }
}

/// A cache entry: the class and template of a kind of record.
#[derive(Clone, Copy, Debug)]
struct Recent {
    kind: RecordKind,
    template: Option<usize>,
    /// The class of records without bytes after the template's fields.
    class: usize,
}

impl Classes {
    /// No classes yet. `metadata` receives their descriptions.
    pub(super) fn new(metadata: File) -> Classes {
        Classes {
            points: HashMap::new(),
            templates: Vec::new(),
            alike: HashMap::new(),
            own: HashMap::new(),
            places: HashMap::new(),
            table: Table { metadata, classes: Vec::new(), keys: HashMap::new() },
            recent: vec![None; RECENT],
        }
    }

    pub(super) fn template(&mut self, template: Template) {
        let codes = (template.major, template.minor);
        let place = self.template_index(template);
        self.places.insert(codes, place);
        self.recent.fill(None);
    }

    /// Sets all templates of a program. They replace the earlier ones.
    pub(super) fn templates_of(&mut self, program: u32, templates: impl Iterator<Item = Template>) {
        let own = templates.map(|template| ((template.major, template.minor), self.template_index(template)));
        let own = own.collect();
        self.own.insert(program, own);
        self.recent.fill(None);
    }

    /// The index of a template; adds it if it is new.
    fn template_index(&mut self, template: Template) -> usize {
        let alike = self.alike.entry((template.major, template.minor)).or_default();
        if let Some(&place) = alike.iter().find(|&&place| self.templates[place] == template) {
            return place;
        }
        alike.push(self.templates.len());
        self.templates.push(template);
        self.templates.len() - 1
    }

    pub(super) fn probe(&mut self, program: u32, probe: u32, name: &str, items: Items) {
        self.points.insert((program, probe), Point { name: name.to_owned(), items });
    }

    /// Appends a record to a packet.
    ///
    /// # Errors
    /// The class could not be described; the packet is unchanged.
    #[inline]
    pub(super) fn push(
        &mut self,
        program: u32,
        timestamp: u64,
        record: &Record,
        packet: &mut Packet,
    ) -> io::Result<()> {
        let kind = RecordKind {
            program,
            probe: record.probe,
            codes: (record.major, record.minor),
            short_words: record.word == 4,
        };
        let place = record.probe as usize % RECENT;
        let Recent { template, class, .. } = match self.recent[place] {
            Some(recent) if recent.kind == kind => recent,
            _ => {
                let own = self.own.get(&program).and_then(|own| own.get(&kind.codes));
                let template = own.or_else(|| self.places.get(&kind.codes)).copied();
                let class = self.class(kind, template, false)?;
                *self.recent[place].insert(Recent { kind, template, class })
            }
        };
        let Some(template) = template else {
            return self.push_bytes(class, timestamp, record, packet);
        };
        let (values, rest) = self.templates[template].values_and_rest(record);
        let pushed = if rest.is_empty() {
            let class = &self.table.classes[class];
            packet.push(timestamp, |out| class.encode(timestamp, record, values, out))
        } else {
            let class = self.class(kind, Some(template), true)?;
            let class = &self.table.classes[class];
            let values = values.chain([Value::Bytes(rest)]);
            packet.push(timestamp, |out| class.encode(timestamp, record, values, out))
        };
        if pushed.is_ok() {
            return Ok(());
        }
        // The record does not match the template.
        let class = self.class(kind, None, false)?;
        self.push_bytes(class, timestamp, record, packet)
    }

    /// Appends a record as raw bytes.
    fn push_bytes(
        &self,
        class: usize,
        timestamp: u64,
        record: &Record,
        packet: &mut Packet,
    ) -> io::Result<()> {
        let class = &self.table.classes[class];
        let values = std::iter::once(Value::Bytes(&record.data));
        let encode = |out: &mut Vec<u8>| class.encode(timestamp, record, values, out);
        packet.push(timestamp, encode).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    /// The class of a kind of record: with the fields of its template, or as raw bytes.
    fn class(&mut self, kind: RecordKind, template: Option<usize>, has_rest: bool) -> io::Result<usize> {
        let Classes { points, templates, table, .. } = self;
        let RecordKind { program, probe, .. } = kind;
        let key = kind.key(template, has_rest);
        if let Some(&class) = table.keys.get(&key) {
            return Ok(class);
        }
        if table.classes.len() >= MAX_CLASSES {
            return table.other();
        }
        let word = if kind.short_words { 4 } else { 8 };
        let fields = template.map_or_else(Fields::raw, |at| Fields::of(&templates[at], word, has_rest));
        match points.get(&(program, probe)) {
            Some(point) => table.describe(key, &point.name, point.items, fields),
            // All header items: those that its records lack are zero or empty.
            None => table.describe(key, &format!("probe:{probe}"), Items::ALL, fields),
        }
    }
}

impl Table {
    /// The class of all probes beyond the limit.
    fn other(&mut self) -> io::Result<usize> {
        match self.keys.get(&Key::Other) {
            Some(&class) => Ok(class),
            None => self.describe(Key::Other, "probe:other", Items::ALL, Fields::raw()),
        }
    }

    /// Describes a class before its first record is written, so that no record lacks its
    /// description even if the writer is killed.
    fn describe(&mut self, key: Key, name: &str, items: Items, fields: Fields) -> io::Result<usize> {
        let place = self.classes.len();
        let class = Class::new(place as u16, items, fields);
        self.metadata.write_all(class.describe(name).as_bytes())?;
        self.classes.push(class);
        self.keys.insert(key, place);
        Ok(place)
    }
}
