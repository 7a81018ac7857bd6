//! Watchpoints of scripts: `watchpoint:ADDRESS:LENGTH:MODE`, `watchpoint:VARIABLE:LENGTH:MODE`.
//!
//! With processes, or a command, the memory is that of their programs, but for addresses of the
//! kernel; without, it is the kernel's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rpn::{Access, Location, ModuleKind, Watch};
use script::{AttachPoint, Handler, Memory};

use super::places::{Finder, KERNEL};
use super::scope::Found;
use crate::kernel_engine::watched_symbol;

impl Finder<'_> {
    /// Adds a watchpoint.
    pub(super) fn watch(
        &mut self,
        (handler, point): (&Handler, &AttachPoint),
        memory: &Memory,
        length: u64,
        mode: &str,
    ) {
        let access = match mode {
            "w" => Access::Write,
            "rw" => Access::ReadWrite,
            _ => Access::Execute,
        };
        // An instruction is watched where it begins.
        let length = if access == Access::Execute { 1 } else { length };
        let watch = Watch { access, length: length as u8 };
        let (location, in_kernel) = match memory {
            Memory::Address(address) if !address.is_multiple_of(length) => {
                let why = format!("{address:#x} is no multiple of {length}");
                return self.refuse(
                    point,
                    &why,
                    "the processor watches 2, 4 and 8 bytes at multiples of that",
                );
            }
            // The upper half of the addresses is the kernel's.
            Memory::Address(address) => (Location::Address(*address), *address >> 63 == 1),
            Memory::Symbol(name) => (Location::AddressSymbol { name: name.clone(), addend: 0 }, false),
            Memory::Argument(..) => return self.refuse(point, "this memory is known only at a call", ""),
        };
        let name = (point.to_string(), String::new());
        if in_kernel || self.scope.system_wide {
            let module = (KERNEL, ModuleKind::Kernel);
            self.add_to((handler, point), module, location, name).watch = Some(watch);
            return;
        }
        let programs = match self.programs(&location, watch) {
            Ok(programs) => programs,
            Err(why) => {
                let help =
                    "`dprobes watch -p PID` watches variables of libraries, too; of the kernel, without -p";
                return self.refuse(point, &why, help);
            }
        };
        for path in programs {
            let module = (&*path.to_string_lossy(), ModuleKind::User);
            self.add_to((handler, point), module, location.clone(), name.clone()).watch = Some(watch);
        }
    }

    /// The programs of the processes, and of the command: in others, an address means something
    /// else.
    ///
    /// # Errors
    /// One does not have the variable.
    fn programs(&mut self, location: &Location, watch: Watch) -> Result<BTreeSet<PathBuf>, String> {
        let mut all = Vec::new();
        if !self.scope.pids.is_empty() {
            all.extend(self.scope.images("a.out", &mut self.cache));
        }
        if let Some(command) = self.scope.command {
            let opened = image::Image::open(command).map_err(|error| error.to_string())?;
            let path = std::path::absolute(command).unwrap_or_else(|_| command.to_owned());
            all.push(Found { path, image: opened.into() });
        }
        if let Location::AddressSymbol { name, .. } = location {
            for Found { path, image } in &all {
                let found = watched_symbol(image, name, Some(watch));
                found.map_err(|reason| format!("{}: {reason}", printable::path(Path::new(path))))?;
            }
        }
        Ok(all.into_iter().map(|found| found.path).collect())
    }
}
