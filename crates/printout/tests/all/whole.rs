//! Scripts as a whole: compiled, run in the interpreter, and printed.

use std::sync::atomic::AtomicU64;

use ::maps::{MapInfo, Maps};
use printout::Output;
use script::{Compiled, Parameters};
use vm::{Clock, Constants, Fault, Machine, Program, Register, State};

use crate::expected::expected;
use crate::support::Scene;

/// A thread without memory or registers.
struct Thread;

impl Machine for Thread {
    fn register(&mut self, _: Register) -> u64 {
        0
    }

    fn set_register(&mut self, _: Register, _: u64) {}

    fn read(&mut self, address: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault { address })
    }

    fn write(&mut self, address: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault { address })
    }

    fn verify(&mut self, _: u64, _: bool) -> bool {
        false
    }

    fn pid(&mut self) -> u64 {
        42
    }

    fn processor(&mut self) -> u64 {
        0
    }

    fn time(&mut self, _: Clock) -> Option<u64> {
        Some(0)
    }
}

fn compiled(name: &str, text: &str) -> Compiled {
    let checked = script::check_text(name, text);
    let parameters = Parameters { processors: 1, word: 8, ..Parameters::default() };
    script::compile(&checked, &parameters)
        .unwrap_or_else(|why| panic!("{name}: {why:?}\n{}", checked.render(false)))
}

/// The constants of a script as the interpreter reads them: those of class 0.
fn constants(script: &Compiled) -> Vec<u8> {
    let mut head = vec![];
    let mut bytes = vec![];
    head.extend((script.constants.len() as u32).to_le_bytes());
    head.extend([0; 8]);
    for text in &script.constants {
        let start = 12 + 8 * script.constants.len() + bytes.len();
        head.extend((start as u32).to_le_bytes());
        head.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text);
    }
    [head, bytes].concat()
}

/// Runs all handlers of a script, one after the other.
fn run(name: &str, text: &str) -> Scene {
    let script = compiled(name, text);
    let mut infos: Vec<MapInfo> = script.maps.iter().map(|map| map.info).collect();
    let words = ::maps::plan(&mut infos, 1, 1 << 24).expect("the maps fit");
    let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    let maps = Maps { infos: &infos, words: &words };
    let constants = constants(&script);
    let mut log = Vec::new();
    for handler in &script.handlers {
        let program = Program {
            code: &script.code,
            jmpmax: 100_000,
            insmax: 1_000_000,
            logmax: vm::LOG_LIMIT,
            maps,
            constants: Constants(&constants),
            ..Program::default()
        };
        let mut state = Box::<State>::default();
        vm::run(&program, handler.entry, &mut state, &mut Thread);
        log.extend_from_slice(state.log());
    }
    let mut scene = Scene { script, log, ..Scene::default() };
    scene.world.maps = (0..infos.len()).map(|map| maps.view(map)).collect();
    scene.world.files.insert(b"/proc/sys/kernel/ostype".to_vec(), b"Linux\n".to_vec());
    scene
}

#[test]
fn golden_scripts_print_what_bpftrace_prints() {
    let directory = testing::repository().join("crates/printout/tests/golden");
    let files = std::fs::read_dir(directory).expect("the scripts").flatten().map(|entry| entry.path());
    let mut count = 0;
    for path in files.filter(|path| path.extension().is_some_and(|end| end == "bt")) {
        let name = path.file_stem().expect("a name").to_str().expect("UTF-8").to_string();
        let text = std::fs::read_to_string(&path).expect("a script");
        let (as_text, as_json) = expected(&name);
        for (output, expected) in [(Output::Text, as_text), (Output::Json, as_json)] {
            let mut scene = run(&name, &text);
            let (mut printed, _) = scene.record(output);
            printed.push_str(&scene.end(output));
            assert_eq!(printed, expected, "{name}");
        }
        count += 1;
    }
    assert!(count > 10, "{count}");
}
