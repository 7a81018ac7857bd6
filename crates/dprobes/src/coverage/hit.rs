//! What became of a site.

/// What became of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    /// Control has reached it.
    Reached,
    /// Control has not reached it.
    Missed,
    /// It could not be probed.
    Unmeasured,
}
