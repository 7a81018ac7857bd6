//! Programs that the kernel runs in the background session: inserted, shown, removed.

use std::time::{Duration, Instant};

use crate::support::{
    Background, Metrics, Server, counting, dprobes, is_traced, mount_tracefs, need, needs_kernel, run,
    text_differences, value,
};

/// Waits until something holds.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Where the text of a process differs from its files. A page in which the kernel executes displaced
/// instructions stays.
fn changed(pid: u32) -> Vec<String> {
    text_differences(pid).into_iter().filter(|line| !line.ends_with("[uprobes]")).collect()
}

/// Whether a session can have tracefs.
fn has_tracefs() -> Option<()> {
    let mut command = std::process::Command::new("true");
    mount_tracefs(&mut command);
    command.status().is_ok_and(|status| status.success()).then_some(())
}

/// Ends a test as skipped unless sessions can probe tracepoints here.
macro_rules! needs_tracepoints {
    () => {
        needs_kernel!("inserted");
        need!("bpf: inserted", has_tracefs(), "tracefs, mounted or to be mounted")
    };
}

/// A program at a system call: it counts and logs what this thread asks for.
fn priorities() -> String {
    // SAFETY: the call has no arguments.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    format!(
        "name = vmlinux\nmodtype = kernel\nmajor = 4\nvars = 2\ngvars = 1\n\
         tracepoint = syscalls:sys_enter_sched_get_priority_max\nminor = 1\n\
         push field, common_pid push {thread} sub jz ours abort ours: push field, policy log 1 inc lv, 1 inc gv, 0\n"
    )
}

fn priority(policy: i32) {
    // SAFETY: the call takes a number.
    unsafe { libc::sched_get_priority_max(policy) };
}

#[test]
fn a_tracepoint_is_inserted_shown_and_removed() {
    needs_tracepoints!();
    let session = Background::new();
    let said = session.insert(&priorities(), &[]);
    assert!(said.starts_with("1 probe inserted in `vmlinux`, by the kernel engine\n"), "{said}");
    assert!(said.contains("1 probe armed in the kernel, for all processes\n"), "{said}");
    assert!(said.contains("its records go to "), "{said}");
    (0..5).for_each(priority);
    let shown = session.done(&["query", "--all", "--extended"]);
    assert!(shown.starts_with("vmlinux: major 4, id 0, 2 variables, 1 probe\n"), "{shown}");
    assert!(shown.contains("armed    hits ") && shown.contains(" missed 0 logged 5 dropped 0\n"), "{shown}");
    assert!(shown.contains("  run by the kernel: tracepoint 1\n") && shown.contains("inc lv, 1"), "{shown}");
    let values = session.done(&["getvars", "--all"]);
    let expected =
        "of programs that the kernel runs:\ngv[0] = 5 (0x5)\nvmlinux:\nlv[0] = 0 (0x0)\nlv[1] = 5 (0x5)\n";
    assert_eq!(values, expected);
    // Counts are live, and variables can be reset one by one.
    assert_eq!(session.done(&["getvars", "--name", "vmlinux", "--local", "--reset", "-i", "1-1"]), "");
    priority(7);
    let values = session.done(&["getvars", "--all", "-i", "1-1", "--local"]);
    assert_eq!(values, "vmlinux:\nlv[1] = 1 (0x1)\n");
    assert_eq!(
        session.done(&["getvars", "--all", "--global"]),
        "of programs that the kernel runs:\ngv[0] = 6 (0x6)\n"
    );
    session.done(&["getvars", "--all", "--reset"]);
    assert!(session.done(&["getvars", "--all"]).contains("gv[0] = 0 (0x0)"));
    assert_ne!(session.attached(), 0);

    assert!(session.done(&["session", "status"]).contains(": 1 program, 0 processes followed"));
    assert_eq!(session.done(&["remove", "--name", "vmlinux"]), "");
    // The records are complete when it is removed.
    let records = session.records();
    let rows: Vec<&str> = records.lines().filter_map(|line| line.split(" : ").nth(1)).collect();
    assert_eq!(rows.len(), 6, "{records}");
    assert!(rows[1].starts_with("01000000") && rows[5].starts_with("07000000"), "{records}");
    assert_eq!((session.done(&["query", "--all"]), session.attached()), (String::new(), 0));
    assert!(session.fails(&["remove", "--name", "vmlinux"]).contains("no probes are inserted in `vmlinux`"));
    // It can be inserted again.
    session.insert(&priorities(), &[]);
    priority(3);
    assert!(session.done(&["query", "--name", "vmlinux"]).contains(" logged 1 "));
}

#[test]
fn what_is_refused_leaves_nothing_attached() {
    needs_tracepoints!();
    let session = Background::new();
    let head = "name = vmlinux\nmodtype = kernel\nvars = 1\ntracepoint = sched:sched_process_exit\ninc lv, 0 abort\n";
    let cases = [
        "tracepoint = syscalls:sys_enter_getpgid\nminor = 2\npush r, rip log 1\n",
        "tracepoint = syscalls:sys_enter_nothing\nminor = 2\nexit\n",
        "tracepoint = syscalls:sys_enter_getpgid\nminor = 2\npush field, nothing log 1\n",
    ];
    session.done(&["session", "start"]);
    for text in cases {
        let file = session.program("bad.rpn", &format!("{head}{text}"));
        let store = session.scratch().path().join("bad.dpt");
        let said = session.fails(&["insert", &file, "-o", &store.display().to_string()]);
        let mut attach = dprobes();
        mount_tracefs(&mut attach);
        let (status, _, expected) = run(attach.args(["attach", &file]));
        assert_eq!(status.code(), Some(1), "{expected}");
        // While it attaches, `attach` says what is armed.
        let expected = expected.replace("dprobes: 1 probe armed in the kernel, for all processes\n", "");
        assert_eq!(said, expected);
        assert!(!store.exists(), "a store was left: the next insert would be refused");
        assert_eq!((session.done(&["query", "--all"]), session.attached()), (String::new(), 0));
    }
    let file = session.program("good.rpn", &priorities());
    for (options, reason) in [
        (&["--engine", "jump"][..], "--engine jump: only the kernel engine probes the kernel"),
        (&["-p", "1"], "the kernel is probed for all processes; leave -p out"),
        (&["--lossless"], "--lossless: the kernel engine does not make programs wait"),
        (&["--share-variables"], "--share-variables: with the kernel engine"),
        // No System.map.
        (&["--sym", &file], "line 1, `name = vmlinux`: an address, a letter and a name are expected"),
    ] {
        let said = session.fails(&[&["insert", file.as_str()], options].concat());
        assert!(said.contains(reason), "{said}");
    }
    // The session goes on.
    session.insert(&priorities(), &[]);
    assert!(session.done(&["query", "--all"]).contains(" armed "));
}

#[test]
fn without_rights_the_session_says_what_attach_says() {
    needs_kernel!("inserted");
    use std::os::unix::process::CommandExt;
    let session = Background::new();
    let home = session.scratch().path().join("others");
    std::fs::create_dir(&home).expect("a fresh directory");
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("root may");
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("root may");
    std::fs::set_permissions(session.scratch().path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("root may");
    let file = session.program("kernel.rpn", &priorities());
    let other = |words: &[&str]| {
        let mut command = dprobes();
        command.env("DPROBES_SESSION_DIR", &home).args(words).uid(65534).gid(65534);
        command
    };
    if other(&["--version"]).output().is_err() {
        return testing::skipped("bpf: inserted: users", "a build directory that others can enter");
    }
    let (status, _, said) = run(&mut other(&["insert", &file]));
    let (_, status_of_session, _) = run(&mut other(&["session", "status"]));
    run(&mut other(&["session", "stop"]));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("needs root, or CAP_BPF and CAP_PERFMON (this process lacks "), "{said}");
    assert!(status_of_session.contains(" 0 programs"), "{status_of_session}");
}

#[test]
fn all_processes_that_run_a_file_count_and_none_is_traced() {
    needs_kernel!("inserted");
    let session = Background::new();
    let (path, mut one, mut other) = need!("bpf: inserted", session.servers(), "gcc");
    let said = session.insert(&counting(&path, &["server_work"]), &["--engine", "kernel"]);
    assert!(said.contains(&format!("1 probe armed in {path}, for all processes\n")), "{said}");
    assert_eq!((one.ask("call 30"), other.ask("call 40")), ("done 30".into(), "done 40".into()));
    assert!(!is_traced(one.pid()) && !is_traced(other.pid()));
    let shown = session.done(&["query", "--name", &path]);
    assert!(shown.contains("hits 70 runs 70 ignored 0 missed 0"), "{shown}");
    // The same module once more: added, then in the place of all.
    let file = session.program("more.rpn", &counting(&path, &["server_work", "main"]));
    let refused = session.fails(&["insert", "--engine", "kernel", &file]);
    assert!(refused.contains("--merge") && refused.contains("--replace"), "{refused}");
    let refused = session.fails(&["insert", "--merge", "--engine", "tracer", &file]);
    assert!(refused.contains("are run by another engine; `dprobes remove --name "), "{refused}");
    session.done(&["insert", "--engine", "kernel", "--merge", &file]);
    until("the old probe is taken out", || session.done(&["query", "--all"]).contains(" removed  hits 70 "));
    one.ask("call 5");
    let shown = session.done(&["query", "--all"]);
    assert!(shown.contains(" removed  hits 70 ") && shown.contains(" armed    hits 5 "), "{shown}");
    session.done(&["insert", "--engine", "kernel", "--replace", &file]);
    other.ask("call 6");
    let shown = session.done(&["query", "--all"]);
    assert!(shown.contains(" armed    hits 6 ") && !shown.contains("hits 70"), "{shown}");
    assert!(session.done(&["getvars", "--all", "--local", "-i", "0-0"]).contains("lv[0] = 6 (0x6)"));
    session.done(&["session", "stop"]);
    assert_eq!(changed(one.pid()), [""; 0]);
    assert_eq!((one.ask("call 3"), other.ask("call 4")), ("done 3".into(), "done 4".into()));
    assert!(one.end().0.success() && other.end().0.success());
}

#[test]
fn a_named_process_counts_with_its_children() {
    needs_kernel!("inserted");
    let session = Background::new();
    let (path, mut other, _) = need!("bpf: inserted", session.servers(), "gcc");
    let mut shell =
        Server::start(std::path::Path::new("/bin/sh"), ["-c", &format!("read line; {path}; read line")]);
    let pid = shell.pid().to_string();
    let text = counting(&path, &["server_work"]);
    let said = session.insert(&text, &["--engine", "kernel", "-p", &pid]);
    assert!(said.starts_with("1 probe inserted in "), "{said}");
    // A child, which has to be found first.
    let first = shell.ask("go");
    let child = first.strip_prefix("pid ").and_then(|pid| pid.parse().ok()).expect("it says its number");
    until("the child is probed", || !changed(child).is_empty());
    assert_eq!((shell.ask("call 6"), other.ask("call 50")), ("done 6".into(), "done 50".into()));
    let shown = session.done(&["query", "--all"]);
    assert!(shown.contains(" hits 6 runs 6 "), "{shown}");
    assert!(!is_traced(shell.pid()) && !is_traced(child));
    shell.send("exit 0");
    shell.end();
    // What was counted is still shown, and a process that is not there cannot be named.
    assert!(session.done(&["query", "--all"]).contains(" hits 6 runs 6 "));
    let file = session.program("other.rpn", &text.replace("/server\"", "/other\""));
    let said = session.fails(&["insert", "--engine", "kernel", "-p", &pid, &file]);
    assert!(said.contains(&format!("process {pid}")), "{said}");
    assert!(other.end().0.success());
}

#[test]
fn limits_end_probes_and_what_has_ended_is_still_shown() {
    needs_kernel!("inserted");
    let session = Background::new();
    let (path, mut server, _other) = need!("bpf: inserted", session.servers(), "gcc");
    let text = format!(
        "name = \"{path}\"\nmodtype = user\nvars = 1\noffset = server_work\nminor = 1\nmaxhits = 4\nignore = 2\ninc lv, 0\nexit\n"
    );
    session.insert(&text, &["--engine", "kernel"]);
    server.ask("call 20");
    until("it is over", || session.done(&["query", "--all"]).contains(" disabled hits 6 runs 4 ignored 2 "));
    until("it is detached", || session.attached() == 0);
    session.done(&["remove", "--all"]);
    let text = text.replace("maxhits = 4\nignore = 2\ninc lv, 0\nexit", "inc lv, 0\nremove");
    session.insert(&text, &["--engine", "kernel"]);
    server.ask("call 20");
    until("it is over", || session.done(&["query", "--all"]).contains(" removed  hits 1 "));
    // A facility that is for kernel probes ends the probe, and the session says so.
    session.done(&["remove", "--all"]);
    session.insert(&text.replace("remove", "exit 1"), &["--engine", "kernel"]);
    server.ask("call 20");
    until("it is over", || session.done(&["query", "--all"]).contains(" removed  hits 1 "));
    let log = session.scratch().path().join("home/log");
    until("it is told", || {
        std::fs::read_to_string(&log)
            .is_ok_and(|log| log.contains("exit 1: the kernel debugger is for kernel probes only"))
    });
    assert!(server.end().0.success());
}

#[test]
fn a_store_has_the_records_of_programs_of_both_engines() {
    needs_tracepoints!();
    let session = Background::new();
    let (path, mut server, _other) = need!("bpf: inserted", session.servers(), "gcc");
    let store = session.scratch().path().join("both.dpt").display().to_string();
    session.insert(&priorities(), &["-o", &store]);
    let text = format!(
        "name = \"{path}\"\nmodtype = user\nmajor = 9\noffset = server_work\nminor = 2\npush r, rdi log 1\nexit\n"
    );
    session.insert(&text, &["-o", &store, "-p", &server.pid().to_string()]);
    for round in 0..20 {
        assert_eq!(server.ask("call 2"), "done 2");
        priority(round);
    }
    until("all are written", || {
        let shown = session.done(&["query", "--all"]);
        shown.contains(" logged 40 ") && shown.contains(" logged 20 ")
    });
    session.done(&["session", "stop"]);
    let mut command = dprobes();
    let (status, shown, said) = run(command.args(["show", "--log-format=klog", &store]));
    assert!(status.success(), "{said}");
    let count =
        |codes: &str| shown.lines().filter(|line| line.starts_with(codes) && line.contains(" cpu=")).count();
    assert_eq!((count("DProbes(4,1)"), count("DProbes(9,2)")), (20, 40), "{shown}");
    assert!(!said.contains("cut short"), "{said}");
    assert!(server.end().0.success());
}

#[test]
fn the_kernel_does_not_overwrite_the_jumps_of_the_session() {
    needs_kernel!("inserted");
    let session = Background::new();
    let (path, mut server, _other) = need!("bpf: inserted", session.servers(), "gcc");
    let name = "server".to_owned();
    let text = counting(&path, &["server_work"]);
    session.insert(&text, &["-p", &server.pid().to_string()]);
    // Another name of the same file.
    let file = session.program("other.rpn", &text.replace(&path, &name));
    let refused = session.fails(&["insert", "--engine", "kernel", "-p", &server.pid().to_string(), &file]);
    assert!(refused.contains("has probes by jumps or traps in process "), "{refused}");
    assert!(refused.contains(&format!("`dprobes remove --name {path}` takes them out")), "{refused}");
    assert_eq!(server.ask("call 8"), "done 8");
    assert!(session.done(&["query", "--all"]).contains("hits 8 runs 8"));
    session.done(&["remove", "--all"]);
    session.done(&["insert", "--engine", "kernel", "-p", &server.pid().to_string(), &file]);
    assert_eq!(server.ask("call 9"), "done 9");
    assert!(session.done(&["query", "--all"]).contains("hits 9 runs 9"));
    assert!(server.end().0.success());
}

#[test]
fn a_session_that_is_killed_leaves_nothing_attached() {
    needs_kernel!("inserted");
    let session = Background::new();
    let (path, mut server, _other) = need!("bpf: inserted", session.servers(), "gcc");
    session.insert(&counting(&path, &["server_work"]), &["--engine", "kernel"]);
    server.ask("call 5");
    assert_ne!(changed(server.pid()), [""; 0]);
    let pid = session.pid();
    // SAFETY: the call takes two numbers; the process is this test's session.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    until("the breakpoint is taken out", || changed(server.pid()).is_empty());
    assert_eq!(server.ask("call 5"), "done 5");
    until("it is gone", || session.say(&["query", "--all"]).2.contains("nothing is inserted"));
    assert!(server.end().0.success());
}

#[test]
fn a_session_without_hits_takes_hardly_any_time() {
    needs_tracepoints!();
    let session = Background::new();
    // Nobody makes this call.
    session
        .insert(&priorities().replace("get_priority_max", "rr_get_interval").replace("policy", "pid"), &[]);
    let pid = session.pid();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the session runs");
        let fields: Vec<&str> = stat[stat.rfind(')').expect("a name")..].split(' ').collect();
        [12, 13].map(|field: usize| fields[field].parse::<u64>().expect("a number")).iter().sum::<u64>()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(2));
    // A hundred ticks are a second; a thread that never sleeps would take two.
    let taken = ticks() - before;
    assert!(taken < 50, "{taken} ticks");
}

/// The count of this name in what `query` shows of the first probe.
#[track_caller]
fn count(shown: &str, name: &str) -> u64 {
    let value = shown.split_once(&format!(" {name} ")).and_then(|(_, rest)| rest.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {shown}"))
}

#[test]
fn records_that_no_target_takes_are_counted() {
    needs_tracepoints!();
    let session = Background::new();
    let full = session.scratch().path().join("full");
    std::os::unix::fs::symlink("/dev/full", &full).expect("room");
    session.insert(&priorities(), &["--log-target", &format!("ltt:{}", full.display())]);
    let mut made = 0;
    until("the target fails", || {
        (0..1000).for_each(priority);
        made += 1000;
        count(&session.done(&["query", "--all"]), "dropped") > 0
    });
    let shown = session.done(&["query", "--all"]);
    assert_eq!(count(&shown, "logged") + count(&shown, "dropped"), made, "{shown}");
    assert!(shown.contains(" lost\n") && shown.contains("  run by the kernel: tracepoint 1\n"), "{shown}");
    session.done(&["remove", "--all"]);
    let log = std::fs::read_to_string(session.scratch().path().join("home/log")).expect("it has one");
    assert!(log.contains("No space left on device") && log.contains("records could not be written"), "{log}");
}

#[test]
fn a_ppdf_for_the_kernel_is_applied() {
    needs_tracepoints!();
    let session = Background::new();
    let file = session.program("kernel.rpn", &priorities());
    let ppdf = session.scratch().path().join("kernel.ppdf").display().to_string();
    let (status, _, said) = session.say(&["build-ppdf", &file, "-o", &ppdf]);
    assert!(
        status == Some(0) && said.contains("the kernel on which they are applied says where they are"),
        "{said}"
    );
    let said = session.done(&["apply-ppdf", &ppdf]);
    assert!(said.starts_with("1 probe inserted in `vmlinux`, by the kernel engine\n"), "{said}");
    (0..3).for_each(priority);
    assert!(session.done(&["query", "--all"]).contains(" logged 3 "));
    assert!(session.done(&["getvars", "--all"]).contains("lv[1] = 3 (0x3)"));
}

#[test]
fn metrics_have_what_the_kernel_counts() {
    needs_tracepoints!();
    let session = Background::new();
    let (status, _, said) = session.say(&["session", "start", "--export", "prometheus:0"]);
    assert_eq!(status, Some(0), "{said}");
    let metrics = Metrics::announced(&said);
    session.insert(&priorities(), &[]);
    (0..4).for_each(priority);
    let variable = "dprobes_variable{scope=\"global in the kernel\",index=\"0\"}";
    let is_logged = |line: &str| {
        line.starts_with("dprobes_probe_logged_total{module=\"vmlinux\",") && line.ends_with(" 4")
    };
    let text = metrics.once(|text| text.lines().any(is_logged));
    assert_eq!(value(&text, variable), 4.0, "{text}");
}
