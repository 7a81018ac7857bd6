//! The names and numbers of signals.

/// The number of a signal by its name, with or without `SIG`.
pub(crate) fn signal_number(name: &[u8]) -> Option<u64> {
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    SIGNALS.iter().position(|each| *each == name).map(|place| place as u64 + 1)
}

/// The signals of Linux on x86-64, from 1 on.
pub(crate) const SIGNALS: &[&str] = &[
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
