//! Tests the soundness runner: no program notices probes at a few hundred random sites of each
//! module; and the runner detects a program that does, and finds the site.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

fn soundness(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soundness"));
    command.arg("--quick").args(words).output().expect("the runner starts")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn no_program_can_tell() {
    if !testing::have("soundness", &["gcc", "objdump"]) {
        return;
    }
    let command = dprobes_bench::build::tested_dprobes().expect("the command can be built");
    let output = soundness(&["--dprobes", command.to_str().expect("the path is text")]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for module in ["sqlite3", "python3", "redis-server"]
        .into_iter()
        .filter(|program| testing::have("soundness", &[program]))
    {
        let name = module.trim_end_matches("3").trim_end_matches("-server");
        assert!(said.contains(&format!("### {name}: ")), "{module} was not probed: {said}");
    }
    // A library cannot be requested like a program: the runner looks for it, and reports if it
    // finds none.
    match said.lines().find_map(|line| line.strip_prefix("Skipped: libpython: ")) {
        Some(why) => testing::skipped("soundness: libpython", why.trim_end_matches(" is not installed")),
        None => assert!(said.contains("### libpython: "), "libpython was not probed: {said}"),
    }
}

#[test]
fn a_program_that_can_tell_is_noticed_and_the_site_is_found() {
    if !testing::have("soundness", &["gcc", "objdump"]) {
        return;
    }
    // A fake dprobes that writes one hit for each site of a batch, and breaks the command's output
    // if the batch has a certain site: the 77th of the first batch.
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("soundness");
    std::fs::create_dir_all(&directory).expect("a directory for the test can be made");
    let (fake, mark) = (directory.join("fake"), directory.join("mark"));
    let _ = std::fs::remove_file(&mark);
    let script = format!(
        r#"#!/bin/sh
[ "$2" = --help ] && {{ echo '--engine: auto'; exit 0; }}
while [ "$1" != -- ]; do
    case $1 in --stats) stats=$2;; *.rpn) program=$1;; esac
    shift
done
shift
mark='{}'
[ -e "$mark" ] || sed -n 's/^offset = \(0x[0-9a-f]*\) .*/\1/p' "$program" | sed -n 77p > "$mark"
sed -n 's/^offset.*/{{"engine":"jump","state":"armed","hits":1,"runs":1,"ignored":0,"missed":0}}/p' "$program" |
    paste -sd, | sed 's/.*/{{"probes":[&]}}/' > "$stats"
grep -q "^offset = $(cat "$mark") " "$program" && {{ "$@" | sed 's/math/meth/'; exit 0; }}
exec "$@"
"#,
        mark.display()
    );
    std::fs::write(&fake, script).expect("the script can be written");
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755))
        .expect("it can be made executable");
    let fake = fake.to_str().expect("the path is text");
    let output = soundness(&["--module", "libc", "--dprobes", fake]);
    let said = text(&output);
    let site = std::fs::read_to_string(&mark).expect("the script has run");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("**Batch 1**: line 4 is \"meth"), "{said}");
    let found: Vec<&str> =
        said.lines().filter(|line| line.starts_with("- 0x") && line.contains(" by jump")).collect();
    assert_eq!(found.len(), 1, "{said}");
    assert!(found[0].starts_with(&format!("- {} ", site.trim())), "{} is found, not {site}", found[0]);
}
