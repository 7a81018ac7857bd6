//! Cases: a script, what it runs on, and what it prints.
//!
//! A file holds blocks; a block begins with `NAME` and ends with the next. Indented lines, by four
//! spaces, belong to the keyword above them; lines that begin with `#` are comments.
//!
//! | keyword | what |
//! |---|---|
//! | `NAME text` | what the case shows |
//! | `SCRIPT` | the script, indented; `{program}` is the path of the program under test |
//! | `OPTIONS words` | more options of `dprobes trace`, separated by spaces |
//! | `PARAMETERS words` | positional parameters |
//! | `RUN words` | the arguments of the program under test, `tests/targets/scripted.c` |
//! | `TRAPS` | the tracer runs an action: no jump can be asked for |
//! | `ALONE` | no program runs: there is nothing to probe |
//! | `BPFTRACE` | bpftrace 0.17 must print the same |
//! | `SORTED` | the lines may come in any order |
//! | `STATUS number` | the exit status, 128 + N for a signal; if absent, that of the program, or 0 if the script may end before it |
//! | `STDERR text` | standard error holds this; several times: all of them. If absent, there is no error |
//! | `OUTPUT text` | standard output holds this; several times: all of them |
//! | `STDOUT` | the whole standard output, indented, without empty lines at both ends |

use super::peer;
use super::support::{dprobes, run, target};
use std::collections::HashSet;
use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use testing::Trials;

/// One block.
#[derive(Clone, Default)]
pub(crate) struct Case {
    name: String,
    entries: Vec<(String, String, String)>,
}

impl Case {
    fn all<'a>(&'a self, keyword: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let entries = self.entries.iter().filter(move |(each, _, _)| each == keyword);
        entries.map(|(_, rest, text)| (&**rest, &**text))
    }

    fn has(&self, keyword: &str) -> bool {
        self.all(keyword).next().is_some()
    }

    fn words<'a>(&'a self, keyword: &'a str) -> Vec<&'a str> {
        self.all(keyword).flat_map(|(rest, _)| rest.split_whitespace()).collect()
    }

    /// The text of the script.
    pub(crate) fn script(&self, program: &Path) -> String {
        let text: String = self.all("SCRIPT").map(|(_, text)| text).collect();
        text.replace("{program}", &program.to_string_lossy())
    }

    /// The arguments of the program under test.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        self.words("RUN")
    }

    /// The positional parameters.
    pub(crate) fn parameters(&self) -> Vec<&str> {
        self.words("PARAMETERS")
    }

    /// Output as it is compared.
    pub(crate) fn compared(&self, stdout: &str) -> String {
        let mut lines: Vec<&str> = stdout.trim_matches('\n').lines().map(str::trim_end).collect();
        if self.has("SORTED") {
            lines.sort_unstable();
        }
        lines.join("\n")
    }

    /// The output that is expected.
    pub(crate) fn expected(&self, program: &Path) -> String {
        let text: String = self.all("STDOUT").map(|(_, text)| text).collect();
        self.compared(&text.replace("{program}", &program.to_string_lossy()))
    }
}

const KEYWORDS: [&str; 12] = [
    "SCRIPT",
    "OPTIONS",
    "PARAMETERS",
    "RUN",
    "ALONE",
    "TRAPS",
    "BPFTRACE",
    "SORTED",
    "STATUS",
    "STDERR",
    "OUTPUT",
    "STDOUT",
];

fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (line.strip_prefix("    "), keyword) {
            (None, "NAME") => cases.push(Case { name: rest.to_owned(), entries: Vec::new() }),
            (None, "") => {
                // An empty line is text only if text follows; what is compared is trimmed.
                let entry = cases.last_mut().and_then(|case| case.entries.last_mut());
                entry.into_iter().filter(|entry| !entry.2.is_empty()).for_each(|entry| entry.2.push('\n'));
            }
            (None, keyword) => {
                assert!(KEYWORDS.contains(&keyword), "unknown keyword {keyword:?}");
                let case = cases.last_mut().expect("a case begins with NAME");
                case.entries.push((keyword.to_owned(), rest.to_owned(), String::new()));
            }
            (Some(text), _) => {
                let case = cases.last_mut().expect("text belongs to a case");
                let entry = case.entries.last_mut().expect("text belongs to a keyword");
                writeln!(entry.2, "{text}").expect("a string takes it");
            }
        }
    }
    cases
}

/// The exit status of the program.
const OWN_STATUS: i32 = 3;

/// Adds the cases of all files.
pub(crate) fn add(trials: &mut Trials) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = std::fs::read_dir(directory).expect("there are cases");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    let mut scripts = String::new();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for case in parse(&std::fs::read_to_string(&file).expect("it can be read")) {
            let name = format!("{stem}: {}", case.name);
            scripts.push_str(&case.script(Path::new("program")));
            let engines: &[&str] = match (case.has("ALONE"), case.has("TRAPS")) {
                (true, _) => &["auto"],
                (false, true) => &["auto", "trap"],
                (false, false) => &["jump", "trap"],
            };
            for &engine in engines {
                let case = case.clone();
                trials.check(format!("{name} ({engine})"), move || play(&case, engine));
            }
            if case.has("BPFTRACE") {
                trials.check(format!("{name} (bpftrace)"), move || peer::play(&case));
            }
        }
    }
    trials.check("library: each builtin and function has a case", move || all_have_a_case(&scripts));
}

/// Whether each name of the library is in one of the scripts.
fn all_have_a_case(scripts: &str) -> Result<(), String> {
    let words: HashSet<&str> = scripts.split(|each: char| !each.is_alphanumeric() && each != '_').collect();
    let is_there = |name: &str| match name.strip_suffix('N') {
        Some(numbered) => words.contains(&*format!("{numbered}0")),
        None => words.contains(name),
    };
    let missing: Vec<&str> =
        script::library::all().map(|entry| entry.name).filter(|name| !is_there(name)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("no case has {missing:?}")),
    }
}

fn play(case: &Case, engine: &str) -> Result<(), String> {
    let Some(program) = target("scripted") else {
        testing::skipped(&format!("trace: {}", case.name), "gcc");
        return Ok(());
    };
    let mut command = dprobes();
    command.arg("trace").args(["--engine", engine]).args(case.words("OPTIONS"));
    command.arg(case.script(&program)).args(case.parameters());
    if !case.has("ALONE") {
        command.arg("--").arg(&program).args(case.arguments());
    }
    let (status, stdout, stderr) = run(&mut command);
    let mut wrong = Vec::new();
    // A script that ends before the program has no status of it.
    let starts_nothing =
        ["-l", "-lv", "-d"].iter().any(|option| case.words("OPTIONS").iter().any(|it| it == option));
    let is_alone =
        case.has("ALONE") || starts_nothing || case.all("SCRIPT").any(|(_, text)| text.contains("exit("));
    let usual = if is_alone { 0 } else { OWN_STATUS };
    let wanted = case.words("STATUS").first().map_or(usual, |text| text.parse().expect("a number"));
    let is_own = !case.has("STATUS") && status.code() == Some(OWN_STATUS);
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    if code != Some(wanted) && !is_own {
        wrong.push(format!("the status should be {wanted} but is {status}"));
    }
    let (seen, expected) = (case.compared(&stdout), case.expected(&program));
    for (text, _) in case.all("OUTPUT").filter(|(text, _)| !stdout.contains(text)) {
        wrong.push(format!("standard output does not hold {text:?}:\n{stdout}"));
    }
    if !case.has("OUTPUT") && seen != expected {
        wrong.push(format!("standard output should be\n{expected}\nbut is\n{seen}"));
    }
    for (text, _) in case.all("STDERR") {
        if !stderr.contains(text) {
            wrong.push(format!("standard error does not mention {text:?}"));
        }
    }
    if !case.has("STDERR") && (stderr.contains("error") || stderr.contains("warning")) {
        wrong.push("there is an error or a warning".to_owned());
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{}\nstandard error:\n{stderr}", wrong.join("\n"))),
    }
}
