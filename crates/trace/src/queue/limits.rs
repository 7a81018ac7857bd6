//! The limits of a queue.

use std::time::Duration;

/// How much may wait in a queue, and what happens when it is full.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The greatest number of waiting records.
    pub records: u64,
    /// The greatest number of waiting bytes.
    pub bytes: usize,
    /// The greatest number of waiting messages other than records. A writer that leaves more has
    /// failed: if some were dropped, it would write what follows wrongly. None: messages wait for
    /// room, as records do.
    pub messages: Option<u64>,
    /// Whether the caller waits while the queue is full. Otherwise the record is dropped and
    /// counted.
    pub waits: bool,
    /// How long the caller waits for the writer while the queue is full.
    pub full: Patience,
    /// How long the caller waits for the writer at the end.
    pub end: Patience,
    /// Whether the writer is a device or a daemon. If so, at the end the writer reports what it
    /// waited for.
    pub is_device: bool,
    /// Whether [`Queue::is_ready`](super::Queue::is_ready) also gives up a writer that is stuck for
    /// as long as [`full`](Limits::full) says. If not, the caller asks again: a caller that loses
    /// records meanwhile may do so for ever.
    pub gives_up: bool,
    /// Whether a writer gets no more blocks after its first failure.
    pub fails_once: bool,
    /// Returns how often the user has asked for the end. The second time gives the writer up while
    /// the queue is full; at the end, the first time after the one that caused the end does.
    pub asked: fn() -> u32,
}

/// How long the tracer waits for a writer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The longest time without any progress.
    pub stuck: Duration,
    /// The longest time in all.
    pub longest: Duration,
}

impl Patience {
    /// No limit.
    const FOR_EVER: Patience = Patience { stuck: Duration::MAX, longest: Duration::MAX };
}

/// How long a pipe of a session may make no progress.
const PIPE: Duration = Duration::from_secs(3);
/// How long a session waits for a file: longer than for a pipe, as a busy disk is only slow.
const DISK: Duration = Duration::from_secs(10);

impl Limits {
    /// The limits of a device or a daemon that gets each record as a line. When the queue is full,
    /// records are dropped, or wait with `lossless`.
    pub fn device(lossless: bool) -> Limits {
        let seconds = Duration::from_secs;
        Limits {
            records: 1 << 16,
            bytes: 16 << 20,
            messages: Some(1 << 16),
            waits: lossless,
            full: Patience { stuck: seconds(10), longest: Duration::MAX },
            end: Patience { stuck: seconds(2), longest: seconds(10) },
            is_device: true,
            gives_up: true,
            fails_once: false,
            asked: || 0,
        }
    }

    /// The limits of a file. The caller waits until the user has asked for the end often enough. 32
    /// MiB hold a fifth of a second of two million records a second.
    pub fn file(asked: fn() -> u32) -> Limits {
        Limits {
            records: u64::MAX,
            bytes: 32 << 20,
            messages: None,
            waits: true,
            full: Patience::FOR_EVER,
            end: Patience::FOR_EVER,
            is_device: false,
            gives_up: false,
            fails_once: false,
            asked,
        }
    }

    /// The limits of a file of a session, which must not wait long for one reader.
    pub fn shared_file(asked: fn() -> u32, is_on_disk: bool) -> Limits {
        let patience = Patience { stuck: if is_on_disk { DISK } else { PIPE }, longest: DISK };
        Limits { full: patience, end: patience, ..Limits::file(asked) }
    }
}
