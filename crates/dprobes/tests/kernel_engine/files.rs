//! Which files are probed: by path, by name, mapped or not, in whatever root.

use crate::support::{Scratch, Server, build, copy, counting, need, needs_kernel, run, start, target};
use std::path::Path;
use std::process::Command;

/// A program and its library, both in a scratch directory; the library is opened at run time.
fn program_and_library(scratch: &Scratch, library: &str) -> Option<(std::path::PathBuf, std::path::PathBuf)> {
    let program = copy(scratch, &target("dlopen")?, "dlopen");
    Some((program, copy(scratch, &target("plugin")?, library)))
}

#[test]
fn a_library_by_path_is_counted_from_its_constructor() {
    needs_kernel!("files");
    let scratch = Scratch::new();
    let (program, library) = need!("bpf: files", program_and_library(&scratch, "libown.so"), "gcc");
    let mut session = start(&counting(&library.display().to_string(), &["plugin_work"]), &[]);
    session.armed();
    let output = Command::new(&program).arg(&library).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "calls 45\n");
    assert_eq!(session.stop().ended_with(0).stats.hits(1), 45);
}

/// Opens a library, and calls its function as often as each line of its input says.
const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    void *library = dlopen(words[1], RTLD_NOW);
    long (*work)(long) = library ? (long (*)(long))dlsym(library, "plugin_work") : NULL;
    if (!work) return 1;
    long calls;
    printf("ready\n");
    while (scanf("%ld", &calls) == 1) {
        for (long i = 0; i < calls; i++) work(i);
        printf("done %ld\n", calls);
    }
    return 0;
}
"#;

#[test]
fn a_library_by_its_name_is_found_where_it_is_mapped() {
    needs_kernel!("files");
    let scratch = Scratch::new();
    // No other process may have a library of this name.
    let name = format!("libnamed{}.so.3", std::process::id());
    let (_, library) = need!("bpf: files", program_and_library(&scratch, &name), "gcc");
    let loader = need!("bpf: files", build(&scratch, LOADER, "loader", &["-ldl"]), "gcc");
    let without_version = name.strip_suffix(".so.3").expect("it ends so").to_owned();
    let mut before = Server::start(&loader, [&library]);
    assert_eq!(before.line(), "ready");
    // Mapped already, by its name without the version; and mapped later, by its name.
    let mut session = start(&counting(&without_version, &["plugin_work"]), &[]);
    session.armed();
    assert_eq!(before.ask("7"), "done 7");
    // From now on the file is known, and counts from the constructor on.
    let mut other = Server::start(&loader, [&library]);
    assert_eq!((other.line(), other.ask("20")), ("ready".into(), "done 20".into()));
    // Its destructor calls twice.
    assert!(before.end().0.success() && other.end().0.success());
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.stats.hits(1), 7 + 3 + 20 + 2 + 2, "{outcome:#?}");

    let mut session = start(&counting(&name, &["plugin_work"]), &[]);
    session.until("waiting for a process to map it");
    let mut later = Server::start(&loader, [&library]);
    assert_eq!(later.line(), "ready");
    session.armed();
    assert_eq!(later.ask("9"), "done 9");
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.stats.hits(1), 9, "{outcome:#?}");
    assert!(outcome.stderr.contains(&format!("1 probe armed in {}", library.display())), "{outcome:#?}");
}

#[test]
fn a_path_may_lead_to_a_file_that_appears_later() {
    needs_kernel!("files");
    let scratch = Scratch::new();
    let built = need!("bpf: files", target("server"), "gcc");
    let path = scratch.path().join("later");
    let mut session = start(&counting(&path.display().to_string(), &["server_work"]), &[]);
    session.until("waiting for a process to map it");
    let program = copy(&scratch, &built, "later");
    session.armed();
    assert_eq!(Command::new(program).args(["leaf", "9"]).output().expect("it starts").status.code(), Some(5));
    assert_eq!(session.stop().ended_with(0).stats.hits(1), 9);
}

#[test]
fn a_file_that_was_replaced_is_probed_where_it_still_runs() {
    needs_kernel!("files");
    let scratch = Scratch::new();
    let built = need!("bpf: files", target("server"), "gcc");
    let name = format!("server{}", std::process::id());
    let program = copy(&scratch, &built, &name);
    let mut old = Server::start(&program, [] as [&str; 0]);
    old.line();
    std::fs::remove_file(&program).expect("it is there");
    let mut session = start(&counting(&name, &["server_work"]), &[]);
    session.armed();
    assert_eq!(old.ask("call 12"), "done 12");
    assert_eq!(session.stop().ended_with(0).stats.hits(1), 12);
    assert!(old.end().0.success());
}

#[test]
fn a_file_in_another_root_is_probed_there() {
    needs_kernel!("files");
    let scratch = Scratch::new();
    // It lives long enough to be seen.
    let source = "#include <stdlib.h>\n#include <unistd.h>\nint leaf_work(int n) { return n + 1; }\n\
        int main(int count, char **words) { int sum = 0; for (int i = 0; i < 30; i++) sum += leaf_work(i);\n\
        usleep(atoi(words[count - 1])); return sum == 465 ? 0 : 1; }\n";
    let name = format!("rooted{}", std::process::id());
    let program = need!("bpf: files", build(&scratch, source, &name, &["-static", "-O0"]), "gcc -static");
    // Two roots, each with a copy of the program at the same path.
    for root in ["one", "two"] {
        let directory = scratch.path().join(root).join("opt");
        std::fs::create_dir_all(&directory).expect("there is room");
        std::fs::copy(&program, directory.join(&name)).expect("there is room");
    }
    std::fs::remove_file(&program).expect("it is there");
    let in_root = |root: &str, microseconds: &str| {
        let mut command = Command::new("chroot");
        command.arg(scratch.path().join(root)).arg(format!("/opt/{name}")).arg(microseconds);
        command
    };
    let (status, ..) = run(&mut in_root("one", "0"));
    if !status.success() {
        return testing::skipped("bpf: files: roots", "chroot");
    }
    // The path leads nowhere in this root: it is a path of those processes.
    let mut session = start(&counting(&format!("/opt/{name}"), &["leaf_work"]), &[]);
    session.until("waiting for a process to map it");
    let begin = std::time::Instant::now();
    let armed = |session: &crate::support::Session| session.said().matches(" armed in ").count();
    while armed(&session) < 2 {
        for root in ["one", "two"] {
            assert!(in_root(root, "300000").status().expect("it starts").success());
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(120), "{}", session.said());
    }
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.stats.probes[0].sites.kernel.values().sum::<usize>(), 2, "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1) % 30, 0, "{outcome:#?}");
}

#[test]
fn the_engine_says_which_files_it_probes_once() {
    needs_kernel!("files");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: files", target("server"), "gcc"), "server");
    let mut servers: Vec<Server> = (0..3).map(|_| Server::start(&program, [] as [&str; 0])).collect();
    servers.iter().for_each(|server| drop(server.line()));
    let mut session = start(&counting(&program.display().to_string(), &["server_work"]), &[]);
    session.armed();
    for server in &mut servers {
        assert_eq!(server.ask("call 4"), "done 4");
    }
    let outcome = session.stop().ended_with(0);
    let told = format!("1 probe armed in {}, for all processes", program.display());
    assert_eq!(outcome.stderr.matches(&told).count(), 1, "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 12);
    assert!(Path::new(&program).exists());
}
