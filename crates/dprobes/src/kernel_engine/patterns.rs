//! What patterns match in the kernel: functions and tracepoints.

use image::Pattern;
use kernel::tracepoints::Tracefs;

use super::in_kernel;

/// The names that match a pattern; a name alone means itself.
fn matching(names: Vec<String>, pattern: &str) -> Result<Vec<String>, String> {
    if !Pattern::is_one(pattern) {
        return Ok(vec![pattern.to_owned()]);
    }
    let pattern = Pattern::new(pattern).map_err(|error| error.to_string())?;
    Ok(names.into_iter().filter(|name| pattern.matches(name)).collect())
}

/// The tracepoints that two patterns mean: system and name of each, sorted.
///
/// # Errors
/// They cannot be read, or there is none.
pub(crate) fn tracepoints(system: &str, name: &str) -> Result<Vec<(String, String)>, String> {
    let tracefs = Tracefs::open()?;
    let mut found = Vec::new();
    for system in matching(tracefs.systems()?, system)? {
        let names = matching(tracefs.names(&system)?, name)?;
        found.extend(names.into_iter().map(|name| (system.clone(), name)));
    }
    match found.is_empty() {
        true => Err(format!("no tracepoint matches `{system}:{name}`")),
        false => Ok(found),
    }
}

/// The functions of the kernel, or of a module, that a pattern means, sorted.
///
/// # Errors
/// They cannot be read, or there is none.
pub(crate) fn functions(pattern: &str, module: Option<&str>) -> Result<Vec<String>, String> {
    let compiled = Pattern::new(pattern).map_err(|error| error.to_string())?;
    // If the kernel hides addresses, names are all that can be told.
    if module.is_none()
        && let Ok(names) = in_kernel::probeable(pattern)
    {
        return Ok(names);
    }
    let names = in_kernel::names(&compiled, module).map_err(|error| format!("/proc/kallsyms: {error}"))?;
    match names.is_empty() {
        true => Err(format!("no function of the kernel matches `{pattern}`")),
        false => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_itself_and_a_pattern_what_it_matches() {
        let names = || ["sched_switch", "sched_waking", "sys_enter"].map(str::to_owned).to_vec();
        assert_eq!(matching(names(), "sched_w*"), Ok(vec!["sched_waking".to_owned()]));
        assert_eq!(matching(names(), "other"), Ok(vec!["other".to_owned()]));
        assert_eq!(matching(names(), "x*"), Ok(Vec::new()));
    }
}
