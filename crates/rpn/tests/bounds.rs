//! Time: no program text keeps the compiler, or its messages, busy for long.

use std::time::{Duration, Instant};

use dprobes_rpn::{Options, compile_text, disassemble};

/// What the largest file may cost here, unoptimised and beside other tests.
const LONGEST: Duration = Duration::from_secs(60);

/// Compiles texts of a mebibyte and renders what is said about them.
#[test]
fn the_largest_files_are_done_in_seconds() {
    let fill = |head: &str, unit: &dyn Fn(usize) -> String, tail: &str| {
        let mut text = head.to_string();
        let mut count = 0;
        loop {
            let next = unit(count);
            if text.len() + next.len() + tail.len() > 1 << 20 {
                return text + tail;
            }
            text += &next;
            count += 1;
        }
    };
    let half = |unit: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for count in 0.. {
            if text.len() + 64 > 1 << 19 {
                break;
            }
            text += &unit(count);
        }
        text
    };
    let start = "name = a\noffset = main\n";
    let texts = [
        ("instructions", fill(start, &|_| "push 1\n".into(), "")),
        ("wrong instructions", fill(start, &|_| "psh\n".into(), "")),
        ("one wrong line", fill(start, &|_| "psh ".into(), "")),
        ("unknown signs", fill(start, &|_| ";".into(), "")),
        ("one long name", fill(start, &|_| "x".into(), "")),
        ("one long number", fill(&format!("{start}push "), &|_| "1".into(), "")),
        ("one long string", fill(&format!("{start}push \""), &|_| "x".into(), "\"")),
        ("one long comment", fill("/*", &|_| "/*".into(), "")),
        ("joined lines", fill(start, &|_| "\\\n".into(), "")),
        ("labels", fill(start, &|n| format!("l{n}:\n"), "")),
        ("the same label", fill(start, &|_| "l:\n".into(), "nop")),
        (
            "jumps nowhere",
            start.to_string() + &half(&|n| format!("l{n}: nop\n")) + &half(&|n| format!("jmp m{n}\n")),
        ),
        ("procedures", fill("name = a\n", &|n| format!("proc p{n} call q{n} endproc\n"), "")),
        ("probes", fill("name = a\n", &|n| format!("offset = {n}\n"), "")),
        (
            "groups",
            "name = a groupdef = ".to_string()
                + &half(&|n| format!("g{n} "))
                + &half(&|n| format!("offset = 1 group = h{n}\n")),
        ),
        ("additions", fill(&format!("{start}push 0"), &|_| "+1".into(), "")),
        ("parentheses", fill(&format!("{start}push "), &|_| "(".into(), "")),
        ("conditions", fill("", &|_| "#if 1\n".into(), "")),
        ("lines", fill(start, &|_| "push __LINE__\n".into(), "")),
        ("definitions", fill("", &|n| format!("#define m{n} 1\n"), "")),
        ("parameters", fill("#define m(", &|n| format!("p{n},"), "q) q")),
        ("arguments", fill("#define m(a, ...) __VA_ARGS__\nm(", &|_| "1,".into(), ")")),
        ("newlines", fill(start, &|_| "\n".into(), ";")),
    ];
    for (name, text) in texts {
        let begin = Instant::now();
        match compile_text("a.rpn", &text, &Options::default()) {
            Ok(compiled) => assert!(!disassemble(&compiled.object).is_empty()),
            Err(failure) => assert!(!failure.render(false).is_empty()),
        }
        let spent = begin.elapsed();
        println!("{name}: {spent:?}");
        assert!(spent < LONGEST, "{name}: {spent:?}");
    }
}
