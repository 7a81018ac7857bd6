//! One record in memory: header items and logged bytes.

/// What one run of a handler logged, with its header. Items that the user did not ask for are zero
/// or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The probe's major code, or the one the handler set.
    pub major: u32,
    /// The probe's minor code, or the one the handler set.
    pub minor: u32,
    /// The processor on which the probe fired.
    pub cpu: u32,
    /// The process id.
    pub pid: u32,
    /// The thread id. It is always set, and no header item shows it.
    pub tid: u32,
    /// The probe's number in its program.
    pub probe: u32,
    /// The real user id.
    pub uid: u32,
    /// The code segment.
    pub cs: u32,
    /// The probepoint's address.
    pub eip: u64,
    /// The stack segment.
    pub ss: u32,
    /// The stack pointer.
    pub esp: u64,
    /// The time of the hit, in nanoseconds since 1970.
    pub time: u64,
    /// The thread's name.
    pub name: String,
    /// Bytes in a word of the probed program: 4 or 8.
    pub word: usize,
    /// The bytes that the handler logged.
    pub data: Vec<u8>,
}

impl Record {
    /// The time of the hit, in whole seconds since 1970.
    pub fn seconds(&self) -> u64 {
        self.time / 1_000_000_000
    }

    /// The microseconds of the time of the hit: less than a million.
    pub fn microseconds(&self) -> u32 {
        (self.time % 1_000_000_000 / 1000) as u32
    }
}
