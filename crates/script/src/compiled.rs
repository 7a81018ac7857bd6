//! A compiled script: what the engines run, and what its reader must know.

use std::collections::BTreeMap;
use std::rc::Rc;

use maps::MapInfo;
use source::Span;

use crate::ast::At;
use crate::attach_point::AttachPoint;
use crate::check::Bits;
use crate::static_sites::StaticSite;
use crate::types::Type;

/// The exceptions that end a handler (the mask of its program): the default ones, and a log that is
/// full. Else what is logged next would be taken for the rest of an event that did not fit.
pub const EXCEPTIONS: u16 = vm::DEFAULT_MASK | vm::Exception::LOG_OVERFLOW;

/// A compiled script.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    /// The bytecode of all handlers.
    pub code: Vec<u8>,
    /// The handlers, in the order of the script's probes.
    pub handlers: Vec<Handler>,
    /// The maps. An instruction names one by its index.
    pub maps: Vec<Map>,
    /// The map that the runtime sets to the number of the process that it starts, before the first
    /// handler runs. It is none of the script's, and not printed.
    pub child: Option<usize>,
    /// The literals: the constants of class 0.
    pub constants: Vec<Vec<u8>>,
    /// The literal of 8 bytes that the runtime sets, if handlers ask for addresses of symbols: the
    /// place, in class 2, of the first of as many constants as there are attach points. Each has 8
    /// bytes, the address of the point's one instruction in its file.
    pub addresses: Option<usize>,
    /// The fields of tracepoints' records that `push field` names by index.
    pub fields: Vec<String>,
    /// The events that handlers log, by number.
    pub events: Vec<Event>,
    /// The settings.
    pub settings: Settings,
    /// The structs and unions by name, to print their values: those of the script, and those of
    /// programs of which values are printed.
    pub records: BTreeMap<Rc<str>, RecordLayout>,
    /// The enums of the script: names and values, to print them.
    pub enums: BTreeMap<Rc<str>, Vec<(String, i64)>>,
    /// Offsets in the code where a statement begins, and its text: the comments of a listing.
    pub notes: Vec<(usize, String)>,
    /// Offsets in the code, ascending, and the places in the text whose code begins there.
    pub lines: Vec<(usize, Span)>,
}

/// A struct or union.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordLayout {
    /// Its bytes.
    pub size: u64,
    /// Its fields, in the order of their places.
    pub members: Vec<Member>,
}

/// A field of a struct or union.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Where it is, in bytes. The field of a bit field is the unit that contains it.
    pub offset: u64,
    /// Its bits in the unit, if it is a bit field.
    pub bits: Option<Bits>,
}

/// The action of a probe.
#[derive(Clone, Debug)]
pub struct Handler {
    /// The action that it is of, by its place among the script's. Several handlers may be of one.
    pub action: usize,
    /// Where it fires; `minor` of a site tells which attach point it was.
    pub points: Vec<AttachPoint>,
    /// The sites of its `usdt` point, in which its arguments are in the same places.
    pub sites: Vec<StaticSite>,
    /// The offset of its first instruction.
    pub entry: usize,
    /// The offset after its last instruction.
    pub end: usize,
    /// Whether it may log.
    pub logs: bool,
    /// Whether it asks for addresses of symbols: each attach point must be one instruction then.
    pub addressed: bool,
    /// The bytes of the frame that it uses, a multiple of 8.
    pub frame: usize,
}

/// A map.
#[derive(Clone, Debug)]
pub struct Map {
    /// Its name without `@`; empty for `@` alone, and for the map of stacks, which its kind tells.
    pub name: String,
    /// The type of its keys, if it has any.
    pub key: Option<Type>,
    /// The type of its values.
    pub value: Type,
    /// Its kind and sizes; the places are still to be planned.
    pub info: MapInfo,
}

/// What the reader does when it finds an event.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it does.
    pub action: Action,
    /// The types of the values in the log behind its number.
    pub arguments: Vec<Type>,
    /// Where it is in the script.
    pub at: At,
}

/// The actions of the reader.
#[derive(Clone, Debug)]
pub enum Action {
    /// `printf`: prints the arguments by the format.
    Printf(Vec<u8>),
    /// `errorf`: the same, as an error with the place in the script.
    Errorf(Vec<u8>),
    /// `warnf`: the same, as a warning.
    Warnf(Vec<u8>),
    /// `print(value)`: one argument.
    Print,
    /// `print(@map[key])`: the arguments are the key, if the map has one, and the value. An
    /// aggregate is not logged; the reader looks it up.
    PrintEntry(usize),
    /// `print(@map, top, divisor)`.
    PrintMap {
        /// The map's index.
        map: usize,
        /// Only that many entries, those with the greatest values; 0: all.
        top: u64,
        /// What values are divided by; 0: nothing.
        divisor: u64,
    },
    /// `clear(@map)`.
    Clear(usize),
    /// `zero(@map)`.
    Zero(usize),
    /// `unwatch(address)`: one argument, the address.
    Unwatch,
    /// `exit(status)`: one argument, the status.
    Exit,
    /// `time(format)`.
    Time(Vec<u8>),
    /// `cat(format, ...)`: prints the file whose name this is.
    Cat(Vec<u8>),
    /// `system(format, ...)`: runs this command.
    System(Vec<u8>),
    /// `join(strings, separator)`: the arguments are strings.
    Join(Vec<u8>),
    /// `assert(condition, message)`: the condition did not hold; one argument, the message.
    Assert,
}

/// The settings that matter after compilation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bytes to which strings are read (`max_strlen`).
    pub max_strlen: usize,
    /// Entries of a map (`max_map_keys`).
    pub max_map_keys: u32,
    /// Whether maps are printed at the end (`print_maps_on_exit`).
    pub print_maps_on_exit: bool,
    /// What follows a string that was cut (`str_trunc_trailer`).
    pub trailer: Rc<str>,
    /// The most attach points (`max_probes`).
    pub max_probes: usize,
    /// The most bytes that `cat` prints (`max_cat_bytes`).
    pub max_cat_bytes: usize,
    /// Whether C++ names are demangled (`cpp_demangle`).
    pub cpp_demangle: bool,
    /// What to do if an attach point matches nothing (`missing_probes`).
    pub missing_probes: MissingProbes,
    /// Whether stacks have source lines (`show_debug_info`).
    pub show_debug_info: bool,
    /// How stacks are shown where a call does not say it (`stack_mode`): 0 as bpftrace does, 1 as
    /// perf does, 2 addresses only, 3 build ids. The number is in the values of stacks already.
    pub stack_mode: u8,
}

/// What to do if an attach point matches nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingProbes {
    /// It is left out with a warning if another attach point of its action matches something; else
    /// nothing is traced.
    #[default]
    Unsaid,
    /// Nothing is traced.
    Error,
    /// The others are traced, with a warning.
    Warn,
    /// The others are traced.
    Ignore,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_strlen: 1024,
            max_map_keys: 4096,
            print_maps_on_exit: true,
            trailer: "..".into(),
            max_probes: 1024,
            max_cat_bytes: 10240,
            cpp_demangle: true,
            missing_probes: MissingProbes::Unsaid,
            show_debug_info: false,
            stack_mode: 0,
        }
    }
}
