//! Scripts as a whole: compiled, run in the interpreter, and printed.

use std::sync::atomic::AtomicU64;

use ::maps::{MapInfo, Maps};
use printout::{Next, Output};
use script::{Compiled, Parameters};
use vm::{Clock, Constants, Fault, Machine, Program, Register, State};

use crate::expected::expected;
use crate::support::Scene;

/// A thread with a page of memory, and 0 in all registers.
struct Thread<'a> {
    memory: &'a [u8],
}

/// Where the memory begins.
const ADDRESS: u64 = 0x1000;

impl Machine for Thread<'_> {
    fn register(&mut self, _: Register) -> u64 {
        0
    }

    fn set_register(&mut self, _: Register, _: u64) {}

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let start = address.checked_sub(ADDRESS).and_then(|start| usize::try_from(start).ok());
        let found = start.and_then(|start| self.memory.get(start..)?.get(..into.len()));
        into.copy_from_slice(found.ok_or(Fault { address })?);
        Ok(())
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

fn run(name: &str, text: &str) -> Scene {
    run_with(name, text, &[])
}

/// Runs all handlers of a script, one after the other, in a thread with this memory.
fn run_with(name: &str, text: &str, memory: &[u8]) -> Scene {
    let mut page = memory.to_vec();
    page.resize(0x1000, 0);
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
        vm::run(&program, handler.entry, &mut state, &mut Thread { memory: &page });
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

/// What 0.17 does not have.
#[test]
fn scripts_of_later_releases_print_what_they_say() {
    let scripts = [
        (
            "enum kind { LEAF = -1, INNER = 5 }; begin { $k = INNER; printf(\"%d %s\\n\", $k, $k); @k[LEAF] = INNER; }",
            "5 INNER\n\n\n@k[LEAF]: INNER\n",
        ),
        ("begin { print(1 == 1); @b = false; @t[true, 1] = (true, \"x\"); }", {
            "true\n\n\n@b: false\n@t[true, 1]: (true, x)\n"
        }),
        ("begin { @a[1] = 5; @a[2] = 6; print(@a[1]); print(@a[2]); clear(@a); }", "5\n6\n\n\n"),
        ("begin { @a[1, \"x\"] = count(); print(@a[1, \"x\"]); clear(@a); }", "1\n\n\n"),
        ("begin { @s[\"k\"] = stats(4); print(@s[\"k\"]); clear(@s); }", "count 1, average 4, total 4\n\n\n"),
        ("begin { @c[(1, 2), \"x\"] = 1; @d[((1, 2), 3)] = 1; }", {
            "\n\n@c[(1, 2), x]: 1\n@d[(1, 2), 3]: 1\n"
        }),
        ("config = { print_maps_on_exit = false } begin { @a = 1; printf(\"%x\\n\", -1); }", {
            "ffffffffffffffff\n\n\n"
        }),
        ("config = { max_strlen = 8 } begin { print(\"abcdefg\"); @[\"a\", \"abcdefg\"] = \"b\"; }", {
            "abcdefg\n\n\n@[a, abcdefg]: b\n"
        }),
        ("begin { @h = hist(9, 2); }", {
            "\n\n@h:\n[8, 10)                1 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n\n"
        }),
        ("begin { printf(\"%s\\n\", strftime(\"%H:%M:%S.%f\", 5000123)); time(\"%F\\n\"); }", {
            "22:13:25.005042\n2023-11-14\n\n\n"
        }),
    ];
    for (script, expected) in scripts {
        assert_eq!(run("script", script).run(Output::Text), expected, "{script}");
    }
}

#[test]
fn exit_and_assert_end_a_script() {
    let (text, next) = run("script", "begin { print(1); exit(3); }").record(Output::Text);
    assert_eq!((text.as_str(), next.expect("well-formed")), ("1\n", Next::Exit(3)));
    let mut scene = run("script", "begin { assert(1 == 2, \"no\"); print(1); }");
    let (text, next) = scene.record(Output::Text);
    assert_eq!((text.as_str(), next.expect("well-formed")), ("", Next::Exit(1)));
    assert_eq!(scene.world.reports, ["stdin:1:9-62: ERROR: Assertion failed. Msg: no"]);
}

#[test]
fn memory_is_printed_as_strings_bytes_and_structs() {
    let mut memory = vec![0; 64];
    memory[..12].copy_from_slice(b"\xfe\xff\xff\xffab\0xyz\0\x1d");
    memory[16..24].copy_from_slice(&(ADDRESS + 4).to_le_bytes());
    memory[24..32].copy_from_slice(&(ADDRESS + 7).to_le_bytes());
    let script = "
        struct inner { char name[3]; };
        struct node { int32 value; struct inner of; char more[4]; uint8 low : 3; uint8 high : 5; };
        begin
        {
            $node = (struct node *)0x1000;
            print(*$node);
            @n = *$node;
            printf(\"%s %s %r %rh\\n\", str($node->more), str(0x1004), buf(0x1004, 4), buf($node->more));
            join(0x1010, \"+\");
            printf(\"%s\\n\", str(0x2000));
            print((struct node *)0x1000);
        }";
    let mut scene = run_with("memory", script, &memory);
    let node = "{ .value = -2, .of = { .name = ab }, .more = xyz, .low = 5, .high = 3 }";
    let expected = format!("{node}\nxyz ab ab\\x00x 78 79 7a 00\nab+xyz\n\n0x1000\n\n\n@n: {node}\n");
    assert_eq!(scene.run(Output::Text), expected);

    let script = "config = { max_strlen = 8; str_trunc_trailer = \"~\" } begin { print(str(0x1000)); }";
    assert_eq!(run_with("cut", script, b"123456789\0......").run(Output::Text), "12345678~\n\n\n");
}
