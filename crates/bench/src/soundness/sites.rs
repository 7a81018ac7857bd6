//! Every instruction of every function of a module, according to binutils: its disassembler and its
//! readers of ELF and unwind entries are independent of dprobes'.

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its address in the module, without load bias.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Its text, from objdump.
    pub text: String,
    /// Whether a function starts here.
    pub entry: bool,
    /// Whether simulators count it differently: it belongs to the PLT, whose cost callgrind adds to
    /// the callers', or reads the time, for which valgrind has no vDSO.
    pub apart: bool,
}

/// The instructions of a module.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    /// All of them, by address.
    pub sites: Vec<Site>,
    /// The number of functions: ranges of an unwind entry or of a symbol with a size.
    pub functions: usize,
    /// The number of places in functions that objdump could not decode.
    pub bad: usize,
    /// The number of functions that do not start at an instruction of objdump's: its disassembly is
    /// out of step there.
    pub astray: usize,
}

/// Functions of the C library that call the vDSO.
const CLOCKS: [&str; 5] = ["clock_gettime", "gettimeofday", "time", "clock_getres", "sched_getcpu"];

fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            each(&String::from_utf8_lossy(&line?));
        }
    }
    match child.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{command:?} failed"))),
    }
}

/// The ranges of the functions by start; they may overlap.
fn functions(module: &Path, file: &object::File) -> io::Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    lines(Command::new("objdump").arg("--dwarf=frames").arg(module), |line| {
        // 00000040 0000000000000014 00000044 FDE cie=00000000 pc=0000000000026360..0000000000026370
        let range = line.split_once(" FDE ").and_then(|(_, rest)| rest.split_once("pc=")?.1.split_once(".."));
        let Some((start, end)) = range else { return };
        let hexadecimal = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
        if let (Some(start), Some(end)) = (hexadecimal(start), hexadecimal(end)) {
            found.push(start..end);
        }
    })?;
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0 {
            found.push(symbol.address()..symbol.address().saturating_add(symbol.size()));
        }
    }
    found.retain(|range| !range.is_empty());
    found.sort_by_key(|range| (range.start, range.end));
    found.dedup_by_key(|range| range.start);
    Ok(found)
}

impl Sites {
    /// The end of the function at an address: the start of the next, or behind the last
    /// instruction.
    pub(super) fn end_of(&self, start: u64) -> u64 {
        let next = self.sites.partition_point(|site| site.address <= start);
        let last = self.sites.last().map_or(start, |site| site.address);
        self.sites[next..].iter().find(|site| site.entry).map_or(last + 1, |site| site.address)
    }

    /// Lists them.
    ///
    /// # Errors
    /// If there is no objdump, or the module is not an ELF file.
    pub fn of(module: &Path) -> io::Result<Sites> {
        let bytes = std::fs::read(module)?;
        let file = object::File::parse(&*bytes).map_err(io::Error::other)?;
        let functions = functions(module, &file)?;
        let segments: Vec<(u64, u64, u64)> = file
            .segments()
            .map(|segment| (segment.address(), segment.file_range().1, segment.file_range().0))
            .collect();
        let mut apart: Vec<Range<u64>> = file
            .sections()
            .filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt")))
            .map(|section| section.address()..section.address().saturating_add(section.size()))
            .collect();
        let clocks =
            file.dynamic_symbols().filter(|symbol| symbol.name().is_ok_and(|name| CLOCKS.contains(&name)));
        apart.extend(clocks.map(|symbol| symbol.address()..symbol.address().saturating_add(symbol.size())));
        let mut sites = Sites { functions: functions.len(), ..Sites::default() };
        // Functions come in order of their starts; an earlier one may reach beyond the next.
        let (mut next, mut reach) = (0, 0);
        let mut command = Command::new("objdump");
        command.args(["-d", "-w", "--no-show-raw-insn"]).arg(module);
        lines(&mut command, |line| {
            let Some((address, text)) = line.split_once(":\t") else { return };
            let Ok(address) = u64::from_str_radix(address.trim(), 16) else { return };
            let mut entry = false;
            while let Some(function) = functions.get(next).filter(|function| function.start <= address) {
                entry |= function.start == address;
                sites.astray += usize::from(function.start != address);
                reach = reach.max(function.end);
                next += 1;
            }
            if address >= reach {
                return;
            }
            let text =
                text.split(['#', '<']).next().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ");
            if text.contains("(bad)") || text.starts_with(".byte") || text.is_empty() {
                sites.bad += 1;
                return;
            }
            let at = segments.iter().find(|(start, size, _)| address.wrapping_sub(*start) < *size);
            if let Some((start, _, offset)) = at {
                let apart = apart.iter().any(|range| range.contains(&address));
                sites.sites.push(Site { address, offset: address - start + offset, text, entry, apart });
            }
        })?;
        Ok(sites)
    }
}

#[cfg(test)]
mod tests {
    use super::Sites;

    #[test]
    fn a_function_ends_where_the_next_one_starts() {
        let site = |address, entry| super::Site {
            address,
            offset: address,
            text: "nop".into(),
            entry,
            apart: false,
        };
        let sites = vec![site(4, true), site(5, false), site(9, true), site(12, false)];
        let sites = Sites { sites, ..Sites::default() };
        assert_eq!((sites.end_of(4), sites.end_of(9)), (9, 13));
    }

    #[test]
    fn this_test_has_functions_and_they_have_instructions() {
        if testing::find_program("objdump").is_none() {
            return;
        }
        let itself = std::env::current_exe().expect("a process has a program");
        let sites = Sites::of(&itself).expect("it is an ELF file");
        assert!(sites.functions > 100, "{} functions", sites.functions);
        assert!(sites.sites.len() > 10 * sites.functions / 2);
        assert!(sites.sites.windows(2).all(|pair| pair[0].address < pair[1].address));
        let here = sites.sites.iter().filter(|site| site.entry).count();
        assert!(here + sites.astray >= sites.functions * 9 / 10);
    }
}
