//! `dprobes list -u`: the static probes of a file, or of the modules of a process.
//!
//! ```text
//! 0x00026fc1  usdt:/usr/bin/python3:python:gc__start(int32)  semaphore
//! ```
//!
//! The name is one that a script can probe. A question mark is behind the type of an argument whose
//! place is not understood.

use std::io::Write;
use std::path::Path;

use glob::Pattern;
use image::{Argument, Image};
use process::ImageCache;

use crate::Failure;

/// The probes that are listed.
struct Wanted {
    provider: Option<Pattern>,
    name: Pattern,
}

impl Wanted {
    /// Reads `PROVIDER:NAME` or `NAME`, with `*`, `?` and `[...]`.
    fn parse(text: &str) -> Result<Wanted, Failure> {
        let pattern = |text: &str| {
            Pattern::new(text).map_err(|error| Failure::new(format!("pattern `{text}`: {error}")))
        };
        Ok(match text.split_once(':') {
            Some((provider, name)) => Wanted { provider: Some(pattern(provider)?), name: pattern(name)? },
            None => Wanted { provider: None, name: pattern(text)? },
        })
    }
}

/// Lists the static probes of a file; returns their number.
pub(super) fn of_file(file: &Path, pattern: Option<&str>, out: &mut dyn Write) -> Result<usize, Failure> {
    let image = Image::open(file).map_err(Failure::new)?;
    Ok(of_image(&image, file, &Wanted::parse(pattern.unwrap_or("*"))?, out))
}

/// Lists the static probes of the modules of a process; returns their number.
pub(super) fn of_process(pid: i32, pattern: Option<&str>, out: &mut dyn Write) -> Result<usize, Failure> {
    let wanted = Wanted::parse(pattern.unwrap_or("*"))?;
    let survey = process::survey(pid, &mut ImageCache::new()).map_err(Failure::new)?;
    Ok(survey.modules.iter().map(|module| of_image(&module.image, &module.path, &wanted, out)).sum())
}

fn of_image(image: &Image, path: &Path, wanted: &Wanted, out: &mut dyn Write) -> usize {
    let file = printable::path(path).to_string();
    let mut found = 0;
    for probe in image.static_probes() {
        let is_provider = |pattern: &Pattern| pattern.matches(&probe.provider);
        if !wanted.name.matches(&probe.name) || !wanted.provider.as_ref().is_none_or(is_provider) {
            continue;
        }
        // As for functions, a number for `offset =`.
        let Some(offset) = image.offset_of_address(probe.vaddr) else { continue };
        let arguments: Vec<String> = probe.arguments.iter().map(Argument::to_string).collect();
        let (provider, name) = (printable::text(&probe.provider), printable::text(&probe.name));
        let semaphore = if probe.semaphore.is_some() { "  semaphore" } else { "" };
        let arguments = arguments.join(", ");
        if writeln!(out, "{offset:#010x}  usdt:{file}:{provider}:{name}({arguments}){semaphore}").is_err() {
            break;
        }
        found += 1;
    }
    found
}
