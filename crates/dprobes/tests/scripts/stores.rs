//! What `printf` says as records: in a trace store, and in files of lines.

use super::kernel::can_run;
use super::support::{Scratch, dprobes, run, target};
use std::path::Path;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    for engine in ["jump", "trap"] {
        trials.add(format!("stores: a store shows and converts what is printed ({engine})"), move || {
            match target("scripted") {
                Some(program) => kept(&program, &["--engine", engine]),
                None => testing::skipped("trace: stores", "gcc"),
            }
        });
    }
    trials.add("stores: lines in a file", || match target("scripted") {
        Some(program) => lines(&program),
        None => testing::skipped("trace: stores: lines", "gcc"),
    });
    trials.add("stores: a target that cannot be opened", refused);
    trials.add("bpf: stores: by the kernel", || match target("scripted").filter(|_| can_run()) {
        Some(program) => by_the_kernel(&program),
        None => testing::skipped("bpf: stores: by the kernel", "root, and a kernel with uprobes"),
    });
}

const SCRIPT: &str = r#"
begin { printf("begins (%s)\n", probetype); }
uprobe:PROGRAM:scripted_name { printf("name=%s size=%d at %x, %5d%%\n", str(arg0), 7, 255, 12); @ = count(); }
end { printf("ends with %d\n", (int64)@); }
"#;

fn script(program: &Path) -> String {
    SCRIPT.replace("PROGRAM", &program.to_string_lossy())
}

fn kept(program: &Path, options: &[&str]) {
    let scratch = Scratch::new();
    let store = scratch.path().join("printed.dpt");
    let mut command = dprobes();
    command.arg("trace").args(options).args(["-q", "-e", &script(program), "-o"]).arg(&store);
    let (status, printed, said) = run(command.arg("--").arg(program).args(["calls", "3"]));
    // The status is the command's.
    assert_eq!((status.code(), said.as_str()), (Some(3), ""));
    // Maps are printed as always.
    assert_eq!(printed.trim(), "@: 3");
    let (status, shown, said) = run(dprobes().arg("show").arg(&store));
    assert!(status.success(), "{said}");
    let texts: Vec<&str> = shown.lines().filter(|line| !line.starts_with("DProbes(1,")).collect();
    assert_eq!(
        texts,
        [
            "begins (special)",
            "name=red size=7 at 00000000000000ff,    12%",
            "name=green size=7 at 00000000000000ff,    12%",
            "name=blue size=7 at 00000000000000ff,    12%",
            "ends with 3"
        ]
    );
    assert!(shown.contains("DProbes(1,2)") && shown.contains("printf, script:3"), "{shown}");
    let (status, json, said) = run(dprobes().arg("convert").arg(&store).args(["--to", "json"]));
    assert!(status.success(), "{said}");
    let green = json.lines().find(|line| line.contains("green")).expect("it is there");
    for part in [
        r#""fields":{"name":"green","size":7,"at":"0xff""#,
        r#""comm":"scripted""#,
        r#""symbol":"scripted_name""#,
        r#""event":"printf, script:3""#,
    ] {
        assert!(green.contains(part), "{part}: {green}");
    }
    assert!(json.lines().last().is_some_and(|line| line.contains(r#""ends_with":3"#)), "{json}");
}

fn lines(program: &Path) {
    let scratch = Scratch::new();
    let file = scratch.path().join("lines");
    let mut command = dprobes();
    command.args(["trace", "-q", "-e", &script(program), "--log-target"]);
    command.arg(format!("file:{}", file.display()));
    let (status, printed, said) = run(command.arg("--").arg(program).args(["calls", "2"]));
    assert_eq!((status.code(), printed.trim(), said.as_str()), (Some(3), "@: 2", ""));
    let text = std::fs::read_to_string(&file).expect("it was written");
    for part in ["begins (special)", "name=red size=7", "name=green size=7", "ends with 2"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn refused() {
    let (status, _, said) =
        run(dprobes().args(["trace", "-e", "begin { printf(\"x\"); exit(); }", "-o", "/nowhere/at/all.dpt"]));
    assert!(status.code() == Some(1) && said.contains("/nowhere/at/all.dpt"), "{said}");
}

fn by_the_kernel(program: &Path) {
    let scratch = Scratch::new();
    let (copy, store) = (scratch.path().join("scripted"), scratch.path().join("printed.dpt"));
    std::fs::copy(program, &copy).expect("there is room");
    let text = script(&copy);
    let store_name = store.to_string_lossy();
    let tracing = super::tracing::Tracing::start(&["-e", &text, "-o", &store_name]);
    tracing.says("armed");
    let status = std::process::Command::new(&copy).args(["calls", "3"]).status();
    assert_eq!(status.expect("it runs").code(), Some(3));
    let (status, _) = tracing.stop(libc::SIGINT);
    assert_eq!(status.code(), Some(0));
    let (_, shown, said) = run(dprobes().arg("show").arg(&store));
    let (_, json, _) = run(dprobes().arg("convert").arg(&store).args(["--to", "json"]));
    let green = json.lines().find(|line| line.contains("green")).expect("it is there");
    assert!(green.contains(r#""comm":"scripted""#) && green.contains(r#""size":7"#), "{green}");
    let names = ["name=red size=7", "name=green size=7", "name=blue size=7", "ends with 3"];
    assert!(names.iter().all(|name| shown.contains(name)), "{shown} {said}");
}
