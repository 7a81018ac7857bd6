//! Probes are inserted among others, in waves: on any instruction, between and over those of
//! earlier waves, by jumps and by traps. Each fires whenever its instruction runs, and the
//! program's results do not change.

use crate::oracle::disassemble;
use crate::support::{Session, address_of_offset, need, start_server, target, text_differences};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Hits by the program's major code and the instruction's number.
type Hits = BTreeMap<(usize, usize), u64>;

/// The program, and the file offsets of the instructions to probe.
fn subject() -> Option<(PathBuf, Vec<u64>)> {
    let program = target("waves")?;
    let found = disassemble(&program, ".waves")?;
    let first = found.first()?.address;
    // The section's addresses are as far from the file's as its first one's.
    let offset = (0..1 << 20).find(|&offset| address_of_offset(&program, offset) == Some(first))?;
    let offsets =
        found.iter().filter(|each| !each.text.starts_with("nop") && !each.text.starts_with("data16"));
    Some((program.clone(), offsets.map(|each| each.address - first + offset).collect()))
}

/// A program that logs at each of these instructions, with its number as minor code.
fn logging(module: &Path, offsets: &[u64], chosen: &[usize], major: usize) -> String {
    let mut text = format!("name = \"{}\"\nmodtype = user\nmajor = {major}\n", module.display());
    for &number in chosen {
        let offset = offsets[number];
        write!(text, "offset = {offset:#x}\nminor = {}\npush 7\nlog 1\nexit\n", number + 1)
            .expect("a string takes it");
    }
    text
}

/// Counts the records from `start` on, once there are `count` of them.
fn hits(records: &Path, start: usize, count: u64) -> (Hits, usize) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let text = std::fs::read_to_string(records).unwrap_or_default();
        let mut hits = Hits::new();
        for line in text[start..].lines() {
            let codes = line.strip_prefix("DProbes(").and_then(|line| line.split_once(')'));
            let Some((major, minor)) = codes.and_then(|(codes, _)| codes.split_once(',')) else { continue };
            let number = |code: &str| code.parse::<usize>().expect("a code");
            *hits.entry((number(major), number(minor) - 1)).or_insert(0) += 1;
        }
        if hits.values().sum::<u64>() >= count || Instant::now() > end {
            // There are no more than these.
            std::thread::sleep(Duration::from_millis(30));
            if std::fs::read_to_string(records).unwrap_or_default().len() == text.len() {
                return (hits, text.len());
            }
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A sequence of numbers that looks random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A session whose traps may take any time: here are more than anybody should ask for.
fn unlimited() -> Session {
    let session = Session::new();
    session.done(&["session", "start", "--max-overhead", "none"]);
    session
}

#[test]
fn any_wave_on_any_other() {
    let (program, offsets) = need!("waves", subject(), "gcc and objdump");
    assert!(offsets.len() > 150, "{} instructions", offsets.len());
    let all: Vec<usize> = (0..offsets.len()).collect();

    // The expected counts and result: from traps alone, which do not affect neighbours.
    let (expected, sum) = {
        let session = unlimited();
        let records = session.path().join("records");
        let mut server = start_server(&program);
        let sum = server.ask("go");
        let file = session.program("all.rpn", &logging(&program, &offsets, &all, 1));
        let (pid, records) = (server.pid().to_string(), records.to_str().expect("text"));
        session.done(&["insert", "-p", &pid, "--engine", "trap", "-o", records, &file]);
        assert_eq!(server.ask("go"), sum);
        session.done(&["remove", "--all"]);
        let (hits, _) = hits(Path::new(records), 0, 1);
        (all.iter().map(|&number| hits.get(&(1, number)).copied().unwrap_or(0)).collect::<Vec<_>>(), sum)
    };
    assert!(expected.iter().filter(|&&count| count > 0).count() * 10 > expected.len() * 9, "{expected:?}");

    let mut traps_asked = 0;
    for round in 0..6 {
        let mut random = Random(round);
        let session = unlimited();
        let records = session.path().join("records");
        let mut server = start_server(&program);
        let mut seen = 0;
        // The program whose probe each instruction has.
        let mut owners: BTreeMap<usize, usize> = BTreeMap::new();
        for wave in 1..=8 {
            let rarity = 1 + random.below(6);
            let mut chosen: Vec<usize> = all.iter().copied().filter(|_| random.below(rarity) == 0).collect();
            if chosen.is_empty() {
                chosen.push(random.below(all.len() as u64) as usize);
            }
            let replace = wave > 1 && random.below(6) == 0;
            let engine = if random.below(3) == 0 { "trap" } else { "auto" };
            traps_asked += usize::from(engine == "trap");
            let file = session.program(&format!("{wave}.rpn"), &logging(&program, &offsets, &chosen, wave));
            let how = if replace { "--replace" } else { "--merge" };
            let (status, _, stderr) = session.say(&[
                "insert",
                "-p",
                &server.pid().to_string(),
                how,
                "--engine",
                engine,
                "-o",
                records.to_str().expect("text"),
                &file,
            ]);
            assert!(
                status == 0 && !stderr.contains("nothing can be written"),
                "round {round}, wave {wave}: {stderr}"
            );
            if replace {
                owners.clear();
            }
            owners.extend(chosen.iter().map(|&number| (number, wave)));
            assert_eq!(server.ask("go"), sum, "round {round}, wave {wave}");
            let hits_of = |(&number, &owner): (&usize, &usize)| ((owner, number), expected[number]);
            let mut wanted: Hits = owners.iter().map(hits_of).collect();
            wanted.retain(|_, count| *count > 0);
            let (found, end) = hits(&records, seen, wanted.values().sum());
            seen = end;
            let differs = |key: &&(usize, usize)| found.get(key) != wanted.get(key);
            let of = |key: &(usize, usize)| (*key, found.get(key).copied(), wanted.get(key).copied());
            let other: Vec<_> = found.keys().chain(wanted.keys()).filter(differs).map(of).collect();
            let query = || session.done(&["query", "--all"]);
            assert_eq!(other, [], "round {round}, wave {wave}, {how}, {engine}: {stderr}{}", query());
        }
        session.done(&["remove", "--all"]);
        assert_eq!(text_differences(server.pid()), [""; 0]);
        assert_eq!(server.ask("go"), sum);
    }
    assert!(traps_asked > 5);
}

/// A program that counts at a function of the module `crowd`.
fn counting_at(module: &Path, function: &str, major: usize) -> String {
    let module = module.display();
    format!(
        "name = \"{module}\"\nmodtype = user\nmajor = {major}\nvars = 1\noffset = {function}\nminor = 1\ninc lv, 0\nexit\n"
    )
}

/// The hits that a session shows, by major code.
fn counted(session: &Session) -> Vec<(String, String)> {
    let shown = session.done(&["query", "--all"]);
    let mut major = String::new();
    let mut counted = Vec::new();
    for line in shown.lines() {
        if let Some((_, rest)) = line.split_once(": major ") {
            major = rest.split(',').next().unwrap_or_default().to_owned();
        } else if let Some((_, rest)) = line.split_once(" hits ") {
            counted.push((major.clone(), rest.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
    counted.sort();
    counted
}

#[test]
fn a_jump_without_room_becomes_a_trap() {
    let program = need!("waves", target("crowd"), "gcc");
    for first_engine in ["auto", "jump"] {
        let session = Session::new();
        let mut server = start_server(&program);
        let first = session.program("first.rpn", &counting_at(&program, "crowd_first", 1));
        let second = session.program("second.rpn", &counting_at(&program, "crowd_second", 2));
        let pid = server.pid().to_string();
        session.done(&["insert", "-p", &pid, "--engine", first_engine, &first]);
        assert_eq!(server.ask("go 10"), "ran 10");
        let (status, _, stderr) =
            session.say(&["insert", "-p", &pid, "--merge", "--engine", "trap", &second]);
        assert_eq!(status, 0, "{stderr}");
        assert_eq!(server.ask("go 10"), "ran 10");
        let hits = |major: &str, hits: &str| (major.to_owned(), hits.to_owned());
        if first_engine == "auto" {
            assert!(stderr.contains(" became a trap, which is slower: "), "{stderr}");
            assert_eq!(counted(&session), [hits("1", "20"), hits("2", "10")]);
        } else {
            // Then the other program is refused.
            let reason = "would have to become a trap, which `--engine jump` has ruled out";
            assert!(stderr.contains(reason) && stderr.contains("crowd_second"), "{stderr}");
            assert_eq!(counted(&session), [hits("1", "20"), hits("2", "0")]);
        }
        session.done(&["remove", "--all"]);
        assert_eq!(text_differences(server.pid()), [""; 0]);
        assert_eq!(server.ask("go 10"), "ran 10");
    }
}
