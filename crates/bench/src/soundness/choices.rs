//! Finds which implementation a library chooses for each IFUNC on a processor, and which choices
//! differ between two runs.
//!
//! A simulator presents its own processor, perhaps of another maker. Disabling features on both
//! does not make them equal: a C library also knows makers and models. So each resolver of the
//! module is called in both, to find the functions that only one of the runs executes.

use super::drive::{Conditions, run};
use super::sites::Sites;
use super::workload::{Driver, Workload};
use crate::build;
use object::{Object, ObjectSymbol, RelocationFlags, SymbolFlags};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `STT_GNU_IFUNC`: a symbol whose value is the address of its resolver.
const IFUNC: u8 = 10;
/// `R_X86_64_IRELATIVE`: a relocation whose addend is a resolver's address.
const IRELATIVE: u32 = 37;

/// The resolvers of a module: those of its symbols, and those of functions without an exported
/// name.
fn resolvers(module: &Path) -> io::Result<Vec<u64>> {
    let bytes = std::fs::read(module)?;
    let file = object::File::parse(&*bytes).map_err(io::Error::other)?;
    let mut found = BTreeSet::new();
    for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        if matches!(symbol.flags(), SymbolFlags::Elf { st_info, .. } if st_info.0 & 15 == IFUNC) {
            found.insert(symbol.address());
        }
    }
    for (_, relocation) in file.dynamic_relocations().into_iter().flatten() {
        if matches!(relocation.flags(), RelocationFlags::Elf { r_type } if r_type.0 == IRELATIVE) {
            found.insert(relocation.addend() as u64);
        }
    }
    Ok(found.into_iter().collect())
}

/// The choices of the resolvers in a run, in order.
fn choices(
    program: &Path,
    workload: &Workload,
    resolvers: &[u64],
    before: &[&str],
    tunables: &str,
    directory: &Path,
) -> io::Result<Vec<u64>> {
    let input = directory.join("resolvers");
    std::fs::write(&input, resolvers.iter().map(|each| format!("{each:x}\n")).collect::<String>())?;
    let asking = Workload {
        command: vec![program.into(), workload.module.clone().into()],
        input: Some(input),
        driver: Driver::None,
        ..workload.clone()
    };
    let conditions = Conditions {
        before: before.iter().map(OsString::from).collect(),
        environment: vec![("GLIBC_TUNABLES", tunables.to_owned())],
        fixed: true,
        limit: Duration::from_secs(120),
        directory,
    };
    let ran = run(&asking, &conditions)?;
    let chosen: Option<Vec<u64>> =
        ran.outcome.output.iter().map(|line| u64::from_str_radix(line, 16).ok()).collect();
    match chosen {
        Some(chosen) if ran.code == Some(0) && chosen.len() == resolvers.len() => Ok(chosen),
        _ => Err(io::Error::other(format!(
            "the resolvers of {} cannot be run: {} {}",
            workload.module.display(),
            ran.outcome.status,
            ran.stderr.trim()
        ))),
    }
}

/// The functions of the module, by address, that are chosen only under valgrind or only without.
///
/// # Errors
/// If the resolvers cannot be called.
pub(super) fn not_shared(
    workload: &Workload,
    sites: &Sites,
    tunables: &str,
    directory: &Path,
) -> io::Result<Vec<Range<u64>>> {
    let resolvers = resolvers(&workload.module)?;
    if resolvers.is_empty() {
        return Ok(Vec::new());
    }
    let program: PathBuf = directory.join("choices");
    build::c_program(
        &[build::repository().join("crates/bench/subject/choices.c")],
        &["-O1"],
        &["-ldl"],
        &program,
    )?;
    let ask = |before: &[&str]| choices(&program, workload, &resolvers, before, tunables, directory);
    let ours = ask(&[])?;
    let simulated = ask(&["valgrind", "--tool=none", "--quiet"])?;
    let one_only = different(&ours, &simulated);
    Ok(one_only.into_iter().map(|start| start..sites.end_of(start)).collect())
}

/// The choices of one run that the other has not made for the same purpose.
fn different(ours: &[u64], theirs: &[u64]) -> BTreeSet<u64> {
    let pairs = ours.iter().zip(theirs).filter(|(ours, theirs)| ours != theirs);
    pairs.flat_map(|(ours, theirs)| [*ours, *theirs]).filter(|address| *address != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::different;

    #[test]
    fn functions_of_one_run_only_are_known_and_what_is_outside_is_not_asked_about() {
        assert!(different(&[1, 2, 0], &[1, 2, 0]).is_empty());
        assert_eq!(different(&[1, 2, 0], &[1, 3, 4]).into_iter().collect::<Vec<_>>(), [2, 3, 4]);
    }
}
