//! Finds the functions that a user's name may mean.

use super::Image;
use super::demangle;
use super::functions::{Function, FunctionKind};
use super::version;

/// How a name was interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// As the ELF file's name, with or without its version.
    Exact,
    /// As the demangled name: `ns::f(int)`, `core::fmt::write`.
    Demangled,
    /// As the C++ name without parameters: `ns::f`.
    WithoutParameters,
}

/// The functions that a name may mean.
#[derive(Clone, Debug)]
pub struct Lookup<'a> {
    /// One function for each address, by address. Empty: there is no such name. Several: the name
    /// is ambiguous.
    pub matches: Vec<&'a Function>,
    /// How the name was interpreted.
    pub kind: NameKind,
}

/// The most suggestions that are returned.
const SUGGESTIONS: usize = 5;
/// The longest name in bytes that is compared by edit distance, whose cost is the product of both
/// lengths.
const COMPARED: usize = 64;

/// Answers [`Image::lookup`].
pub(crate) fn lookup<'i>(image: &'i Image, name: &str) -> Lookup<'i> {
    let exact = lookup_exact(image, name);
    if !exact.is_empty() {
        return Lookup { matches: exact, kind: NameKind::Exact };
    }
    let candidates = candidates(image, name);
    let full = candidates.iter().copied().filter(|f| demangle::is_full(&f.name, name));
    let full = one_for_each_address(full.collect());
    if !full.is_empty() {
        return Lookup { matches: full, kind: NameKind::Demangled };
    }
    let short = candidates.into_iter().filter(|f| demangle::is_without_parameters(&f.name, name));
    Lookup { matches: one_for_each_address(short.collect()), kind: NameKind::WithoutParameters }
}

fn lookup_exact<'i>(image: &'i Image, name: &str) -> Vec<&'i Function> {
    let (base, version) = version::split(name);
    let named: Vec<&Function> = image.symbols().named(base).collect();
    let named: Vec<&Function> = match version {
        Some(wanted) => {
            let is = |f: &&Function| {
                f.version
                    .as_ref()
                    .is_some_and(|found| found.name == wanted.name && (found.default || !wanted.default))
            };
            named.into_iter().filter(is).collect()
        }
        None => {
            let default = |f: &&Function| f.version.as_ref().is_none_or(|version| version.default);
            let plain: Vec<&Function> = named.iter().copied().filter(default).collect();
            if plain.is_empty() { named } else { plain }
        }
    };
    // A label is only a mark in the code: a function with the same name takes precedence.
    let is_function = |f: &&Function| f.kind != FunctionKind::Label;
    let functions: Vec<&Function> = named.iter().copied().filter(is_function).collect();
    one_for_each_address(if functions.is_empty() { named } else { functions })
}

/// Mangled names that may demangle to `name`: most are excluded without demangling them.
fn candidates<'i>(image: &'i Image, name: &str) -> Vec<&'i Function> {
    let identifier = demangle::identifier(name).unwrap_or_default();
    let mangled = |f: &&Function| f.name.starts_with("_Z") || f.name.starts_with("_R");
    image.functions().iter().filter(mangled).filter(|f| f.name.contains(identifier)).collect()
}

/// Answers [`Image::nearest_names`].
pub(crate) fn nearest_names(image: &Image, name: &str) -> Vec<String> {
    let (name, _) = version::split(name);
    let wanted = demangle::identifier(name).unwrap_or(name).to_lowercase();
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut near: Vec<(usize, usize, String)> = Vec::new();
    for function in image.functions() {
        let demangled = function.demangled();
        let shown = demangled.as_deref().unwrap_or(&function.name);
        let plain = demangle::identifier(shown).unwrap_or(shown);
        if let Some(distance) = distance(&wanted, plain) {
            near.push((distance, shown.len(), shown.to_owned()));
        }
    }
    near.sort();
    near.dedup_by(|a, b| a.2 == b.2);
    near.into_iter().map(|(_, _, name)| name).take(SUGGESTIONS).collect()
}

/// The distance of a name from the wanted one, which is in lower case; `None` if they have little
/// in common.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    if name.len() > 4 * COMPARED {
        return None;
    }
    let name = name.to_lowercase();
    if name == wanted {
        return Some(0);
    }
    let allowed = 1 + wanted.len() / 4;
    if wanted.len() <= COMPARED && name.len().abs_diff(wanted.len()) <= allowed {
        let edits = strsim::osa_distance(wanted, &name);
        if edits <= allowed {
            return Some(edits);
        }
    }
    // A part of the name, as in `dispatch` for `dispatch_command`.
    (wanted.len() >= 3 && name.contains(wanted)).then_some(allowed + 1)
}

fn one_for_each_address(mut functions: Vec<&Function>) -> Vec<&Function> {
    functions.sort_by_key(|function| function.vaddr);
    functions.dedup_by_key(|function| function.vaddr);
    functions
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn near_names() {
        assert_eq!(distance("malloc", "malloc"), Some(0));
        assert_eq!(distance("mallco", "malloc"), Some(1));
        assert_eq!(distance("malloc", "Malloc"), Some(0));
        assert_eq!(distance("alloc", "__libc_alloc_buffer"), Some(3));
        assert_eq!(distance("malloc", "printf"), None);
    }
}
