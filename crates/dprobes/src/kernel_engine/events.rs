//! Programs at events that processors count, and at times: scripts have them (`profile`,
//! `software`, `hardware`).
//!
//! Such a program has no module. The location of each of its probes is the number of the event in
//! a list beside the program.

use std::collections::BTreeMap;

use bpf::{AttachError, Errno, Event, EventKind};
use kernel::session::attach_event;
use kernel::{AttachKind, cookie};
use rpn::{Location, Probe};

use super::attaching::{Outcome, Program};
use super::attempt::Attempt;
use super::handlers::Spot;
use super::kinds::EVENTS;

impl Program {
    /// The event of a probe.
    fn event(&self, probe: &Probe) -> Option<Event> {
        match probe.location {
            Location::Offset(number) => self.events.get(usize::try_from(number).ok()?).copied(),
            _ => None,
        }
    }

    /// Attaches its probes to their events, on all processors.
    pub(super) fn attach_events(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        let object = self.versions.main().clone();
        let mut by_probe: BTreeMap<usize, Attempt> = BTreeMap::new();
        let open: Vec<usize> = (0..object.probes.len()).filter(|&probe| !self.is_over(probe)).collect();
        for probe in open {
            let definition = &object.probes[probe];
            let Some(event) = self.event(definition) else { continue };
            let attempt = by_probe.entry(probe).or_default();
            let number = self.numbers.number(probe, EVENTS, "", 0);
            let cookie = cookie(number, self.new_site(None, 0));
            let spot = Spot::at(AttachKind::Event);
            match self.handlers.load(&object, definition, spot, &self.maps, self.sources.as_ref()) {
                Ok(program) => match attach_event(&program, &event, cookie) {
                    Ok(attached) => {
                        attempt.note(&[String::new()], attached, "event", |error| refusal(event, error))
                    }
                    Err(error) => attempt.failed(&[String::new()], &refusal(event, error)),
                },
                Err(reason) => attempt.failed(&[String::new()], &reason),
            }
        }
        self.conclude(&object, by_probe, "the kernel", &mut outcome);
        outcome
    }
}

/// Why the kernel refuses an event.
fn refusal(event: Event, error: AttachError) -> String {
    match (error.errno(), event.kind) {
        (Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV), EventKind::Hardware) => {
            "nothing on this machine counts this event of the processor: a virtual machine may hide the counters; \
             `software` and `profile` need none"
                .to_owned()
        }
        (Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV), EventKind::Software) => {
            "this kernel does not count this event".to_owned()
        }
        (Some(Errno::EINVAL), _) => {
            let most = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
            let most = most.map_or_else(|_| String::new(), |most| format!(", and at most {} times in a second", most.trim()));
            format!("the kernel refuses it: it samples less often than that{most} (kernel.perf_event_max_sample_rate)")
        }
        (Some(Errno::EMFILE | Errno::ENFILE), _) => {
            "too many open files: each event takes one for each processor; raise the limit (ulimit -n)".to_owned()
        }
        (Some(Errno::EPERM | Errno::EACCES), _) => {
            "the kernel forbids it: CAP_BPF and CAP_PERFMON are needed, or root".to_owned()
        }
        _ => error.to_string(),
    }
}
