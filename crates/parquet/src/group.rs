//! Gathers records into row groups and writes them.

use std::collections::HashMap;
use std::io::{self, Write};

use convert::{Columns, Event, Form, ProbeSite, TemplateSet, TraceFacts, json_fields};
use trace::Items;
use trace::template::{Template, Value};

use crate::column::Column;
use crate::file::File;
use crate::schema::{base, fields, taken};
use crate::texts::Texts;

/// Most rows of a group.
const MAX_ROWS: usize = 1 << 17;
/// Most bytes of data and texts of a group, approximately.
const MAX_BYTES: usize = 16 << 20;

/// Writes each record as a row.
#[derive(Debug)]
pub struct Parquet<W: Write> {
    out: File<W>,
    templates: Columns,
    columns: Vec<Column>,
    rows: usize,
    texts: Texts,
    /// The text numbers of each place, by its number: module, probe, symbol.
    places: HashMap<u32, [Option<u32>; 3]>,
    /// The thread name of the last record, and its text number.
    name: Option<(String, u32)>,
    json: Vec<u8>,
}

impl<W: Write> Parquet<W> {
    /// Writes to `out`, a row group at a time.
    ///
    /// # Errors
    /// Writing fails.
    pub fn new(out: W, known: &TraceFacts, sheet: &TemplateSet) -> io::Result<Parquet<W>> {
        Parquet::with_columns(out, Columns::new(known, sheet, &taken()))
    }

    /// The same, with the columns of templates.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn with_columns(out: W, templates: Columns) -> io::Result<Parquet<W>> {
        let fields = fields(&templates);
        let columns = fields.iter().map(|field| Column::new(field.holds)).collect();
        Ok(Parquet {
            out: File::new(out, fields)?,
            templates,
            columns,
            rows: 0,
            texts: Texts::default(),
            places: HashMap::new(),
            name: None,
            json: Vec::new(),
        })
    }

    /// Writes the collected rows as a group.
    fn flush(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.columns.iter_mut().for_each(|column| column.pad(self.rows));
        self.out.group(&self.columns, self.rows, &self.texts)?;
        self.columns.iter_mut().for_each(Column::clear);
        self.rows = 0;
        self.texts.clear();
        self.places.clear();
        self.name = None;
        Ok(())
    }

    /// The text numbers of a place: module, probe, symbol.
    fn text_numbers(&mut self, place: &ProbeSite) -> [Option<u32>; 3] {
        let known = place.number.and_then(|number| self.places.get(&number).copied());
        known.unwrap_or_else(|| {
            let texts = [&place.module, &place.point, &place.symbol];
            let own = texts.map(|text| (!text.is_empty()).then(|| self.texts.number(text.as_bytes())));
            if let Some(number) = place.number {
                self.places.insert(number, own);
            }
            own
        })
    }

    /// The text number of a record's thread name.
    fn name(&mut self, name: &str) -> u32 {
        if let Some((_, number)) = self.name.as_ref().filter(|(last, _)| last == name) {
            return *number;
        }
        let number = self.texts.number(name.as_bytes());
        self.name = Some((name.to_owned(), number));
        number
    }

    /// Adds the values of a record's template.
    fn values(&mut self, template: &Template, event: &Event<'_>) {
        let Some(places) = self.templates.of(event.place.program, template) else {
            self.json.clear();
            json_fields(template, event.record, &mut self.json);
            if let Some(rest) = self.columns.last_mut() {
                rest.pad(self.rows);
                rest.bytes(&self.json);
            }
            return;
        };
        let fields = template.fields().iter().zip(template.values(event.record));
        for (&place, (field, value)) in places.iter().zip(fields) {
            let Some(column) = self.columns.get_mut(base::FIELDS + place) else { continue };
            // Rows of other templates have no value here.
            column.pad(self.rows);
            match &value {
                Value::Unsigned(number) => column.number(*number),
                Value::Signed(number) => column.number(number.cast_unsigned()),
                Value::Float(number) => column.double(*number),
                Value::Text(text) => column.bytes(String::from_utf8_lossy(text).as_bytes()),
                Value::Names(names) => column.bytes(names.as_bytes()),
                Value::Bytes(bytes) => column.bytes(bytes),
                Value::List(_) | Value::Struct(_) => {
                    self.json.clear();
                    convert::json_value(&value, &field.kind, &mut self.json);
                    column.bytes(&self.json);
                }
                Value::Fault(_) | Value::Missing => column.nothing(),
            }
        }
    }
}

impl<W: Write> Form for Parquet<W> {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        let (record, items) = (event.record, event.place.items);
        let [module, probe, symbol] = self.text_numbers(event.place);
        let comm = items.contains(Items::PROCNAME).then(|| self.name(&record.name));
        let described = event.template.map(|template| self.texts.number(template.description.as_bytes()));
        let columns = &mut self.columns;
        let of = |item: Items, number: u64| items.contains(item).then_some(number);
        columns[base::NUMBER].number(event.number);
        columns[base::TIME].maybe(of(Items::TSC, record.time / 1000));
        columns[base::TIME_NS].maybe(of(Items::TSC, record.time));
        columns[base::CPU].maybe(of(Items::CPU, record.cpu.into()));
        columns[base::PID].maybe(of(Items::PID, record.pid.into()));
        columns[base::TID].number(record.tid.into());
        columns[base::UID].maybe(of(Items::UID, record.uid.into()));
        columns[base::MAJOR].number(record.major.into());
        columns[base::MINOR].number(record.minor.into());
        columns[base::IP].maybe(of(Items::EIP, record.eip));
        columns[base::SP].maybe(of(Items::ESP, record.esp));
        columns[base::COMM].text(comm);
        columns[base::MODULE].text(module);
        columns[base::PROBE].text(probe);
        columns[base::SYMBOL].text(symbol);
        columns[base::EVENT].text(described);
        columns[base::DATA].bytes(&record.data);
        if let Some(template) = event.template {
            self.values(template, event);
        }
        self.rows += 1;
        let bytes = || self.texts.bytes() + self.columns.iter().map(Column::size).sum::<usize>();
        // Not computed for every row: a record has at most half a megabyte.
        if self.rows >= MAX_ROWS
            || ((self.rows & 15 == 0 || record.data.len() > 4096) && bytes() >= MAX_BYTES)
        {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        self.flush()?;
        self.out.finish()?;
        Ok(Vec::new())
    }
}
