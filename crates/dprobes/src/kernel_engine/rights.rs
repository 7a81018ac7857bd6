//! What this process is allowed to do, as far as probes by the kernel need it.

use std::fs;

/// Capabilities that are needed, by number (linux/capability.h).
const NEEDED: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
/// The capability that includes both.
const SYS_ADMIN: u32 = 21;

/// Checks that this process may load programs into the kernel and attach them.
///
/// # Errors
/// What it needs, in one line.
pub(super) fn check() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    lacks(&status).map_or(Ok(()), Err)
}

/// What a process lacks, by its `/proc/PID/status`.
fn lacks(status: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let has = u64::from_str_radix(line.trim(), 16).ok()?;
    let has = |number: u32| has >> number & 1 != 0;
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(number, _)| !has(*number)).map(|(_, name)| *name).collect();
    (!missing.is_empty() && !has(SYS_ADMIN)).then(|| {
        format!(
            "the kernel engine needs root, or CAP_BPF and CAP_PERFMON (this process lacks {}); with -p PID, a process of your own is probed without them",
            missing.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::lacks;

    #[test]
    fn root_or_both_capabilities_are_enough() {
        let status = |mask: u64| format!("Name:\tx\nCapEff:\t{mask:016x}\nCapBnd:\t0\n");
        assert_eq!(lacks(&status(u64::MAX)), None);
        assert_eq!(lacks(&status(1 << 21)), None);
        assert_eq!(lacks(&status(1 << 38 | 1 << 39)), None);
        let one = lacks(&status(1 << 38)).expect("one is missing");
        assert!(one.contains("lacks CAP_BPF)"), "{one}");
        let both = lacks(&status(0)).expect("both are missing");
        assert!(both.contains("lacks CAP_BPF and CAP_PERFMON)"), "{both}");
    }
}
