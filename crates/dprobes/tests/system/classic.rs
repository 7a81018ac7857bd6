//! The original's options in the background session.

use crate::support::{
    Server, Session, becomes_traced, counting, find_program, is_traced, need, run, start_server, target,
    text_differences, variant,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A private copy of a program: the session probes every process that maps the module.
fn copy(session: &Session, program: &Path, name: &str) -> PathBuf {
    let path = session.path().join(name);
    std::fs::copy(program, &path).expect("room for a copy");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The hits of a probepoint, as `query` shows them.
#[track_caller]
fn hits(session: &Session, point: &str) -> u64 {
    let all = session.done(&["query", "--all"]);
    let line = all.lines().find(|line| line.trim_start().starts_with(&format!("{point} ")));
    let line = line.unwrap_or_else(|| panic!("no {point}: {all}"));
    let count = line.split(" hits ").nth(1).and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).expect("a number of hits")
}

#[test]
fn what_is_removed_lets_go_of_the_processes_that_have_no_other_probe() {
    let server = need!("classic", target("server"), "gcc");
    let plugin = need!("classic", target("plugin"), "gcc");
    let launcher = need!("classic", target("preload"), "gcc and a static C library");
    let session = Session::new();
    let (one, other) = (copy(&session, &server, "one"), copy(&session, &server, "other"));
    let library = copy(&session, &plugin, "library.so");
    let mut of_one = start_server(&one);
    let mut of_other = start_server(&other);
    // This one has both the first module and the library.
    let mut of_both = Server::start(&launcher, [text(&library), "/dev/null", text(&one)]);
    of_both.line();
    for (name, module, point) in
        [("one", &one, "server_work"), ("other", &other, "server_work"), ("lib", &library, "plugin_work")]
    {
        let program = session.program(&format!("{name}.rpn"), &counting(module, [point]));
        session.done(&["--insert", &program]);
    }
    for server in [&mut of_one, &mut of_other, &mut of_both] {
        assert!(is_traced(server.pid()));
        assert_eq!(server.ask("call 4"), "done 4");
    }

    session.done(&["--remove", "--name", text(&one)]);
    // At once: the command returns only after the processes were detached.
    assert!(!is_traced(of_one.pid()));
    assert_eq!(text_differences(of_one.pid()), [""; 0]);
    assert!(is_traced(of_other.pid()) && is_traced(of_both.pid()));
    for server in [&mut of_one, &mut of_other, &mut of_both] {
        assert_eq!(server.ask("call 5"), "done 5");
    }
    assert!(session.done(&["query", "--name", text(&other)]).contains("hits 9 runs 9"));
    assert!(session.done(&["session", "status"]).contains("2 programs, 2 processes followed"));

    session.done(&["-r", "-n", text(&library)]);
    assert!(!is_traced(of_both.pid()) && is_traced(of_other.pid()));
    // Detached processes can be probed again.
    let again = session.done(&["-i", &session.program("again.rpn", &counting(&one, ["server_work"]))]);
    assert!(again.contains("which 2 processes map now"), "{again}");
    assert_eq!(of_both.ask("call 6"), "done 6");
    assert!(session.done(&["query", "--name", text(&one)]).contains("hits 6 runs 6"));

    session.done(&["--remove", "--all"]);
    for server in [&mut of_one, &mut of_other, &mut of_both] {
        assert!(!is_traced(server.pid()));
        assert_eq!(text_differences(server.pid()), [""; 0]);
        assert_eq!(server.ask("call 1"), "done 1");
    }
}

#[test]
fn a_process_that_was_named_waits_for_its_module_and_stays() {
    let server = need!("classic", target("server"), "gcc");
    let session = Session::new();
    let (one, other) = (copy(&session, &server, "one"), copy(&session, &server, "other"));
    let mut process = start_server(&one);
    let pid = process.pid().to_string();
    let on_one = session.program("one.rpn", &counting(&one, ["server_work"]));
    let on_other = session.program("other.rpn", &counting(&other, ["server_work"]));
    session.done(&["insert", &on_one]);
    session.done(&["insert", "-p", &pid, &on_other]);
    session.done(&["remove", "--name", text(&one)]);
    assert!(is_traced(process.pid()), "the other module may come yet");
    assert_eq!(process.ask("call 3"), "done 3");
    session.done(&["remove", "--name", text(&other)]);
    becomes_traced(process.pid(), false);
    assert_eq!(process.ask("call 3"), "done 3");
}

#[test]
fn a_process_whose_other_probes_are_over_is_let_go_and_left_alone() {
    let server = need!("classic", target("server"), "gcc");
    let plugin = need!("classic", target("plugin"), "gcc");
    let launcher = need!("classic", target("preload"), "gcc and a static C library");
    let session = Session::new();
    let (one, library) = (copy(&session, &server, "one"), copy(&session, &plugin, "library.so"));
    let mut process = Server::start(&launcher, [text(&library), "/dev/null", text(&one)]);
    process.line();
    let thrice = counting(&one, ["server_work"]).replace("minor = 1", "minor = 1\nmaxhits = 3");
    session.done(&["insert", &session.program("thrice.rpn", &thrice)]);
    session.done(&["insert", &session.program("library.rpn", &counting(&library, ["plugin_work"]))]);
    assert_eq!(process.ask("call 9"), "done 9");
    assert!(is_traced(process.pid()));
    session.done(&["remove", "--name", text(&library)]);
    assert!(!is_traced(process.pid()));
    // An older process is looked at every second.
    std::thread::sleep(Duration::from_millis(1300));
    assert!(!is_traced(process.pid()));
    assert_eq!(hits(&session, "server_work"), 3);
    assert_eq!(process.ask("call 9"), "done 9");
}

#[test]
fn symbols_come_from_another_file_of_the_same_build_only() {
    let server = need!("classic", variant("server", "server-id", &["-g", "-Wl,--build-id=sha1"]), "gcc");
    let foreign = need!("classic", variant("server", "server-O1", &["-O1", "-Wl,--build-id=sha1"]), "gcc");
    let plain = need!("classic", variant("server", "server-no-id", &["-Wl,--build-id=none"]), "gcc");
    let objcopy = need!("classic", find_program("objcopy"), "binutils");
    let session = Session::new();
    let debug = session.path().join("server.debug");
    let stripped = session.path().join("server");
    for (flag, output) in [("--only-keep-debug", &debug), ("--strip-all", &stripped)] {
        let (status, _, said) = run(Command::new(&objcopy).arg(flag).arg(&server).arg(output));
        assert!(status.success(), "{said}");
    }
    let mut process = start_server(&stripped);
    let program = session.program("count.rpn", &counting(&stripped, ["server_work"]));
    let refused = session.fails(&["--insert", &program]);
    assert!(refused.contains("no symbol `server_work`") && refused.contains("--sym"), "{refused}");
    let refused = session.fails(&["--insert", &program, "--sym", text(&foreign)]);
    let id = |file: &Path| {
        use object::Object;
        let bytes = std::fs::read(file).expect("it was built");
        let file = object::File::parse(&*bytes).expect("it is an ELF file");
        let id = file.build_id().expect("its notes are sound").expect("it has a build-id");
        id.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert!(refused.contains(&format!("build-id {} expected", id(&server))), "{refused}");
    assert!(refused.contains(&format!("build-id {} found", id(&foreign))), "{refused}");
    // The module was not named by its path: the refusal comes from the process's own file.
    let by_name = session.program("name.rpn", &counting(Path::new("server"), ["server_work"]));
    let refused = session.fails(&["-i", &by_name, "-s", text(&foreign), "-p", &process.pid().to_string()]);
    assert!(refused.contains(&id(&server)) && refused.contains(&id(&foreign)), "{refused}");
    assert_eq!(text_differences(process.pid()), [""; 0]);

    for symbols in [&debug, &server] {
        session.done(&["-i", &program, "--replace", "-s", text(symbols)]);
        assert_eq!(process.ask("call 6"), "done 6");
        assert_eq!(hits(&session, "server_work"), 6, "{}", symbols.display());
    }
    // Also for a later process, when the file of symbols is gone.
    std::fs::remove_file(&debug).expect("it was made");
    let mut late = start_server(&stripped);
    becomes_traced(late.pid(), true);
    assert_eq!(late.ask("call 2"), "done 2");
    assert_eq!(hits(&session, "server_work"), 8);
    // If neither has a build-id, the positions of the code decide.
    let bare = session.path().join("bare");
    let (status, _, said) = run(Command::new(&objcopy).arg("--strip-all").arg(&plain).arg(&bare));
    assert!(status.success(), "{said}");
    let program = session.program("bare.rpn", &counting(&bare, ["server_work"]));
    let refused = session.fails(&["-i", &program, "--sym", text(&foreign)]);
    assert!(refused.contains("expected, code at 0x"), "{refused}");
    session.done(&["-i", &program, "--sym", text(&plain)]);
    let mut process = start_server(&bare);
    becomes_traced(process.pid(), true);
    assert_eq!(process.ask("call 5"), "done 5");
}

#[test]
fn unformatted_records_are_bytes_in_a_line() {
    let server = need!("classic", target("server"), "gcc");
    let session = Session::new();
    let module = copy(&session, &server, "server");
    let mut process = start_server(&module);
    let program = session.program(
        "log.rpn",
        &format!(
            "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = server_work\nminor = 4\n\
             push r, rdi\npush 0x0f10\nlog 2\nexit\n",
            module.display()
        ),
    );
    let ppdf = session.path().join("log.ppdf");
    let (status, _, _) = session.say(&["-b", &program, "--outfile", text(&ppdf)]);
    assert_eq!(status, 0);
    let records = session.path().join("records");
    for line in [
        &["--insert", &program, "--unformatted-output", "-o", text(&records), "--log", "PROCNAME", "uid"][..],
        &["--apply-ppdf", text(&ppdf), "-f", "-c", "-o", text(&records), "-l", "procname,UID"],
    ] {
        session.done(line);
        assert_eq!(process.ask("call 3"), "done 3");
        session.done(&["remove", "--all"]);
        let written = std::fs::read_to_string(&records).expect("there are records");
        std::fs::remove_file(&records).expect("they were written");
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines.len(), 6, "{written}");
        // SAFETY: a call without arguments that cannot fail.
        let user = unsafe { libc::getuid() };
        for (number, pair) in lines.chunks(2).enumerate() {
            let (cpu, rest) = pair[0].split_once(" name=").expect("the name of the process");
            assert!(cpu.starts_with("DProbes(3,4) cpu="), "{written}");
            assert_eq!(rest, format!("server uid={user}"), "{written}");
            let bytes = format!("10 0f 00 00 00 00 00 00 {number:02x} 00 00 00 00 00 00 00");
            assert_eq!(pair[1], format!("DProbes(3,4)  {bytes}"), "{written}");
        }
    }
}

#[test]
fn no_thread_gets_past_a_probe_before_all_are_in() {
    let lockstep = need!("classic", target("lockstep"), "gcc");
    // The probes of the two functions come first and last, in either order, with many in between.
    let fillers: Vec<String> = (0..512).map(|place| format!("filler + {place}")).collect();
    for (ends, options) in [
        (["left", "right"], &[][..]),
        (["right", "left"], &[]),
        (["left", "right"], &["--stop-cpus"]),
        (["right", "left"], &["--stop-cpus"]),
    ] {
        let session = Session::new();
        let module = copy(&session, &lockstep, "lockstep");
        let points =
            [&ends[..1], &fillers.iter().map(String::as_str).collect::<Vec<_>>(), &ends[1..]].concat();
        let program = session.program("lockstep.rpn", &counting(&module, points));
        let mut process = start_server(&module);
        std::thread::sleep(Duration::from_millis(20));
        session.done(&[&["--insert", program.as_str()], options].concat());
        while hits(&session, "left") < 20 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let rounds = process.ask("stop");
        let (left, right) = (hits(&session, "left"), hits(&session, "right"));
        // Each call of `left` is followed by one of `right`; the first call seen may be one of
        // `right`.
        assert!(right == left || right == left + 1, "{options:?} {left} {right} of {rounds}");
    }
}
