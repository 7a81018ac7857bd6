//! Headers in programs: compilers take them without a word, and `readelf` finds the notes.

use std::path::{Path, PathBuf};
use std::process::Command;

use testing::{Scratch, find_program, need, output};

/// Arguments of every kind.
const DESCRIPTION: &str = "\
typedef struct request { int id; } request_t;
provider all {
    probe none();
    probe numbers(char, signed char, unsigned char, short, unsigned short, int, unsigned int, long);
    probe others(unsigned long, long long, unsigned long long, bool, char *, request_t *, void (*)(int), double, float);
    probe named(id_t, enum colour, small_t, off_t);
    probe many-arguments(int, int, int, int, int, int, int, int, int, int, int, int);
};
provider other { probe none(); };
";

/// Uses all of them. The values are not known when it is compiled.
const PROGRAM: &str = r#"
#include <sys/types.h>
typedef signed char small_t;
enum colour { NONE = -1, GREEN };
struct request { int id; };
#include "all.h"
#include "all.h"

static struct request request;
static void function(int value) { (void)value; }

int use(int value, char *text)
{
    ALL_NONE();
    ALL_NUMBERS((char)value, (signed char)value, (unsigned char)value, (short)value, (unsigned short)value, value, (unsigned)value, value);
    ALL_OTHERS((unsigned long)value, value, (unsigned long long)value, value, text, &request, function, 0.5 * value, 0.5f);
    if (ALL_NAMED_ENABLED())
        ALL_NAMED((id_t)value, value ? NONE : GREEN, (small_t)value, value);
    ALL_MANY_ARGUMENTS(value, value + 1, value * 2, value * 3, value * 5, value * 7, value * 11, value * 13, value * 17, value * 19, value * 23, -1);
    OTHER_NONE();
    return ALL_NONE_ENABLED() || OTHER_NONE_ENABLED();
}

#ifndef LIBRARY
int main(int count, char **words) { return use(count, words[0]); }
#endif
"#;

/// The sizes in the notes about the probes, on both machines.
const EXPECTED: [(&str, &str, &str); 6] = [
    ("all:none", "", ""),
    ("all:numbers", "-1 -1 1 -2 2 -4 4 -8", "-1 -1 1 -2 2 -4 4 -4"),
    ("all:others", "8 -8 8 1 8 8 8 8f 4f", "4 -8 8 1 4 4 4 8f 4f"),
    ("all:named", "4 -4 -1 -8", "4 -4 -1 -4"),
    ("all:many__arguments", "-4 -4 -4 -4 -4 -4 -4 -4 -4 -4 -4 -4", "-4 -4 -4 -4 -4 -4 -4 -4 -4 -4 -4 -4"),
    ("other:none", "", ""),
];

/// A note as `readelf` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    /// `all:none`.
    name: String,
    /// The address of the probe.
    address: u64,
    /// That of the semaphore.
    semaphore: u64,
    /// The sizes and places of the arguments.
    arguments: Vec<(String, String)>,
}

fn notes(readelf: &Path, file: &Path) -> Vec<Note> {
    let text = output(Command::new(readelf).args(["-n", "--wide"]).arg(file));
    let field = |line: &str, name: &str| line.trim().strip_prefix(name).map(|rest| rest.trim().to_owned());
    let mut notes: Vec<Note> = Vec::new();
    let (mut provider, mut name) = (String::new(), String::new());
    for line in text.lines() {
        if let Some((_, found)) = line.split_once("Provider: ") {
            provider = found.trim().to_owned();
        } else if let Some(found) = field(line, "Name:") {
            name = found;
        } else if let Some(found) = field(line, "Location:") {
            let numbers: Vec<u64> = found
                .split(", ")
                .map(|part| part.rsplit(' ').next().unwrap_or_default().trim_start_matches("0x"))
                .map(|digits| u64::from_str_radix(digits, 16).expect("it is an address"))
                .collect();
            let name = format!("{provider}:{name}");
            notes.push(Note { name, address: numbers[0], semaphore: numbers[2], arguments: Vec::new() });
        } else if let Some(found) = field(line, "Arguments:") {
            let note = notes.last_mut().expect("the place comes first");
            let pair = |text: &str| text.split_once('@').map(|(size, place)| (size.into(), place.into()));
            note.arguments = found.split(' ').filter_map(pair).collect();
        }
    }
    notes
}

/// The compilers that are here: of C and of C++.
fn compilers() -> Vec<PathBuf> {
    ["gcc", "g++", "clang", "clang++"].into_iter().filter_map(find_program).collect()
}

/// Compiles the program with a compiler and options.
fn compile(compiler: &Path, directory: &Path, name: &str, options: &[&str]) -> PathBuf {
    let out = directory.join(name);
    let mut command = Command::new(compiler);
    if compiler.ends_with("g++") || compiler.ends_with("clang++") {
        command.args(["-x", "c++"]);
    }
    command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(directory).args(options);
    command.arg("-o").arg(&out).arg(directory.join("program.c"));
    let said = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.is_empty(), "{command:?}: {}\n{text}", said.status);
    out
}

/// A directory with the program and its header.
fn written() -> Scratch {
    let scratch = Scratch::new();
    let found = provider::read("all.d", DESCRIPTION);
    assert!(!found.has_errors(), "{}", found.render(false));
    scratch.file("all.h", &provider::header(&found.description, "all.d"));
    scratch.file("program.c", PROGRAM);
    scratch
}

#[test]
fn every_compiler_makes_notes_with_sizes_and_places() {
    let readelf = need!("provider", find_program("readelf"), "readelf");
    need!("provider", find_program("gcc"), "gcc");
    let scratch = written();
    let ways: [&[&str]; 12] = [
        &["-O0"],
        &["-O1"],
        &["-O2", "-std=gnu++17"],
        &["-O2", "-std=gnu99", "-pedantic"],
        &["-O2", "-fno-pie", "-no-pie"],
        &["-O3", "-static"],
        &["-O0", "-fPIC", "-shared", "-DLIBRARY"],
        &["-O2", "-fPIC", "-shared", "-DLIBRARY"],
        &["-O2", "-ffunction-sections", "-Wl,--gc-sections"],
        &["-O2", "-flto"],
        &["-O0", "-m32", "-fPIC", "-c"],
        &["-O2", "-m32", "-fomit-frame-pointer", "-c"],
    ];
    for compiler in compilers() {
        let is_cxx = compiler.to_string_lossy().ends_with("++");
        let is_clang = compiler.to_string_lossy().contains("clang");
        for way in ways {
            let standard = way.iter().find_map(|word| word.strip_prefix("-std="));
            // clang needs a plugin of its own for the linker.
            if standard.is_some_and(|it| it.contains("++") != is_cxx) || is_clang && way.contains(&"-flto") {
                continue;
            }
            let file = compile(&compiler, scratch.path(), "program", way);
            check(&notes(&readelf, &file), way, &format!("{} {way:?}", compiler.display()));
        }
    }
}

/// Compares notes with what is expected.
#[track_caller]
fn check(notes: &[Note], way: &[&str], case: &str) {
    let is_32 = way.contains(&"-m32");
    assert_eq!(notes.len(), EXPECTED.len(), "{case}: {notes:#?}");
    for (name, sizes, sizes_32) in EXPECTED {
        let note = notes.iter().find(|note| note.name == name).unwrap_or_else(|| panic!("{case}: {name}"));
        let found: Vec<&str> = note.arguments.iter().map(|(size, _)| size.as_str()).collect();
        assert_eq!(found.join(" "), if is_32 { sizes_32 } else { sizes }, "{case}: {note:#?}");
        for (size, place) in &note.arguments {
            let in_register = place.starts_with('%') && !place.starts_with("%xmm") && !size.ends_with('f');
            let is_fraction = place.starts_with("%xmm") && size.ends_with('f');
            let right = match is_32 {
                true => place.ends_with("(%ebp)") || place.ends_with("(%esp)"),
                false => in_register || is_fraction || place.starts_with('$'),
            };
            assert!(right, "{case}: {note:#?}");
        }
        // In an object file addresses are not known yet.
        if !way.contains(&"-c") {
            assert!(note.address != 0 && note.semaphore != 0, "{case}: {note:#?}");
        }
    }
}

#[test]
fn probes_in_several_files_of_a_program_share_their_semaphores() {
    let readelf = need!("provider", find_program("readelf"), "readelf");
    let gcc = need!("provider", find_program("gcc"), "gcc");
    let scratch = written();
    let here = |name: &str| scratch.path().join(name);
    let main = "int first(int, char *); int second(int, char *);\nint main(int count, char **words) { return first(count, *words) + second(count, *words); }\n";
    let main = scratch.file("main.c", main);
    for name in ["first", "second"] {
        let rename = format!("-Duse={name}");
        compile(&gcc, scratch.path(), &format!("{name}.o"), &["-c", "-O1", "-DLIBRARY", &rename]);
    }
    // One of them from an archive.
    output(Command::new("ar").arg("rc").arg(here("second.a")).arg(here("second.o")));
    let program = here("both");
    let mut command = Command::new(&gcc);
    output(command.arg("-o").arg(&program).arg(main).arg(here("first.o")).arg(here("second.a")));
    let notes = notes(&readelf, &program);
    assert_eq!(notes.len(), 2 * EXPECTED.len());
    for (name, ..) in EXPECTED {
        let both: Vec<&Note> = notes.iter().filter(|note| note.name == name).collect();
        assert_ne!(both[0].address, both[1].address);
        assert_eq!(both[0].semaphore, both[1].semaphore, "{name}");
    }
    output(&mut Command::new(&program));
}

#[test]
fn a_type_that_no_probe_passes_is_an_error_of_the_compiler() {
    let gcc = need!("provider", find_program("gcc"), "gcc");
    let scratch = Scratch::new();
    let found = provider::read("a.d", "provider a { probe x(mine); };");
    scratch.file("a.h", &provider::header(&found.description, "a.d"));
    let compile = |definition: &str| {
        let text = format!(
            "typedef {definition} mine;\n#include \"a.h\"\nint main(void) {{ mine a = {{0}}; A_X(a); return 0; }}\n"
        );
        let source = scratch.file("a.c", &text);
        let said = Command::new(&gcc)
            .arg("-o")
            .arg(scratch.path().join("a"))
            .arg(source)
            .output()
            .expect("it starts");
        (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    for (definition, is_right) in [("int", true), ("double", false), ("struct { int a; }", false)] {
        let (worked, said) = compile(definition);
        assert_eq!(worked, is_right, "{definition}: {said}");
    }
}
