//! `dprobes header`: makes a C header of a description of static probes.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use source::{DiskFiles, Files};

use crate::arguments::Header;
use crate::{Failure, outfile, stdout};

/// The largest description in bytes. MySQL's, with more probes than most, has 6 KiB.
const LARGEST: usize = 1 << 20;

/// Makes a header.
pub(crate) fn header(arguments: &Header) -> Result<ExitCode, Failure> {
    let is_input = arguments.file.as_os_str() == "-";
    let (path, name) = match is_input {
        true => (Path::new("/dev/stdin"), "standard input".into()),
        false => (arguments.file.as_path(), arguments.file.to_string_lossy()),
    };
    let shown = printable::text(&name);
    let bytes = DiskFiles.read(path, LARGEST, false).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => {
            Failure::new(format!("{shown}: a description has at most {LARGEST} bytes; divide it"))
        }
        _ => Failure::new(format!("{shown}: {error}; name a description of static probes")),
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        Failure::new(format!("{shown}: no text: byte {} is not UTF-8", error.utf8_error().valid_up_to()))
    })?;
    let found = provider::read(&name, &text);
    if found.has_errors() {
        return Err(Failure::complete(found.render(io::stderr().is_terminal())));
    }
    let header = provider::header(&found.description, &name);
    match &arguments.output {
        Some(file) => outfile::write_whole(file, header.as_bytes())
            .map_err(|error| Failure::new(format!("{}: {error}", printable::path(file))))?,
        None => stdout::show(&header)?,
    }
    Ok(ExitCode::SUCCESS)
}
