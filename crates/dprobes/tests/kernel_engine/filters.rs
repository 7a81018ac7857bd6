//! Whose hits count: `--user`, `--comm`, `--cgroup`.

use crate::support::{Scratch, copy, counting, need, needs_kernel, start, target};
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "bpf: filters";

/// Runs the program, which makes that many calls: as another user, or in a control group.
fn calls(program: &Path, count: u32, user: Option<u32>, cgroup: Option<&Path>) {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("sh");
    // The shell moves itself, and becomes the program.
    let moves = cgroup.map_or(String::new(), |it| format!("echo $$ >'{}/cgroup.procs' && ", it.display()));
    command.args(["-c", &format!("{moves}exec '{}' leaf {count}", program.display())]);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    assert_eq!(command.status().expect("it starts").code(), Some(5));
}

/// The hits of a session with options while something is done.
fn hits(program: &Path, options: &[&str], work: impl FnOnce()) -> u64 {
    let mut session = start(&counting(&program.display().to_string(), &["server_work"]), options);
    session.armed();
    work();
    session.stop().ended_with(0).stats.hits(1)
}

#[test]
fn a_user_or_a_name() {
    needs_kernel!("filters");
    let scratch = Scratch::new();
    let server = need!(NAME, target("server"), "gcc");
    let (first, second) = (copy(&scratch, &server, "first"), scratch.path().join("second"));
    // Another name of the same file, for others to execute.
    std::fs::hard_link(&first, &second).expect("a link");
    for path in [scratch.path(), &first] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let work = || {
        calls(&first, 10, None, None);
        calls(&first, 20, Some(12345), None);
        calls(&second, 40, None, None);
    };
    assert_eq!(hits(&first, &[], work), 70);
    assert_eq!(hits(&first, &["--user", "12345"], work), 20);
    assert_eq!(hits(&first, &["--user", "root"], work), 50);
    assert_eq!(hits(&first, &["--comm", "second"], work), 40);
    assert_eq!(hits(&first, &["--comm", "first", "--user=0"], work), 10);
    // The first letters of a name are another name.
    assert_eq!(hits(&first, &["--comm", "firs"], work), 0);
}

/// A control group of the test's own, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn create(path: PathBuf) -> Option<Group> {
        std::fs::create_dir(&path).ok()?;
        Some(Group(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The directory of the unified hierarchy.
fn unified() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut lines = mounts.lines().map(|line| line.split(' ').skip(1));
    lines.find_map(|mut words| {
        let directory = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(directory))
    })
}

#[test]
fn a_control_group_and_those_below_it() {
    needs_kernel!("filters");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!(NAME, target("server"), "gcc"), "server");
    let name = format!("dprobes-test-{}", std::process::id());
    let group = unified().and_then(|root| Group::create(root.join(&name)));
    let group = need!("optional: bpf: filters: control groups", group, "control groups that can be made");
    let inner = need!(
        "optional: bpf: filters: control groups",
        Group::create(group.0.join("inner")),
        "control groups that can be made"
    );
    let work = || {
        calls(&program, 10, None, None);
        calls(&program, 20, None, Some(&group.0));
        calls(&program, 40, None, Some(&inner.0));
    };
    let outer = group.0.display().to_string();
    assert_eq!(hits(&program, &["--cgroup", &outer], work), 60);
    assert_eq!(hits(&program, &["--cgroup", &inner.0.display().to_string()], work), 40);
    let root = unified().expect("it was there").display().to_string();
    assert_eq!(hits(&program, &["--cgroup", &root], work), 70);
    drop(inner);
}
