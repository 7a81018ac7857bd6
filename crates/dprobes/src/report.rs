//! `dprobes report`: what a trace store shows, as text and as a page.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use convert::report::{Between, html, text};
use convert::{Known, Report as Form, Sheet, pour};
use trace::store::{Info, Reader};

use crate::output::tell;
use crate::selection::{Selection, named};
use crate::stdout;
use crate::{Failure, outfile};

/// Report on a trace store: rates, latencies, top talkers
///
/// How often each probe fired and when, what was lost, how long functions took of which both entry and return were probed, how long it is
/// from one point to another, and which processes and threads the records are of; as text, and with --html as a page that needs nothing else.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes run --at a.out:parse:entry --at a.out:parse:return --do 'log 1' -o trace.dpt -- ./app
  dprobes report trace.dpt                                   the times of parse are there by themselves
  dprobes report trace.dpt --html report.html                the same as a page with charts
  dprobes report trace.dpt --between read:entry write:entry  from one to the next in the same thread
  dprobes report trace.dpt --from 1.5s --to-time 2s --pid 4711")]
pub(crate) struct Report {
    /// The store
    #[arg(value_name = "FILE.dpt")]
    file: PathBuf,
    /// Times from a record of A to the next of B in the same thread; A and B are named as for --probe; may be given several times
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    between: Vec<String>,
    /// Write a page of HTML, too; - for standard output, in the place of the text
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Probes, places, histograms, processes and threads that are shown
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    selection: Selection,
}

/// Reports on a store.
pub(crate) fn report(arguments: &Report) -> Result<ExitCode, Failure> {
    let path = printable::path(&arguments.file);
    let failed = |error: trace::store::Error| Failure::new(format!("{path}: {error}"));
    let mut reader = Reader::open(&arguments.file).map_err(failed)?;
    let filter = arguments.selection.filter(reader.info())?;
    let between = between(&arguments.between, reader.info())?;
    let sheet = Sheet::new(None, reader.info());
    let mut known = Known::new(reader.info());
    let mut form = Form::new(&path.to_string(), reader.info(), &known, between, (filter.from, filter.to));
    reader.select(filter).map_err(failed)?;
    let damaged = |damage: &trace::store::Damage| tell(&format!("warning: {path}: {damage}"));
    let poured = pour(&mut reader, &mut known, &sheet, &mut form, damaged)
        .map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let found = form.findings();
    let to_stdout = arguments.html.as_deref().is_some_and(|html| html.as_os_str() == "-");
    match &arguments.html {
        Some(file) if !to_stdout => outfile::write_whole(file, html(&found, arguments.top).as_bytes())
            .map_err(|error| Failure::new(format!("{}: {error}", printable::path(file))))?,
        _ => {}
    }
    let shown = if to_stdout { html(&found, arguments.top) } else { text(&found, arguments.top) };
    stdout::show(&shown)?;
    Ok(if poured.damages > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The points that times are asked for.
fn between(names: &[String], info: &Info) -> Result<Vec<Between>, Failure> {
    let pair = |pair: &[String]| {
        let [from, to] = pair else { return Err(Failure::new("--between takes two points")) };
        Ok(Between { name: format!("{from} to {to}"), from: named(from, info)?, to: named(to, info)? })
    };
    names.chunks(2).map(pair).collect()
}
