//! Demangles C++ names (Itanium ABI) and Rust names (both manglings).
//!
//! A mangled name of a hundred bytes can stand for gigabytes, since it may refer back to its own
//! parts. So the output's length is limited.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// The longest mangled name that is demangled. Template-heavy code reaches some ten thousand bytes.
const MANGLED: usize = 64 << 10;
/// The longest demangled name in bytes.
const DEMANGLED: usize = 256 << 10;

/// A string that refuses to grow beyond its limit.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// `ns::f(int)`, or `crate::module::function` without the hash. `None` if the name is not mangled.
pub fn full(name: &str) -> Option<String> {
    rust(name, true).or_else(|| cpp(name, DemangleOptions::new().no_return_type()))
}

/// Whether `wanted` is the full demangled `name`, in Rust with or without the hash.
pub(crate) fn is_full(name: &str, wanted: &str) -> bool {
    if let Some(short) = rust(name, true) {
        return short == wanted || rust(name, false).is_some_and(|long| long == wanted);
    }
    // The mangling has return types only for templates; users paste names with and without them.
    cpp(name, DemangleOptions::new().no_return_type()).is_some_and(|text| text == wanted)
        || cpp(name, DemangleOptions::new()).is_some_and(|text| text == wanted)
}

/// Whether `wanted` is the C++ name without its parameters: `ns::f`.
pub(crate) fn is_without_parameters(name: &str, wanted: &str) -> bool {
    without_parameters(name).is_some_and(|text| text == wanted)
}

/// The C++ name without its parameters. `None` if the name is not a mangled C++ name.
pub(crate) fn without_parameters(name: &str) -> Option<String> {
    cpp(name, DemangleOptions::new().no_return_type().no_params())
}

fn rust(name: &str, short: bool) -> Option<String> {
    if name.len() > MANGLED || !(name.starts_with("_R") || name.starts_with("_ZN")) {
        return None;
    }
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    // Rust's old mangling is a C++ name that ends in a hash; without a hash it is C++.
    if name.starts_with("_ZN") && format!("{demangled}") == format!("{demangled:#}") {
        return None;
    }
    let mut text = Bounded(String::new());
    let written = if short { write!(text, "{demangled:#}") } else { write!(text, "{demangled}") };
    written.ok().map(|()| text.0)
}

fn cpp(name: &str, options: DemangleOptions) -> Option<String> {
    if name.len() > MANGLED || !name.starts_with("_Z") {
        return None;
    }
    let symbol = Symbol::new(name.as_bytes()).ok()?;
    let mut text = Bounded(String::new());
    symbol.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

/// The identifier that every mangled form of `name` must contain literally, to filter symbols
/// before demangling them: for `ns::Thing<int>::~Thing()` it is `Thing`. `None` for operators and
/// other names without one.
pub(crate) fn identifier(name: &str) -> Option<&str> {
    if name.contains("operator") || name.contains('{') || name.contains('\'') {
        return None;
    }
    // Up to the parameters, which start at the first parenthesis outside template arguments;
    // `(anonymous namespace)` is a scope.
    let mut depth = 0_i32;
    let mut start = 0;
    let mut end = name.len();
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'<' | b'[' => depth += 1,
            b'>' | b']' => depth -= 1,
            b'(' if depth == 0 => {
                const ANONYMOUS: &str = "(anonymous namespace)";
                if name.get(at..).is_some_and(|rest| rest.starts_with(ANONYMOUS)) {
                    at += ANONYMOUS.len();
                    continue;
                }
                end = at;
                break;
            }
            b':' | b' ' if depth == 0 => start = at + 1,
            _ => {}
        }
        at += 1;
    }
    let last = name.get(start..end)?.trim_start_matches('~');
    let last = &last[..last.find(['<', '[']).unwrap_or(last.len())];
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!last.is_empty() && last.chars().all(plain)).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_and_rust_names() {
        assert_eq!(full("_ZN2ns1fEi").as_deref(), Some("ns::f(int)"));
        assert_eq!(full("_ZN4core3fmt5write17h0123456789abcdefE").as_deref(), Some("core::fmt::write"));
        assert_eq!(full("_RNvC6_123foo3bar").as_deref(), Some("123foo::bar"));
        assert_eq!(full("malloc"), None);
        assert!(is_full("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write::h0123456789abcdef"));
        assert!(is_full("_Z3maxIiET_S0_S0_", "int max<int>(int, int)"));
        assert!(is_full("_Z3maxIiET_S0_S0_", "max<int>(int, int)"));
        assert!(is_without_parameters("_ZN2ns1fEi", "ns::f"));
        assert!(!is_without_parameters("_ZN2ns1fEi", "f"));
    }

    #[test]
    fn identifiers_that_mangling_keeps() {
        assert_eq!(identifier("ns::f(int)"), Some("f"));
        assert_eq!(identifier("ns::Thing<int, a::b>::~Thing()"), Some("Thing"));
        assert_eq!(identifier("(anonymous namespace)::hidden(char const*)"), Some("hidden"));
        assert_eq!(identifier("max<int>(int, int)"), Some("max"));
        assert_eq!(identifier("int max<int>(int, int)"), Some("max"));
        assert_eq!(identifier("ns::operator+(A, A)"), None);
        assert_eq!(identifier("std::to_string[abi:cxx11](int)"), Some("to_string"));
        assert_eq!(identifier("<T as Trait>::method"), Some("method"));
        assert_eq!(identifier("a::{closure#0}"), None);
    }

    #[test]
    fn a_name_that_grows_without_end_is_refused() {
        // Each template argument repeats everything before it twice.
        let mut name = String::from("_Z1fI1aS_E");
        for level in 0..40 {
            let back = match level {
                0 => "S0_".to_owned(),
                n => format!("S{}_", char::from_digit(n % 36, 36).unwrap().to_ascii_uppercase()),
            };
            name = format!("{name}1gI{back}{back}E");
        }
        let started = std::time::Instant::now();
        let _ = full(&name);
        let deep = format!("_Z1f{}", "P".repeat(60_000));
        assert_eq!(full(&deep), None);
        assert!(started.elapsed().as_secs() < 2);
    }
}
