//! Random scripts: the bytecode does what the tree says.

use dprobes_script::{Parameters, check_text, compile};
use vm::End;

use crate::evaluate;
use crate::generate::{Random, script};
use crate::machine::Thread;
use crate::run::Run;

fn thread(seed: u64) -> Thread {
    let mut random = Random::new(seed ^ 0x5eed);
    let mut thread = Thread { name: "prog".into(), ..Thread::default() };
    for register in ["rdi", "rsi", "rdx", "rcx"] {
        thread.registers.insert(register.into(), random.number());
    }
    thread.pid = random.below(1 << 22);
    thread.tid = random.below(1 << 22);
    thread.ids = (random.number() as u32, 0);
    thread
}

/// The values of a log whose events are all `print` of an integer; of an entry its key is before it.
fn printed(run: &Run, log: &[u8]) -> Vec<u64> {
    let mut words = log.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
    let mut values = Vec::new();
    while let Some(number) = words.next() {
        let arguments = run.compiled.events[number as usize].arguments.len();
        values.push(words.by_ref().take(arguments).last().expect("a value is logged"));
    }
    values
}

fn check(seed: u64) -> Result<bool, String> {
    let text = script(seed);
    let checked = check_text("random.bt", &text);
    if checked.has_errors() {
        return Ok(false);
    }
    let mut thread = thread(seed);
    let Some(expected) = evaluate::run(&checked.script, &thread) else { return Ok(false) };
    let (expected_printed, expected_maps) = (expected.printed, expected.maps);
    let compiled = compile(&checked, &Parameters::default()).map_err(|messages| {
        let all: Vec<String> =
            messages.iter().map(|message| message.render(&checked.sources, false)).collect();
        format!("seed {seed} is refused:\n{text}\n{}", all.join("\n"))
    })?;
    crate::verify::handlers(&compiled).map_err(|what| format!("seed {seed}: {what}\n{text}"))?;
    let mut run = Run::new(compiled).expect("the maps are small");
    let (outcome, log) = run.hit(0, 0, &mut thread);
    let found = printed(&run, &log);
    let describe =
        |what: String| format!("seed {seed}: {what}\n{text}\n{}", dprobes_script::listing(&run.compiled));
    if !matches!(outcome.end, End::Exit | End::Abort) || (log.is_empty() && outcome.end == End::Exit) {
        return Err(describe(format!("it ended with {:?}", outcome.end)));
    }
    if found != expected_printed {
        let first = found.iter().zip(&expected_printed).position(|(one, other)| one != other);
        return Err(describe(format!(
            "expected {expected_printed:?},\nfound {found:?},\nthe first difference is at {first:?}"
        )));
    }
    for (number, map) in run.compiled.maps.iter().enumerate() {
        let mut entries: Vec<(Option<i128>, u64)> = Vec::new();
        for entry in run.maps().view(number) {
            let key = (!entry.key.is_empty())
                .then(|| i128::from(i64::from_le_bytes(entry.key[..8].try_into().expect("8"))));
            let value = match entry.value {
                maps::Value::Bytes(bytes) => u64::from_le_bytes(bytes[..8].try_into().expect("8")),
                maps::Value::Number(number) => number,
                other => panic!("the generator makes no {other:?}"),
            };
            entries.push((key, value));
        }
        entries.sort();
        let of_map = expected_maps.iter().filter(|((name, _), _)| *name == map.name);
        let mut wanted: Vec<(Option<i128>, u64)> =
            of_map.map(|((_, key), value)| (*key, *value as u64)).collect();
        // A map without keys is always there.
        if map.key.is_none() && wanted.is_empty() {
            wanted.push((None, 0));
        }
        if entries != wanted {
            let missing: Vec<_> = wanted.iter().filter(|entry| !entries.contains(entry)).collect();
            let more: Vec<_> = entries.iter().filter(|entry| !wanted.contains(entry)).collect();
            return Err(describe(format!("@{}: not found {missing:?}, not expected {more:?}", map.name)));
        }
    }
    Ok(true)
}

pub(crate) fn scripts() -> Result<(), String> {
    let count = if std::env::var_os("DPROBES_THOROUGH").is_some() { 20_000 } else { 500 };
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..count, |seed: u64| seed..seed + 1);
    let mut ran = 0;
    for seed in seeds {
        ran += u64::from(check(seed)?);
    }
    // Most scripts are good ones.
    if first.is_none() && ran < count / 2 {
        return Err(format!("only {ran} of {count} scripts ran"));
    }
    Ok(())
}
