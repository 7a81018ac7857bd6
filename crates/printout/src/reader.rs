//! The reader: takes the events of a log; prints to a writer, and does the rest in a [`World`].

use std::cell::RefCell;
use std::io::Write;

use maps::Kind;
use script::{Action, Aggregate, At, Compiled, Event, Type};

use crate::clock;
use crate::cursor::Cursor;
use crate::datum::{Datum, append};
use crate::decode::{Decoder, ValueStorage};
use crate::error::{Context, Error, Wrong};
use crate::flame::Flame;
use crate::format::Format;
use crate::symbols::StackMode;
use crate::table::{self, Cell, Selection, Table};
use crate::told::Told;
use crate::unit::Durations;
use crate::world::World;
use crate::{folded, json, terminal, text};

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Text.
    #[default]
    Text,
    /// A JSON object in each line.
    Json,
    /// Text, but for maps by stacks: a line for each, as programs for flame graphs read it.
    Folded,
}

/// What to do after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on.
    GoOn,
    /// End tracing with this exit status: `exit()` was called, or an assertion failed.
    Exit(u8),
}

/// Reads the records of a script and prints what they say.
#[derive(Debug)]
pub struct Reader<'a> {
    pub(crate) decoder: Decoder<'a>,
    output: Output,
    /// Whether a terminal shows the output.
    terminal: bool,
    /// The format of each event that has one.
    formats: Vec<Format>,
    /// How nanoseconds are shown, if not as numbers.
    durations: Option<Durations>,
    /// What maps by stacks have had, if a graph is made of it.
    pub(crate) flame: Option<RefCell<Flame>>,
}

impl<'a> Reader<'a> {
    /// A reader of the records of `script`.
    pub fn new(script: &'a Compiled, output: Output, stacks: StackMode) -> Reader<'a> {
        let format = |event: &Event| match &event.action {
            Action::Printf(format)
            | Action::Errorf(format)
            | Action::Warnf(format)
            | Action::Cat(format)
            | Action::System(format) => Format::parse(format),
            _ => Format::default(),
        };
        let formats = script.events.iter().map(format).collect();
        Reader {
            decoder: Decoder { script, stacks },
            output,
            terminal: false,
            formats,
            durations: None,
            flame: None,
        }
    }

    /// Makes control characters of values visible: a terminal shows the output, and processes may
    /// be hostile. What the formats of the script say stays.
    pub fn for_terminal(mut self) -> Reader<'a> {
        self.terminal = true;
        self
    }

    /// Shows the times of maps whose names end with `ns` or `us` with units that people read.
    pub fn with_durations(mut self, shown: Option<Durations>) -> Reader<'a> {
        self.durations = shown;
        self
    }

    /// The number of each `printf` of the script, its place, and the template for what
    /// [`World::message`] gets of it.
    pub fn templates(&self) -> impl Iterator<Item = (usize, At, String)> + '_ {
        let events = self.decoder.script.events.iter().zip(&self.formats).enumerate();
        events
            .filter(|(_, (event, _))| matches!(event.action, Action::Printf(_)))
            .map(|(number, (event, format))| (number, event.at, format.template(&event.arguments)))
    }

    /// Does what the events in the log of a record say.
    ///
    /// # Errors
    ///
    /// The log, or an entry of a map that it prints, is malformed; or the output cannot be written.
    /// Events before the wrong one have been done, those behind it are skipped.
    pub fn record(
        &self,
        context: Context,
        log: &[u8],
        sink: &mut dyn Write,
        world: &mut dyn World,
    ) -> Result<Next, Error> {
        let events = &self.decoder.script.events;
        let mut bytes = Cursor::new(log);
        while bytes.left() > 0 {
            let offset = bytes.offset();
            let malformed = |number, why| Error::Malformed { context, number, offset, why };
            let number = bytes.word().map_err(|why| Error::NoNumber { context, offset, why })?;
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            let (Some(event), Some(format)) = (events.get(index), self.formats.get(index)) else {
                return Err(Error::NoSuchEvent { context, number, offset, events: events.len() });
            };
            let mut values = Vec::with_capacity(event.arguments.len());
            for ty in &event.arguments {
                let value = self.decoder.value(ty, ValueStorage::Alone, &mut bytes, world);
                values.push(value.map_err(|why| malformed(index, why))?);
            }
            if let Action::Join(_) = event.action {
                let strings = self.strings(&mut values, &mut bytes, world);
                strings.map_err(|why| malformed(index, why))?;
            }
            if let (Action::Printf(_), true) = (&event.action, world.takes_messages()) {
                world.message(index, format.pack(&event.arguments, &values));
                continue;
            }
            let next = self.act(event, format, &values, sink, world)?;
            if next != Next::GoOn {
                return Ok(next);
            }
        }
        Ok(Next::GoOn)
    }

    /// The strings of `join`, in place of the argument that says how many there are.
    fn strings(
        &self,
        values: &mut Vec<Datum>,
        bytes: &mut Cursor<'_>,
        world: &mut dyn World,
    ) -> Result<(), Wrong> {
        let count = values.pop().as_ref().and_then(Datum::number).unwrap_or(0);
        // Each has at least a word: a greater count fails before it takes much room.
        for _ in 0..count {
            values.push(self.decoder.value(&Type::Text, ValueStorage::Alone, bytes, world)?);
        }
        Ok(())
    }

    /// Tracing has ended: prints all maps, if the script does not set that they are not printed.
    ///
    /// # Errors
    ///
    /// As [`Self::record`]; all other maps have been printed.
    pub fn end(&self, sink: &mut dyn Write, world: &mut dyn World) -> Result<(), Error> {
        if self.output == Output::Text {
            sink.write_all(b"\n\n")?;
        }
        let script = self.decoder.script;
        (0..script.maps.len()).try_for_each(|map| self.keep(map, world))?;
        if !script.settings.print_maps_on_exit {
            return Ok(());
        }
        let stacks = Some(Kind::Stacks);
        let maps = script.maps.iter().enumerate();
        let mut maps: Vec<usize> = maps
            .filter(|(index, map)| Kind::from_number(map.info.kind) != stacks && script.child != Some(*index))
            .map(|(index, _)| index)
            .collect();
        maps.sort_by(|left, right| script.maps[*left].name.cmp(&script.maps[*right].name));
        let mut result = Ok(());
        for map in maps {
            match self.print_map(map, Selection::default(), sink, world) {
                Err(error @ Error::Write(_)) => return Err(error),
                other => result = result.and(other),
            }
        }
        result
    }

    /// Says that events were lost.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn lost(&self, count: u64, sink: &mut dyn Write, world: &mut dyn World) -> Result<(), Error> {
        self.count(count, "lost_events", &format!("Lost {count} events"), sink, world)
    }

    /// Says how many attach points are traced.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn attached(&self, count: u64, sink: &mut dyn Write, world: &mut dyn World) -> Result<(), Error> {
        let text = format!("Attached {count} probe{}", if count == 1 { "" } else { "s" });
        self.count(count, "attached_probes", &text, sink, world)
    }

    /// A count; text has it beside its output, since 0.24.
    fn count(
        &self,
        count: u64,
        kind: &str,
        text: &str,
        sink: &mut dyn Write,
        world: &mut dyn World,
    ) -> Result<(), Error> {
        match self.output {
            Output::Text | Output::Folded => world.report(text.as_bytes()),
            Output::Json => sink.write_all(&json::count(kind, count))?,
        }
        Ok(())
    }

    fn act(
        &self,
        event: &Event,
        format: &Format,
        values: &[Datum],
        sink: &mut dyn Write,
        world: &mut dyn World,
    ) -> Result<Next, Error> {
        match &event.action {
            Action::Printf(_) => {
                let text = match (self.terminal, self.output) {
                    (true, Output::Text | Output::Folded) => format.apply_visibly(values),
                    _ => format.apply(values),
                };
                self.message("printf", &text, sink)?;
            }
            Action::Errorf(_) => self.told(Told::Error, &format.apply(values), event.at, sink, world)?,
            Action::Warnf(_) => self.told(Told::Warning, &format.apply(values), event.at, sink, world)?,
            Action::Print => {
                let value = values.first().cloned().unwrap_or(Datum::Null);
                self.print_value(&Cell::Plain(value), sink, world)?;
            }
            Action::PrintEntry(map) => self.print_entry(*map, values, sink, world)?,
            Action::PrintMap { map, top, divisor } => {
                self.print_map(*map, Selection { top: *top, divisor: *divisor }, sink, world)?;
            }
            Action::Clear(map) => {
                self.keep(*map, world)?;
                world.clear(*map);
            }
            Action::Zero(map) => {
                self.keep(*map, world)?;
                world.zero(*map);
            }
            Action::Unwatch => world.unwatch(values.first().and_then(Datum::number).unwrap_or(0)),
            Action::Exit => {
                let status = values.first().and_then(Datum::number).unwrap_or(0);
                return Ok(Next::Exit(status as u8));
            }
            Action::Time(format) => match clock::formatted(format, world.now(), &world.zone()) {
                Some(time) => self.message("time", &time, sink)?,
                None => world.report(b"WARNING: the time cannot be shown"),
            },
            Action::Cat(_) => self.cat(&format.apply(values), sink, world)?,
            Action::System(_) => self.system(&format.apply(values), sink, world)?,
            Action::Join(separator) => self.join(values, separator, sink)?,
            Action::Assert => {
                let mut text = b"Assertion failed. Msg: ".to_vec();
                values.iter().for_each(|value| value.write(&mut text));
                self.told(Told::Error, &text, event.at, sink, world)?;
                return Ok(Next::Exit(1));
            }
        }
        Ok(Next::GoOn)
    }

    fn message(&self, kind: &str, text: &[u8], sink: &mut dyn Write) -> Result<(), Error> {
        match self.output {
            Output::Text | Output::Folded => sink.write_all(text)?,
            Output::Json => self.write(&json::message(kind, text), sink)?,
        }
        Ok(())
    }

    /// Writes what may hold foreign text anywhere.
    fn write(&self, bytes: &[u8], sink: &mut dyn Write) -> Result<(), Error> {
        let shown = match (self.terminal, self.output) {
            (false, _) => bytes.into(),
            (true, Output::Text | Output::Folded) => terminal::text(bytes),
            (true, Output::Json) => terminal::json(bytes),
        };
        Ok(sink.write_all(&shown)?)
    }

    /// A message that text has in a line of its own.
    fn line(&self, kind: &str, text: &[u8], sink: &mut dyn Write) -> Result<(), Error> {
        match self.output {
            Output::Text | Output::Folded => self.write(&[text, b"\n"].concat(), sink)?,
            Output::Json => self.write(&json::message(kind, text), sink)?,
        }
        Ok(())
    }

    /// An error or a warning of the script, with its place.
    fn told(
        &self,
        told: Told,
        text: &[u8],
        at: At,
        sink: &mut dyn Write,
        world: &mut dyn World,
    ) -> Result<(), Error> {
        let location = world.locate(at);
        match self.output {
            Output::Text | Output::Folded => {
                let mut message = Vec::new();
                let columns = match location.end > location.column {
                    true => format!("{}-{}", location.column, location.end),
                    false => location.column.to_string(),
                };
                let (file, line, word) = (location.file, location.line, told.word());
                append(&mut message, format_args!("{file}:{line}:{columns}: {word}: "));
                message.extend_from_slice(text);
                world.report(&message);
            }
            Output::Json => self.write(&json::told(told.kind(), text, &location), sink)?,
        }
        Ok(())
    }

    fn print_value(&self, cell: &Cell, sink: &mut dyn Write, world: &mut dyn World) -> Result<(), Error> {
        let zone = world.zone();
        let text = match self.output {
            Output::Text | Output::Folded => text::value(cell, &zone),
            Output::Json => json::value(cell, &zone),
        };
        self.write(&text, sink)
    }

    fn print_map(
        &self,
        map: usize,
        selection: Selection,
        sink: &mut dyn Write,
        world: &mut dyn World,
    ) -> Result<(), Error> {
        match self.table(map, selection, world)? {
            Some(table) => self.write_table(&table, sink, world),
            None => Ok(()),
        }
    }

    fn write_table(&self, table: &Table, sink: &mut dyn Write, world: &mut dyn World) -> Result<(), Error> {
        let zone = world.zone();
        let text = match self.output {
            Output::Text => text::table(table, &zone, self.durations),
            Output::Folded => folded::table(table, &zone),
            Output::Json => json::table(table, &zone),
        };
        self.write(&text, sink)
    }

    /// The table of a map, if the script has this map.
    pub(crate) fn table(
        &self,
        map: usize,
        selection: Selection,
        world: &mut dyn World,
    ) -> Result<Option<Table>, Error> {
        let Some(described) = self.decoder.script.maps.get(map) else { return Ok(None) };
        let entries = world.entries(map);
        self.decoder.table(described, entries, selection, world).map(Some)
    }

    /// `print(@map[key])` prints the value, which was logged or is looked up; `print(@map)` of a
    /// map without keys prints the map.
    fn print_entry(
        &self,
        map: usize,
        values: &[Datum],
        sink: &mut dyn Write,
        world: &mut dyn World,
    ) -> Result<(), Error> {
        let Some(described) = self.decoder.script.maps.get(map) else { return Ok(()) };
        if described.key.is_none() {
            let Some(value) = values.first() else {
                return self.print_map(map, Selection::default(), sink, world);
            };
            let cell = table::plain(&described.value, value.clone(), 0);
            return self.write_table(&Table::of_one(described, cell), sink, world);
        }
        if let [_, value, ..] = values {
            return self.print_value(&Cell::Plain(value.clone()), sink, world);
        }
        let Some(table) = self.table(map, Selection::default(), world)? else { return Ok(()) };
        match table.rows.into_iter().find(|row| row.key.as_ref() == values.first()) {
            Some(row) => self.print_value(&row.cell, sink, world),
            // What there is not counts as 0; a histogram of nothing has no lines.
            None => match described.value {
                Type::Aggregate(Aggregate::Hist | Aggregate::Lhist | Aggregate::Tseries) => Ok(()),
                _ => self.print_value(&Cell::Plain(Datum::Signed(0)), sink, world),
            },
        }
    }

    fn cat(&self, path: &[u8], sink: &mut dyn Write, world: &mut dyn World) -> Result<(), Error> {
        let most = self.decoder.script.settings.max_cat_bytes;
        match world.read_file(path, most) {
            Ok(mut text) => {
                text.truncate(most);
                match self.output {
                    Output::Text | Output::Folded => self.write(&text, sink),
                    Output::Json => self.message("cat", &text, sink),
                }
            }
            Err(why) => {
                let mut message = b"ERROR: failed to open file '".to_vec();
                message.extend_from_slice(path);
                append(&mut message, format_args!("': {why}"));
                world.report(&message);
                Ok(())
            }
        }
    }

    /// Adds a line end to what the command prints, as 0.24 does and 0.17 does not.
    fn system(&self, command: &[u8], sink: &mut dyn Write, world: &mut dyn World) -> Result<(), Error> {
        match world.system(command) {
            Ok(text) if text.is_empty() && self.output != Output::Json => Ok(()),
            Ok(text) => self.line("syscall", &text, sink),
            Err(why) => {
                world.report(format!("ERROR: the command was not run: {why}").as_bytes());
                Ok(())
            }
        }
    }

    fn join(&self, values: &[Datum], separator: &[u8], sink: &mut dyn Write) -> Result<(), Error> {
        let texts: Vec<Vec<u8>> = values.iter().map(Datum::to_text).collect();
        self.line("join", &texts.join(separator), sink)
    }
}
