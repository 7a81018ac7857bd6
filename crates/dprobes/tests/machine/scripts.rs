//! The verifier of Linux 6.1 accepts what scripts become: those of the cases in `tests/scripts`,
//! attached for a moment to all processes.
//!
//! An emulated processor takes seconds for each. Some are tried; all of them with
//! `DPROBES_THOROUGH=1`, in some twenty minutes:
//!
//!     DPROBES_THOROUGH=1 cargo test -p dprobes --test machine -- 'scripts: '

use std::path::Path;
use std::time::Duration;

use testing::machine::Command;

use crate::trial::Trial;

/// A script of a case, and the words behind it.
struct Script {
    name: String,
    text: String,
    parameters: String,
}

/// The scripts of all cases that no engine is to refuse.
fn all() -> Vec<Script> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = std::fs::read_dir(directory).expect("there are cases");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.retain(|path| {
        let name = path.file_stem().unwrap_or_default();
        path.extension().is_some_and(|it| it == "case") && name != "mistakes"
    });
    files.sort();
    files.iter().flat_map(|file| scripts(&std::fs::read_to_string(file).expect("it can be read"))).collect()
}

/// The scripts of a file. Those with options of their own show something else than a run.
fn scripts(file: &str) -> Vec<Script> {
    let blocks = file.split("\nNAME ").skip(1).filter(|block| !block.contains("\nOPTIONS "));
    let script = |block: &str| {
        let (name, rest) = block.split_once('\n')?;
        let (_, text) = rest.split_once("SCRIPT\n")?;
        let text: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("    ")).collect();
        let parameters = rest.lines().find_map(|line| line.strip_prefix("PARAMETERS ")).unwrap_or_default();
        Some(Script {
            name: name.to_owned(),
            text: text.join("\n").replace("{program}", "/bin/scripted") + "\n",
            parameters: parameters.to_owned(),
        })
    };
    blocks.filter_map(script).collect()
}

/// Those that are tried.
fn chosen() -> impl Iterator<Item = (usize, Script)> {
    all().into_iter().enumerate().step_by(testing::rounds(20, 1))
}

/// The files of the machine: their names and contents.
pub(crate) fn files() -> Vec<(String, String)> {
    chosen().map(|(number, script)| (format!("/scripts/{number}.bt"), script.text)).collect()
}

/// What separates the scripts in the output.
const NEXT: &str = "== script ";

pub(crate) fn trials() -> Vec<Trial> {
    let runs: Vec<String> = chosen()
        .map(|(number, script)| {
            let Script { parameters, .. } = &script;
            let name = script.name.replace('\'', "");
            format!(
                "echo '{NEXT}{name}'
                timeout 60 dprobes trace --for 1ms /scripts/{number}.bt {parameters} > said 2>&1 || echo status $?
                cat said"
            )
        })
        .collect();
    let command = Command::shell(&runs.join("\n")).limit(Duration::from_secs(3600));
    vec![Trial::new("scripts: the verifier accepts them", command, |output| {
        let text = output.success();
        let scripts: Vec<&str> = text.split(NEXT).skip(1).collect();
        assert_eq!(scripts.len(), chosen().count(), "{text}");
        let wrong = |script: &&&str| {
            let is_refused = script.contains("the kernel refuses");
            let is_untold = script.contains("\nstatus ") && !script.to_lowercase().contains("error: ");
            is_refused || is_untold
        };
        let wrong: Vec<&&str> = scripts.iter().filter(wrong).collect();
        assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), scripts.len());
        let armed = scripts.iter().filter(|script| script.contains(" armed in /bin/scripted")).count();
        println!("{armed} of {} scripts were attached", scripts.len());
        assert!(armed >= 3, "{text}");
    })]
}
