//! The state of a session.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::Error;

/// The state of a session.
#[derive(Default)]
pub(crate) struct Session {
    /// [`Control::stop`](crate::Control::stop), for handlers that are running when it is set.
    pub(crate) stop: Arc<AtomicBool>,
    /// The error that ended it early.
    pub(crate) failure: Option<Error>,
    /// Processes that the tracer started, with the wait status of those that have ended.
    pub(crate) started: HashMap<i32, Option<i32>>,
    /// Whether periodic work is pending: a record waits for its instruction, or modules are to be
    /// looked for.
    pub(crate) waiting: bool,
    /// Whether the tracer serves requests.
    pub(crate) serving: bool,
    /// The address spaces whose program has begun with probes armed.
    pub(crate) begun: HashSet<u32>,
    /// Data that is no longer needed. It is freed when no thread waits for the tracer.
    pub(crate) spent: Vec<Box<dyn Any>>,
}

impl Session {
    /// Whether no process has begun with its probes armed. Errors end the session then.
    pub(crate) fn is_first(&self) -> bool {
        self.begun.is_empty() && !self.serving
    }
}
