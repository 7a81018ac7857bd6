//! Watchpoints: probes that fire at accesses to memory.
//!
//! In a program for a user module, the address is that of a variable, or a number, in one process
//! (`-p`). In a program for the kernel it is the kernel's, or a user address in whatever process
//! runs; then the debug registers of all processors are set.

use std::sync::Arc;

use bpf::Access;
use engine::Refused;
use engine::reason::NotPlaced;
use image::{Image, variable};
use kernel::session::{Attached, Watchpoint};
use kernel::{AttachKind, cookie};
use process::ImageCache;
use rpn::{Location, Object, Probe, Watch};

use super::attaching::{ModuleOfSites, Outcome, Program};
use super::files::Found;
use super::handlers::Spot;
use super::in_kernel::Kernel;
use super::refusals::refusal_of_watchpoint;

/// The kind of site in statistics.
const KIND: &str = "watchpoint";

impl Program {
    /// Sets its watchpoints whose module is this file, in a process that maps it.
    pub(super) fn watch_in(&mut self, process: i32, found: &Found) -> Outcome {
        let mut outcome = Outcome::default();
        let Ok(object) = self.versions.of(found.image.machine()).cloned() else { return outcome };
        let bias = load_bias(process, found);
        // A child may have executed another program, in which the addresses mean something else.
        if self.handlers.is_script && bias.is_err() {
            return outcome;
        }
        let module = Arc::new(ModuleOfSites { path: found.path.clone(), image: Arc::clone(&found.image) });
        for (number, definition) in self.watchpoints(&object, Some(process)) {
            let address = match &definition.location {
                Location::AddressSymbol { name, addend } => named(&found.image, name, definition.watch)
                    .and_then(|vaddr| Ok(vaddr.wrapping_add(bias.clone()?).wrapping_add_signed(*addend))),
                Location::Address(address) => Ok(*address),
                _ => Err("a watchpoint has an address".to_owned()),
            };
            let watched = address.and_then(|address| {
                self.watch(&object, number, &definition, address, Some((process, &module)))
            });
            let place = (Some(process), &*found.path.display().to_string());
            self.note_watch(&object, number, watched, place, &mut outcome);
        }
        outcome
    }

    /// Sets its watchpoints on all processors.
    pub(super) fn watch_all(&mut self, kernel: &Kernel, object: &Object) -> Outcome {
        let mut outcome = Outcome::default();
        for (number, definition) in self.watchpoints(object, None) {
            let watched = kernel
                .address_of(&definition.location)
                .and_then(|address| self.watch(object, number, &definition, address, None));
            self.note_watch(object, number, watched, (None, "the kernel"), &mut outcome);
        }
        outcome
    }

    /// Takes its watchpoints at an address out, in all processes.
    pub(super) fn unwatch(&mut self, address: u64) {
        let watches = self.versions.main().probes.iter().map(|definition| definition.watch.is_some());
        let watches: Vec<bool> = watches.collect();
        let all = self.probes.iter_mut().zip(watches);
        all.filter(|(probe, watches)| *watches && probe.address == Some(address)).for_each(|(probe, _)| {
            probe.end();
        });
    }

    /// Whether it has watchpoints.
    pub(super) fn watches(&self) -> bool {
        self.versions.main().probes.iter().any(|probe| probe.watch.is_some())
    }

    /// The watchpoints that are not set yet, and not over.
    fn watchpoints(&self, object: &Object, process: Option<i32>) -> Vec<(usize, Probe)> {
        let all = object.probes.iter().enumerate().filter(|(_, definition)| definition.watch.is_some());
        let open =
            all.filter(|(number, _)| !self.is_over(*number) && !self.probes[*number].is_attached(process));
        open.map(|(number, definition)| (number, definition.clone())).collect()
    }

    /// Sets one watchpoint: in a process, or everywhere.
    ///
    /// # Errors
    /// Why it cannot be set.
    fn watch(
        &mut self,
        object: &Object,
        number: usize,
        definition: &Probe,
        address: u64,
        process: Option<(i32, &Arc<ModuleOfSites>)>,
    ) -> Result<Attached, String> {
        let watch = definition.watch.ok_or("it is no watchpoint")?;
        let access = match watch.access {
            rpn::Access::Execute => Access::Execute,
            rpn::Access::Write => Access::Write,
            rpn::Access::ReadWrite => Access::ReadWrite,
            rpn::Access::Io => {
                return Err("Linux does not let programs watch ports (`watchpoint = io`)".to_owned());
            }
        };
        if !address.is_multiple_of(u64::from(watch.length)) {
            return Err(format!(
                "the processor watches {0} bytes at a multiple of {0}, and {address:#x} is none",
                watch.length
            ));
        }
        // A handler of a program for the kernel is one of a kernel probe, whatever it watches.
        let place = if process.is_none() { AttachKind::KernelBreakpoint } else { AttachKind::UserBreakpoint };
        let site = self.new_site(process.map(|(_, module)| module), address);
        let probe = self.numbers.number(number, "", "", address);
        let cookie = cookie(probe, site);
        let spot = Spot { offset: address, cookie: Some(cookie), ..Spot::at(place) };
        let program = self.handlers.load(object, definition, spot, &self.maps, self.sources.as_ref())?;
        self.probes[number].address.get_or_insert(address);
        let watchpoint = Watchpoint { address, length: watch.length, access };
        match process {
            Some((process, _)) => watchpoint.attach_to(&program, process as u32, cookie),
            None => watchpoint.attach_to_all(&program, cookie),
        }
        .map_err(refusal_of_watchpoint)
    }

    fn note_watch(
        &mut self,
        object: &Object,
        number: usize,
        watched: Result<Attached, String>,
        (process, module): (Option<i32>, &str),
        outcome: &mut Outcome,
    ) {
        let probe = &mut self.probes[number];
        match watched {
            Ok(attached) => {
                probe.keep(process, attached, 1, KIND);
                outcome.attached += 1;
            }
            Err(reason) => {
                probe.refused = true;
                let (module, point) = (module.to_owned(), object.probes[number].point.clone());
                outcome.refused.push(Refused {
                    module,
                    point,
                    probe: number,
                    reason: NotPlaced::Other(reason),
                });
            }
        }
    }
}

/// The address in a file of what a name means: a variable, or, where execution is watched, a
/// function.
///
/// # Errors
/// It means nothing, or several places.
pub(crate) fn named(image: &Image, name: &str, watch: Option<Watch>) -> Result<u64, String> {
    if watch.is_some_and(|watch| watch.access == rpn::Access::Execute) {
        return match image.lookup(name).matches[..] {
            [one] => Ok(one.vaddr),
            [] => Err(format!("no function is called `{}`", printable::text(name))),
            _ => Err(format!(
                "several functions are called `{}`: give the address of one",
                printable::text(name)
            )),
        };
    }
    variable(image, name).map(|found| found.vaddr).map_err(|error| error.to_string())
}

/// How much higher a file is in a process than in itself.
fn load_bias(process: i32, found: &Found) -> Result<u64, String> {
    let modules = process::modules(process, &mut ImageCache::new()).map_err(|error| error.to_string())?;
    let is_it = |module: &process::Module| {
        module.path == found.path
            || module
                .image
                .file_id()
                .zip(found.image.file_id())
                .is_some_and(|(one, other)| one.is_same_file(other))
    };
    let module = modules.iter().find(|module| is_it(module));
    module.map(|module| module.bias).ok_or_else(|| "the process does not map it any more".to_owned())
}
