//! How a session stands: whether it goes on, for whom it works, and what has become of what it started.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::Error;

/// How a session stands.
#[derive(Default)]
pub(crate) struct Session {
    /// [`Control::stop`](crate::Control::stop), for handlers that run when it is set.
    pub(crate) stop: Arc<AtomicBool>,
    /// What ended it before its time.
    pub(crate) failure: Option<Error>,
    /// The processes that were started here, and the wait statuses of those that have ended.
    pub(crate) started: HashMap<i32, Option<i32>>,
    /// Whether something waits for time to pass: a record for its instruction, or modules to be looked for.
    pub(crate) waiting: bool,
    /// Whether requests are served meanwhile.
    pub(crate) serving: bool,
    /// The address spaces whose program has begun with the probes in.
    pub(crate) begun: HashSet<u32>,
    /// What is not needed any more, and is given back when no thread waits for the tracer.
    pub(crate) spent: Vec<Box<dyn Any>>,
}
