//! Where the probes of a program are in the running kernel, or in one of its modules.
//!
//! | location | what it is |
//! |---|---|
//! | `offset = vfs_read`, `vfs_read + 4` | a function's address, as `/proc/kallsyms` has it, or the System.map of `--sym` |
//! | `offset = 0x1000` | from the start of the kernel's text, or of the module |
//! | `address = 0xffffffff81234567` | an address |
//! | `offset = FUNCTION:POINT` | points of functions; exits are found by disassembling the running text |

mod forbidden;
mod symbols;
mod system_map;
mod text;

pub(crate) use system_map::SystemMap;

use std::fs;
use std::path::Path;

use engine::Refused;
use engine::reason::NotPlaced;
use image::Pattern;
use rpn::{FunctionPoint, Location, ModuleKind, Object, Probe};

use super::places::LeftOut;
use forbidden::Forbidden;
use symbols::Symbols;
use symbols::{Lookup, Symbol};
pub(super) use symbols::{names, parse_line};
pub(super) use system_map::NotPlaced as MapNotPlaced;
use text::Text;

/// A place in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelPlace {
    /// The probe's index in its program.
    pub(super) probe: usize,
    pub(super) address: u64,
    /// The function it is in, if it is a point of one.
    pub(super) function: String,
    /// Whether it fires when the function at the address returns: a kretprobe.
    pub(super) on_return: bool,
}

/// The places of a program in the kernel.
#[derive(Debug, Default)]
pub(super) struct KernelPlan {
    pub(super) places: Vec<KernelPlace>,
    pub(super) refused: Vec<Refused>,
    pub(super) remarks: Vec<(usize, String)>,
}

/// A function of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFunction {
    pub(crate) address: u64,
    /// Bytes up to the next symbol; 0 if there is none.
    pub(crate) size: u64,
    pub(crate) name: String,
    /// Why it cannot be probed, if it cannot.
    pub(crate) refused: Option<&'static str>,
}

/// What is known of the kernel, or of one of its modules.
#[derive(Debug)]
pub(super) struct Kernel {
    symbols: Symbols,
    /// Where they are from.
    source: &'static str,
    /// The start of its text, from which numbers are counted.
    base: Option<u64>,
    text: Option<Text>,
    forbidden: Forbidden,
}

impl Kernel {
    /// Reads what there is to know.
    ///
    /// # Errors
    /// The symbols cannot be read.
    pub(super) fn read(module: Option<&LoadedModule>) -> Result<Kernel, String> {
        Kernel::with(Symbols::read(module.map(|module| module.name.as_str()))?, module, "/proc/kallsyms")
    }

    /// The same of the kernel itself, with symbols from its System.map.
    ///
    /// # Errors
    /// Where the kernel is, is not known, or the file is of another one.
    pub(super) fn of_map(map: &SystemMap) -> Result<Kernel, String> {
        let symbols = map.running().map_err(|not| not.reason().to_owned())?;
        Kernel::with(Symbols::of(symbols.to_vec()), None, "the file of --sym")
    }

    fn with(symbols: Symbols, module: Option<&LoadedModule>, source: &'static str) -> Result<Kernel, String> {
        let base = match module {
            Some(module) => Some(module.base),
            None => address_of(&symbols, "_text"),
        };
        let forbidden = Forbidden::read(|name| address_of(&symbols, name));
        Ok(Kernel { symbols, source, base, text: Text::open(), forbidden })
    }

    /// The places of all probes of a program that are not over.
    pub(super) fn plan(&self, object: &Object, verify: bool, is_over: impl Fn(usize) -> bool) -> KernelPlan {
        let mut plan = KernelPlan::default();
        let probes = object.probes.iter().enumerate().filter(|(_, definition)| definition.watch.is_none());
        // Tracepoints are no places of the code.
        let probes = probes.filter(|(_, it)| !matches!(it.location, Location::Tracepoint { .. }));
        for (probe, definition) in probes.filter(|(probe, _)| !is_over(*probe)) {
            let mut left_out = LeftOut::default();
            let found = self.places(probe, definition, verify, &mut left_out);
            let line = left_out.line();
            match found {
                Ok((places, remark)) if !places.is_empty() => {
                    plan.places.extend(places);
                    plan.remarks.extend(remark.into_iter().chain(line).map(|text| (probe, text)));
                }
                other => plan.refused.push(Refused {
                    module: object.module.clone(),
                    point: definition.point.clone(),
                    probe,
                    reason: NotPlaced::Other(
                        other.err().or(line).unwrap_or_else(|| "it has no site".to_owned()),
                    ),
                }),
            }
        }
        plan
    }

    /// Fills in the addresses of the kernel's symbols that a program pushes.
    ///
    /// # Errors
    /// A symbol that is not there.
    pub(super) fn link(&self, object: &mut Object) -> Result<(), String> {
        let word = object.word().bytes();
        for wanted in &object.symbols {
            let address = match self.symbols.lookup(&wanted.name, true) {
                Lookup::One(address) => address,
                Lookup::Many(all) => return Err(ambiguous(&wanted.name, &all)),
                Lookup::None => return Err(self.unknown(&wanted.name)),
            };
            let value = address.wrapping_add_signed(wanted.addend).to_le_bytes();
            if let Some(place) = object.code.get_mut(wanted.offset..wanted.offset + word) {
                place.copy_from_slice(&value[..word]);
            }
        }
        Ok(())
    }

    /// The address of a location that is watched.
    ///
    /// # Errors
    /// It is that of a symbol that is not there, or none.
    pub(super) fn address_of(&self, location: &Location) -> Result<u64, String> {
        match location {
            Location::Address(address) => Ok(*address),
            Location::AddressSymbol { name, addend } => match self.symbols.lookup(name, true) {
                Lookup::One(address) => Ok(address.wrapping_add_signed(*addend)),
                Lookup::Many(all) => Err(ambiguous(name, &all)),
                Lookup::None => Err(self.unknown(name)),
            },
            _ => Err("a watchpoint has an address".to_owned()),
        }
    }

    /// The places of one probe, and a remark.
    fn places(
        &self,
        probe: usize,
        definition: &Probe,
        verify: bool,
        left_out: &mut LeftOut,
    ) -> Result<(Vec<KernelPlace>, Option<String>), String> {
        let place =
            |address: u64, function: String| KernelPlace { probe, address, function, on_return: false };
        let address = match &definition.location {
            Location::Points { function, point } => {
                return self.points(probe, definition, function, *point, verify, left_out);
            }
            Location::Tracepoint { .. } => {
                return Err("a tracepoint is no place of the kernel's code".to_owned());
            }
            Location::Offset(offset) => {
                let base = self.base.ok_or("the start of the kernel's text (`_text`) is not known")?;
                base.wrapping_add(*offset)
            }
            Location::Address(address) => *address,
            Location::Symbol { name, addend } | Location::AddressSymbol { name, addend } => {
                match self.symbols.lookup(name, false) {
                    Lookup::One(address) => address.wrapping_add_signed(*addend),
                    Lookup::Many(all) => return Err(ambiguous(name, &all)),
                    Lookup::None => return Err(self.unknown(name)),
                }
            }
        };
        self.check(address, definition.opcode, false, verify)?;
        let compared = definition.opcode.is_none() || !verify || self.text.is_some();
        let remark = (!compared).then(|| {
            "`opcode =` is not compared: /proc/kcore, which shows the kernel's code, cannot be read"
                .to_owned()
        });
        Ok((vec![place(address, String::new())], remark))
    }

    /// The points of functions of one probe.
    fn points(
        &self,
        probe: usize,
        definition: &Probe,
        function: &str,
        point: FunctionPoint,
        verify: bool,
        left_out: &mut LeftOut,
    ) -> Result<(Vec<KernelPlace>, Option<String>), String> {
        let functions = self.select(function)?;
        let lenient = Pattern::is_one(function) || point == FunctionPoint::Each;
        let (mut places, mut by_kretprobe) = (Vec::new(), 0);
        for Symbol { address, name, .. } in functions {
            let (address, end) = (*address, self.symbols.end(*address).unwrap_or(*address));
            let here =
                |address: u64, function: String| KernelPlace { probe, address, function, on_return: false };
            let disassembled = || match &self.text {
                Some(text) => text.function(address..end),
                None => Err("/proc/kcore, which shows the kernel's code, cannot be read".to_owned()),
            };
            let found = match point {
                FunctionPoint::Entry => Ok(vec![here(address, name.clone())]),
                FunctionPoint::Offset(offset) if offset >= end - address => Err(format!(
                    "the function has {:#x} bytes: offset {offset:#x} is not in it",
                    end - address
                )),
                FunctionPoint::Offset(offset) => {
                    Ok(vec![here(address + offset, format!("{name}+{offset:#x}"))])
                }
                FunctionPoint::Each => disassembled().map(|all| {
                    let each =
                        all.iter().map(|it| here(it.address, format!("{name}+{:#x}", it.address - address)));
                    each.collect()
                }),
                FunctionPoint::Return => Ok(match disassembled() {
                    Ok(all) if all.iter().any(|it| it.is_exit) => {
                        let exits = all.iter().filter(|it| it.is_exit);
                        exits.map(|it| here(it.address, name.clone())).collect()
                    }
                    _ => {
                        by_kretprobe += 1;
                        vec![KernelPlace { on_return: true, ..here(address, name.clone()) }]
                    }
                }),
            };
            let found = found.map(|found: Vec<KernelPlace>| {
                let (good, bad): (Vec<_>, Vec<_>) = found
                    .into_iter()
                    .map(|place| {
                        let opcode = definition.opcode.filter(|_| !place.on_return);
                        let is_boundary = !matches!(point, FunctionPoint::Offset(_));
                        match self.check(place.address, opcode, is_boundary, verify) {
                            Ok(()) => Ok(place),
                            Err(reason) => Err((place.function, reason)),
                        }
                    })
                    .partition(Result::is_ok);
                bad.into_iter()
                    .filter_map(Result::err)
                    .for_each(|(name, reason)| left_out.add(&name, &reason));
                good.into_iter().filter_map(Result::ok).collect::<Vec<_>>()
            });
            match found {
                Ok(found) => places.extend(found),
                Err(reason) if lenient => left_out.add(name, &reason),
                Err(reason) => return Err(reason),
            }
        }
        let remark = (by_kretprobe > 0).then(|| {
            format!(
                "the return of {by_kretprobe} of the functions is seen by a kretprobe: at the caller, after the function's last instruction"
            )
        });
        Ok((places, remark))
    }

    /// The functions that a name or a pattern selects.
    fn select(&self, function: &str) -> Result<Vec<&Symbol>, String> {
        let named = self.symbols.functions(|name| name == function);
        if !named.is_empty() {
            return Ok(named);
        }
        if !Pattern::is_one(function) {
            return Err(self.unknown(function));
        }
        let pattern = Pattern::new(function).map_err(|error| error.to_string())?;
        let matching = self.symbols.functions(|name| pattern.matches(name));
        match matching.is_empty() {
            true => Err(format!("no function matches `{function}`")),
            false => Ok(matching),
        }
    }

    /// The names of the functions that a pattern matches, and where kprobes may be, sorted.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn probeable(&self, pattern: &str) -> Result<Vec<String>, String> {
        let is_free = |it: &&Symbol| self.forbidden.at(it.address).is_none();
        let found = self.select(pattern)?.into_iter().filter(is_free);
        let mut names: Vec<String> = found.map(|symbol| symbol.name.clone()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The functions whose names match, and why those are not probed that cannot be.
    pub(super) fn functions(&self, matches: impl Fn(&str) -> bool) -> Vec<KernelFunction> {
        let of = |it: &Symbol| KernelFunction {
            address: it.address,
            size: self.symbols.end(it.address).map_or(0, |end| end - it.address),
            name: it.name.clone(),
            refused: self.forbidden.at(it.address),
        };
        self.symbols.functions(matches).into_iter().map(of).collect()
    }

    fn unknown(&self, name: &str) -> String {
        let near = self.symbols.near(name);
        let shown: Vec<String> = near.iter().map(|name| format!("`{}`", printable::text(name))).collect();
        let hint =
            if near.is_empty() { String::new() } else { format!("; did you mean {}?", shown.join(", ")) };
        format!("{} has no function `{}`{hint}", self.source, printable::text(name))
    }

    /// Checks that a probe can be at an address. `is_boundary`: an instruction is known to start
    /// there.
    fn check(
        &self,
        address: u64,
        opcode: Option<u32>,
        is_boundary: bool,
        verify: bool,
    ) -> Result<(), String> {
        if let Some(why) = self.forbidden.at(address) {
            return Err(format!("no probe can be at {address:#x}: {why}"));
        }
        let Some(text) = self.text.as_ref().filter(|_| verify) else { return Ok(()) };
        if let Some(expected) = opcode {
            let mut found = [0];
            text.read(address, &mut found)
                .ok_or_else(|| format!("{address:#x} is not in the kernel's memory"))?;
            if expected != u32::from(found[0]) {
                return Err(format!(
                    "opcode {expected:#04x} expected, {:#04x} found at address {address:#x}; correct `opcode =`, or leave it out",
                    found[0]
                ));
            }
        }
        let start = self.symbols.start(address).filter(|_| !is_boundary);
        let range = start.and_then(|start| Some(start..self.symbols.end(start)?));
        let Some(all) = range.and_then(|range| text.function(range).ok()) else { return Ok(()) };
        let inside = all.iter().find(|it| it.address < address && address < it.address + it.length as u64);
        match inside {
            Some(it) => Err(format!(
                "address {address:#x} is inside the instruction at {:#x}; the next one is at {:#x}; `--dont-verify-opcodes` probes it anyway",
                it.address,
                it.address + it.length as u64
            )),
            None => Ok(()),
        }
    }
}

fn address_of(symbols: &Symbols, name: &str) -> Option<u64> {
    match symbols.lookup(name, true) {
        Lookup::One(address) => Some(address),
        _ => None,
    }
}

fn ambiguous(name: &str, all: &[u64]) -> String {
    /// Addresses shown, at most.
    const SHOWN: usize = 8;
    let shown: Vec<String> = all.iter().take(SHOWN).map(|address| format!("{address:#x}")).collect();
    format!(
        "`{}` names {} functions, at {}; give the address of one (`address =`)",
        printable::text(name),
        all.len(),
        shown.join(", ")
    )
}

/// A module that the kernel has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadedModule {
    pub(super) name: String,
    base: u64,
}

/// The loaded module that a program names; `None` if it is not loaded, or not completely.
pub(super) fn loaded_module(object: &Object) -> Option<LoadedModule> {
    debug_assert_eq!(object.kind, ModuleKind::KernelModule);
    find_module(&fs::read_to_string("/proc/modules").unwrap_or_default(), &module_name(&object.module))
}

/// The kernel's name of a module, which may be given as a file: `/lib/modules/.../8021q.ko.xz`.
pub(super) fn module_name(name: &str) -> String {
    let file = Path::new(name).file_name().map_or_else(|| name.into(), |file| file.to_string_lossy());
    let stem = [".ko", ".o"].iter().find_map(|suffix| {
        let (stem, rest) = file.split_once(suffix)?;
        (rest.is_empty() || rest.starts_with('.')).then_some(stem)
    });
    stem.unwrap_or(&file).replace('-', "_")
}

/// Finds a module in the text of `/proc/modules`: `ext4 1015808 1 - Live 0xffffffffc0a00000`.
fn find_module(text: &str, name: &str) -> Option<LoadedModule> {
    let mut lines = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    lines.find_map(|words| match words.as_slice() {
        [found, _, _, _, "Live", base, ..] if *found == name => {
            let base = u64::from_str_radix(base.strip_prefix("0x")?, 16).ok()?;
            Some(LoadedModule { name: name.to_owned(), base })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_name_or_its_file() {
        for name in ["3c59x", "/lib/modules/2.2.12-20/net/3c59x.o", "net/3c59x.ko", "3c59x.ko.zst"] {
            assert_eq!(module_name(name), "3c59x");
        }
        assert_eq!(module_name("snd-hda-intel"), "snd_hda_intel");
        let text = "a_b 4096 0 - Live 0xffffffffc0000000\nc 8192 1 a_b, Loading 0xffffffffc0001000\n";
        let found = find_module(text, "a_b").expect("it is there");
        assert_eq!(found.base, 0xffff_ffff_c000_0000);
        assert_eq!(find_module(text, "c"), None);
        assert_eq!(find_module(text, "a"), None);
    }
}
