//! Property tests: what is written reads back the same; damaged files are refused and never cause a
//! panic.

use source::{Position, SourceId, Span};

use crate::arch::Arch;
use proptest::prelude::*;

use super::format::{CHECKSUM, HEADER, checksum};
use super::places::Source;
use super::*;
use crate::object::Object;
use crate::object::{
    Access, FunctionPoint, Location, ModuleFile, ModuleKind, Probe, Proc, Site, SymbolUse, Watch,
};

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_.+ -]{0,20}", "\\PC{0,12}"]
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 0..4)
}

fn span() -> impl Strategy<Value = Span> {
    (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(source, one, other)| Span {
        source: SourceId(source),
        start: one.min(other),
        end: one.max(other),
    })
}

fn location() -> impl Strategy<Value = Location> {
    let symbol = || (text(), any::<i64>());
    prop_oneof![
        any::<u64>().prop_map(Location::Offset),
        any::<u64>().prop_map(Location::Address),
        symbol().prop_map(|(name, addend)| Location::Symbol { name, addend }),
        symbol().prop_map(|(name, addend)| Location::AddressSymbol { name, addend }),
        (text(), point()).prop_map(|(function, point)| Location::Points { function, point }),
        ("[a-z0-9][a-z.-]{0,3}", "[a-z*]{1,4}")
            .prop_map(|(system, name)| Location::Tracepoint { system, name }),
    ]
}

fn point() -> impl Strategy<Value = FunctionPoint> {
    let offset = any::<u64>().prop_map(FunctionPoint::Offset);
    prop_oneof![Just(FunctionPoint::Entry), Just(FunctionPoint::Return), Just(FunctionPoint::Each), offset]
}

fn site() -> impl Strategy<Value = Site> {
    let bytes = prop::collection::vec(any::<u8>(), 1..=15);
    (any::<u64>(), any::<u64>(), bytes, text()).prop_map(|(offset, vaddr, bytes, function)| Site {
        offset,
        vaddr,
        bytes,
        function,
    })
}

fn watch() -> impl Strategy<Value = Watch> {
    (prop::sample::select(Access::ALL), prop::sample::select(vec![1, 2, 4, 8]))
        .prop_map(|(access, length)| Watch { access, length })
}

/// A probe, and indices that select its group, its type and its part of the code, if there are any.
fn probe() -> impl Strategy<Value = (Probe, [prop::sample::Index; 4])> {
    let options =
        (prop::option::of(watch()), prop::option::of(0..=0xffu32), prop::collection::vec(site(), 0..4));
    let numbers = (0..=0xffffu32, any::<u64>(), any::<u64>(), any::<bool>(), any::<u16>());
    (text(), location(), options, numbers, span(), any::<[prop::sample::Index; 4]>()).prop_map(
        |(
            point,
            location,
            (watch, opcode, sites),
            (minor, ignore, maxhits, logonfault, mask),
            span,
            indices,
        )| {
            let probe = Probe {
                point,
                location,
                watch,
                opcode,
                minor,
                group: None,
                kind: None,
                ignore,
                maxhits,
                logonfault,
                mask,
                heap: 0,
                entry: 0,
                end: 0,
                span,
                sites,
            };
            (probe, indices)
        },
    )
}

/// A non-empty part of the code.
fn part(code: usize, one: prop::sample::Index, other: prop::sample::Index) -> (usize, usize) {
    let (one, other) = (one.index(code), other.index(code));
    (one.min(other), one.max(other) + 1)
}

fn object() -> impl Strategy<Value = Object> {
    let numbers = (any::<u16>(), any::<u16>(), 0..=0xffffu32, any::<u32>(), 0..=vm::LOG_LIMIT, 0..=0xffffu32);
    let insmax = prop_oneof![Just(vm::INSTRUCTIONS), 0..=vm::INSTRUCTION_LIMIT];
    let traces = (0..=vm::LOG_LIMIT, any::<bool>(), 0..=vm::HEAP_LIMIT, insmax);
    let header = (text(), 0..Arch::ALL.len(), 0..3u8, numbers, names(), names(), names(), traces);
    let file = (text(), prop::collection::vec(any::<u8>(), 0..24), any::<u64>())
        .prop_map(|(path, build_id, size)| ModuleFile { path, build_id, size });
    let code = prop::collection::vec(any::<u8>(), 9..60);
    let probes = prop::collection::vec(probe(), 0..4);
    let rest = prop::collection::vec((text(), any::<i64>(), any::<[prop::sample::Index; 2]>()), 0..3);
    let lines = prop::collection::btree_map(0..9usize, span(), 0..6);
    (header, prop::option::of(file), code, probes, rest, lines).prop_map(
        |((module, arch, kind, numbers, groups, types, fields, traces), file, code, probes, rest, lines)| {
            let (vars, gvars, major, id, logmax, jmpmax) = numbers;
            let (excpt_log, autostacktrace, heapmax, insmax) = traces;
            let arch = Arch::ALL[arch];
            let kind = [ModuleKind::User, ModuleKind::Kernel, ModuleKind::KernelModule][usize::from(kind)];
            let lines = lines.into_iter().collect();
            let mut object = Object {
                module,
                kind,
                arch,
                vars,
                gvars,
                major,
                id,
                logmax,
                jmpmax,
                insmax,
                excpt_log,
                autostacktrace,
                heapmax,
                groups,
                types,
                code,
                probes: Vec::new(),
                procs: Vec::new(),
                symbols: Vec::new(),
                fields,
                lines,
                file,
            };
            let length = object.code.len();
            for (mut probe, [group, kind, one, other]) in probes {
                // Duplicate names: the probe has the first of them.
                let pick = |names: &[String], index: prop::sample::Index| {
                    (!names.is_empty()).then(|| names[index.index(names.len())].clone())
                };
                probe.group = pick(&object.groups, group);
                probe.kind = pick(&object.types, kind);
                (probe.entry, probe.end) = part(length, one, other);
                probe.heap = one.index(heapmax + 1);
                if object.file.is_none() {
                    probe.sites.clear();
                }
                if !matches!(probe.location, Location::Points { .. }) {
                    // At most one site, with the function name in the location only.
                    probe.sites.truncate(1);
                    probe.sites.iter_mut().for_each(|site| site.function.clear());
                }
                object.probes.push(probe);
            }
            for (name, addend, [one, other]) in rest {
                let (entry, end) = part(length, one, other);
                let offset = one.index(length - arch.word().bytes() + 1);
                object.symbols.push(SymbolUse { offset, name: name.clone(), addend });
                object.procs.push(Proc { name, entry, end });
            }
            object
        },
    )
}

fn places() -> impl Strategy<Value = Places> {
    let sources =
        prop::collection::vec((text(), prop::option::of((any::<prop::sample::Index>(), any::<u32>()))), 0..4);
    let position = (1..9usize, 1..999usize).prop_map(|(line, column)| Position { line, column });
    let positions = prop::collection::btree_map((0..4u32, 0..99u32), position, 0..6);
    (sources, positions).prop_map(|(sources, positions)| Places {
        sources: sources
            .into_iter()
            .enumerate()
            .map(|(number, (name, included))| Source {
                name,
                included: included
                    .filter(|_| number > 0)
                    .map(|(by, start)| (SourceId(by.index(number) as u32), start)),
            })
            .collect(),
        positions: positions
            .into_iter()
            .map(|((source, start), position)| ((SourceId(source), start), position))
            .collect(),
    })
}

fn ppdf() -> impl Strategy<Value = Ppdf> {
    (object(), places()).prop_map(|(object, places)| Ppdf { object, places })
}

/// Sets the right length and checksum, as an attacker would.
fn seal(file: &mut [u8]) {
    let length = (file.len() as u32).to_le_bytes();
    file[16..20].copy_from_slice(&length);
    let sum = checksum(file);
    file[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
}

/// Reads a possibly damaged file. If it is accepted, it must be valid: written and read again, it
/// is the same.
fn accepts(file: &[u8]) -> bool {
    match read(file) {
        Ok(ppdf) => {
            let again = write(&ppdf).expect("what was read can be written");
            assert_eq!(read(&again).as_ref(), Ok(&ppdf));
            true
        }
        Err(damaged) => {
            assert!(damaged.offset <= file.len(), "{damaged}");
            assert!(damaged.to_string().chars().all(|character| !character.is_control()), "{damaged}");
            false
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back_the_same(ppdf in ppdf()) {
        let file = write(&ppdf).expect("it is sound");
        prop_assert!(is_ppdf(&file));
        prop_assert_eq!(read(&file), Ok(ppdf));
    }

    #[test]
    fn random_bytes_are_refused(mut file in prop::collection::vec(any::<u8>(), 0..400), magic: bool, sealed: bool) {
        if magic && file.len() >= HEADER {
            file[..8].copy_from_slice(&MAGIC);
            file[8..12].copy_from_slice(&[1, 0, 0, 0]);
            file[13..16].fill(0);
            if sealed {
                seal(&mut file);
            }
        }
        prop_assert!(!accepts(&file));
    }

    #[test]
    fn every_flipped_bit_is_noticed(ppdf in ppdf(), bit: prop::sample::Index) {
        let mut file = write(&ppdf).expect("it is sound");
        let bit = bit.index(file.len() * 8);
        file[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(read(&file).is_err());
    }

    #[test]
    fn every_truncation_and_extension_is_noticed(ppdf in ppdf(), end: prop::sample::Index, more in 1..40usize) {
        let mut file = write(&ppdf).expect("it is sound");
        let end = end.index(file.len());
        prop_assert!(read(&file[..end]).is_err());
        if end >= HEADER {
            let mut cut = file[..end].to_vec();
            seal(&mut cut);
            prop_assert!(read(&cut).is_err(), "the length and the checksum agree, the sections do not");
        }
        file.resize(file.len() + more, 0);
        prop_assert!(read(&file).is_err());
        seal(&mut file);
        prop_assert!(read(&file).is_err());
    }

    #[test]
    fn a_forged_file_is_refused_or_sound(
        ppdf in ppdf(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0xff), Just(0)]), 1..6),
    ) {
        let mut file = write(&ppdf).expect("it is sound");
        let length = file.len();
        for (place, byte) in changes {
            file[place.index(length)] = byte;
        }
        seal(&mut file);
        accepts(&file);
    }
}

/// A file of one probe, without optional parts.
fn small() -> Vec<u8> {
    let text = "name = a\nmodtype = user\noffset = f\nexit\n";
    let compiled = crate::compile_text("a.rpn", text, &crate::Options::default()).expect("it compiles");
    let places = Places::of(&compiled.object, &compiled.sources);
    write(&Ppdf { object: compiled.object, places }).expect("it is sound")
}

/// The small file with some bytes replaced and a right checksum.
fn changed(find: &[u8], replace: &[u8]) -> Vec<u8> {
    let mut file = small();
    let place = file.windows(find.len()).position(|window| window == find).expect("they are there");
    file[place..place + replace.len()].copy_from_slice(replace);
    seal(&mut file);
    file
}

fn refusal(file: &[u8]) -> String {
    read(file).expect_err("it is damaged").to_string()
}

#[test]
fn each_damage_is_told_with_its_place_what_was_found_and_what_was_expected() {
    let file = small();
    assert_eq!(
        refusal(b""),
        "offset 0x0: the magic number: expected 89 50 50 44 46 0d 0a 1a, found an empty file"
    );
    assert_eq!(
        refusal(b"name = a"),
        "offset 0x0: the magic number: expected 89 50 50 44 46 0d 0a 1a, found 6e 61 6d 65 20 3d 20 61"
    );
    assert_eq!(refusal(&file[..9]), "offset 0x8: the version: expected 2 bytes, found 1 byte left");
    assert_eq!(
        refusal(&file[..100]),
        format!(
            "offset 0x10: the length of the file: expected {} bytes (from the header), found 100 bytes",
            file.len()
        )
    );
    let mut other = file.clone();
    other[8] = 2;
    assert_eq!(refusal(&other), "offset 0x8: the version: expected version 1, found version 2.0");
    let mut other = file.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    let stored = u32::from_le_bytes(std::array::from_fn(|place| file[20 + place]));
    assert_eq!(
        refusal(&other),
        format!(
            "offset 0x14: the checksum: expected {stored:#010x} (from the header), found {:#010x}",
            checksum(&other)
        )
    );
}

#[test]
fn what_an_older_reader_does_not_know_is_refused_or_passed_over_by_its_first_letter() {
    let sound = read(&small()).expect("it is sound");
    assert!(refusal(&changed(b"Lgft", b"Xyzw")).contains("expected a field `Lgft`"));
    let optional = read(&changed(b"span", b"xyzw")).expect("it may be passed over");
    assert_eq!(optional.object.probes[0].span, Span::default());
    let unknown = refusal(&changed(b"span", b"Xyzw"));
    assert!(
        unknown
            .contains("probe 0: expected fields that this version of dprobes knows, found the field `Xyzw`"),
        "{unknown}"
    );
    let optional = read(&changed(b"line", b"xyzw")).expect("it may be passed over");
    assert_eq!((optional.object.lines.len(), sound.object.lines.len()), (0, 1));
    let unknown = refusal(&changed(b"line", b"Xyzw"));
    assert!(
        unknown.contains("expected sections that this version of dprobes knows, found a section `Xyzw`"),
        "{unknown}"
    );
    assert!(refusal(&changed(b"CODE", b"cODE")).contains("expected a section `CODE`"));
    assert!(refusal(&changed(b"Igno", b"Maxh")).contains("expected one, found a second one"));
}

#[test]
fn a_count_that_is_not_true_costs_nothing() {
    let mut file = small();
    let row = file.windows(4).position(|window| window == b"line").expect("it is there");
    file[row + 12..row + 16].copy_from_slice(&u32::MAX.to_le_bytes());
    seal(&mut file);
    assert!(refusal(&file).contains("instruction 1: expected 4 bytes, found 0 bytes left"));
}

#[test]
fn an_object_that_no_compiler_makes_is_not_written() {
    let sound = read(&small()).expect("it is sound");
    let broken = |change: fn(&mut Object)| {
        let mut ppdf = sound.clone();
        change(&mut ppdf.object);
        write(&ppdf).expect_err("it is not sound").to_string()
    };
    assert!(broken(|object| object.probes[0].group = Some("x".into())).contains("expected less than 0"));
    assert!(broken(|object| object.probes[0].end = 99).contains("expected a part of 0x1 bytes of code"));
    assert!(
        broken(|object| object.module = "a\nb".into())
            .contains("expected text without control characters, found \\n")
    );
    assert!(broken(|object| object.major = 65536).contains("expected at most 65535, found 65536"));
    let site = Site { offset: 0, vaddr: 0, bytes: vec![0x90], function: String::new() };
    let mut ppdf = sound.clone();
    ppdf.object.probes[0].sites = vec![site.clone()];
    assert!(write(&ppdf).expect_err("there is no file").to_string().contains("expected both or none"));
    ppdf.object.file = Some(ModuleFile { path: "a".into(), build_id: Vec::new(), size: 1 });
    assert!(write(&ppdf).is_ok());
    // Only points of functions have several sites.
    ppdf.object.probes[0].sites = vec![site.clone(), site];
    assert!(matches!(write(&ppdf), Err(Unwritable::Different)));
    ppdf.object.probes[0].location = Location::Points { function: "f*".into(), point: FunctionPoint::Return };
    assert!(write(&ppdf).is_ok());
    let mut ppdf = sound;
    ppdf.object.lines.push(ppdf.object.lines[0]);
    assert!(matches!(write(&ppdf), Err(Unwritable::Invalid(_))));
}

#[test]
fn every_tag_is_documented_once_and_no_two_are_the_same() {
    let page = include_str!("../../../../docs/ppdf.md");
    for tags in [super::tag::section::ALL, super::tag::head::ALL, super::tag::probe::ALL] {
        for (place, tag) in tags.iter().enumerate() {
            assert!(!tags[..place].contains(tag), "{tag}");
            let in_table = page.matches(&format!("| {tag} |")).count();
            let in_title =
                page.lines().filter(|line| line.starts_with("###") && line.contains(&tag.to_string()));
            assert_eq!(in_table + in_title.count(), 1, "{tag}");
        }
    }
}
