//! Converts a store to a form.

use std::io::{self, Read, Seek};

use trace::store::{Damage, Error, Item, Reader};

use crate::event::{Event, Form};
use crate::facts::TraceFacts;
use crate::map::Map;
use crate::order::{Kept, Order};
use crate::plural::counted;
use crate::template_set::TemplateSet;

/// Most programs and codes whose templates are remembered. Others are looked up each time.
const MAX_CODES: usize = 1 << 12;

/// Why a conversion ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The trace cannot be read.
    #[error("{0}")]
    Read(#[from] Error),
    /// The output form cannot be written.
    #[error("{0}")]
    Write(io::Error),
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of records.
    pub records: u64,
    /// Number of parts of the trace that could not be read.
    pub damages: u64,
    /// Remarks for the user, a sentence each.
    pub remarks: Vec<String>,
}

/// Passes all records that the reader's filter selects to a form, in order of time. Calls `damaged`
/// for each part that cannot be read.
///
/// # Errors
/// Reading or writing fails.
pub fn convert<S: Read + Seek>(
    reader: &mut Reader<S>,
    known: &mut TraceFacts,
    sheet: &TemplateSet,
    form: &mut dyn Form,
    mut damaged: impl FnMut(&Damage),
) -> Result<Summary, Failure> {
    let mut poured = Summary::default();
    let mut order = Order::new(known.disorder);
    let mut templates = Map::default();
    let mut give = |form: &mut dyn Form, number, program, record: &trace::Record| {
        let place = known.site(program, record.probe, record.eip);
        let codes = (program, record.major, record.minor);
        let template = match templates.get(&codes) {
            Some(&template) => template,
            None => {
                let template = sheet.get(program, record.major, record.minor);
                if templates.len() < MAX_CODES {
                    templates.insert(codes, template);
                }
                template
            }
        };
        form.record(&Event { number, record, place, template }).map_err(Failure::Write)
    };
    while let Some(item) = reader.next()? {
        match item {
            Item::Record(entry) => {
                poured.records += 1;
                if order.is_idle() {
                    give(form, entry.number, entry.program, entry.record)?;
                    continue;
                }
                order.push(&entry);
                while let Some(Kept { number, program, record }) = order.pop(false) {
                    give(form, *number, *program, record)?;
                }
            }
            Item::Damage(damage) => {
                poured.damages += 1;
                damaged(&damage);
            }
            Item::Fact(_) => {}
        }
    }
    while let Some(Kept { number, program, record }) = order.pop(true) {
        give(form, *number, *program, record)?;
    }
    poured.remarks = form.finish().map_err(Failure::Write)?;
    if order.late > 0 {
        poured.remarks.push(counted(
            order.late,
            "record is out of order: it was too late to be sorted",
            "records are out of order: they were too late to be sorted",
        ));
    }
    Ok(poured)
}
