//! The background session: its whole life, driven from several shells.

use crate::support::{
    Server, Session, becomes_traced, counting, is_traced, need, run, start_server as start, target,
    text_differences,
};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn from_the_first_insert_to_the_stop() {
    let module = need!("session", target("server"), "gcc");
    // A copy of its own: the session probes every process that maps the module.
    let session = Session::new();
    let module_copy = session.path().join("server");
    std::fs::copy(&module, &module_copy).expect("room for a copy");
    let name = module_copy.to_str().expect("text");
    assert_eq!(session.fails(&["query", "--all"]), "dprobes: error: nothing is inserted\n");

    let mut early = start(&module_copy);
    let text = counting(&module_copy, ["server_work"]);
    let program = session.program("count.rpn", &text);
    let records = session.path().join("records");
    let records = records.to_str().expect("text");
    let said = session.done(&["--insert", &program, "-o", records]);
    assert!(said.starts_with(&format!("1 probe inserted in `{name}`, which 1 process maps now\n")), "{said}");
    assert_eq!(early.ask("call 50"), "done 50");
    assert!(session.done(&["--query", "--all"]).contains("hits 50 runs 50"));
    assert!(session.done(&["-g", "--all", "--local"]).contains("lv[0] = 50 (0x32)"));

    // A program that is started after the insert.
    let mut late = start(&module_copy);
    becomes_traced(late.pid(), true);
    // Other text changes first: that of the dynamic linker.
    let is_probed = || text_differences(late.pid()).iter().any(|place| place.starts_with(name));
    let probed = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_probed()
    });
    assert!(probed, "the program that came later is not probed");
    assert_eq!(late.ask("call 7"), "done 7");
    assert!(session.done(&["getvars", "--name", name]).contains("lv[0] = 57 (0x39)"));
    assert_eq!(session.done(&["getvars", "--all", "--reset"]), "");
    assert_eq!(early.ask("call 3"), "done 3");
    assert!(session.done(&["getvars", "--all", "-i", "0-0"]).contains("lv[0] = 3 (0x3)"));

    // The same module once more.
    let refused = session.fails(&["-i", &program]);
    assert!(refused.contains("--merge") && refused.contains("--replace"), "{refused}");
    let logging = session.program(
        "log.rpn",
        &format!("name = \"{name}\"\nmodtype = user\ngvars = 1\noffset = server_work + 0\nminor = 9\ninc gv, 0\npush r, rdi\nlog 1\nexit\n"),
    );
    session.done(&["--insert", &logging, "--merge", "-o", records]);
    assert_eq!(late.ask("call 4"), "done 4");
    let all = session.done(&["query", "--all", "--extended"]);
    assert!(
        all.contains("hits 4 runs 4 ignored 0 missed 0 logged 4") && all.contains("hits 64 runs 64"),
        "{all}"
    );
    assert!(all.contains("inc gv, 0"), "the code is shown: {all}");
    assert!(session.done(&["getvars", "--all", "--global"]).contains("gv[0] = 4 (0x4)"));
    std::thread::sleep(Duration::from_millis(200));
    let written = std::fs::read_to_string(records).expect("records");
    assert_eq!(written.lines().filter(|line| line.starts_with("DProbes(0,9) cpu=")).count(), 4, "{written}");

    session.done(&["--insert", &program, "--replace"]);
    assert_eq!(early.ask("call 2"), "done 2");
    let all = session.done(&["query", "--name", name]);
    assert!(all.contains("hits 2 runs 2") && !all.contains("minor 9"), "{all}");

    session.done(&["--remove", "--name", name]);
    assert_eq!(session.done(&["query", "--all"]), "");
    for server in [&mut early, &mut late] {
        becomes_traced(server.pid(), false);
        assert_eq!(text_differences(server.pid()), [""; 0]);
        assert_eq!(server.ask("call 5"), "done 5");
    }
    assert!(session.fails(&["remove", "--name", name]).contains("no probes are inserted"));
    session.done(&["session", "stop"]);
    assert_eq!(session.fails(&["session", "status"]), "dprobes: error: there is no session\n");
}

#[test]
fn only_the_processes_named() {
    let module = need!("session", target("server"), "gcc");
    let session = Session::new();
    let (mut probed, mut other) = (start(&module), start(&module));
    let program = session.program("count.rpn", &counting(&module, ["server_work"]));
    session.done(&["insert", "-p", &probed.pid().to_string(), &program]);
    assert_eq!(probed.ask("call 6"), "done 6");
    assert_eq!(other.ask("call 6"), "done 6");
    assert!(!is_traced(other.pid()));
    assert!(session.done(&["query", "--all"]).contains("hits 6 runs 6"));
    let mut gone = 0;
    while Path::new(&format!("/proc/{gone}")).exists() || gone == 0 {
        gone += 99_991;
    }
    assert!(session.fails(&["insert", "--merge", "-p", &gone.to_string(), &program]).contains("no process"));
    session.done(&["session", "stop"]);
    assert!(!is_traced(probed.pid()));
    assert_eq!(text_differences(probed.pid()), [""; 0]);
    assert_eq!(probed.ask("call 1"), "done 1");
}

#[test]
fn what_cannot_be_placed_is_refused_and_nothing_is_inserted() {
    let program_under_test = need!("session", target("server"), "gcc");
    let session = Session::new();
    let module = session.path().join("server");
    std::fs::copy(program_under_test, &module).expect("room for a copy");
    let mut server = start(&module);
    let good = session.program("good.rpn", &counting(&module, ["server_work"]));
    session.done(&["insert", "-p", &server.pid().to_string(), &good]);
    let bad = session.program("bad.rpn", &counting(&module, ["server_wrok"]));
    let pid = server.pid().to_string();
    let refused = session.fails(&["insert", "--merge", "-p", &pid, &bad]);
    assert!(refused.contains("server_wrok") && refused.contains("server_work"), "{refused}");
    let refused = session.fails(&["insert", "--merge", "--log-target", "serial:/proc/version", &good]);
    assert!(refused.contains("serial:/proc/version: "), "{refused}");
    assert_eq!(server.ask("call 9"), "done 9");
    let all = session.done(&["query", "--all"]);
    assert!(all.contains("hits 9") && !all.contains("wrok"), "{all}");
}

#[test]
fn the_selected_probes_of_a_ppdf_are_applied() {
    let module = need!("session", target("server"), "gcc");
    let session = Session::new();
    let module_copy = session.path().join("server");
    std::fs::copy(&module, &module_copy).expect("room for a copy");
    let name = module_copy.to_str().expect("text");
    let text = format!(
        "name = \"{name}\"\nmodtype = user\nvars = 2\ngroupdef = a b\n\
         offset = server_work\ngroup = a\ninc lv, 0\nexit\noffset = main\ngroup = b\ninc lv, 1\nexit\n"
    );
    let rpn = session.program("server.rpn", &text);
    let ppdf = session.path().join("server.ppdf");
    let ppdf = ppdf.to_str().expect("text");
    let (status, _, said) = session.say(&["--build-ppdf", &rpn, "-o", ppdf]);
    assert!(status == 0 && said.contains("2 probes in "), "{said}");
    std::fs::remove_file(&rpn).expect("it was written");

    let mut server = start(&module_copy);
    let refused = session.fails(&["--apply-ppdf", ppdf, "--group", "c"]);
    assert!(refused.contains("no group `c`; the program's groups are `a`, `b`"), "{refused}");
    let said = session.done(&["--apply-ppdf", ppdf, "--group", "=", "a"]);
    assert!(said.starts_with(&format!("1 probe inserted in `{name}`, which 1 process maps now\n")), "{said}");
    assert_eq!(server.ask("call 9"), "done 9");
    assert!(session.done(&["getvars", "--all", "--local"]).contains("lv[0] = 9 (0x9)"));
}

/// The first instruction of `work` has one byte, so the jump there covers the next two: its
/// trampoline executes copies of them, until they are probed themselves. If memory that the three
/// jumps would have to lead to is in use, one of them becomes a trap.
#[test]
fn instructions_behind_a_jump_are_probed_later() {
    let module = need!("session", target("tight"), "gcc");
    let session = Session::new();
    let module_copy = session.path().join("tight");
    std::fs::copy(&module, &module_copy).expect("room for a copy");
    let mut server = crate::support::Server::start(&module_copy, ["-i"]);
    server.line();
    let pid = server.pid().to_string();
    let calls = |server: &mut crate::support::Server| {
        let line = server.ask("30000 3");
        assert!(line.starts_with("calls 90000 "), "{line}");
    };
    let counting_at = |offset: u64, variable: u64| {
        format!(
            "name = \"{}\"\nmodtype = user\ngvars = 3\noffset = work + {offset}\nminor = {offset}\n\
             inc gv, {variable}\nabort\n",
            module_copy.display()
        )
    };
    // push %rbp; mov %rsp, %rbp; mov %rdi, -8(%rbp)
    for (variable, offset) in [0, 1, 4].into_iter().enumerate() {
        let program = session.program(&format!("{offset}.rpn"), &counting_at(offset, variable as u64));
        let (status, _, stderr) = session.say(&["insert", "--merge", "-p", &pid, &program]);
        assert!(status == 0 && (stderr.is_empty() || stderr.contains(" became a trap")), "{stderr}");
        calls(&mut server);
    }
    let counts = session.done(&["getvars", "--all", "--global"]);
    for count in ["gv[0] = 270000 ", "gv[1] = 180000 ", "gv[2] = 90000 "] {
        assert!(counts.contains(count), "{counts}{}", session.done(&["query", "--all"]));
    }
    session.done(&["session", "stop"]);
    calls(&mut server);
    assert_eq!(text_differences(server.pid()), [""; 0]);
}

#[test]
fn probes_of_one_module_are_not_those_of_another() {
    let module = need!("session", target("server"), "gcc");
    let session = Session::new();
    let mut servers = Vec::new();
    // The same point in each, by the same name.
    for name in ["one", "two", "three"] {
        let copy = session.path().join(name);
        std::fs::copy(&module, &copy).expect("room for a copy");
        servers.push(start(&copy));
        let program = session.program(&format!("{name}.rpn"), &counting(&copy, ["server_work"]));
        let how: &[&str] = if name == "three" { &["insert", "--merge"] } else { &["insert"] };
        session.done(&[how, &[&program]].concat());
    }
    for (server, calls) in servers.iter_mut().zip([3, 4, 5]) {
        assert_eq!(server.ask(&format!("call {calls}")), format!("done {calls}"));
    }
    let all = session.done(&["query", "--all"]);
    for calls in [3, 4, 5] {
        assert!(all.contains(&format!("armed    hits {calls} runs {calls}")), "{all}");
    }
}

/// `a.out` is the program of the processes that are named, and known by its path.
#[test]
fn the_program_of_a_process_is_another_ones_too() {
    let program = need!("session", target("server"), "gcc");
    let session = Session::new();
    let paths = ["one", "two"].map(|name| session.path().join(name));
    paths.iter().for_each(|path| _ = std::fs::copy(&program, path).expect("there is room"));
    let mut servers = paths.each_ref().map(|path| start(path));
    for (server, path) in servers.iter().zip(&paths) {
        let said = session.done(&["insert", "-p", &server.pid().to_string(), "--at", "a.out:server_work"]);
        assert!(said.contains(&format!("inserted in `{}`", path.display())), "{said}");
    }
    let again = ["insert", "-p", &servers[0].pid().to_string(), "--at", "a.out:server_work"];
    assert!(session.fails(&again).contains("already; add --merge"));
    for (server, calls) in servers.iter_mut().zip([3, 5]) {
        assert_eq!(server.ask(&format!("call {calls}")), format!("done {calls}"));
    }
    let shown = session.done(&["query", "--all"]);
    for (path, hits) in paths.iter().zip(["hits 3 runs 3", "hits 5 runs 5"]) {
        let (_, rest) = shown.split_once(&path.display().to_string()).unwrap_or_else(|| panic!("{shown}"));
        assert!(rest.contains(hits), "{shown}");
    }
    session.done(&["remove", "--name", &paths[0].display().to_string()]);
    becomes_traced(servers[0].pid(), false);
    session.done(&["remove", "--all"]);
}

#[test]
fn processes_of_others_are_probed_only_by_name() {
    let module = need!("session", target("server"), "gcc");
    let setpriv = need!("session", testing::find_program("setpriv"), "setpriv");
    if !testing::is_root() {
        return testing::skipped("session: another user's process", "root");
    }
    let session = Session::new();
    // Others may not enter the directory of the tests.
    let copy = std::env::temp_dir().join(format!("dprobes-session-{}", std::process::id()));
    std::fs::copy(&module, &copy).expect("room for a copy");
    let name = copy.to_str().expect("text");
    let mut server = Server::start(&setpriv, ["--reuid=65534", "--regid=65534", "--clear-groups", name]);
    server.line();
    let program = session.program("count.rpn", &counting(&copy, ["server_work"]));
    let (status, said, warned) = session.say(&["insert", &program]);
    assert_eq!((status, said.contains("no process maps now")), (0, true), "{said}");
    assert!(warned.contains("1 process that maps it is of other users"), "{warned}");
    assert!(warned.contains("--engine kernel"), "{warned}");
    // Also where some are probed; and what the kernel cannot run is told.
    let own = start(&copy);
    let refused = counting(&copy, ["server_work"]).replace("exit", "push r, fs_base\nlog 1\nexit");
    let file = session.program("refused.rpn", &refused);
    let (status, said, warned) = session.say(&["insert", "--replace", &file]);
    assert_eq!((status, said.contains("which 1 process maps now")), (0, true), "{said}{warned}");
    assert!(warned.contains("1 process that maps it is of other users"), "{warned}");
    let reason = "--engine kernel, which is for those of all users, cannot run them (";
    assert!(warned.contains(reason), "{warned}");
    drop(own);
    assert!(!is_traced(server.pid()));
    session.done(&["insert", "--replace", "-p", &server.pid().to_string(), &program]);
    assert_eq!(server.ask("call 6"), "done 6");
    assert!(session.done(&["query", "--all"]).contains("hits 6 runs 6"));
    std::fs::remove_file(copy).expect("it is ours");
}

/// A probe that ends after some hits ends for one user's processes or, with shared variables, for
/// all.
#[test]
fn users_share_variables_in_a_session_only_where_it_is_said() {
    let module = need!("session", target("server"), "gcc");
    let setpriv = need!("session", testing::find_program("setpriv"), "setpriv");
    if !testing::is_root() {
        return testing::skipped("session: variables of two users", "root");
    }
    // Others may not enter the directory of the tests.
    let copy = std::env::temp_dir().join(format!("dprobes-shared-{}", std::process::id()));
    std::fs::copy(&module, &copy).expect("room for a copy");
    let name = copy.to_str().expect("text");
    let text = format!(
        "name = \"{name}\"\nmodtype = user\nmajor = 4\nvars = 1\ngvars = 1\n\
         offset = server_work\nmaxhits = 8\ninc lv, 0\ninc gv, 0\nabort\n"
    );
    for (share, runs) in [(&[][..], 12), (&["--share-variables"][..], 8)] {
        let session = Session::new();
        let mut own = start(&copy);
        let mut other = Server::start(&setpriv, ["--reuid=65534", "--regid=65534", "--clear-groups", name]);
        other.line();
        let (first, second) = (own.pid().to_string(), other.pid().to_string());
        let program = session.program("shared.rpn", &text);
        session.done(&[&["insert"], share, &["-p", &first, "-p", &second, &program]].concat());
        for server in [&mut own, &mut other] {
            assert_eq!(server.ask("call 6"), "done 6");
        }
        let all = session.done(&["query", "--all"]);
        let ended = if share.is_empty() { "armed    " } else { "disabled " };
        assert!(all.contains(&format!("runs {runs}")) && all.contains(ended), "{share:?}: {all}");
        let values = session.done(&["getvars", "--all"]);
        for variable in ["lv[0]", "gv[0]"] {
            assert!(values.contains(&format!("{variable} = {runs} ")), "{share:?}: {values}");
        }
        for server in [&mut own, &mut other] {
            assert_eq!(server.ask("call 1"), "done 1");
        }
    }
    std::fs::remove_file(copy).expect("it is ours");
}

/// The directory lets no other user in; if it has been opened to all, the session itself checks the
/// client's user.
#[test]
fn another_user_is_not_heard() {
    use std::os::unix::fs::PermissionsExt;
    let setpriv = need!("session", testing::find_program("setpriv"), "setpriv");
    let python = need!("session", testing::find_program("python3"), "python3");
    if !testing::is_root() {
        return testing::skipped("session: another user at the socket", "root");
    }
    let program_under_test = need!("session", target("server"), "gcc");
    let session = Session::new();
    let module = session.path().join("server");
    std::fs::copy(program_under_test, &module).expect("room for a copy");
    let program = session.program("count.rpn", &counting(&module, ["server_work"]));
    session.done(&["insert", &program]);
    let home = session.path().join("home");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
    };
    // An unwelcome client is answered before its request is read: the connection may already be
    // closed then, with the answer in it.
    let say = "import socket as s\nc = s.socket(s.AF_UNIX)\nc.connect('session')\ntry: c.sendall(b'nothing\\n')\n\
               except BrokenPipeError: pass\nprint(c.recv(4096))";
    let ask = |user: &str| {
        let mut command = Command::new(&setpriv);
        command.args([&format!("--reuid={user}"), "--clear-groups"]).arg(&python).args(["-c", say]);
        run(command.current_dir(&home))
    };
    let (status, _, error) = ask("65534");
    assert!(!status.success() && error.contains("Permission denied"), "{error}");
    mode(&home, 0o755);
    mode(&home.join("session"), 0o777);
    let (status, answer, error) = ask("65534");
    assert!(status.success() && answer.contains("this session belongs to another user"), "{answer}{error}");
    let (status, answer, error) = ask("0");
    assert!(status.success() && answer.contains("this request is not understood"), "{answer}{error}");
    mode(&home, 0o700);
    assert!(session.done(&["query", "--all"]).contains("hits 0 runs 0"));
}

/// Without an option for them, records go to a file, which is named, and none is lost.
#[test]
fn records_go_to_a_file_that_is_told() {
    let module = need!("session", target("server"), "gcc");
    let session = Session::new();
    let mut server = start(&module);
    let pid = server.pid().to_string();
    let at = format!("{}:server_work:entry", module.display());
    let said = session.done(&["insert", "-p", &pid, "--at", &at, "--do", "push r, rdi; log 1"]);
    let records = session.path().join("home/records");
    assert!(said.contains(&format!("\nits records go to {}; ", records.display())), "{said}");
    assert_eq!(server.ask("call 3000"), "done 3000");
    session.done(&["remove", "--all"]);
    let text = std::fs::read_to_string(&records).expect("they are there");
    assert_eq!(text.matches(" cpu=").count(), 3000);
    // `pidN:` names the process of -p, and no other.
    let other = format!("pid1:{at}");
    let said = session.fails(&["insert", "-p", &pid, "--at", &other]);
    assert!(said.contains(&format!("`pid1:` names another process than -p {pid}")), "{said}");
    let own = format!("pid{pid}:libc.so:malloc:entr?");
    assert!(session.done(&["insert", "-p", &pid, "--at", &own]).contains("1 probe inserted in `libc.so`"));
}
