//! `dprobes list --data`: global and static variables, as `dprobes watch` and `uaddr` name them.
//!
//! ```text
//! 0x0000000000004060      120  slow:cache
//! ```
//!
//! The address is the file's own, or that in a process; then come the size, in bytes, and the name.

use std::io::Write;
use std::path::Path;

use image::{DataSymbols, Image};
use process::ImageCache;

use super::Wanted;
use crate::Failure;

/// Lists the variables of a file; returns their number.
pub(super) fn of_file(file: &Path, pattern: Option<&str>, out: &mut dyn Write) -> Result<usize, Failure> {
    let image = Image::open(file).map_err(Failure::new)?;
    let wanted = Wanted::parse(pattern.unwrap_or("*"))?;
    let matches = wanted.matches_module(file);
    Ok(if matches { of_image(&image, file, 0, &wanted, out) } else { 0 })
}

/// Lists the variables of the modules of a process; returns their number.
pub(super) fn of_process(pid: i32, pattern: Option<&str>, out: &mut dyn Write) -> Result<usize, Failure> {
    let survey = process::survey(pid, &mut ImageCache::new()).map_err(Failure::new)?;
    let wanted = Wanted::parse_in(pattern.unwrap_or("*"), pid, &survey.modules)?;
    let named = survey.modules.iter().filter(|module| wanted.matches(pid, module));
    Ok(named.map(|module| of_image(&module.image, &module.path, module.bias, &wanted, out)).sum())
}

fn of_image(image: &Image, path: &Path, bias: u64, wanted: &Wanted, out: &mut dyn Write) -> usize {
    let file = printable::path(path.file_name().unwrap_or_default().as_ref()).to_string();
    let mut found = 0;
    for (vaddr, size, name) in DataSymbols::of(image).iter() {
        if !wanted.function.matches(name) {
            continue;
        }
        let address = vaddr.wrapping_add(bias);
        if writeln!(out, "{address:#018x} {size:>8}  {file}:{}", printable::text(name)).is_err() {
            break;
        }
        found += 1;
    }
    found
}
