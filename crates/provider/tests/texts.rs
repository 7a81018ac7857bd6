//! What is read of texts, and what is said about mistakes.

use proptest::prelude::*;
use provider::{Description, Probe, Provider, Read, Size, Type, header, read};

#[track_caller]
fn right(text: &str) -> Description {
    let found = read("a.d", text);
    assert!(!found.has_errors(), "{}", found.render(false));
    found.description
}

/// The types of the arguments of the only probe, as text.
#[track_caller]
fn types(arguments: &str) -> Vec<String> {
    let description = right(&format!("provider p {{ probe x({arguments}); }};"));
    description.providers[0].probes[0].arguments.iter().map(ToString::to_string).collect()
}

#[test]
fn a_description_is_read_with_its_comments_and_pragmas() {
    let description = right(
        "#!/usr/sbin/dtrace -s\n\
         /* The server's\n probes. */\n\
         #pragma D depends_on library procfs.d\n\
         # 12 \"server.d\"\n\
         #define transaction_t unsigned int // for now\n\
         typedef struct request { int id; char *path; } request_t;\n\
         struct other { int a[3]; };\n\
         translator info_t < request_t *R > { id = R->id; path = copyinstr((uintptr_t)R->path) };\n\
         provider server {\n\
             probe request__start(int id, char *path, transaction_t);\n\
             probe request-done(request_t *R) : (info_t *, string);\n\
             probe idle();\n\
             probe stopped(void);\n\
         };\n\
         #pragma D attributes Evolving/Evolving/Common \\\n provider server provider\n\
         provider second { probe x(long); };\n",
    );
    assert_eq!(
        description.to_string(),
        "provider server {\n    probe request__start(int, void *, unsigned int);\n    probe request__done(void *);\n    \
         probe idle();\n    probe stopped();\n};\nprovider second {\n    probe x(long);\n};\n"
    );
    let server = &description.providers[0];
    assert_eq!(server.macro_name(&server.probes[0]), "SERVER_REQUEST_START");
    assert_eq!(server.semaphore(&server.probes[1]), "server_request__done_semaphore");
}

#[test]
fn the_description_of_the_talk_about_dtrace_is_read() {
    let description = right(
        "provider oracle {\nprobe transaction-start(id_t id);\nprobe transaction-finish(id_t id);\n};\n",
    );
    let oracle = &description.providers[0];
    assert_eq!(oracle.probes[0].arguments, [Type::Named("id_t".into())]);
    assert_eq!(oracle.macro_name(&oracle.probes[1]), "ORACLE_TRANSACTION_FINISH");
}

#[test]
fn types_are_those_of_c() {
    assert_eq!(
        types(
            "long unsigned int x, short, signed char, char c, unsigned, long long int, const int, int const"
        ),
        ["unsigned long", "short", "signed char", "char", "unsigned int", "long long", "int", "int"]
    );
    assert_eq!(
        types("uint32_t, size_t, string, bool, double, float"),
        ["unsigned int", "unsigned long", "void *", "bool", "double", "float"]
    );
    assert_eq!(types("struct file *, void *p, char name[16], char **v[]"), ["void *"; 4]);
    assert_eq!(types("int (*f)(int, char *), void (*)()"), ["void (*)()"; 2]);
    assert_eq!(types("enum colour c, pid_t, const uid_t id"), ["enum colour", "pid_t", "uid_t"]);
    assert_eq!(types("const char *const restrict volatile p"), ["void *"]);
    let own = "typedef unsigned short port_t; typedef port_t again; typedef char *name_t; provider p { probe x(again, name_t); };";
    assert_eq!(right(own).to_string(), "provider p {\n    probe x(unsigned short, void *);\n};\n");
}

/// The messages about a text that has mistakes.
#[track_caller]
fn wrong(text: &str) -> Read {
    let found = read("a.d", text);
    assert!(found.has_errors(), "{text}");
    for message in &found.messages {
        assert!(message.help.is_some(), "no remedy: {}", found.render(false));
    }
    found
}

#[test]
fn a_mistake_has_its_place_its_cause_and_its_remedy() {
    let all = [
        ("", "1:1", "there is no provider here"),
        ("provder p { };", "1:1", "`provder` is not expected here"),
        ("provider p {\n  probe x(int)\n};", "3:1", "`}` is not expected here"),
        ("provider p {\n  prob x(int);\n};", "2:3", "`prob` is not expected here"),
        ("provider p { probe x(struct file); };", "1:22", "a struct or union is passed"),
        ("typedef struct { int a; } t; provider p { probe x(t); };", "1:51", "a struct or union is passed"),
        ("provider p { probe x(int, void); };", "1:27", "`void` is not a value"),
        ("provider p { probe x(long double); };", "1:22", "no probe passes values of such a type"),
        ("provider p { probe x(short char); };", "1:22", "no probe passes values of such a type"),
        ("provider p { probe x(int, ...); };", "1:27", "a probe has a fixed number of arguments"),
        ("provider p { probe x(int,,int); };", "1:26", "`,` is not expected here"),
        ("provider p { probe x; };", "1:21", "`;` is not expected here"),
        (
            "provider p { probe a__b(); probe a_b(); };",
            "1:34",
            "`a_b` has the macro of another probe, `P_A_B`",
        ),
        (
            "provider p { probe a(); probe a__enabled(); };",
            "1:31",
            "`a__enabled` has the macro of another probe, `P_A_ENABLED`",
        ),
        ("provider p { probe a-(); };", "1:22", "`(` is not expected here"),
        ("provider p { probe a(); }", "1:26", "the file ends"),
        ("provider p { probe a();", "1:24", "the file ends"),
        ("/* no end", "1:1", "this comment does not end"),
        ("#include <a.h>\nprovider p { probe a(); };", "1:1", "`#include` is not possible here"),
        (
            "#define f(x) int\nprovider p { probe a(); };",
            "1:9",
            "a macro with parameters is not possible here",
        ),
        ("provider p\u{e9} { probe a(); };", "1:11", "`\u{e9}` has no meaning here"),
        ("provider p { probe a(\"text\n); };", "1:22", "this text does not end in its line"),
        (
            "provider p { probe x(int, int, int, int, int, int, int, int, int, int, int, int, int); };",
            "1:20",
            "this probe has 13 arguments",
        ),
    ];
    for (text, place, message) in all {
        let found = wrong(text);
        let first = &found.messages[0];
        let at = format!("a.d:{place}");
        assert!(
            first.message.starts_with(message) && found.sources.locate(first.span) == at,
            "{text}: {}",
            found.render(false)
        );
    }
}

#[test]
fn all_mistakes_are_told_and_what_is_right_is_kept() {
    let found = wrong(
        "provider p {\n probe a(struct s);\n probe b(int);\n probe c(void v);\n};\nprovider q { probe x(int); };",
    );
    assert_eq!(found.messages.len(), 2, "{}", found.render(false));
    assert_eq!(found.description.to_string(), "provider q {\n    probe x(int);\n};\n");
}

#[test]
fn names_that_stand_for_much_do_not_grow_without_bound() {
    let mut text = String::from("#define a int\n");
    for (name, before) in ('b'..='z').zip('a'..) {
        text += &format!("#define {name} {before} {before} {before} {before}\n");
    }
    let found = wrong(&format!("{text}provider p {{ probe x(z); }};"));
    assert!(found.render(false).contains("stands for too much"), "{}", found.render(false));
    let body = "#define a int int int int int int int int\n".to_owned() + &"a ".repeat(1 << 18);
    assert!(wrong(&body).render(false).contains("more than 1048576 words"));
}

fn argument() -> impl Strategy<Value = Type> {
    let number = |text, size, signed| Just(Type::Number { text, size, signed });
    prop_oneof![
        number("char", Size::Char, true),
        number("unsigned char", Size::Bytes(1), false),
        number("short", Size::Bytes(2), true),
        number("unsigned long long", Size::Bytes(8), false),
        number("long", Size::Word, true),
        Just(Type::Truth),
        Just(Type::Pointer),
        Just(Type::Function),
        Just(Type::Fraction { text: "double", bytes: 8 }),
        "my_[a-z]{1,6}_t".prop_map(Type::Named),
    ]
}

prop_compose! {
    fn probe()(name in "x[a-z0-9]{0,6}(__[a-z]{1,4})?", arguments in proptest::collection::vec(argument(), 0..=12)) -> Probe {
        Probe { name, arguments }
    }
}

prop_compose! {
    fn description()(probes in proptest::collection::vec(proptest::collection::vec(probe(), 0..4), 1..4)) -> Description {
        let mut names = std::collections::HashSet::new();
        let providers = probes.into_iter().enumerate().map(|(number, mut probes)| {
            let name = format!("p{number}");
            probes.retain(|probe| names.insert((number, probe.name.replace("__", "_"))));
            Provider { name, probes }
        });
        Description { providers: providers.collect() }
    }
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(description in description()) {
        prop_assert_eq!(right(&description.to_string()), description);
    }

    #[test]
    fn a_header_has_all_macros_and_balanced_brackets(description in description()) {
        let header = header(&description, "a\n*/.d");
        for provider in &description.providers {
            for probe in &provider.probes {
                let name = provider.macro_name(probe);
                for defined in [format!("#define {name}("), format!("#define {name}_ENABLED()")] {
                    // Once for this machine, once for others.
                    prop_assert_eq!(header.matches(&defined).count(), 2, "{}", defined);
                }
            }
        }
        prop_assert_eq!(header.matches("/*").count(), header.matches("*/").count());
        let lines = |word: &str| header.lines().filter(|line| line.starts_with(word)).count();
        prop_assert_eq!(lines("#if"), lines("#endif"));
    }

    #[test]
    fn any_text_is_read(text in "\\PC{0,200}") {
        let _ = read("a.d", &text).render(false);
    }

    #[test]
    fn what_resembles_a_description_is_read(
        words in proptest::collection::vec(
            prop_oneof![
                "(provider|probe|typedef|struct|enum|translator|int|char|long|const|a|b|c__d|#define a b|#pragma|#x)",
                "[-{}()\\[\\],;:*.\"'\\\\/<]",
                Just("\n".to_owned()),
                Just("/*".to_owned()),
                Just("*/".to_owned()),
            ],
            0..60,
        ),
    ) {
        let found = read("a.d", &words.join(" "));
        let _ = found.render(true);
        if !found.has_errors() {
            prop_assert_eq!(right(&found.description.to_string()), found.description);
        }
    }
}
