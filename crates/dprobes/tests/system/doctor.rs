//! `doctor`, and what is said of a process that may not be traced.

use std::process::{Child, Command, Output, Stdio};

use crate::support::{dprobes, find_program};

/// A process that ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        Sleeper(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("it starts"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn this_machine_and_a_process_are_examined() {
    let output = dprobes().arg("doctor").output().expect("dprobes starts");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for works in ["ok  new program", "ok  running program", "ok  /proc"] {
        assert!(said.lines().any(|line| line.starts_with(works)), "{works}: {said}");
    }
    let sleeper = Sleeper::start();
    let output = dprobes().args(["doctor", "-p", &sleeper.pid()]).output().expect("dprobes starts");
    let said = text(&output);
    assert!(output.status.success() && said.contains("ok  tracing  allowed"), "{said}");
    // A process that is traced cannot be.
    let mut tracer = dprobes()
        .args(["attach", "-p", &sleeper.pid(), "--at", "libc:exit"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("dprobes starts");
    let is_traced = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", sleeper.pid())).expect("it lives");
        !status.contains("TracerPid:\t0")
    };
    while !is_traced() {
        std::thread::yield_now();
    }
    let output = dprobes().args(["doctor", "-p", &sleeper.pid()]).output().expect("dprobes starts");
    let said = text(&output);
    assert!(!output.status.success() && said.contains("traces it already"), "{said}");
    end(tracer.id());
    tracer.wait().expect("it is a child");
}

#[test]
fn where_no_other_program_is_none_is_tried() {
    let output = dprobes().arg("doctor").env("PATH", "/nowhere").output().expect("dprobes starts");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for name in ["true", "sleep"] {
        assert!(said.contains(&format!("not tried: there is no program `{name}` here")), "{said}");
    }
}

fn end(pid: u32) {
    // SAFETY: a system call on a child that has not been waited for.
    unsafe { libc::kill(pid as i32, libc::SIGTERM) };
}

#[test]
fn why_another_users_process_is_not_probed() {
    if !testing::is_root() {
        return testing::skipped("doctor: another user", "root");
    }
    let setpriv = crate::support::need!("doctor: another user", find_program("setpriv"), "setpriv");
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    // Other users cannot enter this directory: they get a copy of the command elsewhere.
    let place = tempfile::tempdir().expect("a scratch folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), mode).expect("it is this process's");
    let copy = place.path().join("dprobes");
    std::fs::copy(env!("CARGO_BIN_EXE_dprobes"), &copy).expect("the command can be copied");
    for words in [
        &["attach", "-p", &pid, "--at", "libc:exit"][..],
        &["list", "-p", &pid],
        &["trace", "-p", &pid, "-e", "uprobe:libc:exit { @ = count(); }"],
        // Of no file that could be found otherwise.
        &["trace", "-p", &pid, "-e", "uprobe:libnowhere:exit { @ = count(); }"],
        &["doctor", "-p", &pid],
    ] {
        let mut command = Command::new(&setpriv);
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
        let output = command.arg(&copy).args(words).current_dir("/").output().expect("it starts");
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("it belongs to user 0; try as that user, as root"), "{words:?}: {said}");
        assert!(!said.contains('@'), "{words:?}: {said}");
    }
}
