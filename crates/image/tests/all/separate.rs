//! Symbols in a separate file, and which module they belong to.

use std::process::Command;

use crate::common::{PLAIN, Scratch, have, run};
use image::{Image, SymbolMismatch};

#[test]
fn a_debug_file_has_the_symbols_of_its_module_and_no_code() {
    if !have("a_debug_file", &["gcc", "objcopy", "strip"]) {
        return;
    }
    let scratch = Scratch::new();
    for (name, id) in [("with", "-Wl,--build-id=sha1"), ("without", "-Wl,--build-id=none")] {
        let whole = scratch.compile("plain.c", PLAIN, name, &["-O1", "-g", id]);
        let module = scratch.strip(&whole, &format!("{name}.stripped"), &[]);
        let debug = scratch.path().join(format!("{name}.debug"));
        run(Command::new("objcopy").arg("--only-keep-debug").arg(&whole).arg(&debug));
        let [whole, module, debug] = [whole, module, debug].map(|path| Image::open(&path).unwrap());
        assert!(whole.has_code() && module.has_code() && !debug.has_code(), "{name}");
        assert!(module.lookup("main").matches.is_empty(), "it is not stripped");
        let main = |image: &Image| {
            let found = image.lookup("main").matches;
            found.first().map(|function| (function.vaddr, function.size))
        };
        assert!(main(&whole).is_some_and(|(_, size)| size > 0));
        assert_eq!(main(&whole), main(&debug), "{name}");
        assert_eq!(debug.has_symbols_of(&module), Ok(()), "{name}");
        assert_eq!(whole.has_symbols_of(&module), Ok(()), "{name}");
    }
}

#[test]
fn another_builds_are_told_with_what_both_have() {
    if !have("another_builds", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let build = |name: &str, options: &[&str]| scratch.image("plain.c", PLAIN, name, options);
    let one = build("one", &["-Wl,--build-id=0x01"]);
    let two = build("two", &["-Wl,--build-id=0x02ff"]);
    assert_eq!(
        two.has_symbols_of(&one),
        Err(SymbolMismatch::BuildId { expected: vec![1], found: vec![2, 0xff] })
    );
    assert_eq!(
        two.has_symbols_of(&one).expect_err("it is another").to_string(),
        "build-id 01 expected, build-id 02ff found"
    );
    // If only one of them has a build-id, the code decides.
    let none = build("none", &["-Wl,--build-id=none"]);
    let longer =
        build("longer", &["-Wl,--build-id=none", "-DMORE", "-O0", "-fno-inline", "-falign-functions=64"]);
    let differ = longer.has_symbols_of(&none).expect_err("its code is another");
    assert!(
        matches!(&differ, SymbolMismatch::Layout { expected: Some(one), found: Some(other) } if one != other)
    );
    assert!(differ.to_string().starts_with("code at 0x"), "{differ}");
}

#[test]
fn data_are_known_by_name() {
    if !have("data", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let source = "int number = 5; static char zeros[9]; __thread int own = 1;\n\
                  int main(void) { return number + zeros[own]; }\n";
    let image = scratch.image("data.c", source, "data", &[]);
    for (name, is) in [("number", true), ("zeros", true), ("own", true), ("main", false), ("none", false)] {
        assert_eq!(image.is_data(name), is, "{name}");
    }
    // The same with no symbols but the dynamic ones.
    let library = scratch.compile("lib.c", "int shared = 1;", "lib.so", &["-shared", "-fPIC"]);
    let library = Image::open(&scratch.strip(&library, "lib.stripped", &[])).unwrap();
    assert!(library.is_data("shared"));
}
