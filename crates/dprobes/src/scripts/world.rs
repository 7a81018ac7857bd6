//! What the reader of a script's records asks: maps, symbols, times, files, commands.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::process::{Command, Stdio};

use printout::{Clock, Location, Symbol};
use script::{At, Compiled};
use source::Sources;

use super::cgroups;
use super::memory::Memory;
use super::names::Names;
use super::records::Records;
use crate::addresses::Addresses;
use crate::kernel_engine::KernelNames;
use crate::messages::tell;

/// The world of one script.
pub(super) struct World<'a> {
    pub(super) compiled: &'a Compiled,
    pub(super) sources: &'a Sources,
    /// The maps, once there is memory for them.
    pub(super) memory: OnceCell<Memory>,
    pub(super) symbols: Addresses,
    /// The kernel's symbols, if it shows addresses of it.
    pub(super) kernel: KernelNames,
    pub(super) names: Names,
    /// The addresses that are to be watched no longer.
    pub(super) unwatched: Vec<u64>,
    /// Where what `printf` says goes, if not to the output.
    pub(super) records: Option<Records>,
    /// How much of it no target has taken.
    pub(super) untaken: u64,
    /// Maps that the script cleared. One without keys that nothing set since then is not printed.
    pub(super) cleared: BTreeSet<usize>,
    /// Whether commands may be run.
    pub(super) allow_unsafe: bool,
}

impl World<'_> {
    /// The index of the map of stacks.
    fn stacks(&self) -> Option<usize> {
        let is_stacks = |map: &script::Map| map.info.kind == maps::Kind::Stacks as u32;
        self.compiled.maps.iter().position(is_stacks)
    }
}

impl printout::World for World<'_> {
    fn user_symbol(&mut self, address: u64, pid: u32) -> Option<Symbol> {
        self.symbols.symbol(address, pid)
    }

    fn frame(&mut self, address: u64, pid: u32, is_first: bool) -> Option<Symbol> {
        // The call may be a function's last instruction.
        let before = u64::from(!is_first);
        let lines = self.compiled.settings.show_debug_info;
        let symbol = self.symbols.frame(address.wrapping_sub(before), pid, lines)?;
        Some(Symbol { offset: symbol.offset + before, ..symbol })
    }

    fn kernel_symbol(&mut self, address: u64) -> Option<Symbol> {
        let (name, offset, module) = self.kernel.at(address)?;
        let module = Some(module.unwrap_or("kernel").to_owned());
        Some(Symbol { name: name.to_owned(), offset, module, ..Symbol::default() })
    }

    fn stack(&mut self, number: u64) -> Option<Vec<u64>> {
        let bytes = self.memory.get()?.maps().stack(self.stacks()?, number)?;
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Some(bytes.chunks_exact(8).map(word).collect())
    }

    fn cgroup(&mut self, number: u64, filter: &[u8]) -> String {
        cgroups::paths(number, filter)
    }

    fn user(&mut self, number: u32) -> String {
        self.names.user(number)
    }

    fn process(&mut self, pid: u32) -> Vec<u8> {
        self.names.process(pid)
    }

    fn now(&mut self) -> i128 {
        now(libc::CLOCK_REALTIME)
    }

    fn time_of(&mut self, clock: Clock, nanoseconds: u64) -> i128 {
        let clock = match clock {
            Clock::Monotonic => libc::CLOCK_MONOTONIC,
            Clock::Boot => libc::CLOCK_BOOTTIME,
            Clock::Real => return nanoseconds.into(),
        };
        i128::from(nanoseconds) + now(libc::CLOCK_REALTIME) - now(clock)
    }

    fn time_of_interval(&mut self, begin: i64) -> i128 {
        i128::from(begin) + now(libc::CLOCK_REALTIME) - now(libc::CLOCK_MONOTONIC)
    }

    fn entries(&mut self, map: usize) -> Vec<maps::Entry> {
        let mut entries = self.memory.get().map(|memory| memory.maps().view(map)).unwrap_or_default();
        let is_single = self.compiled.maps.get(map).is_some_and(|map| map.key.is_none());
        if is_single && self.cleared.contains(&map) {
            let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
            entries.retain(|entry| !matches!(&entry.value, maps::Value::Bytes(bytes) if is_zero(bytes)));
        }
        entries
    }

    fn clear(&mut self, map: usize) {
        self.cleared.insert(map);
        if let Some(memory) = self.memory.get() {
            memory.maps().clear(map);
        }
    }

    fn zero(&mut self, map: usize) {
        if let Some(memory) = self.memory.get() {
            memory.maps().zero(map);
        }
    }

    fn system(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        if !self.allow_unsafe {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "system() needs --unsafe"));
        }
        // It is not waited for: meanwhile, threads would wait for the tracer. What it prints goes
        // where dprobes prints.
        Command::new("/bin/sh")
            .arg("-c")
            .arg(std::ffi::OsStr::from_bytes(command))
            .stdin(Stdio::null())
            .spawn()
            .map(|_| Vec::new())
    }

    fn read_file(&mut self, path: &[u8], most: usize) -> io::Result<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
        // A pipe, or a device, might never end.
        if !path.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn locate(&mut self, at: At) -> Location {
        let position = self.sources.position(at.0);
        let (line, column) = (position.line as u64, position.column as u64);
        let end = column + u64::from(at.0.end.saturating_sub(at.0.start));
        Location { file: self.sources.name(at.0.source).to_owned(), line, column, end }
    }

    fn unwatch(&mut self, address: u64) {
        self.unwatched.push(address);
    }

    fn takes_messages(&self) -> bool {
        self.records.is_some()
    }

    fn message(&mut self, number: usize, data: Vec<u8>) {
        let taken = self.records.as_mut().is_none_or(|records| records.message(number, data).is_ok());
        self.untaken += u64::from(!taken);
    }

    fn report(&mut self, message: &[u8]) {
        tell(&String::from_utf8_lossy(message));
    }
}

/// The time of a clock in nanoseconds.
fn now(clock: libc::clockid_t) -> i128 {
    let time = nix::time::clock_gettime(nix::time::ClockId::from_raw(clock));
    time.map_or(0, |time| i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
}
