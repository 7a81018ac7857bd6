//! Compares the preprocessor's output with that of C's.

use std::path::{Path, PathBuf};

use source::MemoryFiles;

use super::*;

/// Preprocesses the first of the files. Returns the tokens as text, and the messages.
fn run(files: &[(&str, &str)], defines: &[(&str, &str)], include_dirs: &[&str]) -> (String, Vec<String>) {
    let memory = files.iter().map(|(path, text)| (PathBuf::from(path), text.to_string())).collect();
    let memory = MemoryFiles(memory);
    let defines: Vec<(String, String)> =
        defines.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let include_dirs: Vec<PathBuf> = include_dirs.iter().map(PathBuf::from).collect();
    let setting = Inputs { files: &memory, defines: &defines, include_dirs: &include_dirs };
    let (path, text) = files[0];
    let done = Preprocessor::run(setting, Path::new(path), text);
    let texts: Vec<String> = done.output.iter().map(|token| spell(std::slice::from_ref(token))).collect();
    let end = texts.len() - 1;
    let messages = done.messages.in_order(&done.sources).into_iter().map(|message| message.message);
    (texts[..end].join(" "), messages.collect())
}

/// Preprocesses one file without errors.
fn expand(text: &str) -> String {
    let (tokens, messages) = run(&[("main", text)], &[], &[]);
    assert_eq!(messages, Vec::<String>::new());
    tokens
}

#[test]
fn macros_expand_again_but_never_within_themselves() {
    assert_eq!(expand("#define a b\n#define b c 1\na b"), "c 1 c 1");
    assert_eq!(expand("#define a a b\na"), "a b");
    assert_eq!(expand("#define a b\n#define b a\na b"), "a b");
    assert_eq!(expand("#define f(x) x f(x)\nf(1)"), "1 f ( 1 )");
    assert_eq!(expand("#define f(x) <x>\n#define g f\ng(1) g"), "< 1 > f");
}

#[test]
fn the_examples_of_the_c_standard_come_out_as_it_says() {
    // C11, 6.10.3.5, example 3, without the tokens that this lexer does not have.
    let text = "#define x 3\n#define f(a) f(x * (a))\n#undef x\n#define x 2\n#define g f\n#define z z(0)\n\
                #define h g(~\n#define m(a) a(w)\n#define w 0,1\n#define t(a) a\n#define p() int\n#define q(x) x\n\
                f(y+1) + f(f(z)) % t(t(g)(0) + t)(1)\n\
                g(x+(3,4)-w) | h 5) & m\n(f)^m(m)\n\
                p() i q()";
    assert_eq!(
        expand(text),
        "f ( 2 * ( y + 1 ) ) + f ( 2 * ( f ( 2 * ( z ( 0 ) ) ) ) ) % f ( 2 * ( 0 ) ) + t ( 1 ) \
         f ( 2 * ( 2 + ( 3 , 4 ) - 0 , 1 ) ) | f ( 2 * ( ~ 5 ) ) & f ( 2 * ( 0 , 1 ) ) ^ m ( 0 , 1 ) \
         int i"
    );
}

#[test]
fn arguments_are_made_strings_and_joined_as_written() {
    assert_eq!(expand("#define n 7\n#define s(x) #x\ns( a  +  n )"), "\"a + n\"");
    assert_eq!(expand("#define n 7\n#define j(a, b) a ## b\nj(n, n) j(l_, 3) j(, 4) j(,)"), "nn l_3 4");
    assert_eq!(expand("#define rest(a, ...) a < __VA_ARGS__ >\nrest(1, 2, (3, 4)) rest(5)"), {
        "1 < 2 , ( 3 , 4 ) > 5 < >"
    });
}

#[test]
fn a_macro_with_parameters_needs_its_parentheses() {
    assert_eq!(expand("#define f(x) <x>\nf f\n(\n1)"), "f < 1 >");
    assert_eq!(expand("#define f (x)\nf"), "( x )");
    assert_eq!(expand("#define f() 9\nf() f( )"), "9 9");
}

#[test]
fn conditions_choose_one_branch() {
    let branches = |condition: &str| {
        expand(&format!(
            "#define ONE 1\n#define EMPTY\n{condition}\nyes\n#elif ONE + 1 == 2\nelif\n#else\nno\n#endif"
        ))
    };
    assert_eq!(branches("#if ONE"), "yes");
    assert_eq!(branches("#if defined ONE && !defined(TWO)"), "yes");
    assert_eq!(branches("#if TWO"), "elif");
    assert_eq!(branches("#ifdef EMPTY"), "yes");
    assert_eq!(branches("#ifndef EMPTY"), "elif");
    assert_eq!(branches("#if 0x10 == 16 ? 0 : 1"), "elif");
}

#[test]
fn what_is_left_out_is_not_looked_at() {
    let text = "#if 0\n#if nonsense (\n#else\n\"open\n'\n#define X\n#error no\n#include \"none\"\n#unknown\n#endif\n\
                psh\n#elif 1\nkept\n#elif 1 / 0\n#endif";
    assert_eq!(expand(text), "kept");
    assert_eq!(expand("#ifdef X\n#elseif Y\n#else\nkept\n#endif"), "kept");
}

#[test]
fn the_manuals_elseif_takes_a_name_or_an_expression() {
    assert_eq!(expand("#define B 0\n#ifdef A\na\n#elseif B\nb\n#endif"), "b", "it is defined");
    assert_eq!(expand("#define B 0\n#ifdef A\na\n#elseif B + 0\nb\n#endif"), "", "its value is 0");
    assert_eq!(expand("#define B 0\n#ifdef A\na\n#elif B\nb\n#endif"), "", "C's own takes the value");
}

#[test]
fn definitions_of_the_command_line_come_first() {
    let defines = [("SIZE", "0x10 + 1"), ("TWICE(x)", "x x"), ("FLAG", "")];
    let (tokens, messages) = run(&[("main", "SIZE TWICE(7) FLAG")], &defines, &[]);
    assert_eq!((tokens.as_str(), messages.len()), ("0x10 + 1 7 7", 0));
    let (_, messages) = run(&[("main", "")], &[("A", "1\n#define B 2")], &[]);
    assert_eq!(messages, ["-D `A`: not a definition"]);
}

#[test]
fn includes_are_searched_beside_the_file_and_then_in_the_directories() {
    let files = [
        ("a/main", "#include \"x\"\n#include <x>\n#define NAME \"b/y\"\n#include NAME"),
        ("a/x", "beside __FILE__ __LINE__"),
        ("dir/x", "searched"),
        ("a/b/y", "#include \"z\""),
        ("a/b/z", "deep"),
    ];
    let (tokens, messages) = run(&files, &[], &["none", "dir"]);
    assert_eq!(messages, Vec::<String>::new());
    assert_eq!(tokens, "beside \"a/x\" 1 searched deep");
}

#[test]
fn includes_are_bounded_in_depth_and_number() {
    // Each file includes the next one twice: 2^31 inclusions without a limit.
    let names: Vec<(String, String)> = (0..31)
        .map(|n| (format!("f{n}"), format!("#include \"f{0}\"\n#include \"f{0}\"\n", n + 1)))
        .chain([("f31".into(), "x".into())])
        .collect();
    let files: Vec<(&str, &str)> = names.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (_, messages) = run(&files, &[], &[]);
    assert!(
        messages.iter().any(|message| message.starts_with("too many files are included")),
        "{messages:?}"
    );
    let names: Vec<(String, String)> =
        (0..40).map(|n| (format!("f{n}"), format!("#include \"f{}\"\n", n + 1))).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (_, messages) = run(&files, &[], &[]);
    assert_eq!(messages, ["`f33` is included too deeply"]);
}

#[test]
fn what_macros_make_is_bounded() {
    let bomb = |form: &str, last: &str| {
        let lines: Vec<String> =
            (1..40).map(|n| form.replace('N', &n.to_string()).replace('P', &(n - 1).to_string())).collect();
        run(
            &[(
                "main",
                &format!(
                    "#define m0{last}\n{}\nm39{}",
                    lines.join("\n"),
                    &last[..last.find(' ').unwrap_or(0)]
                ),
            )],
            &[],
            &[],
        )
        .1
    };
    // Doubling in bodies and in arguments, with and without a result.
    assert_eq!(bomb("#define mN mP mP", " 1"), ["the program is too large"]);
    assert_eq!(bomb("#define mN mP mP", " "), ["the program is too large"]);
    assert_eq!(bomb("#define mN(x) mP(x) mP(x)", "(x) x x"), ["the program is too large"]);
    assert_eq!(bomb("#define mN(x) mP(x x)", "(x) x x"), ["the program is too large"]);
}

#[test]
fn calls_within_arguments_are_bounded() {
    let text = format!("#define f(x) x\n{}1{}", "f(".repeat(100), ")".repeat(100));
    let (_, messages) = run(&[("main", &text)], &[], &[]);
    assert!(messages[0].contains("too deeply"), "{messages:?}");
}

#[test]
fn a_token_knows_its_line_in_the_source_whatever_made_it() {
    let text = "#define ADD(a, b) a \\\n  + b\n\nADD(1,\n 2)\nlast";
    let memory = MemoryFiles::default();
    let setting = Inputs { files: &memory, defines: &[], include_dirs: &[] };
    let done = Preprocessor::run(setting, Path::new("main"), text);
    let lines: Vec<(String, usize)> = done
        .output
        .iter()
        .map(|token| (token.text.to_string(), done.sources.position(token.place.span).line))
        .collect();
    let line = |wanted: &str| lines.iter().find(|(text, _)| text == wanted).map(|(_, line)| *line);
    assert_eq!((line("1"), line("+"), line("2"), line("last")), (Some(4), Some(4), Some(5), Some(6)));
    let plus = done.output.iter().find(|token| token.is("+")).and_then(|token| token.place.spelled);
    assert_eq!(plus.map(|span| done.sources.position(span).line), Some(2));
}
