//! The lines of `dprobes watch`: one for each access.
//!
//! ```text
//! 13:05:47.123456 worker[4712] update+0x1f: 41 -> 42
//! ```

use std::io::{self, BufWriter, Stdout, Write};
use std::time::{Duration, Instant, UNIX_EPOCH};

use engine::Lost;
use image::ValueKind;
use process::{ImageCache, Memory, Module};
use trace::Record;

use super::variable::Watched;
use crate::{control, stdout};

/// Addresses from here on are the kernel's.
const KERNEL: u64 = 1 << 63;
/// Time between two readings of the process's mappings, at least.
const AGAIN: Duration = Duration::from_millis(100);

/// Writes lines to standard output.
pub(super) struct Lines {
    address: u64,
    length: u8,
    kind: ValueKind,
    /// The value before the next access, if it is known.
    before: Option<u64>,
    places: Places,
    out: BufWriter<Stdout>,
}

impl Lines {
    pub(super) fn new(pid: i32, watched: &Watched) -> Lines {
        Lines {
            address: watched.address,
            length: watched.length,
            kind: watched.kind,
            before: value(pid, watched.address, watched.length),
            places: Places { pid, modules: Vec::new(), read: None },
            out: BufWriter::new(io::stdout()),
        }
    }

    /// The watchpoint is set. A value that has changed since it was read has been written without a
    /// line: then the first line does not show what was before.
    pub(super) fn armed(&mut self) {
        if value(self.places.pid, self.address, self.length) != self.before {
            self.before = None;
        }
    }

    /// Writes the line of a record.
    pub(super) fn write(&mut self, record: &Record) -> io::Result<()> {
        let mut bytes = [0; 8];
        let logged = record.data.len().min(8);
        bytes[..logged].copy_from_slice(&record.data[..logged]);
        let after = u64::from_le_bytes(bytes);
        let time = UNIX_EPOCH + Duration::from_nanos(record.time);
        let time = humantime::format_rfc3339_micros(time).to_string();
        // The time of day, without the date and the `Z`.
        let time = time.get(11..26).unwrap_or_default();
        let before = self.before.replace(after).map_or("?".to_owned(), |value| self.shown(value));
        let place = self.places.name(record.eip);
        let name = printable::text(&record.name);
        writeln!(self.out, "{time} {name}[{}] {place}: {before} -> {}", record.tid, self.shown(after))
    }

    /// Notes that records were lost: the value before the next access is not known then.
    pub(super) fn lost(&mut self, lost: &Lost) {
        if lost.count > 0 {
            self.before = None;
        }
    }

    /// Writes out what is buffered. Ends the session if nobody reads it any more.
    pub(super) fn flush(&mut self) {
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        if self.out.flush().as_ref().is_err_and(is_gone) || stdout::is_abandoned() {
            control::end_session();
        }
    }

    /// A value in the form that its type suggests.
    fn shown(&self, value: u64) -> String {
        let unused = 64 - 8 * u32::from(self.length);
        let signed = (value << unused) as i64 >> unused;
        match (self.kind, self.length) {
            (ValueKind::Signed, _) => signed.to_string(),
            (ValueKind::Boolean, _) if value < 2 => (value == 1).to_string(),
            (ValueKind::Character, 1) => match value as u8 {
                printable @ 0x20..=0x7e => format!("{signed} '{}'", char::from(printable)),
                _ => signed.to_string(),
            },
            (ValueKind::Float, 4) => f32::from_bits(value as u32).to_string(),
            (ValueKind::Float, 8) => f64::from_bits(value).to_string(),
            (ValueKind::Unsigned | ValueKind::Character | ValueKind::Boolean, _) => value.to_string(),
            _ => format!("{value:#x}"),
        }
    }
}

/// The value at an address of a process, if it can be read.
fn value(pid: i32, address: u64, length: u8) -> Option<u64> {
    let mut bytes = [0; 8];
    let memory = Memory::open(pid).ok()?;
    memory.peek(address, &mut bytes[..usize::from(length)]).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// The names of instructions of the process.
struct Places {
    pid: i32,
    modules: Vec<Module>,
    /// When the modules were read.
    read: Option<Instant>,
}

impl Places {
    /// The function that contains the instruction before an address, and the address's distance
    /// from its start.
    fn name(&mut self, address: u64) -> String {
        if address >= KERNEL {
            return "the kernel".to_owned();
        }
        if self.module(address).is_none() && self.read.is_none_or(|read| read.elapsed() >= AGAIN) {
            self.read = Some(Instant::now());
            // If the process is gone, the addresses stay numbers.
            self.modules = process::modules(self.pid, &mut ImageCache::new()).unwrap_or_default();
        }
        let Some(module) = self.module(address) else { return format!("{address:#x}") };
        let vaddr = address.wrapping_sub(module.bias);
        match module.image.function_at(vaddr.wrapping_sub(1)) {
            Some(function) => {
                let name = function.demangled().unwrap_or_else(|| function.name.clone());
                format!("{}+{:#x}", printable::text(&name), vaddr - function.vaddr)
            }
            None => {
                let file = module.path.file_name().unwrap_or_default().to_string_lossy();
                format!("{}+{vaddr:#x}", printable::text(&file))
            }
        }
    }

    fn module(&self, address: u64) -> Option<&Module> {
        self.modules.iter().find(|module| {
            module.mappings.iter().any(|mapping| mapping.start < address && address <= mapping.end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: ValueKind, length: u8, value: u64) -> String {
        let watched = Watched { name: String::new(), module: String::new(), address: 0, length, kind };
        Lines::new(std::process::id() as i32, &watched).shown(value)
    }

    #[test]
    fn values_look_as_their_types_do() {
        assert_eq!(shown(ValueKind::Signed, 4, 0xffff_fffe), "-2");
        assert_eq!(shown(ValueKind::Unsigned, 4, 0xffff_fffe), "4294967294");
        assert_eq!(shown(ValueKind::Boolean, 1, 1), "true");
        assert_eq!(shown(ValueKind::Character, 1, 0x41), "65 'A'");
        assert_eq!(shown(ValueKind::Character, 1, 0xff), "-1");
        assert_eq!(shown(ValueKind::Float, 8, 1.5f64.to_bits()), "1.5");
        assert_eq!(shown(ValueKind::Float, 4, 0.25f32.to_bits().into()), "0.25");
        assert_eq!(shown(ValueKind::Pointer, 8, 0x7f00_0000_1000), "0x7f0000001000");
        assert_eq!(shown(ValueKind::Unknown, 2, 0x10), "0x10");
    }
}
