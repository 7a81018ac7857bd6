//! Why an arming is not copied.

/// Why an arming of a module does not fit a process. It is not told to anyone: another arming is
/// tried, or the module is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCopied {
    /// The process has ended.
    Gone,
    /// The process maps the module's code differently.
    OtherMapping,
    /// Its code differs from the file.
    OtherCode,
    /// It has other probes in the module.
    OtherProbes,
    /// It has other handlers.
    OtherHandlers,
    /// Its memory for handlers is elsewhere.
    HandlersElsewhere,
    /// It has no room for handlers.
    NoRoom,
    /// It maps the module twice, and one is armed already.
    Twice,
    /// The memory that the arming needs is in use.
    InUse,
    /// It would have too many mappings.
    TooManyMappings,
    /// The memory cannot be mapped.
    NotMapped,
    /// Its threads cannot be held.
    NotHeld,
    /// The ledger is full.
    LedgerFull,
    /// It cannot be written to.
    NotWritten,
}
