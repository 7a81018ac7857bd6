//! Runs what a document shows outside of its sessions ([`crate::inline`]), or finds that a
//! session runs it. A trial each: `cargo test -p dprobes --test documents -- 'mentioned'`.
//!
//! - The text of a link to a section is part of a command there, in this order: `dprobes trace
//!   ... printf`.
//! - A command that a session of the same document begins with is run there, and so is the name
//!   of a subcommand (`dprobes stacks`) that is run with arguments.
//! - Any other is run in a directory with the examples, in which the service of the cookbook
//!   runs, with values for what is in capitals ([`crate::synopsis`]). Options in a table stand
//!   for `dprobes run OPTION PROG.rpn -- CMD`. The exit status is 0, and the output of all its
//!   variants has what [`claims::CLAIMS`] says.
//! - [`claims::NOT_RUN`] names the others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use testing::{Scratch, Trials, find_program, repository};

use crate::claims::{CLAIMS, NOT_RUN};
use crate::document::Document;
use crate::inline::{Mention, anchor, mentions};
use crate::session::{Outcome, Session, needs_kernel, runs_kernel_engine};
use crate::synopsis;

/// The program of commands that take one: it is about the service only, with all that options of
/// the table choose from.
const PROGRAM: &str = "\
    name = \"{dir}/svc\"\nmodtype = user\ngroupdef = often\ntypedef = calls\n\
    offset = serve\ngroup = often\ntype = calls\npush arg, 0\nlog 1\n";

/// The text of a file of the directory for what a document calls so.
const FILES: [(&str, &str); 2] = [
    ("script.bt", "uprobe:./svc:serve { @ = count(); }\n"),
    ("provider.d", "provider shop {\n    probe sold(int id, char *name);\n};\n"),
];

/// Adds the trials of all documents.
pub(crate) fn add(trials: &mut Trials, names: &[&'static str]) {
    let mut all: Vec<(&str, Mention)> = Vec::new();
    let documents: Arc<Vec<(&str, Document)>> =
        Arc::new(names.iter().map(|name| (*name, Document::read(name))).collect());
    for name in names {
        all.extend(mentions(name).into_iter().map(|mention| (*name, mention)));
    }
    let shown: BTreeSet<(String, String)> =
        all.iter().map(|(name, mention)| (name.to_string(), mention.words.clone())).collect();
    trials.check("mentioned: what the lists name is still in the documents", move || stale(&shown));
    for (name, mention) in all {
        let is_listed = NOT_RUN.iter().any(|(of, words, _)| (*of, *words) == (name, &*mention.words));
        if is_listed {
            continue;
        }
        let documents = documents.clone();
        let place = format!("{name}: mentioned: {}", mention.words);
        let title = mention.link.as_ref().map_or(place.clone(), |link| format!("{place} ({link})"));
        trials.check(title.clone(), move || {
            check(&documents, name, &mention, &title)
                .map_err(|said| format!("{name}:{}: {said}", mention.line))
        });
    }
}

/// Whether entries of the lists are in no document.
fn stale(shown: &BTreeSet<(String, String)>) -> Result<(), String> {
    let is_shown = |words: &str| shown.iter().any(|(_, each)| each == words);
    let not_run =
        NOT_RUN.iter().filter(|(name, words, _)| !shown.contains(&(name.to_string(), words.to_string())));
    let claims = CLAIMS.iter().map(|(words, _)| *words).filter(|words| !is_shown(words));
    let stale: Vec<&str> = not_run.map(|(_, words, _)| *words).chain(claims).collect();
    match stale.is_empty() {
        true => Ok(()),
        false => Err(format!("no document shows any more: {stale:?}")),
    }
}

fn check(documents: &[(&str, Document)], name: &str, mention: &Mention, title: &str) -> Result<(), String> {
    if let Some(link) = &mention.link {
        return in_section(documents, name, link, &mention.words);
    }
    let (_, document) = documents.iter().find(|(each, _)| *each == name).expect("it was read");
    let mut sections = std::iter::once(&document.beginning).chain(&document.sections);
    let begins = format!("{} ", mention.words);
    if sections
        .any(|section| section.commands.iter().any(|shown| format!("{} ", shown.words).starts_with(&begins)))
    {
        return Ok(());
    }
    let is_name_only = mention.words.split(' ').count() == 2;
    if is_name_only && mentions(name).iter().any(|other| other.words.starts_with(&begins)) {
        return Ok(());
    }
    run(mention, title)
}

/// Whether a section has a command with all pieces of a text.
fn in_section(documents: &[(&str, Document)], name: &str, link: &str, words: &str) -> Result<(), String> {
    let (page, heading) = link.split_once('#').expect("it leads to a section");
    let directory = Path::new(name).parent().expect("a file is in a directory");
    let page = if page.is_empty() { PathBuf::from(name) } else { directory.join(page) };
    let Some((_, document)) = documents.iter().find(|(each, _)| Path::new(each) == page) else {
        return Err(format!("{} shows commands that no test runs", page.display()));
    };
    let section = document.sections.iter().find(|section| anchor(&section.heading) == heading);
    let Some(section) = section else { return Err(format!("{link} has no session")) };
    let has_all = |text: &str| {
        let text = text.replace(['\'', '"'], "");
        let mut rest = text.as_str();
        let mut pieces = words.split("...").flat_map(|part| part.split("FILE")).map(str::trim);
        pieces.all(|piece| match rest.find(piece) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    };
    // The text of a program that is run is part of the command, too.
    let program = |words: &str| {
        let files = words.split_whitespace().filter(|word| word.starts_with("examples/"));
        files.filter_map(|file| std::fs::read_to_string(repository().join(file)).ok()).collect::<String>()
    };
    let mut commands = section.commands.iter();
    match commands.any(|shown| has_all(&shown.words) || has_all(&program(&shown.words))) {
        true => Ok(()),
        false => Err(format!("no command of {link} has `{words}`")),
    }
}

/// Runs all variants of a command, and compares what they print with what is claimed.
fn run(mention: &Mention, title: &str) -> Result<(), String> {
    let words = &mention.words;
    let Some((_, claimed)) = CLAIMS.iter().find(|(of, _)| of == words) else {
        return Err(format!("`{words}` is in no session, and in neither list of claims.rs"));
    };
    if find_program("gcc").is_none() {
        testing::skipped(&format!("documents: {title}"), "gcc");
        return Ok(());
    }
    let written =
        if mention.is_option { format!("dprobes run {words} PROG.rpn -- CMD ARGS") } else { words.clone() };
    let variants = synopsis::commands(&written)?;
    let variant = |command: &String| -> Result<String, String> {
        if needs_kernel(command) && !runs_kernel_engine(&format!("bpf: documents: {title}")) {
            return Ok(claimed.join(" "));
        }
        let mut place = Place::new(command);
        let Outcome { succeeded, text } = place.run(command);
        if succeeded { Ok(text) } else { Err(format!("it failed: {command}\n{}", beginning(&text))) }
    };
    // Most of the time they wait for the service.
    let variant = &variant;
    let outputs: Vec<Result<String, String>> = std::thread::scope(|scope| {
        let running: Vec<_> = variants.iter().map(|command| scope.spawn(move || variant(command))).collect();
        running.into_iter().map(|it| it.join().expect("it does not panic")).collect()
    });
    let texts = outputs.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (text, shown) = (texts.join("\n"), texts.iter().map(|text| beginning(text)).collect::<String>());
    let is_wrong = |claim: &&&str| match claim.strip_prefix('!') {
        Some(not) => text.contains(not),
        None => !text.contains(**claim),
    };
    let wrong: Vec<_> = claimed.iter().filter(is_wrong).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("it is not so: {wrong:?} of\n{shown}")) }
}

/// The first lines of an output.
fn beginning(text: &str) -> String {
    text.lines().take(20).map(|line| format!("{line}\n")).collect()
}

/// Where a command runs.
struct Place {
    session: Session,
    /// What placeholders stand for here.
    names: Vec<(&'static str, String)>,
}

impl Place {
    /// A directory with what the command needs, and a service that runs.
    fn new(command: &str) -> Place {
        let mut session = Session::new();
        let directory = session.directory().to_path_buf();
        let here = |name: &str| directory.join(name);
        let made = built();
        for name in ["svc", "events.so"] {
            std::fs::copy(made.join(name), here(name)).expect("room for a copy");
        }
        let own = directory.to_str().expect("text");
        std::fs::write(here("prog.rpn"), PROGRAM.replace("{dir}", own)).expect("it can be written");
        for (name, text) in FILES {
            std::fs::write(here(name), text).expect("it can be written");
        }
        if command.contains("trace.dpt") {
            std::fs::copy(made.join("trace.dpt"), here("trace.dpt")).expect("room for a copy");
        }
        let mut names = vec![("{dir}", own.to_string())];
        if command.contains("{only}") {
            static COPIES: AtomicU32 = AtomicU32::new(0);
            let number = COPIES.fetch_add(1, Ordering::Relaxed);
            let name = format!("svc{}x{number}", std::process::id() % 100_000);
            std::fs::copy(made.join("svc"), here(&name)).expect("room for a copy");
            session.run(&format!("./{name} 600 &"));
            names.push(("{only}", name));
        } else if command.contains(" -p ") || OF_INSERTED.iter().any(|each| begins(command, each)) {
            session.run("./svc 600 &");
            names.push(("{pid}", session.process("svc").to_string()));
        }
        Place { session, names }
    }

    fn filled(&self, words: &str) -> String {
        self.names.iter().fold(words.to_string(), |words, (name, value)| words.replace(name, value))
    }

    fn run(&mut self, command: &str) -> Outcome {
        let command = self.filled(command);
        let is_one_of = |words: &[&str]| words.iter().any(|each| begins(&command, each));
        if command.contains("prog.ppdf") {
            self.session.run("dprobes build-ppdf prog.rpn -o prog.ppdf");
        }
        let before = self.files();
        if is_one_of(&OF_INSERTED) {
            let insert = self.filled("dprobes insert prog.rpn -p {pid}");
            self.session.run(&insert);
        }
        let mut outcome = match goes_on(&command) {
            true => self.session.run_until_ended(
                &command,
                begins(&command, "coverage"),
                begins(&command, "serve"),
            ),
            false => self.session.run(&command),
        };
        if is_one_of(&OF_INSERTED) || is_one_of(&BEGINNING_SESSION) {
            self.session.run("dprobes session stop");
        }
        for name in self.files().difference(&before) {
            outcome.text += &format!("wrote {name}\n");
        }
        outcome
    }

    /// The files that are not empty.
    fn files(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut directories = vec![self.session.directory().to_path_buf()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
                let path = entry.path();
                let name = path.strip_prefix(self.session.directory()).expect("it is in there").to_path_buf();
                // Not through links: the examples are not copied.
                match entry.metadata() {
                    Ok(file) if file.is_dir() => directories.push(path),
                    Ok(file) if file.len() > 0 => drop(found.insert(name.to_string_lossy().into_owned())),
                    _ => {}
                }
            }
        }
        found
    }
}

/// Commands of the background session, and those of what is inserted there.
const BEGINNING_SESSION: [&str; 4] = ["insert", "--insert", "apply-ppdf", "session start"];
const OF_INSERTED: [&str; 7] = ["query", "getvars", "remove", "-q", "-g", "session status", "session stop"];

/// Whether a command of dprobes begins with these words.
fn begins(command: &str, words: &str) -> bool {
    format!("{command} ").starts_with(&format!("dprobes {words} "))
}

/// Whether a command goes on until Ctrl-C.
fn goes_on(command: &str) -> bool {
    let is_bounded = [" --for ", " -- ", " -l ", " -lv "].iter().any(|each| command.contains(each));
    let kinds =
        ["attach", "count", "latency", "stacks", "coverage", "top", "trace", "watch", "serve", "tools run"];
    !is_bounded && kinds.iter().any(|each| begins(command, each))
}

/// The service, a plugin, and a trace of it, made once.
fn built() -> &'static Path {
    static MADE: OnceLock<Scratch> = OnceLock::new();
    MADE.get_or_init(|| {
        let scratch = Scratch::new();
        let source = |path: &str| repository().join(path);
        let gcc = || {
            let mut gcc = Command::new("gcc");
            gcc.current_dir(scratch.path());
            gcc
        };
        testing::output(
            gcc().args(["-g", "-O1", "-pthread", "-o", "svc"]).arg(source("examples/services/svc.c")),
        );
        let include = source("crates/hooks/include");
        let plugin = source("examples/plugins/events.c");
        testing::output(
            gcc().args(["-shared", "-fPIC", "-O2", "-o", "events.so", "-I"]).arg(include).arg(plugin),
        );
        let mut dprobes = Command::new(env!("CARGO_BIN_EXE_dprobes"));
        dprobes.current_dir(scratch.path()).args(["run", "--quiet", "-o", "trace.dpt"]);
        dprobes.args(["--at", "a.out:serve", "--do", "log 0", "--at", "a.out:serve:return", "--do", "log 0"]);
        testing::output(dprobes.args(["--", "./svc", "1"]));
        scratch
    })
    .path()
}
