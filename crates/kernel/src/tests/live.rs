//! Runs a handler once in the kernel.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use bpf::{Feature, Link, Uprobe, UprobeMulti};
use testing::conformance::Ran;
use vm::{Outcome, Program, STACK_WORDS};

use super::site::{self, Registers};
use crate::layout::{Field, Layout, STACK};
use crate::{
    AttachKind, Compiled, Globals, Handler, Maps, MapsOptions, Refusal, Tables, TablesShape, Target, compile,
    cookie,
};

/// The site is one for all tests.
static SITE: Mutex<()> = Mutex::new(());

/// Lets one test at a time use the site.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    SITE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether programs can be loaded and attached here. If not, the test is skipped.
pub(super) fn can_run(test: &str) -> bool {
    let can = Feature::Loop.is_available() && Feature::RingBuffer.is_available();
    if !can {
        testing::skipped(test, "the right to load eBPF programs");
    }
    can
}

/// The handler of a case's program.
pub(super) fn handler<'a>(program: &Program<'a>, entry: usize) -> Handler<'a> {
    Handler {
        word: program.word,
        code: program.code,
        entry,
        jmpmax: program.jmpmax,
        insmax: program.insmax,
        logmax: program.logmax,
        excpt_log: program.excpt_log,
        autostacktrace: program.autostacktrace,
        heap: program.heap,
        mask: program.mask,
        locals: program.locals.len() as u16,
        globals: program.globals.len() as u16,
        tables: TablesShape {
            infos: program.maps.infos,
            words: program.maps.words.len(),
            constants: program.constants.0,
            ..TablesShape::default()
        },
        is_script: false,
        point: program.point,
    }
}

/// What was done in one hit.
pub(super) struct Done {
    pub(super) site: usize,
    /// Whether only those elements of the stack are cleared that an instruction could see.
    pub(super) partly: bool,
    pub(super) ran: Ran,
    pub(super) registers: Registers,
    /// The processor.
    pub(super) cpu: u32,
}

/// Attaches a program to an instruction of this program: by one link if the kernel has it, since
/// those are detached faster.
fn attach(program: &bpf::Program, offset: u64, cookie: u64) -> Link {
    let path = Path::new("/proc/self/exe");
    let process = Some(std::process::id());
    if multi() {
        let (offsets, cookies) = (&[offset], &[cookie]);
        let probe =
            UprobeMulti { path, offsets, cookies, reference_counters: &[], on_return: false, process };
        return probe.attach(program).expect("a uprobe on this program");
    }
    let probe = Uprobe { path, offset, on_return: false, reference_counter: 0, process };
    probe.attach(program, cookie).expect("a uprobe on this program")
}

/// Whether the kernel attaches uprobes by one link.
fn multi() -> bool {
    Feature::UprobeMultiProcess.is_available()
}

/// The probes on the first sites.
static LINKS: Mutex<Vec<Link>> = Mutex::new(Vec::new());

/// Keeps a probe until no site is left.
fn keep(link: Link) {
    let mut links = LINKS.lock().unwrap_or_else(PoisonError::into_inner);
    links.push(link);
    if links.len() == site::SITES {
        std::thread::scope(|scope| links.drain(..).for_each(|link| drop(scope.spawn(|| drop(link)))));
    }
}

/// Options of small maps.
pub(super) const SMALL: MapsOptions =
    MapsOptions { contexts: 2, ring: 1 << 17, more_probes: 0, processes: 4, by_process: 0 };

/// A target on this machine.
pub(super) fn target(size: crate::Size, sleepable: bool) -> Target {
    Target {
        place: AttachKind::Uprobe,
        sleepable,
        filtered: false,
        only: crate::Filter::default(),
        cookie: None,
        facilities: false,
        except: None,
        condition: None,
        returns: false,
        by_process: false,
        without_context: false,
        writes_registers: Feature::WriteRegisters.is_available(),
        writes_memory: Feature::WriteMemory.is_available(),
        size,
    }
}

/// A layout, and the numbers of local and global variables.
type Key = (Layout, usize, usize);

/// Maps that earlier runs have used.
static MAPS: LazyLock<Mutex<HashMap<Key, Maps>>> = LazyLock::new(Mutex::default);

fn maps((layout, locals, globals): Key, program: &Program<'_>) -> Maps {
    let globals = Globals::create(globals).expect("a map");
    let (infos, words) = (program.maps.infos.to_vec(), program.maps.words.len());
    let tables = Tables::create(infos, words, program.constants.0.to_vec()).expect("a map");
    Maps::with(layout, 1, locals, &globals, &SMALL, tables).expect("maps")
}

type AllMaps = MutexGuard<'static, HashMap<Key, Maps>>;

fn all_maps() -> AllMaps {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maps for a program: those of earlier runs, since new ones take long; but a script's are its own.
fn maps_of<'a>(
    program: &Program<'_>,
    handler: &Handler<'_>,
    all: &'a mut AllMaps,
    own: &'a mut Option<Maps>,
) -> &'a mut Maps {
    let key = (Layout::of(handler), program.locals.len(), program.globals.len());
    match program.maps.infos.is_empty() && program.constants.0.is_empty() {
        true => all.entry(key).or_insert_with(|| maps(key, program)),
        false => own.insert(maps(key, program)),
    }
}

/// Copies words to other words.
fn copy(from: &[AtomicU64], to: &[AtomicU64]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The place in a context that says how the run ended.
const END: usize = (crate::layout::RECORD + crate::record::END) as usize;

/// Runs a program once at the site.
pub(super) fn run(
    program: &Program<'_>,
    entry: usize,
    mut registers: Registers,
    sleepable: bool,
) -> Result<Done, Refusal> {
    let handler = handler(program, entry);
    let size = SMALL.size(1).expect("the processors");
    let compiled = compile(&handler, &target(size, sleepable))?;
    let (mut all, mut own) = (all_maps(), None);
    let maps = maps_of(program, &handler, &mut all, &mut own);
    maps.enable(0);
    copy(program.locals, maps.locals());
    copy(program.globals, maps.globals());
    let tables = Arc::clone(maps.tables());
    copy(program.maps.words, tables.maps().words);
    // A run that leaves no record makes no header: its end tells which context it had.
    maps.contexts().for_each(|context| context[END / 8].store(0, Ordering::Relaxed));
    let loaded = load(maps, &compiled);
    let site = LINKS.lock().unwrap_or_else(PoisonError::into_inner).len();
    let offset = site::offset(site);
    let link = attach(&loaded, offset, cookie(0, site as u32));
    site::hit(site, &mut registers);
    keep(link);
    copy(maps.locals(), program.locals);
    copy(maps.globals(), program.globals);
    copy(tables.maps().words, program.maps.words);
    let partly = crate::nodes::Nodes::of(&handler).reads_written;
    Ok(Done { partly, ..done(maps, site, registers) })
}

/// Compiles and loads a program for a kind of place.
pub(super) fn load_at(
    place: AttachKind,
    program: &Program<'_>,
    entry: usize,
    sleepable: bool,
) -> Result<(), Refusal> {
    let handler = handler(program, entry);
    let (mut all, mut own) = (all_maps(), None);
    let maps = maps_of(program, &handler, &mut all, &mut own);
    let compiled = compile(&handler, &Target { place, ..target(maps.size(), sleepable) })?;
    load(maps, &compiled);
    Ok(())
}

/// Compiles a program for a uprobe.
pub(super) fn compiles(program: &Program<'_>) -> Result<Compiled, Refusal> {
    compile(&handler(program, 0), &target(SMALL.size(1).expect("the processors"), false))
}

/// Loads a program.
pub(super) fn load(maps: &Maps, compiled: &Compiled) -> bpf::Program {
    maps.load(compiled, multi() && compiled.target.place == AttachKind::Uprobe).unwrap_or_else(|error| {
        let tail: Vec<_> = error.log.lines().rev().take(40).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        panic!("{error}: {:?}\n{}\n{}", error.reason(), compiled.code, tail.join("\n"));
    })
}

/// Hits the site with a program attached, so often in each of some threads.
pub(super) fn hits(program: &bpf::Program, threads: usize, times: usize) {
    hits_of(0, program, threads, times);
}

/// The same for a probe.
pub(super) fn hits_of(probe: u32, program: &bpf::Program, threads: usize, times: usize) {
    let site = LINKS.lock().unwrap_or_else(PoisonError::into_inner).len();
    let link = attach(program, site::offset(site), cookie(probe, 0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..times).for_each(|_| site::hit(site, &mut [0; 16])));
        }
    });
    drop(link);
}

/// Reads what the one run has left.
fn done(maps: &mut Maps, site: usize, registers: Registers) -> Done {
    let mut found = None;
    maps.drain_all(&mut |record| {
        assert_eq!((record.probe, record.site as usize), (0, site));
        assert_eq!((record.tgid, record.ip), (std::process::id(), site::address(site)));
        assert_eq!(record.sp, registers[4]);
        found = Some((record.log.to_vec(), record.trace.to_vec()));
    });
    let (log, trace) = found.unwrap_or_default();
    let words =
        |place: usize, context: &[std::sync::atomic::AtomicU64]| context[place / 8].load(Ordering::Relaxed);
    let context = maps.contexts().find(|it| words(END, it) as u32 != 0).expect("a run");
    let word = |place: i16| words(place as usize, context);
    let top = word(Field::Top.at()) as usize;
    let element = |below: usize| word(STACK + 8 * ((top + below) % STACK_WORDS) as i16);
    let header: Vec<u8> = (0..16)
        .flat_map(|place| word(crate::layout::RECORD + 8 * place).to_le_bytes())
        .chain(std::iter::repeat_n(0, 1 << 17))
        .collect();
    let record = crate::RawRecord::parse(&header).expect("a record's header");
    assert_eq!(word(Field::Busy.at()), 0, "the context is released");
    let outcome = Outcome { end: record.end, major: record.major, minor: record.minor };
    let depth = (STACK_WORDS - top) % STACK_WORDS;
    let ran = Ran { outcome, stack: (0..depth).map(element).collect(), log, trace };
    Done { ran, site, partly: false, registers, cpu: word(Field::Cpu.at()) as u32 }
}

/// The tables of a program without maps.
pub(super) fn no_tables() -> Arc<Tables> {
    Tables::create(Vec::new(), 0, Vec::new()).expect("a map")
}
