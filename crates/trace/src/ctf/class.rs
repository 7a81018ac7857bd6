//! CTF event classes: the description and encoding that the records of one probe share.

use std::fmt::Write;

use super::fields::{Fields, Mismatch};
use super::metadata::quoted;
use crate::template::Value;
use crate::{Items, Record};

/// The header items in an event's context, besides the codes and the thread id.
const CONTEXT: &[(Items, &str, &str)] = &[
    (Items::PID, "uint32_t", "_pid"),
    (Items::UID, "uint32_t", "_uid"),
    (Items::EIP, "integer { size = 64; align = 8; signed = false; base = 16; }", "_ip"),
    (Items::ESP, "integer { size = 64; align = 8; signed = false; base = 16; }", "_sp"),
    (Items::PROCNAME, "string", "_procname"),
];

/// An event class.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// Its id, by which records refer to it.
    pub(super) id: u16,
    items: Items,
    pub(super) fields: Fields,
}

impl Class {
    pub(super) fn new(id: u16, items: Items, fields: Fields) -> Class {
        Class { id, items, fields }
    }

    /// Its description in TSDL.
    pub(super) fn describe(&self, name: &str) -> String {
        let mut text = String::from("\nevent {\n");
        let _ = writeln!(text, "\tname = {};\n\tid = {};\n\tstream_id = 0;", quoted(name), self.id);
        text.push_str(
            "\tcontext := struct {\n\t\tuint32_t _major;\n\t\tuint32_t _minor;\n\t\tuint32_t _tid;\n",
        );
        for (_, kind, name) in CONTEXT.iter().filter(|(item, ..)| self.items.contains(*item)) {
            let _ = writeln!(text, "\t\t{kind} {name};");
        }
        let _ = write!(text, "\t}};\n\tfields := {};\n}};\n", self.fields.describe());
        text
    }

    /// Appends a record as it is in a packet.
    ///
    /// # Errors
    /// The values do not fit the class; then `out` has useless bytes at its end.
    pub(super) fn encode<'a>(
        &self,
        timestamp: u64,
        record: &Record,
        values: impl Iterator<Item = Value<'a>>,
        out: &mut Vec<u8>,
    ) -> Result<(), Mismatch> {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&timestamp.to_le_bytes());
        for number in [record.major, record.minor, record.tid] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if self.items.contains(Items::PID) {
            out.extend_from_slice(&record.pid.to_le_bytes());
        }
        if self.items.contains(Items::UID) {
            out.extend_from_slice(&record.uid.to_le_bytes());
        }
        if self.items.contains(Items::EIP) {
            out.extend_from_slice(&record.eip.to_le_bytes());
        }
        if self.items.contains(Items::ESP) {
            out.extend_from_slice(&record.esp.to_le_bytes());
        }
        if self.items.contains(Items::PROCNAME) {
            out.extend(record.name.bytes().take_while(|&byte| byte != 0));
            out.push(0);
        }
        self.fields.encode(values, out)
    }
}
