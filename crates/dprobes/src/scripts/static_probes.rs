//! The static probes (`usdt`) that a script names, as the notes of programs and libraries tell.
//!
//! A script is compiled for the places where a file has their arguments, so files are read before
//! it is compiled: those that the processes have mapped, else those on disk. A library that a
//! program loads later is found if it is on disk.

use std::collections::HashMap;

use image::{Argument, ArgumentPlace, ArgumentRegister, Image, Pattern};
use process::ImageCache;
use script::{AttachTarget, Checked, Item, SiteArgument, SitePlace, StaticSite, StaticSites};
use vm::Register;

use super::scope::{Found, Scope, module};
use crate::messages::{WARNING, tell};

/// Finds the sites of all `usdt` attach points of a script.
pub(super) fn find(checked: &Checked, scope: &Scope<'_>) -> StaticSites {
    let mut sites = StaticSites::new();
    let mut cache = ImageCache::new();
    for item in &checked.script.items {
        let Item::Probe(probe) = item else { continue };
        for point in &probe.points {
            let AttachTarget::Usdt { binary, namespace, name } = &point.place else { continue };
            sites.entry(point.to_string()).or_insert_with(|| {
                let found = scope.images(&module(binary), &mut cache);
                of_files(&module(binary), &found, namespace.as_deref(), name)
            });
        }
    }
    sites
}

/// The static probes of files that match.
fn of_files(file: &str, found: &[Found], provider: Option<&str>, name: &str) -> Vec<StaticSite> {
    let mut sites = Vec::new();
    let mut seen: HashMap<String, &Image> = HashMap::new();
    for Found { path, image } in found {
        // A path means what it does in each process; a name, this file only.
        let named = if file.contains('/') { file.to_owned() } else { path.display().to_string() };
        if let Some(first) = seen.get(&named) {
            if first.file_id() != image.file_id() && first.build_id() != image.build_id() {
                let path = printable::path(path);
                tell(&format!("{WARNING}{path}: processes have different files there; one is probed"));
            }
            continue;
        }
        sites.extend(of_image(image, &named, provider, name));
        seen.insert(named, image);
    }
    sites
}

fn of_image(image: &Image, file: &str, provider: Option<&str>, name: &str) -> Vec<StaticSite> {
    let mut sites = Vec::new();
    for probe in image.static_probes() {
        if !is_match(name, &probe.name) || !provider.is_none_or(|it| is_match(it, &probe.provider)) {
            continue;
        }
        // An address without bytes of the file is damage.
        let Some(offset) = image.offset_of_address(probe.vaddr) else { continue };
        sites.push(StaticSite {
            file: file.to_owned(),
            name: format!("{}:{}", probe.provider, probe.name),
            offset,
            semaphore: probe.semaphore,
            arguments: probe.arguments.iter().map(argument).collect(),
        });
    }
    sites
}

/// Whether a name is what is written, or matches it as a pattern.
fn is_match(written: &str, name: &str) -> bool {
    written == name
        || Pattern::is_one(written) && Pattern::new(written).is_ok_and(|pattern| pattern.matches(name))
}

/// An argument as a handler reads it. Floats are not words.
fn argument(argument: &Argument) -> SiteArgument {
    let place = argument.place.as_ref().filter(|_| !argument.float).and_then(site_place);
    let bytes = match &argument.place {
        // No more than the register's part.
        Some(ArgumentPlace::Register(register)) => argument.bytes.min(register.bits / 8),
        _ => argument.bytes,
    };
    SiteArgument { bytes, signed: argument.signed, place }
}

fn site_place(place: &ArgumentPlace) -> Option<SitePlace> {
    Some(match place {
        ArgumentPlace::Constant(value) => SitePlace::Constant(*value),
        ArgumentPlace::Register(register) => SitePlace::Register(whole(register)?, register.shift),
        ArgumentPlace::Memory { base, index, displacement } => {
            // Those of code for 32 bits are not the whole address.
            let address = |it: &ArgumentRegister| whole(it).filter(|_| it.bits == 64);
            let base = match base {
                Some(base) => Some(address(base)?),
                None => None,
            };
            let index = match index {
                Some((index, scale)) => Some((address(index)?, *scale)),
                None => None,
            };
            SitePlace::Memory { base, index, displacement: *displacement }
        }
    })
}

/// The register of which it is a part.
fn whole(register: &ArgumentRegister) -> Option<Register> {
    Register::ALL.iter().copied().find(|it| it.name() == register.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole() {
        assert!(is_match("gc__start", "gc__start") && !is_match("gc", "gc__start"));
        assert!(is_match("gc__*", "gc__start") && is_match("*", "line") && !is_match("*_x", "line"));
    }

    #[test]
    fn registers_have_the_names_of_the_machine() {
        let register = |name, bits| ArgumentRegister { name, bits, shift: 0 };
        for name in ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "r8", "r15"] {
            assert!(whole(&register(name, 64)).is_some(), "{name}");
        }
        let memory = |base| ArgumentPlace::Memory { base: Some(base), index: None, displacement: 4 };
        assert_eq!(
            site_place(&memory(register("rbp", 64))),
            Some(SitePlace::Memory { base: Some(Register::Rbp), index: None, displacement: 4 })
        );
        assert_eq!(site_place(&memory(register("rbp", 32))), None);
    }

    #[test]
    fn a_register_has_no_more_bytes_than_its_part() {
        let register = ArgumentRegister { name: "rcx", bits: 32, shift: 0 };
        let wide = Argument {
            bytes: 8,
            signed: true,
            float: false,
            place: Some(ArgumentPlace::Register(register)),
            text: String::new(),
        };
        assert_eq!(argument(&wide).bytes, 4);
        assert_eq!(argument(&Argument { float: true, ..wide }).place, None);
    }
}
