//! A trace store as text, record by record.

use std::collections::HashMap;
use std::path::Path;

use trace::line::LineView;
use trace::store::{Info, Item, Reader};
use trace::stored::{self, StoredLines};
use trace::template::{StoredTemplates, Templates};
use trace::{Form, Items, Text};

use crate::status::{Failure, Status};

/// A store, and its next record.
#[derive(Debug)]
pub(crate) struct StoreText {
    name: String,
    reader: Reader,
    view: View,
    /// The text of the current record; none once the caller has it.
    current: Option<Vec<u8>>,
    /// Whether the caller was told that the store has no end.
    told: bool,
}

/// How records are shown.
#[derive(Debug)]
struct View {
    text: Text,
    lines: StoredLines,
    /// The store's templates, unless others were given.
    own: Option<StoredTemplates>,
    /// The header items of each program.
    items: HashMap<u32, Items>,
}

impl StoreText {
    /// Opens a store, to be shown by the templates of a directory or by its own.
    pub(crate) fn open(path: &Path, templates: Option<Templates>) -> Result<StoreText, Failure> {
        let name = printable::path(path).to_string();
        let reader =
            Reader::open(path).map_err(|error| Failure::new(Status::Store, format!("{name}: {error}")))?;
        let view = View::new(reader.info(), templates);
        Ok(StoreText { name, reader, view, current: None, told: false })
    }

    /// The text of the current record; none at the end.
    pub(crate) fn current(&mut self) -> Result<Option<&[u8]>, Failure> {
        if self.current.is_none() {
            self.current = self.next()?;
        }
        Ok(self.current.as_deref())
    }

    /// Goes on to the next record.
    pub(crate) fn advance(&mut self) {
        self.current = None;
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            let item = self.reader.next();
            match item.map_err(|error| Failure::new(Status::Store, format!("{}: {error}", self.name)))? {
                Some(Item::Record(entry)) => {
                    return Ok(Some(self.view.show(entry.program, entry.record)));
                }
                Some(Item::Damage(damage)) => {
                    return Err(Failure::new(Status::Damage, format!("{}: {damage}", self.name)));
                }
                Some(Item::Fact(_)) => {}
                None => break,
            }
        }
        if self.reader.info().complete || self.told {
            return Ok(None);
        }
        self.told = true;
        let message = "the trace has no end: it was cut short, or is still written";
        Err(Failure::new(Status::Damage, format!("{}: {message}", self.name)))
    }
}

impl View {
    /// The view of `dprobes show` without options.
    fn new(info: &Info, given: Option<Templates>) -> View {
        let wanted = Items::DEFAULT;
        let items = info.programs.iter().map(|program| (program.number, wanted.and(program.items)));
        let text = Text::new(wanted, Form::Formatted);
        let (mut own, mut line_items) = (None, None);
        let text = match given {
            Some(templates) => text.with_templates(templates),
            None if !info.templates.is_empty() => {
                own = Some(stored::templates(info).0);
                text
            }
            None => {
                line_items = Some(LineView::ITEMS);
                text.with_lines(LineView::new(LineView::ITEMS, Some(stored::functions(info))))
            }
        };
        View { text, lines: StoredLines::new(info, line_items), own, items: items.collect() }
    }

    fn show(&mut self, program: u32, record: &trace::Record) -> Vec<u8> {
        self.text.set_items(self.items.get(&program).copied().unwrap_or(Items::DEFAULT));
        self.lines.show(program, &mut self.text);
        let mut out = Vec::new();
        match &self.own {
            Some(own) => {
                let template = own.get(program, record.major, record.minor);
                // Writing to a vector does not fail.
                let _ = self.text.write_by(template, record, &mut out);
            }
            None => self.text.append(record, &mut out),
        }
        out
    }
}
