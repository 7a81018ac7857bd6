//! Probes at tracepoints of the kernel. Every process fires them, and the tests at once: so each
//! handler asks for its test's thread, or for what only its test does.

use crate::support::{Scratch, dprobes, mount_tracefs, need, needs_kernel, run, start_traced};
use std::process::Command;

/// Whether a command can have tracefs.
fn can_mount() -> Option<()> {
    let mut command = Command::new("true");
    mount_tracefs(&mut command);
    command.status().is_ok_and(|status| status.success()).then_some(())
}

/// Ends a test as skipped unless sessions can probe tracepoints here.
macro_rules! needs_tracepoints {
    () => {
        needs_kernel!("tracepoints");
        need!("bpf: tracepoints", can_mount(), "tracefs, mounted or to be mounted")
    };
}

/// The beginning of a handler that goes on in this thread only.
fn ours() -> String {
    let (process, thread) = (std::process::id(), thread());
    format!(
        "push pid push {process} sub jz mine abort mine: push field, common_pid push {thread} sub jz ours abort ours: "
    )
}

fn header(more: &str) -> String {
    format!("name = vmlinux\nmodtype = kernel\nmajor = 4\n{more}\n")
}

/// The bytes of the records with a minor code.
fn bytes(records: &str, minor: u32) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for line in records.lines().filter(|line| line.starts_with(&format!("DProbes(4,{minor})"))) {
        if line.contains(" cpu=") {
            all.push(Vec::new());
        } else if let Some(row) = line.split(" : ").nth(1) {
            let digits: Vec<u8> = row.bytes().filter(u8::is_ascii_hexdigit).collect();
            let pairs = digits.chunks(2).map(|pair| str::from_utf8(pair).expect("digits"));
            let row = pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits"));
            all.last_mut().expect("a row has a header").extend(row);
        }
    }
    all
}

/// The words of the records with a minor code.
fn words(records: &str, minor: u32) -> Vec<Vec<i64>> {
    let word = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    bytes(records, minor).iter().map(|bytes| bytes.chunks_exact(8).map(word).collect()).collect()
}

fn getpgid(pid: i32) -> i64 {
    // SAFETY: the call takes no pointers.
    unsafe { libc::syscall(libc::SYS_getpgid, pid) }
}

fn thread() -> i64 {
    // SAFETY: the call has no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

#[test]
fn arguments_and_results_of_system_calls_are_those_of_the_program() {
    needs_tracepoints!();
    let ours = ours();
    let text = header(&format!(
        "tracepoint = syscalls:sys_enter_getpgid\nminor = 1\n{ours}push field, common_pid push field, common_type \
         push field, __syscall_nr push field, pid log 4\n\
         tracepoint = syscalls:sys_exit_getpgid\nminor = 2\n{ours}push field, ret log 1\n"
    ));
    let mut session = start_traced(&text, &["--log", "ALL"]);
    session.armed();
    let results = [0, 1, 2_000_000_000].map(getpgid);
    let outcome = session.stop().ended_with(0);
    let entered = words(&outcome.records, 1);
    let arguments: Vec<i64> = entered.iter().map(|words| words[0]).collect();
    assert_eq!(arguments, [0, 1, 2_000_000_000], "{outcome:#?}");
    for words in &entered {
        assert_eq!((words[1], words[3]), (libc::SYS_getpgid, thread()), "{outcome:#?}");
        assert!(words[2] > 0 && words[2] == entered[0][2], "{outcome:#?}");
    }
    // The last of them is an error, which libc turns to -1.
    let error = -i64::from(libc::ESRCH);
    assert_eq!(words(&outcome.records, 2), [vec![results[0]], vec![results[1]], vec![error]], "{outcome:#?}");
    assert_eq!(results[2], -1);
    let probe = &outcome.stats.probes[0];
    assert_eq!(
        (probe.engine.as_str(), probe.sites.kernel.get("tracepoint")),
        ("kernel", Some(&1)),
        "{outcome:#?}"
    );
    // There are no registers.
    let header = outcome.headers()[0];
    assert!(header.contains(" cs=0 eip=0000000000000000 "), "{header}");
}

#[test]
fn strings_are_read_in_the_process_and_in_the_record() {
    needs_tracepoints!();
    let scratch = Scratch::new();
    let missing =
        std::ffi::CString::new(format!("{}/missing", scratch.path().display())).expect("no zero in it");
    let program = scratch.path().join("executed");
    std::fs::copy("/bin/true", &program).expect("there is room");
    let ours = ours();
    let text = header(&format!(
        "tracepoint = syscalls:sys_enter_openat\nminor = 1\n{ours}push 256 push field, filename log str push field, flags log 1\n\
         tracepoint = sched:sched_process_exec\nminor = 2\npush 256 push field, filename log str push field, pid log 1\n\
         tracepoint = task:task_rename\nminor = 3\npush 16 push field, newcomm log str \
         push 3 push field, newcomm add push mem, u8 log 1\n"
    ));
    let mut session = start_traced(&text, &["--log", "ALL"]);
    session.armed();
    // SAFETY: the path ends by zero.
    let descriptor = unsafe { libc::openat(libc::AT_FDCWD, missing.as_ptr(), libc::O_RDONLY | libc::O_EXCL) };
    assert_eq!(descriptor, -1);
    let mut child = Command::new(&program).spawn().expect("it starts");
    let pid = child.id();
    assert!(child.wait().expect("a child can be waited for").success());
    let renamed = std::thread::spawn(|| {
        // SAFETY: the name ends by zero, and is the thread's own.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"dp-renamed".as_ptr()) }
    });
    assert_eq!(renamed.join().expect("it does not panic"), 0);
    let outcome = session.stop().ended_with(0);
    let string = |text: &[u8]| [&[1, text.len() as u8, 0][..], text].concat();
    let opened =
        [string(missing.as_bytes()), i64::from(libc::O_RDONLY | libc::O_EXCL).to_le_bytes().to_vec()];
    assert!(bytes(&outcome.records, 1).contains(&opened.concat()), "{outcome:#?}");
    let path = program.as_os_str().as_encoded_bytes();
    let executed = [string(path), i64::from(pid).to_le_bytes().to_vec()].concat();
    assert!(bytes(&outcome.records, 2).contains(&executed), "{outcome:#?}");
    let renamed = [string(b"dp-renamed"), i64::from(b'r').to_le_bytes().to_vec()].concat();
    assert!(bytes(&outcome.records, 3).contains(&renamed), "{outcome:#?}");
}

#[test]
fn a_pattern_counts_each_tracepoint_and_leaves_out_those_without_the_field() {
    needs_tracepoints!();
    let ours = ours();
    let text = header(&format!(
        "vars = 2\ntracepoint = \"syscalls:sys_enter_getpg[ir]*\"\nminor = 1\n{ours}push field, __syscall_nr log 1 inc lv, 0\n\
         tracepoint = \"syscalls:sys_enter_getpg*\"\nminor = 2\n{ours}push field, pid log 1 inc lv, 1\n"
    ));
    let mut session = start_traced(&text, &[]);
    session.armed();
    for _ in 0..100 {
        getpgid(0);
        // SAFETY: the call has no arguments.
        unsafe { libc::syscall(libc::SYS_getpgrp) };
    }
    let said = session.said();
    let outcome = session.stop().ended_with(0);
    assert!(said.contains("1 left out: sys_enter_getpgrp: "), "{said}");
    assert!(said.contains("the tracepoint's record has no field of this name"), "{said}");
    let [both, one] = &outcome.stats.probes[..] else { panic!("{outcome:#?}") };
    assert_eq!(both.sites.kernel.get("tracepoint"), Some(&2), "{outcome:#?}");
    assert_eq!(one.sites.kernel.get("tracepoint"), Some(&1), "{outcome:#?}");
    let places = both.places.as_ref().expect("it has some");
    let only = one.places.as_ref().expect("it has some");
    assert_eq!(only.iter().map(|place| place.function.as_str()).collect::<Vec<_>>(), ["sys_enter_getpgid"]);
    for name in ["sys_enter_getpgid", "sys_enter_getpgrp"] {
        let place = places.iter().find(|place| place.function == name).expect(name);
        assert!(place.module == "syscalls" && place.hits >= 100, "{place:?}");
    }
    assert!(
        outcome.stats.locals[0] >= 200 - both.missed && outcome.stats.locals[1] >= 100 - one.missed,
        "{outcome:#?}"
    );
}

#[test]
fn ignore_and_maxhits_hold_at_tracepoints() {
    needs_tracepoints!();
    // The limits count the hits of all processes: so the call is one that no other makes.
    let text = header(
        "tracepoint = syscalls:sys_enter_sched_get_priority_min\nminor = 1\nignore = 3\nmaxhits = 4\npush field, policy log 1\n",
    );
    let mut session = start_traced(&text, &[]);
    session.armed();
    for policy in 0..20 {
        // SAFETY: the call takes no pointers.
        unsafe { libc::sched_get_priority_min(policy) };
    }
    let outcome = session.end_or_stop().ended_with(0);
    assert_eq!(words(&outcome.records, 1), [[3], [4], [5], [6]], "{outcome:#?}");
    let probe = &outcome.stats.probes[0];
    assert_eq!(
        (probe.hits, probe.ignored, probe.runs, probe.state.as_str()),
        (7, 3, 4, "disabled"),
        "{outcome:#?}"
    );
}

/// What dprobes says of a program that it refuses.
fn refused(text: &str) -> String {
    let scratch = Scratch::new();
    let file = scratch.file("p.rpn", text);
    let mut command = dprobes();
    mount_tracefs(&mut command);
    let (status, _, said) = run(command.arg("attach").arg(&file));
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

#[test]
fn what_a_tracepoint_has_not_is_refused_with_the_reason() {
    needs_tracepoints!();
    let at =
        |handler: &str| refused(&header(&format!("tracepoint = syscalls:sys_enter_getpgid\n{handler}\n")));
    let said = at("push field, pidd log 1");
    assert!(said.contains("the tracepoint's record has no field of this name"), "{said}");
    assert!(said.contains("syscalls:sys_enter_getpgid has common_type, "), "{said}");
    assert!(said.contains("p.rpn:5:1") && said.contains("__syscall_nr, pid"), "{said}");
    let said = at("push r, rip log 1");
    assert!(said.contains("at a tracepoint there are no registers"), "{said}");
    let said = at("push 1 pop r, rax");
    assert!(said.contains("at a tracepoint there are no registers"), "{said}");
    let said = at("push field, common_flags log 1");
    assert!(said.contains("the kernel does not show eBPF programs this field of the record"), "{said}");
    let said = refused(&header("tracepoint = syscalls:sys_enter_nothing\nexit"));
    assert!(said.contains("the kernel has no tracepoint `syscalls:sys_enter_nothing`"), "{said}");
    let said = refused(&header("tracepoint = \"syscalls:sys_none*\"\nexit"));
    assert!(said.contains("no tracepoint of the system `syscalls` matches `sys_none*`"), "{said}");
    let said = refused(&header("tracepoint = \"nosystem:*\"\nexit"));
    assert!(said.contains("the kernel has no tracepoints of a system `nosystem`"), "{said}");
}
