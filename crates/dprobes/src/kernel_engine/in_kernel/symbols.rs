//! The symbols of the running kernel and its modules, from `/proc/kallsyms`.
//!
//! ```text
//! ffffffff81000000 T _stext
//! ffffffffc0a01000 t ext4_readdir  [ext4]
//! address          kind, name, module
//! ```

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use image::Pattern;

/// A function of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kernel_engine) struct Symbol {
    pub(in crate::kernel_engine) address: u64,
    pub(in crate::kernel_engine) name: String,
    /// Whether it is code.
    pub(in crate::kernel_engine) is_code: bool,
}

/// The symbols of the kernel, or of one module.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// By address.
    all: Vec<Symbol>,
    /// The addresses of all modules' symbols and the kernel's, for the ends of functions.
    limits: Vec<u64>,
}

/// A name of the kernel's that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    None,
    One(u64),
    /// Several functions have this name.
    Many(Vec<u64>),
}

impl Symbols {
    /// Reads the symbols of the kernel itself, or of a module.
    ///
    /// # Errors
    /// They cannot be read, or the kernel hides the addresses.
    pub(super) fn read(module: Option<&str>) -> Result<Symbols, String> {
        const PATH: &str = "/proc/kallsyms";
        let failed = |error: io::Error| format!("{PATH}: {error}");
        let symbols = Symbols::parse(BufReader::new(File::open(PATH).map_err(failed)?), module);
        let symbols = symbols.map_err(failed)?;
        let is_hidden = !symbols.limits.is_empty() && symbols.limits.iter().all(|address| *address == 0);
        match is_hidden {
            true => {
                Err("the kernel hides its addresses (kernel.kptr_restrict): 0 or 1 is needed, and CAP_SYSLOG"
                    .to_owned())
            }
            false => Ok(symbols),
        }
    }

    fn parse(text: impl BufRead, module: Option<&str>) -> io::Result<Symbols> {
        let mut symbols = Symbols::default();
        for line in text.split(b'\n') {
            let line = line?;
            // A module's symbols are the few with a module's name.
            if module.is_some() && !line.ends_with(b"]") {
                continue;
            }
            let Some((address, is_code, name, of)) = str::from_utf8(&line).ok().and_then(parse_line) else {
                continue;
            };
            symbols.limits.push(address);
            if of == module {
                symbols.all.push(Symbol { address, name: name.to_owned(), is_code });
            }
        }
        symbols.sort();
        Ok(symbols)
    }

    /// Symbols of the kernel that are known from elsewhere.
    pub(super) fn of(all: Vec<Symbol>) -> Symbols {
        let mut symbols = Symbols { limits: all.iter().map(|symbol| symbol.address).collect(), all };
        symbols.sort();
        symbols
    }

    fn sort(&mut self) {
        self.all.sort_by(|one, other| (one.address, &one.name).cmp(&(other.address, &other.name)));
        self.limits.sort_unstable();
        self.limits.dedup();
    }

    /// All, by address.
    pub(super) fn all(&self) -> &[Symbol] {
        &self.all
    }

    /// The first address of a name.
    pub(super) fn first(&self, name: &str) -> Option<u64> {
        self.all.iter().find(|symbol| symbol.name == name).map(|symbol| symbol.address)
    }

    /// The address of a name: of code, or with `any` of data too.
    pub(super) fn lookup(&self, name: &str, any: bool) -> Lookup {
        let named = self.all.iter().filter(|symbol| symbol.name == name && (any || symbol.is_code));
        let addresses: Vec<u64> = named.map(|symbol| symbol.address).collect();
        match addresses.as_slice() {
            [] => Lookup::None,
            [one] => Lookup::One(*one),
            _ => Lookup::Many(addresses),
        }
    }

    /// The functions whose names match, each address once.
    pub(super) fn functions(&self, matches: impl Fn(&str) -> bool) -> Vec<&Symbol> {
        let mut found: Vec<&Symbol> =
            self.all.iter().filter(|symbol| symbol.is_code && matches(&symbol.name)).collect();
        found.dedup_by_key(|symbol| symbol.address);
        found
    }

    /// Where the function at an address ends: at the next symbol.
    pub(super) fn end(&self, address: u64) -> Option<u64> {
        self.limits.get(self.limits.partition_point(|other| *other <= address)).copied()
    }

    /// The start of the function with this address.
    pub(super) fn start(&self, address: u64) -> Option<u64> {
        let after = self.all.partition_point(|symbol| symbol.address <= address);
        self.all[..after].iter().rev().find(|symbol| symbol.is_code).map(|symbol| symbol.address)
    }

    /// Names that a user may have meant.
    pub(super) fn near(&self, name: &str) -> Vec<String> {
        /// Names shown, at most.
        const SHOWN: usize = 3;
        let lower = name.to_ascii_lowercase();
        let similar = |symbol: &&Symbol| {
            let other = symbol.name.to_ascii_lowercase();
            symbol.is_code && (other.contains(&lower) || lower.contains(&other) && other.len() > 3)
        };
        let mut near: Vec<&str> =
            self.all.iter().filter(similar).map(|symbol| symbol.name.as_str()).collect();
        near.sort_by_key(|other| (other.len().abs_diff(name.len()), *other));
        near.dedup();
        near.into_iter().take(SHOWN).map(str::to_owned).collect()
    }
}

/// The names of the functions of the kernel, or of a module, that a pattern matches, sorted. They
/// are
/// known even if the kernel hides its addresses.
///
/// # Errors
/// They cannot be read.
pub(in crate::kernel_engine) fn names(pattern: &Pattern, module: Option<&str>) -> io::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for line in BufReader::new(File::open("/proc/kallsyms")?).split(b'\n') {
        let line = line?;
        if let Some((_, true, name, of)) = str::from_utf8(&line).ok().and_then(parse_line)
            && of == module
            && pattern.matches(name)
        {
            names.insert(name.to_owned());
        }
    }
    Ok(names.into_iter().collect())
}

/// The address of a symbol, whether it is code, its name, and the module.
pub(in crate::kernel_engine) fn parse_line(line: &str) -> Option<(u64, bool, &str, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    let name = words.next()?;
    let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Some((address, is_code, name, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000010 t f\n\
        ffffffff81000020 T g\nffffffff81000030 t f\nffffffff82000000 D jiffies\n\
        ffffffffc0000000 t f\t[mod]\nffffffffc0000100 t h\t[mod]\nnonsense\n\xff\n";

    #[test]
    fn symbols_are_those_of_the_kernel_or_of_a_module() {
        let kernel = Symbols::parse(TEXT, None).expect("memory can be read");
        assert_eq!(kernel.lookup("g", false), Lookup::One(0xffff_ffff_8100_0020));
        assert_eq!(
            kernel.lookup("f", false),
            Lookup::Many(vec![0xffff_ffff_8100_0010, 0xffff_ffff_8100_0030])
        );
        assert_eq!(kernel.lookup("jiffies", false), Lookup::None);
        assert_eq!(kernel.lookup("jiffies", true), Lookup::One(0xffff_ffff_8200_0000));
        let names = |found: Vec<&Symbol>| found.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(kernel.functions(|_| true)), ["_stext", "f", "g", "f"]);
        assert_eq!(kernel.end(0xffff_ffff_8100_0010), Some(0xffff_ffff_8100_0020));
        assert_eq!(kernel.start(0xffff_ffff_8100_0024), Some(0xffff_ffff_8100_0020));
        assert_eq!(kernel.start(0x1000), None);
        let module = Symbols::parse(TEXT, Some("mod")).expect("memory can be read");
        assert_eq!(module.lookup("f", false), Lookup::One(0xffff_ffff_c000_0000));
        assert_eq!(names(module.functions(|name| name == "h")), ["h"]);
        assert!(Symbols::parse(TEXT, Some("other")).expect("memory can be read").all.is_empty());
    }

    #[test]
    fn similar_names_are_offered() {
        let text = b"1 T vfs_read\n2 T vfs_readv\n3 D vfs_read_data\n4 T vfs_write\n".as_slice();
        let kernel = Symbols::parse(text, None).expect("memory can be read");
        assert_eq!(kernel.near("vfs_rea"), ["vfs_read", "vfs_readv"]);
        assert!(kernel.near("nothing like it").is_empty());
    }
}
