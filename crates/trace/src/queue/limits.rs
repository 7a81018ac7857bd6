//! How much may wait, and how long it is waited for.

use std::time::Duration;

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records that wait, at most.
    pub records: u64,
    /// Bytes that wait, at most.
    pub bytes: usize,
    /// Messages that wait beside records, at most: a writer that leaves so many has failed, since what it were told without them would be
    /// wrong. None: they wait for room as records do.
    pub messages: Option<u64>,
    /// Whether who has a record waits while the queue is full. Else the record is dropped, and counted.
    pub waits: bool,
    /// How long a writer is waited for while the queue is full.
    pub full: Patience,
    /// How long it is waited for at the end.
    pub end: Patience,
    /// Whether it is given up, too, when it is only asked whether the queue is ready; and whether it tells itself at the end what it has
    /// waited for.
    pub is_device: bool,
    /// Whether a writer that has failed is given nothing any more.
    pub fails_once: bool,
    /// How many times the user has asked for the end. While the queue is full, the second time gives the writer up; at the end, the first
    /// time that is not the reason for the end.
    pub asked: fn() -> u32,
}

/// How long a writer is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long it may take nothing.
    pub stuck: Duration,
    /// How long it may take to do what is waited for.
    pub longest: Duration,
}

impl Patience {
    /// It is waited for for ever.
    const FOR_EVER: Patience = Patience { stuck: Duration::MAX, longest: Duration::MAX };
}

/// How long a pipe of a session may take nothing.
const PIPE: Duration = Duration::from_secs(3);
/// How long a session waits for a file at once: a disk that is busy is only slow.
const DISK: Duration = Duration::from_secs(10);

impl Limits {
    /// Those of a device, or a daemon, with a line for each record: what does not fit is dropped, or waited for with `lossless`.
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
            fails_once: false,
            asked: || 0,
        }
    }

    /// Those of a file that is waited for until the user has asked for the end so often. 32 MiB are a fifth of a second of two million
    /// records a second.
    pub fn file(asked: fn() -> u32) -> Limits {
        Limits {
            records: u64::MAX,
            bytes: 32 << 20,
            messages: None,
            waits: true,
            full: Patience::FOR_EVER,
            end: Patience::FOR_EVER,
            is_device: false,
            fails_once: false,
            asked,
        }
    }

    /// Those of a file of a session, which has more to do than to wait for one reader.
    pub fn shared_file(asked: fn() -> u32, is_on_disk: bool) -> Limits {
        let patience = Patience { stuck: if is_on_disk { DISK } else { PIPE }, longest: DISK };
        Limits { full: patience, end: patience, ..Limits::file(asked) }
    }
}
