//! `dprobes convert`: writes a trace store in the forms that other tools read.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use convert::perfetto::Counters;
use convert::{Csv, Ctf, Form, Json, Otlp, Perfetto, TemplateSet, TraceFacts};
use export::s3::Address;
use export::{Client, Signal};
use trace::store::{Info, Reader};

use crate::arguments::{Convert, To};
use crate::messages::{CUT_SHORT, tell};
use crate::outfile::PendingFile;
use crate::pending_files::PendingFiles;
use crate::{Failure, outfile, templates};

/// Converts a store.
pub(crate) fn convert(arguments: &Convert) -> Result<ExitCode, Failure> {
    if arguments.export.is_some() && arguments.to != To::Otlp {
        return Err(Failure::new("--export is for --to otlp").with_status(2));
    }
    if arguments.partition && arguments.to != To::Parquet {
        return Err(Failure::new("--partition is for --to parquet").with_status(2));
    }
    if let (false, Some(to)) = (arguments.partition, arguments.output.as_ref().filter(|to| is_store(to))) {
        let to = printable::path(to);
        let text =
            format!("{to}: only --to parquet --partition writes to an object store (./{to} is a file)");
        return Err(Failure::new(text).with_status(2));
    }
    let path = printable::path(&arguments.file);
    let failed = |error: trace::store::Error| Failure::new(format!("{path}: {error}"));
    let mut reader = Reader::open(&arguments.file).map_err(failed)?;
    let filter = arguments.selection.filter(reader.info())?;
    let sheet = TemplateSet::new(templates::of(arguments.templates.as_deref())?, reader.info());
    let mut known = TraceFacts::new(reader.info());
    reader.select(filter).map_err(failed)?;
    let to = target(arguments)?;
    let name = match (&arguments.export, to.as_deref()) {
        (Some(url), _) => url.to_string(),
        (None, Some(path)) => printable::path(path).to_string(),
        (None, None) => "standard output".to_owned(),
    };
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
    let beside = beside.filter(|_| !arguments.partition);
    let Some(path) = arguments.output.clone().or(beside).filter(|path| path != Path::new("-")) else {
        return match arguments.to {
            To::Parquet if arguments.partition => {
                Err(Failure::new("--partition writes to a directory: -o DIR names it"))
            }
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

/// Whether a path is meant as an address of an object store.
fn is_store(path: &Path) -> bool {
    Address::is_meant(path.as_os_str().as_encoded_bytes())
}

/// What is to be put in its place at the end.
enum Pending {
    One(PendingFile),
    Parts(PendingFiles),
    Objects(export::s3::Uploads),
}

impl Pending {
    fn commit(&mut self) -> io::Result<()> {
        match self {
            Pending::One(file) => file.commit(),
            Pending::Parts(parts) => parts.commit(),
            Pending::Objects(uploads) => uploads.commit(),
        }
    }
}

fn form(
    arguments: &Convert,
    to: Option<&Path>,
    info: &Info,
    known: &TraceFacts,
    sheet: &TemplateSet,
) -> io::Result<(Box<dyn Form>, Pending)> {
    if let (To::Ctf, Some(directory)) = (arguments.to, to) {
        let unsettled = outfile::begin_directory(directory);
        return Ok((Box::new(Ctf::new(directory, info, sheet)?), Pending::One(unsettled)));
    }
    if let (true, Some(directory)) = (arguments.partition, to) {
        let host = arguments.host.clone().unwrap_or_else(|| host(info));
        if is_store(directory) {
            let uploads = uploads(directory)?;
            let begun = uploads.clone();
            let form =
                dprobes_parquet::Partitioned::new(move |path: &str| begun.begin(path), &host, known, sheet);
            return Ok((Box::new(form), Pending::Objects(uploads)));
        }
        let (parts, directory) = (PendingFiles::default(), directory.to_owned());
        let begun = parts.clone();
        let open = move |path: &str| begun.begin(&directory, path);
        let form = dprobes_parquet::Partitioned::new(open, &host, known, sheet);
        return Ok((Box::new(form), Pending::Parts(parts)));
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
        To::Otlp => Box::new(otlp(arguments, known, &host(info), out)),
        To::Perfetto => Box::new(Perfetto::new(out, known, Counters { names: arguments.counter.clone() })),
        To::Parquet => Box::new(dprobes_parquet::Parquet::new(out, known, sheet)?),
        // Refused before: a directory as standard output.
        To::Ctf => return Err(ErrorKind::Unsupported.into()),
    };
    Ok((form, Pending::One(unsettled)))
}

/// Files into an object store, which is there.
fn uploads(to: &Path) -> io::Result<export::s3::Uploads> {
    let text = to.to_str().ok_or_else(|| io::Error::other("an address is UTF-8"))?;
    let address = text.parse().map_err(io::Error::other)?;
    let settings = export::s3::Settings::of_environment().map_err(io::Error::other)?;
    let bucket = export::s3::Bucket::new(address, settings);
    bucket.check()?;
    Ok(export::s3::Uploads::new(bucket, tell))
}

/// The machine that a trace is of. One without a head does not say.
fn host(info: &Info) -> String {
    let host = &info.about.host;
    if host.is_empty() { export::host() } else { printable::text(host).into_owned() }
}

/// Spans, to a collector or to a file. `host` is the machine that the trace is of.
fn otlp(
    arguments: &Convert,
    known: &TraceFacts,
    host: &str,
    mut out: Box<dyn Write + Send>,
) -> Otlp<'static> {
    let client = arguments.export.clone().map(Client::new);
    let take = move |request: &[u8], _| match &client {
        Some(client) => {
            let mut wait = |time| {
                std::thread::sleep(time);
                true
            };
            client.send(Signal::Traces, request, &mut wait).map_err(io::Error::other)
        }
        None => out.write_all(request).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()),
    };
    let host = host.to_owned();
    let of = host.clone();
    let resource = move |name: &str, pid: u32| export::resource(&of, name, pid).to_string();
    Otlp::new(known, &host, resource, take)
}
