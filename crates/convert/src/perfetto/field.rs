//! The field numbers that are written, by message, from Perfetto's published `trace_packet.proto`
//! and its imports.
//!
//! A test in crates/dprobes compares the output with the published definitions.

/// `Trace`
pub(super) mod trace {
    pub(crate) const PACKET: u32 = 1;
}

/// `TracePacket`
pub(super) mod packet {
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const INTERNED_DATA: u32 = 12;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const DEFAULTS: u32 = 59;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;

    /// `SEQ_INCREMENTAL_STATE_CLEARED | SEQ_NEEDS_INCREMENTAL_STATE`
    pub(crate) const CLEARED: u64 = 3;
    /// `SEQ_NEEDS_INCREMENTAL_STATE`
    pub(crate) const NEEDED: u64 = 2;
}

/// `ClockSnapshot` and `ClockSnapshot.Clock`
pub(super) mod snapshot {
    pub(crate) const CLOCKS: u32 = 1;
    pub(crate) const PRIMARY: u32 = 2;
    pub(crate) const CLOCK_ID: u32 = 1;
    pub(crate) const CLOCK_TIMESTAMP: u32 = 2;

    /// `BUILTIN_CLOCK_REALTIME`
    pub(crate) const REALTIME: u64 = 1;
    /// `BUILTIN_CLOCK_MONOTONIC`
    pub(crate) const MONOTONIC: u64 = 3;
}

/// `TracePacketDefaults`
pub(super) mod defaults {
    pub(crate) const CLOCK_ID: u32 = 58;
}

/// `TrackDescriptor`, `ProcessDescriptor`, `ThreadDescriptor`
pub(super) mod track {
    pub(crate) const UUID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const PROCESS: u32 = 3;
    pub(crate) const THREAD: u32 = 4;
    pub(crate) const PARENT: u32 = 5;
    pub(crate) const COUNTER: u32 = 8;

    pub(crate) const PROCESS_PID: u32 = 1;
    pub(crate) const PROCESS_NAME: u32 = 6;
    pub(crate) const THREAD_PID: u32 = 1;
    pub(crate) const THREAD_TID: u32 = 2;
    pub(crate) const THREAD_NAME: u32 = 5;
}

/// `TrackEvent`
pub(super) mod event {
    pub(crate) const CATEGORY: u32 = 3;
    pub(crate) const ANNOTATION: u32 = 4;
    pub(crate) const TYPE: u32 = 9;
    pub(crate) const NAME: u32 = 10;
    pub(crate) const TRACK: u32 = 11;
    pub(crate) const COUNTER: u32 = 30;
    pub(crate) const COUNTER_DOUBLE: u32 = 44;

    /// `TYPE_SLICE_BEGIN`
    pub(crate) const BEGIN: u64 = 1;
    /// `TYPE_SLICE_END`
    pub(crate) const END: u64 = 2;
    /// `TYPE_INSTANT`
    pub(crate) const INSTANT: u64 = 3;
    /// `TYPE_COUNTER`
    pub(crate) const COUNT: u64 = 4;
}

/// `InternedData`, and the messages in it, which are all `iid` and `name`
pub(super) mod interned {
    pub(crate) const CATEGORIES: u32 = 1;
    pub(crate) const EVENTS: u32 = 2;
    pub(crate) const ANNOTATIONS: u32 = 3;

    pub(crate) const IID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
}

/// `DebugAnnotation`
pub(super) mod annotation {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const BOOL: u32 = 2;
    pub(crate) const UNSIGNED: u32 = 3;
    pub(crate) const SIGNED: u32 = 4;
    pub(crate) const DOUBLE: u32 = 5;
    pub(crate) const TEXT: u32 = 6;
    pub(crate) const POINTER: u32 = 7;
    pub(crate) const ENTRIES: u32 = 11;
    pub(crate) const VALUES: u32 = 12;
}
