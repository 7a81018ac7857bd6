//! Property tests for all inputs: no text or object makes the compiler or the disassembler panic,
//! and the disassembly of a compiled object compiles to the same object.

use dprobes_rpn::{Arch, Object, Options, Proc, compile_text, disassemble};
use proptest::prelude::*;
use vm::TABLE;

use crate::objects::object;

/// Parts of texts of the language, and of damage to them.
fn pieces() -> impl Strategy<Value = String> {
    let rows = TABLE.iter().map(|row| row.name.to_string()).collect::<Vec<_>>();
    let registers = Arch::ALL.iter().flat_map(|arch| arch.registers());
    let registers = registers.map(|register| register.name.to_string()).collect::<Vec<_>>();
    let words = [
        "name",
        "=",
        "appln",
        "modtype",
        "user",
        "kernel",
        "vars",
        "gvars",
        "3",
        "groupdef",
        "typedef",
        "type",
        "a",
        "major",
        "logmax",
        "jmpmax",
        "insmax",
        "offset",
        "address",
        "tracepoint",
        "sched:sched_switch",
        "push field,",
        "main",
        "entry",
        "return",
        "push arg,",
        "push retval",
        "watchpoint",
        "rw",
        "opcode",
        "minor",
        "ignore",
        "maxhits",
        "logonfault",
        "yes",
        "proc",
        "endproc",
        "l",
        "l:",
        ":",
        ",",
        "+",
        "-",
        "*",
        "/",
        "%",
        "<<",
        ">>",
        "&",
        "|",
        "^",
        "~",
        "!",
        "(",
        ")",
        "?",
        "#",
        "##",
        "0",
        "1",
        "0x10",
        "0xffffffffffffffff",
        "99999999999999999999",
        "01",
        "1x",
        "\"text\"",
        "\"",
        "'",
        "\\",
        "\\\n",
        "//",
        "/*",
        "*/",
        "\n#define m",
        "\n#define f(x)",
        "m",
        "f(",
        "f",
        "\n#define f(x, ...) #x x ## m f(m)",
        "\n#undef m",
        "\n#if",
        "\n#ifdef m",
        "\n#ifndef f",
        "\n#elif",
        "\n#elseif",
        "\n#else",
        "\n#endif",
        "\n#include \"a.rpn\"",
        "\n#include <b>",
        "\n#error",
        "defined",
        "__LINE__",
        "__VA_ARGS__",
        "push b,",
        "log arf",
        "cnvrt sxf",
        "suspend",
        "alloc gv",
        "excpt_mask",
        "excpt_log",
        "autostacktrace",
        "heapmax",
        "heap",
        "é",
        "\u{feff}",
        "\u{0}",
        "\r\n",
    ];
    let words = words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    prop_oneof![
        4 => prop::sample::select(words),
        2 => prop::sample::select(rows),
        1 => prop::sample::select(registers),
        1 => any::<String>(),
    ]
}

/// Compiles, and renders every message. The disassembly of the object must compile to the same
/// object.
fn digest(text: &str, arch: Arch) {
    let options = Options { arch, ..Options::default() };
    match compile_text("a.rpn", text, &options) {
        Ok(compiled) => {
            for note in &compiled.notes {
                note.render(&compiled.sources, true);
            }
            let printed = disassemble(&compiled.object);
            let again = compile_text("b.rpn", &printed, &options);
            let again = again.unwrap_or_else(|failure| panic!("{printed}\n{}", failure.render(false)));
            assert_eq!(bare(&again.object), bare(&compiled.object), "{printed}");
        }
        Err(failure) => assert!(!failure.render(false).is_empty()),
    }
}

/// The programs of the other tests, valid and invalid.
fn programs() -> Vec<String> {
    let paths = ["tests/good", "tests/bad", "../../tests/seeds"].map(std::fs::read_dir);
    let paths = paths.into_iter().flat_map(|entries| entries.expect("the directories are there"));
    let mut paths: Vec<_> = paths.map(|entry| entry.expect("they can be read").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rpn"));
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("they are text")).collect()
}

/// An object without the fields that depend on the layout of its source.
fn bare(object: &Object) -> Object {
    let mut object = object.clone();
    object.lines.iter_mut().for_each(|(_, span)| *span = Default::default());
    for probe in &mut object.probes {
        probe.span = Default::default();
        probe.point = String::new();
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text: String, arch in prop::sample::select(Arch::ALL)) {
        digest(&text, arch);
    }

    #[test]
    fn no_words_of_the_language_make_it_panic(
        pieces in prop::collection::vec((pieces(), prop::sample::select(vec![" ", " ", "\n", ""])), 0..60),
        begun: bool,
        arch in prop::sample::select(Arch::ALL),
    ) {
        let mut text = String::from(if begun { "name = appln vars = 2 gvars = 2 offset = main\n" } else { "" });
        for (piece, space) in pieces {
            text.push_str(&piece);
            text.push_str(space);
        }
        digest(&text, arch);
    }

    #[test]
    fn no_damage_to_a_program_makes_it_panic(
        which: prop::sample::Index,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, pieces()), 1..4),
        arch in prop::sample::select(Arch::ALL),
    ) {
        let mut text = which.get(&programs()).clone();
        for (place, length, piece) in damage {
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = place.index(starts.len());
            let end = starts.get(at + length).copied().unwrap_or(text.len());
            text.replace_range(starts[at]..end, &piece);
            text.push('\n');
        }
        digest(&text, arch);
    }

    #[test]
    fn an_object_comes_back_from_its_disassembly(object in object()) {
        let text = disassemble(&object);
        let options = Options { arch: object.arch, ..Options::default() };
        let again = compile_text("a.rpn", &text, &options);
        let again = again.unwrap_or_else(|failure| panic!("{text}\n{}", failure.render(false)));
        prop_assert_eq!(bare(&again.object), bare(&object), "{}", text);
        for (offset, span) in &again.object.lines {
            prop_assert_eq!(again.object.line_at(*offset), Some(*span));
        }
        // The disassembly is stable.
        prop_assert_eq!(disassemble(&again.object), text);
    }

    #[test]
    fn no_object_makes_the_disassembler_panic(
        mut object in object(),
        code in prop::collection::vec(any::<u8>(), 0..200),
        ends in (0..300usize, 0..300usize, any::<usize>()),
    ) {
        object.code = code;
        object.probes[0].entry = ends.0;
        object.probes[0].end = ends.1;
        object.procs.push(Proc { name: "p".into(), entry: ends.2, end: usize::MAX });
        let text = disassemble(&object);
        digest(&text, object.arch);
    }
}

/// The word behind `log` on the next line belongs to the instruction that it begins there.
#[test]
fn words_of_the_next_line_begin_an_instruction() {
    let body = "push 0\n    push 0\n    log\n    text fr\n    push\n    lv, 1\n    exit\n";
    let text = format!("name = \"a\"\nvars = 2\noffset = 0\n    {body}");
    let object = compile_text("a.rpn", &text, &Options::default()).expect("it is right").object;
    let again = disassemble(&object);
    assert!(again.contains("    log\n    text fr\n    push lv, 1\n"), "{again}");
}
