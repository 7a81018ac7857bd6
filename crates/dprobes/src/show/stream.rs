//! Shows a stream of raw events, as the target `ltt` writes it, and follows one that grows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use trace::sink::ltt::{Event, EventReader, Next, ReadError};
use trace::store::is_store;
use trace::{Items, Text};

use super::ended;
use super::writers::nobody_writes;
use crate::arguments::Show;
use crate::messages::{CUT_SHORT, tell};
use crate::{Failure, templates};

/// How often a file is looked at for more.
const PAUSE: Duration = Duration::from_millis(100);

/// The message when nobody writes any more to a stream without an end.
const LEFT: &str = "nobody writes to it any more, but it has no end: dprobes was killed, and what it had not written \
                    yet is lost";

/// Opens the file if it is such a stream: a pipe, or a file that begins with a created event.
pub(super) fn open(arguments: &Show) -> Result<Option<File>, Failure> {
    let path = &arguments.file;
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", printable::path(path)));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let file_type = metadata.file_type();
    let is_stream = match () {
        () if file_type.is_fifo() => return File::open(path).map(Some).map_err(failed),
        () if !file_type.is_file() => false,
        () => {
            let mut file = File::open(path).map_err(failed)?;
            let mut start = Vec::new();
            Read::by_ref(&mut file).take(8).read_to_end(&mut start).map_err(failed)?;
            // A stream that is followed from its beginning may be empty yet.
            let begins = if start.len() < 4 { arguments.follow } else { start.starts_with(&[0; 4]) };
            if begins && !is_store(&start) {
                file.rewind().map_err(failed)?;
                return Ok(Some(file));
            }
            false
        }
    };
    if arguments.follow && !is_stream {
        return Err(Failure::new(format!(
            "{}: this is no stream of `ltt`, so it cannot be followed; `dprobes serve` shows a store while it is \
             written",
            printable::path(path)
        ))
        .with_status(2));
    }
    Ok(None)
}

/// Shows the records of a stream.
pub(super) fn show(arguments: &Show, file: File) -> Result<ExitCode, Failure> {
    let path = &arguments.file;
    if arguments.info || !arguments.selection.is_everything() {
        return Err(Failure::new(format!(
            "{}: a stream of `ltt` has no index: --info, --from, --until, --pid, --tid and --probe are for stores \
             (-o FILE.dpt)",
            printable::path(path)
        ))
        .with_status(2));
    }
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", printable::path(path)));
    let own = file.try_clone().map_err(failed)?;
    let reader = EventReader::new(file).map_err(failed)?;
    let mut text = Text::new(Items::ALL, arguments.shown.form());
    if let Some(templates) = templates::open(&arguments.shown)? {
        text = text.with_templates(templates);
    }
    // Without a choice, what the stream has: it was chosen when the stream was made.
    let wanted = if arguments.shown.log.is_empty() { Items::ALL } else { arguments.shown.items() };
    let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let events = BTreeMap::new();
    let mut stream = Stream { path, file: own, reader, text, wanted, out, events, began: false };
    match stream.show(arguments.follow) {
        Ok(code) => Ok(code),
        Err(Stopped::Output(error)) => ended(error),
        Err(Stopped::Input(error)) => {
            let _ = stream.out.flush();
            Err(Failure::new(format!("{}: {error}", printable::path(path))))
        }
    }
}

/// Why no more is shown.
enum Stopped {
    Input(ReadError),
    Output(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Stopped {
        Stopped::Output(error)
    }
}

/// A stream that is shown.
struct Stream<'a, W: Write> {
    path: &'a Path,
    file: File,
    reader: EventReader,
    text: Text,
    wanted: Items,
    out: BufWriter<W>,
    /// The events that were created and not destroyed, with what they are.
    events: BTreeMap<u32, String>,
    /// Whether an event was ever created.
    began: bool,
}

impl<W: Write> Stream<'_, W> {
    /// Shows what is there; with `follow`, and what comes, until all events are destroyed or nobody
    /// writes any more.
    fn show(&mut self, follow: bool) -> Result<ExitCode, Stopped> {
        let mut is_left = false;
        loop {
            let part = match self.reader.next().map_err(Stopped::Input)? {
                Next::Event(event) => {
                    self.event(event)?;
                    continue;
                }
                Next::NothingYet(part) => {
                    self.out.flush()?;
                    let has_ended = part == 0 && self.began && self.events.is_empty();
                    if follow && !has_ended && !is_left {
                        // Once more: something may have been written before its writer was gone.
                        is_left = self.began && nobody_writes(&self.file) == Some(true);
                        if !is_left {
                            std::thread::sleep(PAUSE);
                        }
                        continue;
                    }
                    part
                }
                Next::End(part) => {
                    self.out.flush()?;
                    part
                }
            };
            if part == 0 && self.events.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            let why = if is_left { LEFT } else { CUT_SHORT };
            tell(&format!("warning: {}: {why}", printable::path(self.path)));
            return Ok(ExitCode::FAILURE);
        }
    }

    fn event(&mut self, event: Event) -> Result<(), Stopped> {
        match event {
            Event::Created { id, module, description, .. } => {
                self.began = true;
                self.events.insert(id, format!("{description} in {module}"));
            }
            Event::Destroyed(id) => _ = self.events.remove(&id),
            Event::Lost(id, lost) => {
                // The message must follow the records before it.
                self.out.flush()?;
                let lost = crate::messages::count(lost, "record");
                let of = self.events.get(&id).map_or_else(|| format!("event {id}"), String::clone);
                tell(&format!("warning: {}: {lost} of {of} lost before this", printable::path(self.path)));
            }
            Event::Record(_, record, items) => {
                self.text.set_items(self.wanted.and(items));
                self.text.write(&record, &mut self.out)?;
                // A pipe may have no more for a while: nothing waits here that was read.
                if self.reader.is_drained() {
                    self.out.flush()?;
                }
            }
        }
        Ok(())
    }
}
