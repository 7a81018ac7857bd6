//! Random scripts: compiled to machine code, they do what the interpreter does with their bytecode.
//!
//! `SCRIPTS=100000 cargo test -p dprobes-jit --test all -- scripts::random` runs that many of each
//! sort; without it, there are 300.

use crate::support::arena::Arena;
use crate::support::interpreter::{LEFT, Native};
use crate::support::native::{Registers, enter, exclusive};
use crate::support::programs::{memory, memory_bytes, memory_pages};
use crate::support::script_numbers::{self, Random};
use crate::support::script_pieces::processors;
use crate::support::script_texts;
use dprobes_jit::{Handler, compile};
use layout::{Registers as Shared, hidden};
use script::{Compiled, Parameters, check_text};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use testing::conformance::contents;
use vm::{Constants, End, Maps, ProbepointInfo, Program, State};

/// How often each script is hit: later hits find entries.
const HITS: usize = 3;

/// The jumps and instructions of a run at most.
const LIMITS: (u32, u32) = (100_000, 1_000_000);

/// The literals of a script as the interpreter reads them; there are no names of attach points.
fn constants(compiled: &Compiled) -> Vec<u8> {
    let count = compiled.constants.len();
    let mut head: Vec<u8> = [count as u32, 0, 0].iter().flat_map(|each| each.to_le_bytes()).collect();
    let mut bytes: Vec<u8> = Vec::new();
    for text in &compiled.constants {
        let start = 12 + 8 * count + bytes.len();
        head.extend((start as u32).to_le_bytes());
        head.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text);
    }
    head.extend(bytes);
    head
}

/// The general registers and the memory of a hit.
fn thread(random: &mut Random) -> ([u64; 16], Vec<u8>) {
    let letters = b"abcab\0\0*?[";
    let bytes = memory_bytes().iter().map(|_| letters[random.below(letters.len() as u64) as usize]).collect();
    let mut registers = [0; 16];
    for (number, register) in registers.iter_mut().enumerate() {
        let inside = memory() + random.below(memory_bytes().len() as u64);
        // Arguments are usually addresses.
        *register = if [7, 6, 2].contains(&number) && random.below(8) > 0 { inside } else { random.number() };
    }
    (registers, bytes)
}

/// How a script went.
enum Went {
    /// It is refused: it divides by 0, or a number does not fit.
    Refused,
    /// The interpreter took over, at the last hit.
    Left,
    /// Compiled code did all of it.
    Whole,
}

/// Compares both on one script.
fn compare(arena: &mut Arena, text: &str, seed: u64) -> Result<Went, String> {
    let checked = check_text("random.bt", text);
    let Ok(compiled) = script::compile(&checked, &Parameters::default()) else {
        return Ok(Went::Refused);
    };
    let code = &compiled.code;
    let handler = Handler {
        code,
        entry: compiled.handlers[0].entry,
        jmpmax: LIMITS.0,
        insmax: LIMITS.1,
        logmax: vm::LOG_LIMIT,
        mask: script::EXCEPTIONS,
        locals: 0,
        globals: 0,
        major: 5,
        minor: 6,
    };
    let mut infos: Vec<maps::MapInfo> = compiled.maps.iter().map(|map| map.info).collect();
    let count = maps::plan(&mut infos, processors(), 1 << 17).map_err(|error| format!("{error:?}"))?;
    let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let maps = Maps { infos: &infos, words: &words };
    let constants = constants(&compiled);
    arena.clear_code();
    arena.forget();
    let tables = arena.put_tables(&maps, Constants(&constants));
    let mut environment = arena.environment();
    environment.maps = &infos;
    environment.constants = Constants(&constants);
    environment.tables = tables.address();
    environment.processors = processors() as u32;
    environment.info = arena.info(&handler, &environment, |info| tables.describe(info));
    let native = compile(&handler, &environment).map_err(|error| error.to_string())?;
    let at = arena.place(&native, &[]);
    arena.identity().pid.store(std::process::id(), Relaxed);
    let program = Program {
        code,
        jmpmax: LIMITS.0,
        insmax: LIMITS.1,
        logmax: vm::LOG_LIMIT,
        mask: script::EXCEPTIONS,
        maps,
        constants: Constants(&constants),
        point: ProbepointInfo { major: 5, minor: 6, ..ProbepointInfo::default() },
        ..Program::default()
    };
    let mut random = Random::new(seed ^ 0xabcd);
    let mut state = Box::new(State::new());
    let mut left = false;
    for hit in 0..HITS {
        let (general, bytes) = thread(&mut random);
        memory_bytes().copy_from_slice(&bytes);
        arena.forget();
        let mut registers = Registers { general, ..Registers::default() };
        LEFT.with(|left| *left.borrow_mut() = None);
        enter(&native, at, &mut registers);
        left = LEFT.with(|left| left.borrow_mut().take()).is_some();
        let logs: Vec<Vec<u8>> = arena.records().into_iter().map(|record| record.log).collect();

        let mut shared = Shared { general, rip: environment.site, ..Shared::default() };
        shared.general[4] = registers.general[4];
        shared.rflags = 0x202;
        let outcome = vm::run(&program, handler.entry, &mut state, &mut Native { registers: &mut shared });
        let kept = outcome.end != End::Abort;
        let expected: Vec<Vec<u8>> = kept.then(|| state.log().to_vec()).into_iter().collect();
        if logs != expected {
            return Err(format!("hit {hit}, {:?}: logs {logs:?}\ninterpreted {expected:?}", outcome.end));
        }
        if registers.general != shared.general {
            return Err(format!("hit {hit}: registers {:x?}, {:x?}", registers.general, shared.general));
        }
        let (seen, wanted) = (contents(&Maps { words: tables.words(), ..maps }), contents(&maps));
        if seen != wanted {
            return Err(format!("hit {hit}: maps {seen:?}\ninterpreted {wanted:?}"));
        }
    }
    Ok(if left { Went::Left } else { Went::Whole })
}

fn all(sort: &str, script: fn(u64) -> String, least_whole: u64) {
    let _one = exclusive();
    let count: u64 = std::env::var("SCRIPTS").ok().and_then(|count| count.parse().ok()).unwrap_or(300);
    let mut arena = Arena::new();
    arena.mark_pages();
    let (mut refused, mut left, mut whole) = (0, 0, 0);
    for seed in 0..count {
        // Where the memory is differs from run to run, and with it the marks of its pages.
        let mark = if seed % 10 == 9 { hidden::MARK_OURS } else { 0 };
        for page in memory_pages() {
            arena.mark(page, mark);
        }
        let text = script(seed);
        match compare(&mut arena, &text, seed) {
            Ok(Went::Refused) => refused += 1,
            Ok(Went::Left) => left += 1,
            Ok(Went::Whole) => whole += 1,
            Err(what) => panic!("{sort}, seed {seed}: {what}\n{text}"),
        }
    }
    println!("{sort}: {whole} all in compiled code, {left} left it, {refused} refused");
    assert!(refused * 2 < count, "{refused} of {count} are refused");
    assert!(whole * 100 >= count * least_whole, "{whole} of {count} are all in compiled code");
}

#[test]
fn random_scripts_of_integers_do_what_the_interpreter_does() {
    // Small ones are all in compiled code, more often than not.
    let script = |seed| match seed % 4 {
        0 => script_numbers::script_of(seed, 4, 24),
        _ => script_numbers::script_of(seed, 1, 1 + seed as usize % 5),
    };
    all("integers", script, 10);
}

#[test]
fn random_scripts_of_texts_and_maps_do_what_the_interpreter_does() {
    all("texts", script_texts::script, 8);
}
