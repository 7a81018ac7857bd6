//! `--flame`: a flame graph of a script's maps.

use std::io;
use std::path::Path;

use printout::Flame;
use script::{Compiled, Opaque, Type};

use crate::messages::tell;
use crate::{Failure, outfile};

/// Whether a graph can be drawn: before anything is probed.
///
/// # Errors
/// No map has stacks as keys, or the file cannot be written.
pub(super) fn check(path: &Path, compiled: &Compiled) -> Result<(), Failure> {
    if !compiled.maps.iter().filter_map(|map| map.key.as_ref()).any(has_stack) {
        return Err(Failure::new(
            "--flame: no map of the script has stacks as keys; count in one: `@[ustack] = count();`",
        ));
    }
    outfile::probe(path).map_err(|error| Failure::new(format!("{}: {error}", printable::path(path))))
}

fn has_stack(ty: &Type) -> bool {
    match ty {
        Type::Opaque(Opaque::UserStack | Opaque::KernelStack) => true,
        Type::Tuple(members) => members.iter().any(has_stack),
        _ => false,
    }
}

/// Draws the graph.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(path: &Path, stacks: &Flame) -> io::Result<()> {
    let shown = printable::path(path);
    if stacks.is_empty() {
        tell(&format!("warning: no stack was counted: {shown} is not written"));
        return Ok(());
    }
    outfile::write_whole(path, stacks.svg("Stacks").as_bytes())
        .map_err(|error| io::Error::new(error.kind(), format!("{shown}: {error}")))
}
