//! The symbols of the kernel and of its modules: by address, to show stacks, and by name.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{BufRead, BufReader};

use super::in_kernel::{SystemMap, parse_line};

/// A symbol.
#[derive(Debug)]
struct Name {
    address: u64,
    name: String,
    /// Its module, if it is not of the kernel itself.
    module: Option<String>,
}

/// The kernel's symbols.
#[derive(Debug, Default)]
pub(crate) struct KernelNames {
    /// Those of code, by address.
    code: Vec<Name>,
    /// Those of data.
    data: Vec<Name>,
}

impl KernelNames {
    /// Reads `/proc/kallsyms`.
    ///
    /// # Errors
    /// It cannot be read, or hides the addresses.
    pub(super) fn read() -> Result<KernelNames, String> {
        let names = KernelNames::listed()?;
        match names.code.iter().all(|name| name.address == 0) {
            true => {
                Err("the kernel hides its addresses (kernel.kptr_restrict): 0 or 1 is needed, and CAP_SYSLOG"
                    .to_owned())
            }
            false => Ok(names),
        }
    }

    /// The kernel's own symbols from its System.map, and the modules' from `/proc/kallsyms` if that
    /// shows where they are.
    ///
    /// # Errors
    /// Where the kernel is, is not known, or the file is of another one.
    pub(super) fn of_map(map: &SystemMap) -> Result<KernelNames, String> {
        let own = map.running().map_err(|not| not.reason().to_owned())?;
        let own = own.iter().map(|symbol| (symbol.address, symbol.is_code, symbol.name.as_str()));
        Ok(KernelNames::listed().unwrap_or_default().with_kernel(own))
    }

    /// What `/proc/kallsyms` has.
    fn listed() -> Result<KernelNames, String> {
        const PATH: &str = "/proc/kallsyms";
        let file = File::open(PATH).map_err(|error| format!("{PATH}: {error}"))?;
        KernelNames::parse(BufReader::new(file)).map_err(|error| format!("{PATH}: {error}"))
    }

    /// The modules' symbols of these that are not hidden, and others for the kernel itself: their
    /// addresses, whether they are code, and names.
    fn with_kernel<'a>(mut self, own: impl Iterator<Item = (u64, bool, &'a str)>) -> KernelNames {
        self.code.retain(|name| name.module.is_some() && name.address != 0);
        self.data.retain(|it| it.module.is_some() && it.address != 0);
        for (address, is_code, name) in own {
            self.add(address, is_code, name, None);
        }
        self.code.sort_by_key(|name| name.address);
        self
    }

    fn add(&mut self, address: u64, is_code: bool, name: &str, module: Option<&str>) {
        let symbol = Name { address, name: name.to_owned(), module: module.map(str::to_owned) };
        if is_code { self.code.push(symbol) } else { self.data.push(symbol) }
    }

    fn parse(text: impl BufRead) -> std::io::Result<KernelNames> {
        let mut names = KernelNames::default();
        for line in text.split(b'\n') {
            let line = line?;
            let Some((address, is_code, name, module)) = str::from_utf8(&line).ok().and_then(parse_line)
            else {
                continue;
            };
            names.add(address, is_code, name, module);
        }
        names.code.sort_by_key(|name| name.address);
        Ok(names)
    }

    /// The function at an address, the offset in it, and its module if that is not the kernel.
    pub(crate) fn at(&self, address: u64) -> Option<(&str, u64, Option<&str>)> {
        let after = self.code.partition_point(|name| name.address <= address);
        let last = self.code[..after].last()?;
        // Several names of one address: the one that is listed first.
        let first = self.code[..after].partition_point(|name| name.address < last.address);
        let found = &self.code[first];
        Some((&found.name, address - found.address, found.module.as_deref()))
    }

    /// The address of a symbol, of code or of data.
    ///
    /// # Errors
    /// There is none, or there are several of this name.
    pub(crate) fn address(&self, name: &str) -> Result<u64, String> {
        let all = self.code.iter().chain(&self.data);
        let mut found: Vec<u64> = all.filter(|it| it.name == name).map(|it| it.address).collect();
        found.sort_unstable_by_key(|address| Reverse(*address));
        found.dedup();
        match found[..] {
            [address] => Ok(address),
            [] => Err("the kernel has no such symbol".to_owned()),
            _ => Err(format!("the kernel has {} symbols of this name", found.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KernelNames;

    #[test]
    fn symbols_are_found_by_address_and_by_name() {
        let text = "ffffffff81000000 T _text\nffffffff81000000 T first\nffffffff81000100 t second\n\
                    ffffffff82000000 D data\nffffffff82000010 d second\nffffffffc0000000 t of_module\t[ext4]\n";
        let names = KernelNames::parse(text.as_bytes()).expect("it is read");
        assert_eq!(names.at(0xffff_ffff_8100_0010), Some(("_text", 0x10, None)));
        assert_eq!(names.at(0xffff_ffff_8100_0100), Some(("second", 0, None)));
        assert_eq!(names.at(0xffff_ffff_c000_0001), Some(("of_module", 1, Some("ext4"))));
        assert_eq!(names.at(0x1000), None);
        assert_eq!(names.address("data"), Ok(0xffff_ffff_8200_0000));
        assert!(names.address("second").is_err() && names.address("third").is_err());
    }

    #[test]
    fn a_system_map_has_the_kernel_and_kallsyms_the_modules() {
        let text = "ffffffff81000000 T listed\nffffffffc0000000 t of_module\t[ext4]\n\
                    0000000000000000 t hidden\t[ext4]\nffffffff82000000 D data\n";
        let own = [(0xffff_ffff_8100_0000, true, "mapped"), (0xffff_ffff_8200_0008, false, "data")];
        let names = KernelNames::parse(text.as_bytes()).expect("it is read").with_kernel(own.into_iter());
        assert_eq!(names.at(0xffff_ffff_8100_0010), Some(("mapped", 0x10, None)));
        assert_eq!(names.at(0xffff_ffff_c000_0001), Some(("of_module", 1, Some("ext4"))));
        assert_eq!(names.at(0x10), None);
        assert_eq!(names.address("data"), Ok(0xffff_ffff_8200_0008));
        assert!(names.address("listed").is_err() && names.address("hidden").is_err());
    }
}
