//! `dprobes report`: evaluates a trace store and writes the result as text or HTML, or the calls in
//! it as a table, graph or tree; and draws flame graphs of folded stacks.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use convert::report::{Between, functions, html, text};
use convert::{CallGraph, Replay, Report as Form, Summary, TemplateSet, TraceFacts, convert};
use printout::Flame;
use source::{DiskFiles, Files};
use trace::store::{Filter, Info, Reader};

use crate::arguments::Report;
use crate::messages::tell;
use crate::selection::named;
use crate::stdout;
use crate::{Failure, outfile};

/// Reports on a store.
pub(crate) fn report(arguments: &Report) -> Result<ExitCode, Failure> {
    if let Some(file) = &arguments.flame {
        return flame(&arguments.file, file);
    }
    let path = printable::path(&arguments.file);
    let mut reader =
        Reader::open(&arguments.file).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let filter = arguments.selection.filter(reader.info())?;
    let mut known = TraceFacts::new(reader.info());
    let range = (filter.from, filter.to);
    if arguments.graph {
        let mut graph = CallGraph::new(&known);
        let end = read(&path.to_string(), &mut reader, filter, &mut known, &mut graph)?;
        has_calls(&path, &known, !graph.is_empty())?;
        stdout::show(&graph.text(arguments.depth as usize, arguments.top))?;
        end.remarks.iter().for_each(|remark| tell(&format!("note: {remark}")));
        return Ok(end.status);
    }
    if arguments.replay {
        let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let mut replay = Replay::new(out, reader.info(), &known, &filter, arguments.depth as usize);
        let end = read(&path.to_string(), &mut reader, filter, &mut known, &mut replay)?;
        end.remarks.iter().for_each(|remark| tell(&format!("note: {remark}")));
        return Ok(end.status);
    }
    let between = between(&arguments.between, reader.info())?;
    let mut form = Form::new(&path.to_string(), reader.info(), &known, between, range);
    let end = read(&path.to_string(), &mut reader, filter, &mut known, &mut form)?;
    let found = form.findings();
    if arguments.functions {
        has_calls(&path, &known, found.has_functions())?;
        stdout::show(&functions(&found, arguments.sort, arguments.top))?;
        return Ok(end.status);
    }
    let to_stdout = arguments.html.as_deref().is_some_and(|html| html.as_os_str() == "-");
    match &arguments.html {
        Some(file) if !to_stdout => outfile::write_whole(file, html(&found, arguments.top).as_bytes())
            .map_err(|error| Failure::new(format!("{}: {error}", printable::path(file))))?,
        _ => {}
    }
    let shown = if to_stdout { html(&found, arguments.top) } else { text(&found, arguments.top) };
    stdout::show(&shown)?;
    Ok(end.status)
}

/// How reading a store has ended.
struct End {
    status: ExitCode,
    remarks: Vec<String>,
}

/// Passes the records of a store to a form. A reader of standard output that has gone is no error.
fn read(
    path: &str,
    reader: &mut Reader<File>,
    filter: Filter,
    known: &mut TraceFacts,
    form: &mut dyn convert::Form,
) -> Result<End, Failure> {
    let sheet = TemplateSet::new(None, reader.info());
    reader.select(filter).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let damaged = |damage: &trace::store::Damage| tell(&format!("warning: {path}: {damage}"));
    match convert(reader, known, &sheet, form, damaged) {
        Ok(Summary { damages, remarks, .. }) => {
            let status = if damages > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS };
            Ok(End { status, remarks })
        }
        Err(convert::Failure::Write(error)) if error.kind() == ErrorKind::BrokenPipe => {
            Ok(End { status: ExitCode::SUCCESS, remarks: Vec::new() })
        }
        Err(convert::Failure::Write(error)) => Err(Failure::new(format!("standard output: {error}"))),
        Err(error) => Err(Failure::new(format!("{path}: {error}"))),
    }
}

/// Refuses to show calls where there are none.
fn has_calls(path: &impl Display, known: &TraceFacts, has: bool) -> Result<(), Failure> {
    match (has, known.function_names().is_empty()) {
        (true, _) => Ok(()),
        (_, true) => Err(Failure::new(format!(
            "{path} has no calls: of no function both entry and return were probed, as with `--at a.out:parse:entry --at a.out:parse:return`"
        ))),
        (_, false) => Err(Failure::new(format!(
            "{path} has no calls: no function of which entry and return were probed has a hit among these records"
        ))),
    }
}

/// The largest file of folded stacks in bytes.
const LARGEST: usize = 256 << 20;

/// Draws a flame graph of folded stacks.
fn flame(from: &Path, to: &Path) -> Result<ExitCode, Failure> {
    let (path, shown) = (printable::path(from), printable::path(to));
    if Reader::open(from).is_ok() {
        return Err(Failure::new(format!(
            "{path} is a trace store, whose records have no stacks; `dprobes stacks --flame` and `dprobes trace --flame` count stacks"
        )));
    }
    let text =
        DiskFiles.read(from, LARGEST, false).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let mut stacks = Flame::default();
    stacks.folded(&text).map_err(|line| {
        Failure::new(format!(
            "{path}:{line}: no stack and its count, as in `main;parse;malloc 7`; `dprobes trace -f folded` makes such lines"
        ))
    })?;
    if stacks.is_empty() {
        return Err(Failure::new(format!(
            "{path} has no stacks; `dprobes trace -f folded` makes such a file"
        )));
    }
    outfile::write_whole(to, stacks.svg("Stacks").as_bytes())
        .map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Parses the pairs of points of `--between`.
fn between(names: &[String], info: &Info) -> Result<Vec<Between>, Failure> {
    let pair = |pair: &[String]| {
        let [from, to] = pair else { return Err(Failure::new("--between takes two points")) };
        Ok(Between { name: format!("{from} to {to}"), from: named(from, info)?, to: named(to, info)? })
    };
    names.chunks(2).map(pair).collect()
}
