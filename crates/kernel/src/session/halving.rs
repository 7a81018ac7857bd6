//! Finds which of many places the kernel refuses: it takes all of them or none, and does not say
//! which it refuses.

use std::ops::Range;

use bpf::{AttachError, Link};
use nix::errno::Errno;

use super::attached::Attached;

/// Attaches to a range of places by as few links as possible. `attach` attaches to all places of a
/// range, or to none.
pub(super) fn attach(
    all: Range<usize>,
    attached: &mut Attached,
    attach: &mut dyn FnMut(Range<usize>) -> Result<Link, AttachError>,
) {
    // The ranges that are still to be attached, the first on top.
    let mut rest = vec![all];
    while let Some(range) = rest.pop() {
        if range.is_empty() {
            continue;
        }
        match attach(range.clone()) {
            Ok(link) => attached.links.push(link),
            Err(error) if range.len() == 1 => attached.refused.push((range.start, error)),
            // It is not about a place: no other would be taken either.
            Err(error) if is_general(error) => attached.refused.extend(range.map(|place| (place, error))),
            Err(_) => {
                let middle = range.start + range.len() / 2;
                rest.push(middle..range.end);
                rest.push(range.start..middle);
            }
        }
    }
}

/// Whether the kernel refuses whatever place it is asked for.
fn is_general(error: AttachError) -> bool {
    let general = [Errno::EPERM, Errno::EACCES, Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM];
    error.errno().is_none_or(|errno| general.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places that are refused, and how often the kernel was asked, if it refuses some.
    fn refused(count: usize, bad: &[usize], errno: Errno) -> (Vec<usize>, usize) {
        let (mut attached, mut asked) = (Attached::default(), 0);
        // Ranges without a bad place would need a real link: they are refused with another error,
        // and kept apart by it.
        let mut good = Vec::new();
        attach(0..count, &mut attached, &mut |range| {
            asked += 1;
            match bad.iter().any(|place| range.contains(place)) {
                true => Err(AttachError::Link(errno)),
                false => {
                    good.extend(range);
                    Err(AttachError::Name)
                }
            }
        });
        let found = attached.refused.iter().filter(|(_, error)| *error != AttachError::Name);
        let found: Vec<usize> = found.map(|(place, _)| *place).collect();
        assert_eq!(good.len() + found.len(), if errno == Errno::EPERM { found.len() } else { count });
        (found, asked)
    }

    #[test]
    fn each_refused_place_is_found() {
        assert_eq!(refused(1, &[0], Errno::EINVAL).0, [0]);
        let (found, asked) = refused(1000, &[0, 499, 500, 999], Errno::EINVAL);
        assert_eq!(found, [0, 499, 500, 999]);
        assert!(asked < 100, "{asked}");
    }

    #[test]
    fn what_is_not_about_a_place_is_asked_once() {
        assert_eq!(refused(100, &[5], Errno::EPERM), ((0..100).collect(), 1));
    }
}
