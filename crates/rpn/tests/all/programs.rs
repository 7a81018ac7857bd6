//! Compiles whole programs: those of the manual and the papers, and invalid ones with all their
//! messages.
//!
//! A line `// arch: NAME` in a program sets its machine; `// define: NAME=VALUE` is
//! `-D NAME=VALUE`.

use std::fs;
use std::path::{Path, PathBuf};

use dprobes_rpn::{Compiled, Failure, Options, compile, disassemble};

/// The examples of the original's manual and paper. The repository's tests also run them with the
/// command.
const SEEDS: &str = "../../tests/seeds";

/// The programs of a directory, by name.
fn programs(directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("its entries can be read").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "rpn")).collect();
    paths.sort();
    paths
}

fn options(path: &Path) -> Options {
    let bytes = fs::read(path).expect("the program can be read");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut options = Options { include_dirs: vec!["tests/include".into()], ..Options::default() };
    for line in text.lines() {
        if let Some(arch) = line.strip_prefix("// arch: ") {
            options.arch = arch.parse().expect("it is a machine");
        } else if let Some(define) = line.strip_prefix("// define: ") {
            let (name, value) = define.split_once('=').unwrap_or((define, "1"));
            options.defines.push((name.into(), value.into()));
        }
    }
    options
}

fn snapshot(path: &Path, text: &str) {
    let path = path.with_extension("").display().to_string();
    let (_, name) = path.rsplit_once("tests/").expect("all programs are there");
    let name = name.replace('/', "-");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

fn notes(compiled: &Compiled) -> String {
    compiled.notes.iter().map(|note| note.render(&compiled.sources, false) + "\n\n").collect()
}

/// Compiles the disassembly, compares the objects, and returns the text.
fn there_and_back(compiled: &Compiled, options: &Options) -> String {
    let text = disassemble(&compiled.object);
    let again = dprobes_rpn::compile_text("disassembly", &text, options);
    let again = again.unwrap_or_else(|failure| panic!("{text}\n{}", failure.render(false)));
    let strip = |compiled: &Compiled| {
        let mut object = compiled.object.clone();
        object.lines.iter_mut().for_each(|(_, span)| *span = Default::default());
        for probe in &mut object.probes {
            probe.span = Default::default();
            probe.point = String::new();
        }
        object
    };
    assert_eq!(strip(compiled), strip(&again), "{text}");
    text
}

#[test]
fn every_example_of_the_seeds_compiles() {
    let mut compiled_count = 0;
    for path in programs(SEEDS) {
        if path.file_stem().is_some_and(|name| name == "test") {
            continue; // Included by the manual's second example.
        }
        let options = options(&path);
        let compiled = compile(&path, &options)
            .unwrap_or_else(|failure| panic!("{}: {}", path.display(), failure.render(false)));
        snapshot(&path, &(notes(&compiled) + &there_and_back(&compiled, &options)));
        compiled_count += 1;
    }
    assert_eq!(compiled_count, 19);
}

#[test]
fn good_programs_compile_and_come_back_from_their_disassembly() {
    let paths = programs("tests/good");
    assert!(paths.len() >= 5);
    for path in paths {
        let options = options(&path);
        let compiled = compile(&path, &options)
            .unwrap_or_else(|failure| panic!("{}: {}", path.display(), failure.render(false)));
        snapshot(&path, &(notes(&compiled) + &there_and_back(&compiled, &options)));
    }
}

#[test]
fn every_wrong_program_has_its_messages() {
    let paths = programs("tests/bad");
    assert!(paths.len() >= 66, "{}", paths.len());
    for path in paths {
        let failure = match compile(&path, &options(&path)) {
            Ok(_) => panic!("{} compiles", path.display()),
            Err(failure) => failure,
        };
        assert!(!failure.diagnostics.is_empty());
        snapshot(&path, &failure.render(false));
    }
}

#[test]
fn a_file_that_is_not_there_or_is_no_text_is_said_to_be_so() {
    let message = |path: &Path| compile(path, &Options::default()).map(|_| ()).map_err(|it| it.render(false));
    assert!(message(Path::new("tests/none.rpn")).is_err_and(|text| text.contains("there is no such file")));
    let directory = tempfile::tempdir().expect("a directory for the test");
    let path = directory.path().join("a.rpn");
    fs::write(&path, b"name = a \xff").expect("it can be written");
    assert!(message(&path).is_err_and(|text| text.contains("byte 9 is not UTF-8")));
    fs::write(&path, vec![b' '; (8 << 20) + 1]).expect("it can be written");
    assert!(message(&path).is_err_and(|text| text.contains("it is larger than 8388608 bytes")));
    assert!(message(directory.path()).is_err());
}

/// A probe for each function of a large module, with a handler and a comment: more than a megabyte
/// of text.
#[test]
fn twenty_thousand_probes_are_one_program() {
    let probe = |number: u64| {
        format!(
            "// function number {number}, called by whoever\noffset = {number:#x}\n  push r, rdi\n  push r, rsi\n  log 2\n"
        )
    };
    let text: String = std::iter::once("name = a\n".to_owned()).chain((0..20_000).map(probe)).collect();
    assert!(text.len() > 1 << 20);
    let compiled = dprobes_rpn::compile_text("a.rpn", &text, &Options::default());
    assert_eq!(
        compiled.map_err(|failure| failure.render(false)).map(|it| it.object.probes.len()),
        Ok(20_000)
    );
}

/// Colour must not change the text of messages.
#[test]
fn coloured_messages_say_the_same() {
    let failure: Failure =
        match dprobes_rpn::compile_text("a.rpn", "name = a offset = 1 psh 1", &Options::default()) {
            Ok(_) => panic!("it compiles"),
            Err(failure) => failure,
        };
    let coloured = failure.render(true);
    assert!(coloured.contains("\u{1b}["));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').expect("a colour ends in m").1;
    }
    assert_eq!(plain + rest, failure.render(false));
}
