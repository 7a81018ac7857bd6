//! What a target promises. docs/targets.md has the same words, which a test compares.

/// What may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// In which order records stand there.
    pub order: &'static str,
    /// Which records are lost, and how one knows.
    pub losses: &'static str,
    /// What happens where it is slower than the records come.
    pub pressure: &'static str,
}

/// The order of all targets that do not sort.
const AS_THEY_COME: &str = "as they come from the tracer: nearly that of time, but what is logged within some 10 ms may be the wrong way round";
/// Of those behind a queue.
const QUEUED: &str = "65,536 records or 16 MiB wait in a queue; what does not fit is dropped and counted, or waited for with `--lossless`";
const AT_ONCE: &str = "written by the tracer itself: a file that is slow lets the rings of the probes fill, which then drop and count";

/// Of `klog`.
pub(super) const KLOG: Promise = Promise {
    order: AS_THEY_COME,
    losses: "counted, but for what the kernel or the log daemon throws away later; while the kernel limits messages, only what it lets pass is sent",
    pressure: QUEUED,
};

/// Of `serial`.
pub(super) const SERIAL: Promise = Promise {
    order: AS_THEY_COME,
    losses: "counted up to the device; what is lost on the line is not known",
    pressure: QUEUED,
};

/// Of `evl`.
pub(super) const JOURNAL: Promise = Promise {
    order: AS_THEY_COME,
    losses: "counted up to the socket; journald itself may drop what comes faster than its RateLimitBurst",
    pressure: QUEUED,
};

/// Of `ltt`.
pub(super) const LTT: Promise = Promise {
    order: AS_THEY_COME,
    losses: "counted; those before it stand in the stream as events of their own",
    pressure: AT_ONCE,
};

/// Of `ctf`.
pub(super) const CTF: Promise = Promise {
    order: "in that of time, for each processor; readers merge them",
    losses: "counted in the trace itself, as discarded events; if the tracer is killed, less than 256 KiB for each processor and about a second",
    pressure: AT_ONCE,
};

/// Of `store`.
pub(super) const STORE: Promise = Promise {
    order: AS_THEY_COME,
    losses: "counted in the store itself; if the tracer is killed, at most a block and about a second",
    pressure: AT_ONCE,
};

impl Promise {
    /// That of text in a file (`file`, `-o`), which its writer keeps.
    pub const FILE: Promise = Promise {
        order: AS_THEY_COME,
        losses: "counted; if the tracer is killed, what was not written yet",
        pressure: "a thread writes; when 32 MiB wait, records stay in the rings of the probes, which drop and count, or let probes wait with `--lossless`",
    };

    /// That of text on standard error (`stderr`).
    pub const TERMINAL: Promise = Promise {
        order: AS_THEY_COME,
        losses: "none but those of the rings",
        pressure: "each record is written at once: a terminal that is stopped stops the tracer",
    };
}
