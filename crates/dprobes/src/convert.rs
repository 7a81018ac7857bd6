//! `dprobes convert`: a trace store in the forms that other tools read.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use convert::perfetto::Counters;
use convert::{Csv, Ctf, Form, Json, Known, Perfetto, Sheet, pour};
use trace::store::{Info, Reader};

use crate::outfile::Unsettled;
use crate::output::tell;
use crate::selection::Selection;
use crate::{Failure, outfile, templates};

/// Convert a trace store to other forms
///
/// JSON lines and CSV for scripts and tables, the Common Trace Format for babeltrace2 and Trace Compass, Perfetto's protocol buffers for
/// ui.perfetto.dev, Parquet for DuckDB and Spark. Records come in the order of time. With templates, what was logged becomes named and typed values. docs/convert.md has the forms in full.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes convert trace.dpt --to json | jq 'select(.pid == 4711)'
  dprobes convert trace.dpt --to csv -t templates/ -o trace.csv
  dprobes convert trace.dpt --to perfetto -o trace.pftrace     then open it in ui.perfetto.dev
  dprobes convert trace.dpt --to ctf -o trace.ctf && babeltrace2 trace.ctf
  dprobes convert trace.dpt --to parquet -o trace.parquet      SELECT probe, count(*) FROM 'trace.parquet' GROUP BY 1
  dprobes convert trace.dpt --to json --from 1.5s --to-time 2s --probe malloc:entry")]
pub(crate) struct Convert {
    /// The store
    #[arg(value_name = "FILE.dpt")]
    file: PathBuf,
    /// What it becomes
    #[arg(long, value_name = "FORM")]
    to: To,
    /// Names and types for what was logged: a directory of template files
    #[arg(short, long, value_name = "DIR")]
    templates: Option<PathBuf>,
    /// Where to write it, - for standard output [default: standard output for JSON and CSV; the store's name with .ctf, .pftrace or .parquet]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// For perfetto: fields that are shown as counters, beside those with `counter` or `gauge` in their names
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    counter: Vec<String>,
    #[command(flatten)]
    selection: Selection,
}

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    /// JSON lines: an object for each record
    Json,
    /// Comma-separated values (RFC 4180), with a row of names
    Csv,
    /// The Common Trace Format 1.8, a directory: for babeltrace2 and Trace Compass
    Ctf,
    /// Perfetto's protocol buffers: a track for each thread, slices from entries and returns, counters
    Perfetto,
    /// Apache Parquet, a row for each record; not in every build of dprobes
    Parquet,
}

impl To {
    /// What the names of its files end in; none where it goes to standard output.
    fn extension(self) -> Option<&'static str> {
        match self {
            To::Json | To::Csv => None,
            To::Ctf => Some("ctf"),
            To::Perfetto => Some("pftrace"),
            To::Parquet => Some("parquet"),
        }
    }
}

/// Converts a store.
pub(crate) fn convert(arguments: &Convert) -> Result<ExitCode, Failure> {
    if arguments.to == To::Parquet && !cfg!(feature = "parquet") {
        return Err(Failure::new(
            "this dprobes was built without Parquet, which is large; \
             `cargo build --release --features parquet` (or `cargo install --path crates/dprobes --features parquet`) builds one with it",
        ));
    }
    let path = printable::path(&arguments.file);
    let failed = |error: trace::store::Error| Failure::new(format!("{path}: {error}"));
    let mut reader = Reader::open(&arguments.file).map_err(failed)?;
    let filter = arguments.selection.filter(reader.info())?;
    let sheet = Sheet::new(templates::of(arguments.templates.as_deref())?, reader.info());
    let mut known = Known::new(reader.info());
    reader.select(filter).map_err(failed)?;
    let to = target(arguments)?;
    let name = to.as_deref().map_or("standard output".to_owned(), |path| printable::path(path).to_string());
    let unwritten = |error: &io::Error| Failure::new(format!("{name}: {error}"));
    let (mut form, mut unsettled) = match form(arguments, to.as_deref(), reader.info(), &known, &sheet) {
        Ok(begun) => begun,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(unwritten(&error)),
    };
    let damaged = |damage: &trace::store::Damage| tell(&format!("warning: {path}: {damage}"));
    match pour(&mut reader, &mut known, &sheet, &mut *form, damaged) {
        Ok(poured) => {
            unsettled.settle().map_err(|error| unwritten(&error))?;
            poured.remarks.iter().for_each(|remark| tell(&format!("note: {remark}")));
            let is_cut = !reader.info().complete;
            if is_cut {
                tell(&format!("warning: {path}: {}", crate::show::CUT_SHORT));
            }
            Ok(if poured.damages > 0 || is_cut { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        // A reader that has seen enough is no error.
        Err(convert::Failure::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(convert::Failure::Write(error)) => Err(unwritten(&error)),
        Err(convert::Failure::Read(error)) => Err(failed(error)),
    }
}

/// Where it is written; none for standard output.
fn target(arguments: &Convert) -> Result<Option<PathBuf>, Failure> {
    let beside = arguments.to.extension().map(|extension| arguments.file.with_extension(extension));
    let Some(path) = arguments.output.clone().or(beside).filter(|path| path != Path::new("-")) else {
        return match arguments.to {
            To::Ctf => {
                Err(Failure::new("a trace in the Common Trace Format is a directory: -o DIR names it"))
            }
            _ => Ok(None),
        };
    };
    let same = |file: &Path| std::fs::canonicalize(file).ok();
    if same(&path).is_some_and(|own| Some(own) == same(&arguments.file)) {
        return Err(Failure::new(format!("{}: this is the trace itself", printable::path(&path))));
    }
    Ok(Some(path))
}

fn form(
    arguments: &Convert,
    to: Option<&Path>,
    info: &Info,
    known: &Known,
    sheet: &Sheet,
) -> io::Result<(Box<dyn Form>, Unsettled)> {
    if let (To::Ctf, Some(directory)) = (arguments.to, to) {
        let unsettled = outfile::begin_directory(directory);
        return Ok((Box::new(Ctf::new(directory, info, sheet)?), unsettled));
    }
    let (out, unsettled): (Box<dyn Write + Send>, _) = match to {
        Some(path) => {
            let (file, unsettled) = outfile::begin(path)?;
            (Box::new(file), unsettled)
        }
        None => (Box::new(io::stdout()), Unsettled::nothing()),
    };
    let form: Box<dyn Form> = match arguments.to {
        To::Json => Box::new(Json::new(out)),
        To::Csv => Box::new(Csv::new(out, known, sheet)?),
        To::Perfetto => Box::new(Perfetto::new(out, known, Counters { names: arguments.counter.clone() })),
        #[cfg(feature = "parquet")]
        To::Parquet => Box::new(dprobes_parquet::Parquet::new(out, known, sheet)?),
        // Both were refused: a build without Parquet, and a directory as standard output.
        #[cfg(not(feature = "parquet"))]
        To::Parquet => return Err(ErrorKind::Unsupported.into()),
        To::Ctf => return Err(ErrorKind::Unsupported.into()),
    };
    Ok((form, unsettled))
}
