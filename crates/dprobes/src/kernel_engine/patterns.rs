//! The tracepoints that patterns match.

use image::Pattern;
use kernel::tracepoints::Tracefs;

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
