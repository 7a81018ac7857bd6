//! `dprobes convert`: writes a trace store in the forms that other tools read.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use convert::perfetto::Counters;
use convert::{Csv, Ctf, Form, Json, Perfetto, TemplateSet, TraceFacts};
use trace::store::{Info, Reader};

use crate::arguments::{Convert, To};
use crate::messages::{CUT_SHORT, tell};
use crate::outfile::PendingFile;
use crate::{Failure, outfile, templates};

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
    let sheet = TemplateSet::new(templates::of(arguments.templates.as_deref())?, reader.info());
    let mut known = TraceFacts::new(reader.info());
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
    match convert::convert(&mut reader, &mut known, &sheet, &mut *form, damaged) {
        Ok(summary) => {
            unsettled.commit().map_err(|error| unwritten(&error))?;
            summary.remarks.iter().for_each(|remark| tell(&format!("note: {remark}")));
            let is_cut = !reader.info().complete;
            if is_cut {
                tell(&format!("warning: {path}: {}", CUT_SHORT));
            }
            Ok(if summary.damages > 0 || is_cut { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        // A reader that closes the pipe early is no error.
        Err(convert::Failure::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(convert::Failure::Write(error)) => Err(unwritten(&error)),
        Err(convert::Failure::Read(error)) => Err(failed(error)),
    }
}

/// The path to write; `None` for standard output.
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
    known: &TraceFacts,
    sheet: &TemplateSet,
) -> io::Result<(Box<dyn Form>, PendingFile)> {
    if let (To::Ctf, Some(directory)) = (arguments.to, to) {
        let unsettled = outfile::begin_directory(directory);
        return Ok((Box::new(Ctf::new(directory, info, sheet)?), unsettled));
    }
    let (out, unsettled): (Box<dyn Write + Send>, _) = match to {
        Some(path) => {
            let (file, unsettled) = outfile::begin(path)?;
            (Box::new(file), unsettled)
        }
        None => (Box::new(io::stdout()), PendingFile::nothing()),
    };
    let form: Box<dyn Form> = match arguments.to {
        To::Json => Box::new(Json::new(out)),
        To::Csv => Box::new(Csv::new(out, known, sheet)?),
        To::Perfetto => Box::new(Perfetto::new(out, known, Counters { names: arguments.counter.clone() })),
        #[cfg(feature = "parquet")]
        To::Parquet => Box::new(dprobes_parquet::Parquet::new(out, known, sheet)?),
        // Both were refused before: a build without Parquet, and a directory as standard output.
        #[cfg(not(feature = "parquet"))]
        To::Parquet => return Err(ErrorKind::Unsupported.into()),
        To::Ctf => return Err(ErrorKind::Unsupported.into()),
    };
    Ok((form, unsettled))
}
