//! What a script asks of the system when it is compiled: cgroups, and the nodes of processors.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use script::Checked;

/// The numbers of the cgroups that a script names, or why there is none.
pub(super) fn cgroups(checked: &Checked) -> BTreeMap<String, Result<u64, String>> {
    checked.literals("cgroupid").into_iter().map(|path| (path.clone(), cgroup(Path::new(&path)))).collect()
}

/// The number of a cgroup: the inode of its directory.
fn cgroup(path: &Path) -> Result<u64, String> {
    let found = path.metadata().map_err(|error| error.to_string())?;
    let system = statfs(path).map_err(|error| error.desc().to_owned())?;
    match found.is_dir() && system.filesystem_type() == CGROUP2_SUPER_MAGIC {
        true => Ok(found.ino()),
        false => Err("it is no directory of cgroup2".to_owned()),
    }
}

/// The NUMA node of each processor; none if the system does not tell.
pub(super) fn nodes() -> Vec<u32> {
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
        let Some(number) = number else { continue };
        let list = std::fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        note(list.trim_end(), number, &mut nodes);
    }
    nodes
}

/// Notes the node of processors in a list such as `0-3,8`.
fn note(list: &str, node: u32, nodes: &mut Vec<u32>) {
    /// More processors than Linux can have.
    const MOST: usize = 1 << 16;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { continue };
        let last = last.min(MOST);
        if nodes.len() <= last {
            nodes.resize(last + 1, 0);
        }
        nodes.iter_mut().take(last + 1).skip(first).for_each(|each| *each = node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_the_nodes_of_their_lists() {
        let mut nodes = Vec::new();
        note("0-1,6", 0, &mut nodes);
        note("2-3,5", 1, &mut nodes);
        note("", 2, &mut nodes);
        assert_eq!(nodes, [0, 0, 1, 1, 0, 1, 0]);
    }

    #[test]
    fn what_is_no_cgroup_is_refused_with_the_reason() {
        assert_eq!(cgroup(Path::new("/usr")), Err("it is no directory of cgroup2".to_owned()));
        assert!(cgroup(Path::new("/no/such")).is_err_and(|reason| reason.contains("No such file")));
    }
}
