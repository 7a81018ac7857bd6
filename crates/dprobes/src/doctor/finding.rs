//! What was found out about one thing.

/// What was found out about one thing.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) state: State,
    pub(super) subject: &'static str,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It works.
    Works,
    /// It does not work, and most can be done without.
    Lacking,
    /// It does not work, and has to.
    Fails,
    /// It is so.
    Note,
}

impl Finding {
    pub(super) fn new(state: State, subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { state, subject, text: text.into() }
    }
}
