//! Finds what is to be watched: an address in the process, and how many bytes.

use image::{Image, NoVariable, ValueKind, Variable, variable};
use process::{ImageCache, Mapping, Module};

use crate::Failure;
use crate::arguments::Watch;

/// Memory of the process that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    /// Its name, as the user gives it.
    pub(super) name: String,
    /// The path of the module that has it; for an address, that of the program.
    pub(super) module: String,
    pub(super) address: u64,
    /// Bytes: 1, 2, 4 or 8.
    pub(super) length: u8,
    pub(super) kind: ValueKind,
}

impl Watched {
    /// What it is, in words.
    pub(super) fn description(&self, pid: i32) -> String {
        let Watched { name, address, length, .. } = self;
        let plural = if *length == 1 { "" } else { "s" };
        let at = if name.starts_with("0x") { String::new() } else { format!(", at {address:#x}") };
        format!("{} of process {pid}: {length} byte{plural}{at}", printable::text(name))
    }
}

/// Finds it.
///
/// # Errors
/// Why the name, or the size, is nothing that can be watched.
pub(super) fn find(arguments: &Watch) -> Result<Watched, Failure> {
    let Watch { variable: name, pid, module, length, tracing, .. } = arguments;
    if !std::path::Path::new("/proc").join(pid.to_string()).exists() {
        return Err(Failure::new(format!("no process {pid}")));
    }
    let modules = process::modules(*pid, &mut ImageCache::new()).map_err(Failure::new)?;
    let mappings = process::maps(*pid).map_err(Failure::new)?;
    let main = modules.first().ok_or_else(|| Failure::new(format!("process {pid} has no program")))?;
    let (path, found, address) = match address(name) {
        Some(address) => {
            let size = u64::from(length.unwrap_or(8));
            (main.path.clone(), Variable { vaddr: address, size, kind: ValueKind::Unknown }, address)
        }
        None => {
            let symbols = tracing.sym.as_deref().map(Image::open).transpose();
            let symbols = symbols.map_err(|error| Failure::new(format!("--sym: {error}")))?;
            let (module, found) =
                in_modules(name, module.as_deref(), &modules, symbols.as_ref()).map_err(Failure::new)?;
            (module.path.clone(), found, found.vaddr.wrapping_add(module.bias))
        }
    };
    let length = size(name, found, *length, address).map_err(Failure::new)?;
    if !is_mapped(address, length, &mappings) {
        return Err(Failure::new(format!(
            "{address:#x} is no memory of process {pid}: nothing is mapped there"
        )));
    }
    let module = path.display().to_string();
    Ok(Watched { name: name.clone(), module, address, length, kind: found.kind })
}

/// The number, if the name is one in hexadecimal.
fn address(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("0x")?, 16).ok()
}

/// The module that has a variable: the one that is named, or the first one, the program before its
/// libraries. `symbols`: a file with the debug information of one of them.
fn in_modules<'a>(
    name: &str,
    wanted: Option<&str>,
    modules: &'a [Module],
    symbols: Option<&Image>,
) -> Result<(&'a Module, Variable), String> {
    let is_wanted = |module: &&Module| match wanted {
        None => true,
        Some(wanted) if wanted.contains('/') => module.path == std::path::Path::new(wanted),
        Some(wanted) => {
            let file = module.path.file_name().unwrap_or_default().to_string_lossy();
            file == wanted || file.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(".so"))
        }
    };
    let mut unknown = None;
    for module in modules.iter().filter(is_wanted) {
        let symbols = symbols.filter(|symbols| symbols.has_symbols_of(&module.image).is_ok());
        match variable(symbols.unwrap_or(&module.image), name) {
            Ok(found) => return Ok((module, found)),
            Err(error @ NoVariable::Unknown { .. }) => {
                unknown.get_or_insert(error);
            }
            Err(error) => return Err(format!("{}: {error}", printable::path(&module.path))),
        }
    }
    Err(match (unknown, wanted) {
        (Some(error), _) => format!("{error}{}", what_else(name)),
        (None, Some(wanted)) => {
            format!(
                "the process maps no module `{}` (`dprobes list -p PID` shows them)",
                printable::text(wanted)
            )
        }
        (None, None) => format!("no variable is called `{}`", printable::text(name)),
    })
}

/// What else a name may have meant.
fn what_else(name: &str) -> &'static str {
    match name.bytes().all(|byte| byte.is_ascii_digit()) {
        true => " (an address is written in hexadecimal: 0x404028)",
        false => "",
    }
}

/// The number of bytes to watch.
fn size(name: &str, found: Variable, asked: Option<u8>, address: u64) -> Result<u8, String> {
    let name = printable::text(name);
    let length = match (asked, found.size) {
        (Some(asked), 0) => asked,
        (Some(asked), size) if u64::from(asked) > size => {
            return Err(format!("`{name}` has {size} bytes: --length {asked} is longer"));
        }
        (Some(asked), _) => asked,
        (None, 1 | 2 | 4 | 8) => found.size as u8,
        (None, 0) => return Err(format!("the size of `{name}` is not known: give --length")),
        (None, size) => {
            return Err(format!(
                "`{name}` has {size} bytes, and the processor watches 1, 2, 4 or 8: name a part of it, or give --length"
            ));
        }
    };
    match address % u64::from(length) {
        0 => Ok(length),
        _ => Err(format!(
            "`{name}` is at {address:#x}, and the processor watches {length} bytes at a multiple of {length}: give a smaller --length"
        )),
    }
}

fn is_mapped(address: u64, length: u8, mappings: &[Mapping]) -> bool {
    let end = address.saturating_add(u64::from(length));
    mappings.iter().any(|mapping| mapping.start <= address && end <= mapping.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_size(size: u64) -> Variable {
        Variable { vaddr: 0, size, kind: ValueKind::Signed }
    }

    #[test]
    fn the_size_is_the_variables_or_the_one_that_is_asked_for() {
        assert_eq!(size("v", of_size(4), None, 0x1000), Ok(4));
        assert_eq!(size("v", of_size(96), Some(8), 0x1000), Ok(8));
        assert_eq!(size("v", of_size(0), Some(2), 0x1002), Ok(2));
        for (variable, asked, address) in
            [(96, None, 0x1000), (0, None, 0x1000), (4, Some(8), 0x1000), (8, None, 0x1004)]
        {
            assert!(
                size("v", of_size(variable), asked, address).is_err(),
                "{variable} {asked:?} {address:#x}"
            );
        }
    }

    #[test]
    fn an_address_is_a_number_in_hexadecimal() {
        assert_eq!((address("0x404028"), address("404028"), address("0xg")), (Some(0x40_4028), None, None));
    }
}
