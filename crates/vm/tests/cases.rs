//! The language's meaning, instruction by instruction: every case of `cases/*.case` on every word it names.

mod support;

use dprobes_vm::{End, Op, Program, State, TABLE, Word, run};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use support::case::{self, Case};
use support::machine::TestMachine;

/// All cases of all files.
fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = std::fs::read_dir(folder).expect("the folder of the cases");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    files.iter().flat_map(|path| case::read(path)).collect()
}

/// A state whose last run filled the whole stack and the whole log with rubbish, left a heap block and a stack trace,
/// and had an exception and a handler set.
fn dirty() -> Box<State> {
    let mut code = vec![Op::Push as u8, 0xdd, 0xdd, 0xdd, 0xdd];
    code.extend([Op::DupImm as u8, 0xff].repeat(5));
    code.extend([Op::LogImm as u8, 0xff, 0xff]);
    code.extend([Op::Push as u8, 9, 0, 0, 0, Op::Malloc as u8, Op::RestoreSbp as u8]);
    // The handler is what follows the instruction that fails, and sets itself again.
    code.extend([Op::Sx as u8, 1, 0, 0, 0, Op::PushLv as u8]);
    code.extend([Op::Sx as u8, 0, 0, 0, 0, Op::LogSt as u8, Op::Exit as u8]);
    let program = Program { word: Word::W4, code: &code, logmax: usize::MAX, heap: 9, ..Program::default() };
    let mut state = Box::new(State::new());
    let end = run(&program, 0, &mut state, &mut TestMachine::default()).end;
    assert_eq!(end, End::Exit);
    assert_eq!(state.log().len(), dprobes_vm::LOG_LIMIT);
    assert!(!state.trace().is_empty());
    assert_eq!(state.element(1000), 0xdddd_dddd);
    state
}

#[test]
fn every_case_comes_out_as_its_file_says() {
    let mut failures = Vec::new();
    let mut ran = 0;
    for case in cases() {
        for &word in &case.words {
            for state in [&mut Box::new(State::new()), &mut dirty()] {
                failures.extend(case.check(word, state).err());
                // The same again with what this run left behind.
                failures.extend(case.check(word, state).err());
                ran += 1;
            }
        }
    }
    assert!(failures.is_empty(), "{} of {ran}:\n{}", failures.len(), failures.join("\n"));
    assert!(ran > 400, "only {ran} runs: are the case files there?");
}

#[test]
fn every_instruction_is_in_a_case_on_both_words() {
    for word in [Word::W4, Word::W8] {
        let cases = cases();
        let on_word = cases.iter().filter(|case| case.words.contains(&word));
        let ops: HashSet<Op> = on_word.flat_map(|case| case.assemble(word).ops).collect();
        let rows = TABLE.iter().filter(|row| !ops.contains(&row.op));
        let missing: Vec<_> = rows.map(|row| (row.name, row.operand)).collect();
        assert!(missing.is_empty(), "{word:?}: {missing:?}");
    }
}
