//! The systemd journal as a target (the original's EVL): sends records as structured fields in
//! journald's native protocol.
//!
//! A datagram is a list of fields: `NAME=value` and a newline. If the value has newlines or is not
//! text, a field is the name, a newline, the length of the value in 8 bytes little-endian, the
//! value, and a newline.
//!
//! ```text
//! MESSAGE              the lines of the kernel's log, or what a template makes of the record
//! MESSAGE_ID           one for all records of dprobes: journalctl MESSAGE_ID=...
//! PRIORITY             6, informational
//! SYSLOG_IDENTIFIER    dprobes
//! DPROBES_EVENT_TYPE   major << 16 | minor, as the original's event type
//! DPROBES_MAJOR _MINOR _CPU _TID, and as far as the header has them _PID _UID _IP _SP _COMM
//! DPROBES_TIME         microseconds since 1970, as the journal's own times are
//! DPROBES_POINT        libc.so.6:malloc:entry
//! DPROBES_DATA         the logged bytes
//! DPROBES_FIELD_name   the values that a template names
//! ```

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::datagram::DaemonSocket;
use super::view::ProgramText;
use super::{Sink, View};
use crate::queue::Progress;
use crate::store::{Fact, point_name};
use crate::template::Value;
use crate::{Items, Record};

/// journald's native socket.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The message id of all records of dprobes.
const MESSAGE_ID: &str = "6d1f8c2b5f0e4c0fa4d07e0b3c9a51d7";
/// The greatest length of a field name that journald takes, in bytes.
const MAX_NAME: usize = 64;

/// Sends records to the journal.
#[derive(Debug)]
pub struct Journal {
    socket: DaemonSocket,
    programs: HashMap<u32, Program>,
    /// The names of the probepoints, by program and probe.
    points: HashMap<(u32, u32), String>,
    message: Vec<u8>,
    text: Vec<u8>,
    lost: u64,
}

/// What is known of a program.
#[derive(Debug, Default)]
struct Program {
    module: String,
    /// The header items of its records.
    items: Option<Items>,
    live: Option<ProgramText>,
}

impl Journal {
    /// Connects to journald's socket, or to the one at `path`.
    ///
    /// # Errors
    /// No process listens at the socket.
    pub fn open(path: Option<&Path>, progress: Progress) -> io::Result<Journal> {
        let path = path.unwrap_or(Path::new(SOCKET));
        let socket = DaemonSocket::connect(PathBuf::from(path), progress).map_err(|error| {
            io::Error::new(error.kind(), format!("journald's socket {}: {error}", printable::path(path)))
        })?;
        Ok(Journal {
            socket,
            programs: HashMap::new(),
            points: HashMap::new(),
            message: Vec::new(),
            text: Vec::new(),
            lost: 0,
        })
    }

    fn build(&mut self, number: u32, record: &Record) {
        let Journal { programs, points, message, text, .. } = self;
        let program = programs.entry(number).or_default();
        let live = program
            .live
            .get_or_insert_with(|| ProgramText::new(View { items: Items::DEFAULT, ..View::default() }));
        text.clear();
        live.append(record, text);
        message.clear();
        field("MESSAGE", text.trim_ascii_end(), message);
        field("MESSAGE_ID", MESSAGE_ID.as_bytes(), message);
        field("PRIORITY", b"6", message);
        field("SYSLOG_IDENTIFIER", b"dprobes", message);
        let has = |item| program.items.is_none_or(|items| items.contains(item));
        number_field("EVENT_TYPE", u64::from(record.major << 16 | record.minor & 0xffff), message);
        number_field("MAJOR", record.major.into(), message);
        number_field("MINOR", record.minor.into(), message);
        number_field("TID", record.tid.into(), message);
        for (item, name, value) in [
            (Items::CPU, "CPU", record.cpu.into()),
            (Items::PID, "PID", record.pid.into()),
            (Items::UID, "UID", record.uid.into()),
            (Items::TSC, "TIME", record.time / 1000),
        ] {
            if has(item) {
                number_field(name, value, message);
            }
        }
        for (item, name, value) in [(Items::EIP, "IP", record.eip), (Items::ESP, "SP", record.esp)] {
            if has(item) {
                field(&format!("DPROBES_{name}"), format!("{value:#x}").as_bytes(), message);
            }
        }
        if has(Items::PROCNAME) {
            field("DPROBES_COMM", record.name.as_bytes(), message);
        }
        if let Some(point) = points.get(&(number, record.probe)) {
            field("DPROBES_POINT", point.as_bytes(), message);
        }
        field("DPROBES_DATA", &record.data, message);
        // The same templates as for the text.
        let template = live.templates().and_then(|templates| templates.get(record.major, record.minor));
        if let Some(template) = template {
            for (own, value) in template.fields().iter().zip(template.values(record)) {
                let name = format!("DPROBES_FIELD_{}", own.name.to_ascii_uppercase());
                field(&name[..name.len().min(MAX_NAME)], &shown(&value), message);
            }
        }
    }
}

/// The bytes of a field's value.
fn shown(value: &Value<'_>) -> Vec<u8> {
    match value {
        Value::Unsigned(number) => number.to_string().into_bytes(),
        Value::Signed(number) => number.to_string().into_bytes(),
        Value::Float(number) => number.to_string().into_bytes(),
        Value::Names(names) => names.clone().into_bytes(),
        Value::Text(bytes) | Value::Bytes(bytes) => bytes.to_vec(),
        Value::List(values) | Value::Struct(values) => {
            let each: Vec<Vec<u8>> = values.iter().map(shown).collect();
            each.join(&b' ')
        }
        Value::Fault(address) => format!("fault at {address:#x}").into_bytes(),
        Value::Missing => b"missing".to_vec(),
    }
}

fn number_field(name: &str, value: u64, message: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _ = writeln!(message, "DPROBES_{name}={value}");
}

/// Appends a field in journald's format.
fn field(name: &str, value: &[u8], message: &mut Vec<u8>) {
    message.extend_from_slice(name.as_bytes());
    let is_text =
        value.iter().all(|&byte| byte >= b' ' || byte == b'\t') && std::str::from_utf8(value).is_ok();
    if is_text {
        message.push(b'=');
    } else {
        message.push(b'\n');
        message.extend_from_slice(&(value.len() as u64).to_le_bytes());
    }
    message.extend_from_slice(value);
    message.push(b'\n');
}

impl Sink for Journal {
    fn show(&mut self, program: u32, view: &View) {
        let program = self.programs.entry(program).or_default();
        program.live = Some(ProgramText::new(view.clone()));
    }

    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        match fact {
            Fact::Program(program) => {
                let own = self.programs.entry(program.number).or_default();
                own.module.clone_from(&program.module);
                own.items = Some(program.items);
            }
            Fact::Probe(probe) => {
                let module = self.programs.get(&probe.program).map_or("", |program| &program.module);
                self.points.insert((probe.program, probe.number), point_name(module, &probe.point));
            }
            _ => {}
        }
        Ok(())
    }

    fn forget(&mut self, program: u32) -> io::Result<()> {
        self.programs.remove(&program);
        self.points.retain(|(other, _), _| *other != program);
        Ok(())
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        self.build(program, record);
        self.socket.send(&self.message).inspect_err(|_| self.lost += 1)
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        self.programs
            .values_mut()
            .filter_map(|program| program.live.as_mut())
            .for_each(|live| live.refresh(tell));
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
