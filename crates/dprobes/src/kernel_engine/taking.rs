//! Takes records out of a program's rings, and hands them to the observer.
//!
//! In: the rings of a program (`kernel::Maps`). Out: `Taken`: records that `looping` sorts by time;
//! `hand` gives them to the observer and counts them.

use std::collections::HashSet;

use engine::{Note, Observer, Placed};
use process::Module;
use trace::Record;
use vm::End;

use super::attaching::{Program, SiteOfFile};
use super::facility;
use super::records::{Clock, Hit, records};

/// Sites and processes that are remembered as told, at most.
const TOLD: usize = 1 << 16;

/// A facility that a handler has exited to, and the major and minor code of the hit.
type Exit = (u8, u32, u32);

/// One record of a hit, on its way to the observer.
#[derive(Debug)]
pub(super) struct Taken {
    /// When the probe was hit, by the kernel's clock.
    pub(super) time: u64,
    pub(super) program: usize,
    probe: usize,
    /// `None`: the hit has none, but an exit to tell of.
    record: Option<Record>,
    /// Whether it counts as the hit's record.
    counted: bool,
    /// The facility that the handler has exited to, and the codes of the hit.
    exit: Option<Exit>,
    pid: u32,
    address: u64,
    site: u32,
}

/// What was told of hits.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Processes and sites.
    placed: HashSet<(u32, usize, u32)>,
    /// The last of these: most often the next hit is one of the same.
    last: Option<(u32, usize, u32)>,
    /// Probes and facilities.
    exits: HashSet<(usize, usize, u8)>,
    /// Wall-clock times of records that no target took: the first, the last, how many.
    pub(super) untaken: Option<(u64, u64, u64)>,
}

impl Program {
    /// Takes the records that have come; with `all`, after the program was detached, the last ones.
    pub(super) fn take(&mut self, program: usize, clock: Clock, all: bool, taken: &mut Vec<Taken>) {
        let Program { maps, numbers, versions, sites, options, spare, .. } = self;
        let mut give = |raw: kernel::RawRecord<'_>| {
            let Some(probe) = numbers.probe(raw.probe) else { return };
            let site = sites.get(raw.site as usize);
            let machine = site.and_then(SiteOfFile::machine);
            let version = machine.and_then(|machine| versions.of(machine).ok());
            let object = version.unwrap_or_else(|| versions.main());
            let Some(definition) = object.probes.get(probe) else { return };
            let made = records(&raw, Hit { object, probe, items: options.items }, clock, spare);
            let codes = (raw.major.unwrap_or(object.major), raw.minor.unwrap_or(definition.minor));
            let exit = match raw.end {
                // What has come of a dump is told where it is written.
                End::ExitTo(3) if !raw.over_limit => None,
                End::ExitTo(facility) => Some((facility, codes.0, codes.1)),
                _ => None,
            };
            let one = |record, counted, exit| Taken {
                time: raw.time,
                program,
                probe,
                record,
                counted,
                exit,
                pid: raw.tgid,
                address: raw.ip,
                site: raw.site,
            };
            if made.log.is_some() || exit.is_some() {
                taken.push(one(made.log, true, exit));
            }
            if made.traces.is_some() {
                taken.push(one(made.traces, false, None));
            }
        };
        match all {
            true => maps.drain_all(&mut give),
            false => maps.drain(&mut give),
        };
    }

    /// Hands a record to the observer.
    pub(super) fn hand(&mut self, taken: Taken, observer: &mut dyn Observer, told: &mut Told) {
        if observer.wants_placed() {
            self.tell_placed(&taken, observer, told);
        }
        if let Some(record) = taken.record {
            let written = observer.record(taken.program, &record);
            let probe = &mut self.probes[taken.probe];
            match written {
                _ if !taken.counted => {}
                Ok(()) => probe.logged += 1,
                Err(_) => {
                    probe.untaken += 1;
                    let time = record.time;
                    let (from, to, count) = told.untaken.unwrap_or((time, time, 0));
                    told.untaken = Some((from.min(time), to.max(time), count + 1));
                }
            }
            self.spare.keep(record);
        }
        if let Some(exit) = taken.exit
            && told.exits.insert((taken.program, taken.probe, exit.0))
        {
            // Without `--allow-panic` the compiler has refused it; this is the second lock.
            let in_kernel = self.site(taken.site).is_some_and(|site| site.module.is_none());
            match in_kernel && self.handlers.allow_panic {
                true => exit_from_kernel(exit, observer),
                false => observer.note(&Note::Exit(exit_text(exit, self.options.max_dumps))),
            }
        }
    }

    /// Tells of the first hit of a site in a process: then the site's address there is known.
    fn tell_placed(&self, taken: &Taken, observer: &mut dyn Observer, told: &mut Told) {
        let hit = (taken.pid, taken.program, taken.site);
        if told.last.replace(hit) == Some(hit) {
            return;
        }
        let Some(site) = self.site(taken.site) else { return };
        let Some(module) = &site.module else { return };
        if told.placed.len() >= TOLD {
            told.placed.clear();
        }
        if !told.placed.insert(hit) {
            return;
        }
        let vaddr = module.image.address_of_offset(site.offset).unwrap_or(site.offset);
        let module = Module {
            path: module.path.clone(),
            image: std::sync::Arc::clone(&module.image),
            bias: taken.address.wrapping_sub(vaddr),
            mappings: Vec::new(),
            device: (0, 0),
            inode: 0,
        };
        observer.placed(&Placed {
            pid: taken.pid as i32,
            program: taken.program,
            probe: taken.probe,
            module: &module,
            address: taken.address,
            engine: "kernel",
            tactic: None,
        });
    }
}

/// Calls a facility of the kernel, for a probe of the kernel. What was logged is written before:
/// the kernel may not go on.
fn exit_from_kernel((facility, major, minor): Exit, observer: &mut dyn Observer) {
    let head = format!("DProbes({major},{minor})");
    let what = if facility == 1 { "exit 1: the kernel debugger" } else { "exit 2: a crash dump" };
    observer.note(&Note::Exit(format!("{head} {what}; the probepoint is removed")));
    observer.idle();
    if let Err(reason) = facility::call(facility) {
        observer.note(&Note::Exit(format!("{head} {what} failed: {reason}")));
    }
}

/// What is told of an exit to a facility by a probe of a user program.
fn exit_text((facility, major, minor): Exit, max_dumps: u32) -> String {
    let head = format!("DProbes({major},{minor})");
    match facility {
        1 => {
            format!("{head} exit 1: the kernel debugger is for kernel probes only; the probepoint is removed")
        }
        2 => format!("{head} exit 2: a crash dump is for kernel probes only; the probepoint is removed"),
        _ => {
            let dumps = if max_dumps == 1 { "dump" } else { "dumps" };
            format!(
                "{head} exit 3: no more core dumps: this probe has written its {max_dumps} {dumps}; --max-dumps N \
                 raises the limit"
            )
        }
    }
}
