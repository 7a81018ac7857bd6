//! Records give threads the ids and names of the tracer's pid namespace, also for processes in a
//! pid namespace of their own.

use std::collections::HashSet;

use crate::support::{Run, need, target};

#[test]
fn a_process_in_a_pid_namespace_is_not_taken_for_a_stranger() {
    let program = need!("namespaces", target("intruder"), "gcc");
    // SAFETY: it takes no arguments.
    if !testing::is_root() {
        return testing::skipped("namespaces", "root");
    }
    if !testing::have("namespaces", &["unshare"]) {
        return;
    }
    let log = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 6\nmaxhits = 0xffffffffffffffff\n\
         offset = intruder_work\nminor = 1\npush r, rdi\nlog 1\nexit\n",
        program.display()
    );
    for engine in ["--engine=trap", "--engine=auto"] {
        let run = Run::new(&log).option(engine).option("--log").option("PID,PROCNAME");
        let words = ["unshare".as_ref(), "--pid".as_ref(), "--fork".as_ref(), program.as_os_str()];
        let outcome = run.on(words.into_iter().chain(["logs".as_ref(), "20".as_ref()])).ended_with(0);
        assert_eq!(outcome.stdout, "ready\ncalls 100 failed 0\n");
        let headers = outcome.headers();
        assert_eq!(headers.len(), 101);
        let item = |header: &str, name: &str| {
            let rest = header.split(&format!(" {name}=")).nth(1).unwrap_or_default();
            rest.split(' ').next().unwrap_or_default().to_owned()
        };
        for header in &headers {
            assert_eq!(item(header, "name"), "intruder", "{engine}: {header}");
        }
        // Its first process has id 1 in its own namespace, which is another process here.
        let pids: HashSet<String> = headers.iter().map(|header| item(header, "pid")).collect();
        assert_eq!(pids.len(), 21, "{engine}: {pids:?}");
        assert!(!pids.contains("1"), "{engine}: {pids:?}");
    }
}
