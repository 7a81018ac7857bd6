//! `dprobes report`: evaluates a trace store and writes the result as text or HTML.

use std::process::ExitCode;

use convert::report::{Between, html, text};
use convert::{Report as Form, TemplateSet, TraceFacts, convert};
use trace::store::{Info, Reader};

use crate::arguments::Report;
use crate::messages::tell;
use crate::selection::named;
use crate::stdout;
use crate::{Failure, outfile};

/// Reports on a store.
pub(crate) fn report(arguments: &Report) -> Result<ExitCode, Failure> {
    let path = printable::path(&arguments.file);
    let failed = |error: trace::store::Error| Failure::new(format!("{path}: {error}"));
    let mut reader = Reader::open(&arguments.file).map_err(failed)?;
    let filter = arguments.selection.filter(reader.info())?;
    let between = between(&arguments.between, reader.info())?;
    let sheet = TemplateSet::new(None, reader.info());
    let mut known = TraceFacts::new(reader.info());
    let mut form = Form::new(&path.to_string(), reader.info(), &known, between, (filter.from, filter.to));
    reader.select(filter).map_err(failed)?;
    let damaged = |damage: &trace::store::Damage| tell(&format!("warning: {path}: {damage}"));
    let poured = convert(&mut reader, &mut known, &sheet, &mut form, damaged)
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

/// Parses the pairs of points of `--between`.
fn between(names: &[String], info: &Info) -> Result<Vec<Between>, Failure> {
    let pair = |pair: &[String]| {
        let [from, to] = pair else { return Err(Failure::new("--between takes two points")) };
        Ok(Between { name: format!("{from} to {to}"), from: named(from, info)?, to: named(to, info)? })
    };
    names.chunks(2).map(pair).collect()
}
