//! From a name that a person typed to the functions it may mean.

use super::Image;
use super::demangle;
use super::functions::{Function, FunctionKind};
use super::version;

/// How a name was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// As the ELF file writes it, with or without its version.
    Exact,
    /// As its language writes it: `ns::f(int)`, `core::fmt::write`.
    Demangled,
    /// As C++ writes it, without parameters: `ns::f`.
    WithoutParameters,
}

/// What a name may mean.
#[derive(Clone, Debug)]
pub struct Lookup<'a> {
    /// One function for each distinct address, in the order of addresses. None: there is no such name. Several:
    /// the name is ambiguous.
    pub matches: Vec<&'a Function>,
    /// How the name was understood.
    pub kind: NameKind,
}

/// Suggestions that are returned at most.
const SUGGESTIONS: usize = 5;
/// Bytes of a name that is compared by edit distance, whose cost is the product of both lengths.
const COMPARED: usize = 64;

impl Image {
    /// The functions a name may mean. Names are case-sensitive. Tried in this order, the first that has any result
    /// wins: the ELF name (`malloc`, `memcpy@GLIBC_2.2.5`); the whole demangled name; the C++ name without
    /// parameters.
    ///
    /// A bare name means the default version, as it does for a linker; a hidden one has to be written out.
    pub fn lookup(&self, name: &str) -> Lookup<'_> {
        let exact = self.lookup_exact(name);
        if !exact.is_empty() {
            return Lookup { matches: exact, kind: NameKind::Exact };
        }
        let candidates = self.candidates(name);
        let full = candidates.iter().copied().filter(|f| demangle::is_full(&f.name, name));
        let full = one_for_each_address(full.collect());
        if !full.is_empty() {
            return Lookup { matches: full, kind: NameKind::Demangled };
        }
        let short = candidates.into_iter().filter(|f| demangle::is_without_parameters(&f.name, name));
        Lookup { matches: one_for_each_address(short.collect()), kind: NameKind::WithoutParameters }
    }

    fn lookup_exact<'a>(&'a self, name: &str) -> Vec<&'a Function> {
        let (base, version) = version::split(name);
        let named: Vec<&Function> = self.symbols().named(base).collect();
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
        // A label is a mark in the code; where a function has the same name, the function is meant.
        let is_function = |f: &&Function| f.kind != FunctionKind::Label;
        let functions: Vec<&Function> = named.iter().copied().filter(is_function).collect();
        one_for_each_address(if functions.is_empty() { named } else { functions })
    }

    /// Mangled names that may demangle to `name`: most are sifted out without demangling them.
    fn candidates(&self, name: &str) -> Vec<&Function> {
        let identifier = demangle::identifier(name).unwrap_or_default();
        let mangled = |f: &&Function| f.name.starts_with("_Z") || f.name.starts_with("_R");
        self.functions().iter().filter(mangled).filter(|f| f.name.contains(identifier)).collect()
    }

    /// Names like one that was not found, the likeliest first, five at most; for "did you mean".
    pub fn nearest_names(&self, name: &str) -> Vec<String> {
        let (name, _) = version::split(name);
        let wanted = demangle::identifier(name).unwrap_or(name).to_lowercase();
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut near: Vec<(usize, usize, String)> = Vec::new();
        for function in self.functions() {
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
}

/// How far a name is from the wanted one, in lower case; nothing if they have little in common.
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
