//! The events that attach points name: `profile:hz:99`, `software:page-faults:100`.

use bpf::{Event, EventKind, Every};
use script::{AttachPoint, AttachTarget, Number, Provider, Unit, counted_event};

use super::timers;

/// The event of an attach point.
///
/// # Errors
/// Why there is none, and what can be done.
pub(super) fn event(point: &AttachPoint) -> Result<Event, (String, &'static str)> {
    match (&point.place, point.provider) {
        (AttachTarget::Period(Unit::Hertz, Number::Literal(rate)), Provider::Profile) => {
            Ok(Event::clock(Every::Hertz(*rate)))
        }
        (AttachTarget::Period(unit, Number::Literal(count)), Provider::Profile) => {
            let period = timers::period(*unit, *count).map(|period| period.as_nanos() as u64);
            let period = period.ok_or(("no time can be so short or so long".to_owned(), "1 us to 1 year"))?;
            Ok(Event::clock(Every::Count(period)))
        }
        (AttachTarget::Event(name, count), provider) => {
            let event = counted_event(provider, name);
            let event = event
                .ok_or((format!("there is no event `{name}`"), "`dprobes list` names those there are"))?;
            let count = match count {
                Some(Number::Literal(count)) => *count,
                _ => event.count,
            };
            let kind = match provider {
                Provider::Hardware => EventKind::Hardware,
                _ => EventKind::Software,
            };
            Ok(Event { kind, number: event.number, every: Every::Count(count) })
        }
        _ => Err(("this is no event".to_owned(), "write `profile:hz:99`, or `software:page-faults:1`")),
    }
}
/// The number of a signal to dprobes that may run a handler: the others end it, or mean something
/// else.
pub(super) fn own_signal(name: &str) -> Option<i32> {
    match name.strip_prefix("SIG").unwrap_or(name) {
        "USR1" => Some(libc::SIGUSR1),
        "USR2" => Some(libc::SIGUSR2),
        _ => None,
    }
}
