//! What several targets are given together, whoever has them.

use std::io;

use trace::Record;

use super::Open;

/// Gives a record of a program to its targets. It is taken where one of them takes it; what there is to tell of others is told.
///
/// # Errors
/// None has taken it: why the last has not.
#[inline]
pub(crate) fn record<'a>(
    targets: impl Iterator<Item = &'a mut Open>,
    program: usize,
    record: &Record,
    mut tell: impl FnMut(&str),
) -> io::Result<()> {
    let (mut taken, mut refusal) = (false, None);
    for target in targets {
        target.given += 1;
        match target.recording.record(program, record) {
            Ok(()) => taken = true,
            Err(error) => {
                target.failure(&error).iter().for_each(|text| tell(text));
                refusal = Some(error);
            }
        }
    }
    if taken { Ok(()) } else { Err(refusal.unwrap_or_else(|| io::ErrorKind::NotFound.into())) }
}

/// Lets them write what they keep. What cannot be written is lost, which is told once for each.
pub(crate) fn idle<'a>(targets: impl Iterator<Item = &'a mut Open>, mut tell: impl FnMut(&str)) {
    for target in targets {
        target.recording.sink().refresh(&mut tell);
        if let Err(error) = target.recording.idle() {
            target.failure(&error).iter().for_each(|text| tell(text));
        }
    }
}

/// Whether all can take records now: one that is slow holds up all, as their records come from the same memory.
pub(crate) fn are_ready<'a>(mut targets: impl Iterator<Item = &'a mut Open>) -> bool {
    targets.all(|target| target.recording.sink().is_ready())
}
