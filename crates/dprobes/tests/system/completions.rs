//! What bash completes: asked as bash asks, with a script that puts a line before the cursor.

use std::path::Path;
use std::process::Command;

use crate::support::{Server, find_program, need, run, target};

/// The last words of what may stand at the end of a line.
fn completed(line: &str) -> Vec<String> {
    let script = r#"
        source <(dprobes completions bash)
        COMP_LINE=$1 COMP_POINT=${#1}
        words=($1) COMPREPLY=()
        [[ $1 == *' ' ]] && words+=("")
        COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1))
        _dprobes_live dprobes "${words[COMP_CWORD]}" "${words[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let directory = Path::new(env!("CARGO_BIN_EXE_dprobes")).parent().expect("it is in a directory");
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap_or_default());
    let (status, out, err) = run(Command::new("bash").args(["-c", script, "bash", line]).env("PATH", path));
    assert!(status.success() && err.is_empty(), "{line}: {err}");
    out.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_what_only_the_machine_knows() {
    need!("completions: bash", find_program("bash"), "bash");
    let program = need!("completions", target("server"), "gcc");
    let server = Server::start(&program, [] as [&str; 0]);
    let pid = server.pid();
    let has = |line: &str, word: &str| {
        let found = completed(line);
        assert!(found.iter().any(|found| found == word), "{line}: {found:?}");
    };
    has(&format!("dprobes attach -p {pid} --at "), "a.out:");
    has(&format!("dprobes attach -p {pid} --at a.out:mai"), "main");
    has(&format!("dprobes attach -p {pid} --at 'a.out:mai"), "a.out:main");
    has(&format!("dprobes count -p {pid} libc:mallo"), "malloc");
    has(&format!("dprobes top --pid {pid} --at libc:malloc:"), "return");
    has(&format!("dprobes doctor -p {pid}"), &pid.to_string());
    // All else is the parser's.
    has("dprobes att", "attach");
    has("dprobes attach --max-o", "--max-overhead");
}
