//! A script with its log and maps, and a world that answers from memory.

use std::collections::HashMap;
use std::io;

use ::maps::{Entry, Kind, MapInfo, Value};
use printout::{Clock, Context, Error, Location, Next, Output, Reader, StackMode, Symbol, TimeZone, World};
use script::{Action, At, Compiled, Event, Integer, Map, Type};

pub(crate) const I64: Type = Type::Integer(Integer::I64);
pub(crate) const U64: Type = Type::Integer(Integer::U64);

pub(crate) fn integer(bytes: u8, signed: bool) -> Type {
    Type::Integer(Integer { bytes, signed })
}

pub(crate) fn tuple(members: &[Type]) -> Type {
    Type::Tuple(members.into())
}

/// 14 November 2023, 22:13:25.000042 UTC.
pub(crate) const NOW: i128 = 1_700_000_005_000_042_000;

/// What the reader asks, answered from memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) symbols: HashMap<u64, Symbol>,
    pub(crate) stacks: HashMap<u64, Vec<u64>>,
    pub(crate) files: HashMap<Vec<u8>, Vec<u8>>,
    pub(crate) maps: Vec<Vec<Entry>>,
    /// Commands that were run.
    pub(crate) commands: Vec<String>,
    /// What was shown beside the output.
    pub(crate) reports: Vec<String>,
}

impl World for Memory {
    fn user_symbol(&mut self, address: u64, _: u32) -> Option<Symbol> {
        self.symbols.get(&address).cloned()
    }

    fn kernel_symbol(&mut self, address: u64) -> Option<Symbol> {
        self.symbols.get(&address).cloned()
    }

    fn stack(&mut self, number: u64) -> Option<Vec<u64>> {
        self.stacks.get(&number).cloned()
    }

    fn cgroup(&mut self, number: u64, filter: &[u8]) -> String {
        format!("{}:/{number}", String::from_utf8_lossy(filter))
    }

    fn user(&mut self, number: u32) -> String {
        format!("user{number}")
    }

    fn process(&mut self, pid: u32) -> Vec<u8> {
        format!("process{pid}").into()
    }

    fn now(&mut self) -> i128 {
        NOW
    }

    fn time_of(&mut self, clock: Clock, nanoseconds: u64) -> i128 {
        let start = match clock {
            Clock::Monotonic => NOW,
            Clock::Boot => NOW - 1_000_000_000,
            Clock::Real => 0,
        };
        start + i128::from(nanoseconds)
    }

    fn time_of_interval(&mut self, begin: i64) -> i128 {
        begin.into()
    }

    fn zone(&mut self) -> TimeZone {
        TimeZone::UTC
    }

    fn entries(&mut self, map: usize) -> Vec<Entry> {
        self.maps[map].clone()
    }

    fn clear(&mut self, map: usize) {
        self.maps[map].clear();
    }

    fn zero(&mut self, map: usize) {
        for entry in &mut self.maps[map] {
            entry.value = Value::Number(0);
        }
    }

    fn system(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        let command = String::from_utf8_lossy(command).into_owned();
        if command.contains("forbidden") {
            return Err(io::Error::other("not allowed"));
        }
        let answer = if command == "silent" { String::new() } else { format!("ran {command}\n") };
        self.commands.push(command);
        Ok(answer.into())
    }

    fn read_file(&mut self, path: &[u8], _: usize) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn locate(&mut self, _: At) -> Location {
        Location { file: "stdin".into(), line: 1, column: 9, end: 62 }
    }

    fn report(&mut self, message: &[u8]) {
        self.reports.push(String::from_utf8_lossy(message).into_owned());
    }
}

/// A value in the log.
#[derive(Clone, Debug)]
pub(crate) enum Logged<'a> {
    Number(i64),
    Text(&'a str),
    /// In its stored form.
    Stored(Vec<u8>),
}

/// A script, its log and its world.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    pub(crate) script: Compiled,
    pub(crate) world: Memory,
    pub(crate) log: Vec<u8>,
    pub(crate) stacks: StackMode,
}

impl Scene {
    /// Adds an event to the script, and to the log.
    pub(crate) fn event(&mut self, action: Action, values: &[(Type, Logged<'_>)]) {
        let number = self.script.events.len() as u64;
        let arguments = values.iter().map(|(ty, _)| ty.clone()).collect();
        self.script.events.push(Event { action, arguments, at: At::default() });
        self.log.extend(number.to_le_bytes());
        for (_, value) in values {
            match value {
                Logged::Number(number) => self.log.extend(number.to_le_bytes()),
                Logged::Text(text) => self.log.extend(alone(text.as_bytes())),
                Logged::Stored(bytes) => self.log.extend(bytes),
            }
        }
    }

    pub(crate) fn printf(&mut self, format: &str, values: &[(Type, Logged<'_>)]) {
        self.event(Action::Printf(format.into()), values);
    }

    /// Adds a map and its entries.
    pub(crate) fn map(
        &mut self,
        name: &str,
        key: Option<Type>,
        value: Type,
        info: MapInfo,
        entries: Vec<(Vec<u8>, Value)>,
    ) {
        self.script.maps.push(Map { name: name.into(), key, value, info });
        self.world.maps.push(entries.into_iter().map(|(key, value)| Entry { key, value }).collect());
    }

    /// Reads the log.
    pub(crate) fn record(&mut self, output: Output) -> (String, Result<Next, Error>) {
        let reader = Reader::new(&self.script, output, self.stacks);
        let mut out = Vec::new();
        let context = Context { pid: 42, tid: 43, time: 44 };
        let next = reader.record(context, &self.log, &mut out, &mut self.world);
        (String::from_utf8_lossy(&out).into_owned(), next)
    }

    /// Ends tracing: what is printed.
    pub(crate) fn end(&mut self, output: Output) -> String {
        let reader = Reader::new(&self.script, output, self.stacks);
        let mut out = Vec::new();
        reader.end(&mut out, &mut self.world).expect("the maps are well-formed");
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Reads the log and ends tracing: what is printed.
    pub(crate) fn run(&mut self, output: Output) -> String {
        let (mut printed, next) = self.record(output);
        next.expect("the log is well-formed");
        printed.push_str(&self.end(output));
        printed
    }
}

pub(crate) fn info(kind: Kind) -> MapInfo {
    MapInfo { kind: kind as u32, signed: 1, ..MapInfo::default() }
}

pub(crate) fn words(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A string as the last part of a key.
pub(crate) fn last(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// A string as another part of a key, or as a member of a tuple.
pub(crate) fn part(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(1024, 0);
    bytes
}

/// A string or bytes as an argument or a value.
pub(crate) fn alone(text: &[u8]) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// The buckets of a histogram of powers of 2 with these numbers.
pub(crate) fn powers(numbers: &[i64]) -> Value {
    let mut buckets = vec![0; 65];
    for number in numbers {
        let bucket = match *number {
            ..0 => 0,
            0 => 1,
            number => number.ilog2() as usize + 2,
        };
        buckets[bucket] += 1;
    }
    Value::Buckets(buckets)
}
