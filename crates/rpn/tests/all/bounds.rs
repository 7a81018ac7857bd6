//! Tests that compiling and rendering messages take time proportional to the size of the text.
//!
//! Each text is compared with one a quarter of its size, by the CPU time of this thread, so that
//! the result does not depend on the machine or its load.

use std::time::Duration;

use dprobes_rpn::{Options, compile_text, disassemble};

/// Size of the larger texts in bytes.
const LARGE: usize = 1 << 17;
/// How many times smaller the others are.
const RATIO: usize = 4;
/// Maximum ratio of the work. Linear work has ratio 4, quadratic work 16.
const MORE: u32 = 9;
/// Work below this is too little to compare.
const LEAST: Duration = Duration::from_millis(20);

/// The CPU time of this thread.
fn spent() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is valid for the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time for compiling a text and rendering its messages.
fn work(text: &str) -> Duration {
    let begin = spent();
    match compile_text("a.rpn", text, &Options::default()) {
        Ok(compiled) => assert!(!disassemble(&compiled.object).is_empty()),
        Err(failure) => assert!(!failure.render(false).is_empty()),
    }
    spent() - begin
}

#[test]
fn the_work_is_in_proportion_to_the_text() {
    for ((name, small), (_, large)) in texts(LARGE / RATIO).into_iter().zip(texts(LARGE)) {
        // Caches and the allocator disturb a measurement now and then, but not three times in a
        // row.
        let in_proportion = || {
            let (one, other) = (work(&small), work(&large));
            println!("{name}: {one:?}, {other:?}");
            other < LEAST || other < one * MORE
        };
        assert!((0..3).any(|_| in_proportion()), "{name}");
    }
}

#[test]
fn a_text_of_a_mebibyte_compiles() {
    let (_, text) = texts(1 << 20).swap_remove(0);
    let text = format!("{text}{}", " ".repeat((1 << 20) - text.len()));
    assert!(compile_text("a.rpn", &text, &Options::default()).is_ok());
}

/// Texts of at most `size` bytes, each with much of one construct.
fn texts(size: usize) -> Vec<(&'static str, String)> {
    let fill = |head: &str, unit: &dyn Fn(usize) -> String, tail: &str| {
        let mut text = head.to_string();
        let mut count = 0;
        loop {
            let next = unit(count);
            if text.len() + next.len() + tail.len() > size {
                return text + tail;
            }
            text += &next;
            count += 1;
        }
    };
    let half = |unit: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for count in 0.. {
            if text.len() + 64 > size / 2 {
                break;
            }
            text += &unit(count);
        }
        text
    };
    let start = "name = a\noffset = main\n";
    vec![
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
    ]
}
