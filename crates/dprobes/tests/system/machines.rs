//! One insert, two kinds of processes: each gets the program compiled for its machine.

use crate::i386::target_32;
use crate::support::{
    Server, Session, becomes_traced, find_program, is_traced, need, run, start_server as start, target,
    text_differences,
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target `server` for both machines, under one name in two directories.
struct Pair {
    session: Session,
    name: String,
    wide: PathBuf,
    narrow: PathBuf,
}

impl Pair {
    /// `name` is unique to a test: the session probes every process that maps a module with this
    /// name.
    fn new(name: &str) -> Option<Pair> {
        let (wide, narrow) = (target("server")?, target_32("server", &[])?);
        let session = Session::new();
        let name = format!("{name}-{}", std::process::id());
        let place = |directory: &str, program: &Path| {
            let directory = session.path().join(directory);
            std::fs::create_dir(&directory).expect("a fresh directory");
            let path = directory.join(&name);
            std::fs::copy(program, &path).expect("room for a copy");
            path
        };
        let (wide, narrow) = (place("lib64", &wide), place("lib32", &narrow));
        Some(Pair { session, name, wide, narrow })
    }

    /// A program for the module's name, with this handler.
    fn text(&self, statements: &str, handler: &str) -> String {
        format!(
            "name = \"{}\"\nmodtype = user\nmajor = 1\nvars = 1\noffset = server_work\n{statements}minor = 1\n\
             inc lv, 0\n{handler}log 1\nexit\n",
            self.name
        )
    }

    /// The lines of a query that name refused processes, with the reasons.
    fn refused(&self) -> Vec<String> {
        let said = self.session.done(&["query", "--name", &self.name]);
        said.lines()
            .filter(|line| line.contains("not probed in"))
            .map(|line| line.trim().to_owned())
            .collect()
    }

    /// Waits until a query names a process as refused.
    #[track_caller]
    fn becomes_refused(&self, server: &Server) {
        for _ in 0..500 {
            if self.refused().concat().contains(&server.pid().to_string()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("process {} is not refused: {:?}", server.pid(), self.refused());
    }
}

/// The data of each record, in order.
fn rows(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("records");
    let rows = text.lines().filter_map(|line| line.split(" : ").nth(1));
    rows.map(|row| row.split_whitespace().collect()).collect()
}

/// The same, once there are `count` rows, or after ten seconds.
fn rows_when(path: &Path, count: usize) -> Vec<String> {
    for _ in 0..500 {
        if rows(path).len() >= count {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    rows(path)
}

#[test]
fn a_module_found_by_its_name_is_probed_in_the_processes_of_both_machines() {
    let pair = need!("machines", Pair::new("both"), "gcc -m32");
    let (mut wide, mut narrow) = (start(&pair.wide), start(&pair.narrow));
    let program = pair.session.program("both.rpn", &pair.text("", "push 0\npush 1\nsub\n"));
    let records = pair.session.path().join("records");
    let said = pair.session.done(&["insert", &program, "-o", records.to_str().expect("text")]);
    assert!(
        said.starts_with(&format!("1 probe inserted in `{}`, which 2 processes map now\n", pair.name)),
        "{said}"
    );
    assert_eq!((wide.ask("call 3"), narrow.ask("call 5")), ("done 3".into(), "done 5".into()));
    // It is one program: the counts and the variable are those of both processes.
    assert!(pair.session.done(&["query", "--name", &pair.name]).contains("hits 8 runs 8"));
    assert!(pair.session.done(&["getvars", "--name", &pair.name]).contains("lv[0] = 8 (0x8)"));
    // Those that are started later, too.
    let (mut later_wide, mut later_narrow) = (start(&pair.wide), start(&pair.narrow));
    for server in [&later_wide, &later_narrow] {
        becomes_traced(server.pid(), true);
    }
    assert_eq!((later_wide.ask("call 2"), later_narrow.ask("call 4")), ("done 2".into(), "done 4".into()));
    let mut words: Vec<usize> = rows_when(&records, 14).iter().map(|row| row.len() / 2).collect();
    words.sort_unstable();
    // 1 - 0 in words of 4 and of 8 bytes.
    assert_eq!(words, [[4; 9].as_slice(), &[8; 5]].concat());
    assert!(rows(&records).iter().all(|row| row.starts_with("01000000")), "{:?}", rows(&records));
    assert_eq!(pair.refused(), [""; 0]);
    pair.session.done(&["remove", "--name", &pair.name]);
    for server in [&mut wide, &mut narrow, &mut later_wide, &mut later_narrow] {
        becomes_traced(server.pid(), false);
        assert_eq!(text_differences(server.pid()), [""; 0]);
        assert_eq!(server.ask("call 1"), "done 1");
    }
}

#[test]
fn a_path_means_the_machine_of_its_file() {
    let pair = need!("machines", Pair::new("path"), "gcc -m32");
    let (mut wide, mut narrow) = (start(&pair.wide), start(&pair.narrow));
    let text = pair.text("", "push r, esp\npush 4\nadd\npush mem, u32\n");
    let text = text.replace(&pair.name, &pair.narrow.to_string_lossy());
    let program = pair.session.program("narrow.rpn", &text);
    let records = pair.session.path().join("records");
    let said = pair.session.done(&["insert", &program, "-o", records.to_str().expect("text")]);
    assert!(said.contains("which 1 process maps now"), "{said}");
    assert_eq!((wide.ask("call 3"), narrow.ask("call 2")), ("done 3".into(), "done 2".into()));
    assert!(!is_traced(wide.pid()));
    // The argument, above the return address.
    let rows = rows_when(&records, 2);
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.len() == 8), "{rows:?}");
}

#[test]
fn what_compiles_for_one_machine_is_refused_to_the_other_with_the_reason() {
    let pair = need!("machines", Pair::new("one"), "gcc -m32");
    let (mut wide, mut narrow) = (start(&pair.wide), start(&pair.narrow));
    let program = pair.session.program("wide.rpn", &pair.text("", "push r, r8\n"));
    let (status, said, warned) = pair.session.say(&["insert", &program]);
    assert!(status == 0 && said.contains("which 1 process maps now"), "{said}{warned}");
    let reason = |pids: &str| format!("not probed in i386 process{pids}: {program}:8:9: ");
    let refused = pair.refused();
    assert!(
        refused.len() == 1 && refused[0].starts_with(&reason(&format!(" {}", narrow.pid()))),
        "{refused:?}"
    );
    assert!(refused[0].contains("r8"), "{refused:?}");
    assert_eq!(warned, format!("dprobes: warning: {}\n", refused[0]));
    assert_eq!((wide.ask("call 3"), narrow.ask("call 5")), ("done 3".into(), "done 5".into()));
    assert!(pair.session.done(&["query", "--all"]).contains("hits 3 runs 3"));
    assert!(!is_traced(narrow.pid()) && text_differences(narrow.pid()).is_empty());
    // A process that is started later is refused, too; one that has ended is not listed any more.
    let mut later = start(&pair.narrow);
    pair.becomes_refused(&later);
    assert_eq!(later.ask("call 1"), "done 1");
    narrow.send("exit 0");
    drop(narrow);
    assert!(pair.refused()[0].starts_with(&reason(&format!(" {}", later.pid()))), "{:?}", pair.refused());
    // For a process named by -p it is not a warning but an error, and nothing is inserted.
    let pid = later.pid().to_string();
    let said = pair.session.fails(&["insert", "--merge", "-p", &pid, &program]);
    assert!(
        said.contains(&format!("process {pid} is a program for i386, which this is not for: ")),
        "{said}"
    );
}

#[test]
fn an_opcode_that_one_machine_has_refuses_the_others_processes() {
    let pair = need!("machines", Pair::new("opcode"), "gcc -m32");
    let objdump = need!("machines", find_program("objdump"), "objdump");
    let first = |program: &Path| {
        let (_, with, _) = run(Command::new(&objdump).args(["-d", "--disassemble=server_work"]).arg(program));
        let line =
            with.lines().skip_while(|line| !line.contains("<server_work>:")).nth(1).expect("code").to_owned();
        line.split('\t').nth(1).expect("bytes").split(' ').next().expect("a byte").to_owned()
    };
    let (own, other) = (first(&pair.narrow), first(&pair.wide));
    assert_ne!(own, other, "the functions begin alike: the test proves nothing");
    let (mut wide, mut narrow) = (start(&pair.wide), start(&pair.narrow));
    let program = pair.session.program("narrow.rpn", &pair.text(&format!("opcode = 0x{own}\n"), "push 1\n"));
    let (status, said, warned) = pair.session.say(&["insert", &program]);
    assert!(status == 0 && said.contains("which 1 process maps now"), "{said}{warned}");
    let refused = pair.refused();
    let expected = format!("opcode 0x{own} expected, 0x{other} found");
    assert!(refused.len() == 1 && refused[0].contains(&expected), "{refused:?}");
    assert!(refused[0].starts_with(&format!("not probed in x86-64 process {}: ", wide.pid())), "{refused:?}");
    assert_eq!((wide.ask("call 3"), narrow.ask("call 5")), ("done 3".into(), "done 5".into()));
    assert!(pair.session.done(&["query", "--all"]).contains("hits 5 runs 5"));
    // If no process can take it, nothing is inserted.
    drop(narrow);
    pair.session.done(&["remove", "--all"]);
    let said = pair.session.fails(&["insert", &program]);
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn a_ppdf_is_for_the_machine_it_was_built_for() {
    let pair = need!("machines", Pair::new("ppdf"), "gcc -m32");
    let (mut wide, mut narrow) = (start(&pair.wide), start(&pair.narrow));
    let program = pair.session.program("pair.rpn", &pair.text("", "push 1\n"));
    let ppdf = pair.session.path().join("pair.ppdf").to_str().expect("text").to_owned();
    let (status, _, said) = pair.session.say(&[
        "build-ppdf",
        &program,
        "--sym",
        pair.narrow.to_str().expect("text"),
        "-o",
        &ppdf,
    ]);
    assert_eq!(status, 0, "{said}");
    let (status, said, warned) = pair.session.say(&["--apply-ppdf", &ppdf]);
    assert!(status == 0 && said.contains("which 1 process maps now"), "{said}{warned}");
    let expected = format!("not probed in x86-64 process {}: {ppdf} was built for i386", wide.pid());
    assert_eq!(pair.refused(), [expected]);
    assert_eq!((wide.ask("call 3"), narrow.ask("call 5")), ("done 3".into(), "done 5".into()));
    assert!(pair.session.done(&["query", "--all"]).contains("hits 5 runs 5"));
}
