//! Runs every case of the repository's `tests/conformance/*.case` with the interpreter, on every
//! word that it names. Each case is a test of its own.

use dprobes_vm::{End, Op, Program, TABLE, Word, run};
use std::collections::HashSet;
use std::process::ExitCode;
use testing::Trials;
use testing::conformance::{self, Case, Interpreter, TestMachine};

/// The exceptions of the manual that a run can raise.
const EXCEPTIONS: [&str; 11] = [
    "INVALID_ADDR",
    "SEG_FAULT",
    "JMP_MAX",
    "CALL_STACK_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "INVALID_OPERAND",
    "INVALID_OPCODE",
    "HEAP_NOMEM",
    "INVALID_HANDLE",
    "INVALID_OFFSET",
    "LOG_OVERFLOW",
];

/// The limits of the language. Each must be listed (`SHOWS`) by a case that tests it.
const BOUNDARIES: [&str; 16] = [
    "the stack wraps at 1024",
    "32 nested calls",
    "more than 32 nested calls",
    "jmpmax reached",
    "jmpmax passed",
    "insmax reached",
    "insmax passed",
    "logmax reached",
    "logmax passed",
    "the highest index",
    "an index out of range",
    "division by zero",
    "the smallest number divided by -1",
    "excpt_log reached",
    "excpt_log passed",
    "a bit position out of range",
];

/// An interpreter whose last run filled the stack, the log and the frame, left a heap block and a stack trace,
/// and had an exception and a handler set.
fn dirty() -> Interpreter {
    let mut code = vec![Op::Push as u8, 0xdd, 0xdd, 0xdd, 0xdd];
    code.extend([Op::DupImm as u8, 0xff].repeat(5));
    code.extend([Op::LogImm as u8, 0xff, 0xff]);
    // A word at the beginning of the frame, then copies of all before behind it.
    code.extend([Op::Push as u8, 0xee, 0xee, 0xee, 0xee, Op::PopF as u8, 0, 0]);
    code.extend([Op::Push as u8, 0xee, 0xee, 0xee, 0xee, Op::PopF as u8, 4, 0]);
    for size in (3..14).map(|bits| 1_u32 << bits) {
        for value in [size, 0, size] {
            code.push(Op::Push as u8);
            code.extend(value.to_le_bytes());
        }
        code.push(Op::MoveF as u8);
    }
    code.extend([Op::Push as u8, 9, 0, 0, 0, Op::Malloc as u8, Op::RestoreSbp as u8]);
    // The handler begins after the instruction that fails, and sets itself again.
    code.extend([Op::Sx as u8, 1, 0, 0, 0, Op::PushLv as u8]);
    code.extend([Op::Sx as u8, 0, 0, 0, 0, Op::LogSt as u8, Op::Exit as u8]);
    let program = Program { word: Word::W4, code: &code, logmax: usize::MAX, heap: 9, ..Program::default() };
    let mut interpreter = Interpreter::new();
    let end = run(&program, 0, &mut interpreter.state, &mut TestMachine::default()).end;
    assert_eq!(end, End::Exit);
    assert_eq!(interpreter.state.log().len(), dprobes_vm::LOG_LIMIT);
    assert!(!interpreter.state.trace().is_empty());
    assert_eq!(interpreter.state.element(1000), 0xdddd_dddd);
    interpreter
}

/// Runs a case on each of its words, on a new interpreter and on a dirty one, each twice.
fn check(case: &Case) -> Result<(), String> {
    for &word in &case.words {
        for interpreter in [&mut Interpreter::new(), &mut dirty()] {
            case.check(word, interpreter)?;
            // Again, with what this run left behind.
            case.check(word, interpreter)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut trials = Trials::new();
    let cases = conformance::all();
    assert!(cases.iter().map(|case| case.words.len()).sum::<usize>() > 200, "are the case files there?");
    for case in cases {
        trials.check(case.title.clone(), move || check(&case));
    }
    let covered: [(&str, fn()); 3] = [
        ("every_instruction_is_in_a_case_on_both_words", every_instruction_is_in_a_case_on_both_words),
        (
            "every_exception_ends_a_case_and_is_taken_in_another_on_both_words",
            every_exception_ends_a_case_and_is_taken_in_another_on_both_words,
        ),
        (
            "every_boundary_is_shown_on_both_words_and_nothing_else_is",
            every_boundary_is_shown_on_both_words_and_nothing_else_is,
        ),
    ];
    for (name, test) in covered {
        trials.add(name, test);
    }
    trials.run()
}

fn every_instruction_is_in_a_case_on_both_words() {
    for word in [Word::W4, Word::W8] {
        let cases = conformance::all();
        let on_word = cases.iter().filter(|case| case.words.contains(&word));
        let ops: HashSet<Op> = on_word.flat_map(|case| case.assemble(word).ops).collect();
        let rows = TABLE.iter().filter(|row| !ops.contains(&row.op));
        let missing: Vec<_> = rows.map(|row| (row.name, row.operand)).collect();
        assert!(missing.is_empty(), "{word:?}: {missing:?}");
    }
}

fn every_exception_ends_a_case_and_is_taken_in_another_on_both_words() {
    for word in [Word::W4, Word::W8] {
        let cases = conformance::all();
        let on_word = || cases.iter().filter(|case| case.words.contains(&word));
        for name in EXCEPTIONS {
            assert!(
                on_word().any(|case| case.ends_with() == Some(name)),
                "{word:?}: no case ends with {name}"
            );
            let taken = format!("{name} taken");
            assert!(on_word().any(|case| case.shows.contains(&taken)), "{word:?}: no case shows: {taken}");
        }
    }
}

fn every_boundary_is_shown_on_both_words_and_nothing_else_is() {
    let cases = conformance::all();
    for word in [Word::W4, Word::W8] {
        let on_word = cases.iter().filter(|case| case.words.contains(&word));
        let shown: HashSet<&str> = on_word.flat_map(|case| &case.shows).map(String::as_str).collect();
        let missing: Vec<_> = BOUNDARIES.iter().filter(|boundary| !shown.contains(*boundary)).collect();
        assert!(missing.is_empty(), "{word:?}: {missing:?}");
        let known = |shown: &&&str| {
            BOUNDARIES.contains(shown) || EXCEPTIONS.iter().any(|name| format!("{name} taken") == **shown)
        };
        let unknown: Vec<_> = shown.iter().filter(|shown| !known(shown)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
