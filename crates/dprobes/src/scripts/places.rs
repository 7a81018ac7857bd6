//! Attach points: as programs of the engine, one for each module, and as what dprobes itself does.

use std::collections::BTreeMap;
use std::time::Duration;

use image::Pattern;
use process::ImageCache;
use rpn::{Arch, FunctionPoint, Location, ModuleKind, Object};
use script::{AttachPoint, Compiled, Handler, MissingProbes, Number, Place, ProbedFile, Process, Provider};
use source::{Diagnostic, Sources};
use vm::Op;

use super::scope::{Found, Scope, module};
use super::{lines, timers};
use crate::Failure;
use crate::messages::{WARNING, tell};

/// A handler that dprobes itself runs: its first instruction, and the number of its attach point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) entry: usize,
    pub(super) minor: u32,
}

/// Where a script is run.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The programs, one for each module.
    pub(super) objects: Vec<Object>,
    /// The semaphores of their static probes, by the module's name.
    pub(super) semaphores: BTreeMap<String, Vec<u64>>,
    pub(super) begin: Vec<Own>,
    pub(super) end: Vec<Own>,
    /// Handlers that run regularly.
    pub(super) intervals: Vec<(Duration, Own)>,
    /// The attach points' full names and their functions, by number.
    pub(super) names: Vec<(String, String)>,
    /// The attach points as the script has them, by number.
    pub(super) points: Vec<AttachPoint>,
}

/// Finds the places of all handlers.
///
/// # Errors
/// The messages about attach points that are not served here, or that match nothing.
pub(super) fn find(compiled: &Compiled, sources: &Sources, scope: &Scope<'_>) -> Result<Places, Failure> {
    let mut finder =
        Finder { compiled, scope, places: Places::default(), messages: Vec::new(), cache: ImageCache::new() };
    for handler in &compiled.handlers {
        for point in &handler.points {
            finder.point(handler, point);
        }
    }
    let Finder { mut places, messages, .. } = finder;
    if !messages.is_empty() {
        let messages: Vec<String> = messages.iter().map(|message| message.render(sources, false)).collect();
        return Err(Failure::complete(messages.join("\n\n")));
    }
    let most = compiled.settings.max_probes.max(1);
    if scope.expands && places.names.len() > most {
        tell(&format!("note: the script has {} attach points", places.names.len()));
    }
    for object in &mut places.objects {
        object.code.clone_from(&compiled.code);
        object.fields.clone_from(&compiled.fields);
    }
    Ok(places)
}

struct Finder<'a> {
    compiled: &'a Compiled,
    scope: &'a Scope<'a>,
    places: Places,
    messages: Vec<Diagnostic>,
    cache: ImageCache,
}

impl Finder<'_> {
    fn point(&mut self, handler: &Handler, point: &AttachPoint) {
        let entry = handler.entry;
        match (point.provider, &point.place) {
            (Provider::Begin, _) => {
                let own = self.own(entry, point);
                self.places.begin.push(own);
            }
            (Provider::End, _) => {
                let own = self.own(entry, point);
                self.places.end.push(own);
            }
            (Provider::Own, _) => {
                self.refuse(point, "signals to dprobes run no handlers yet", "`end` is run at Ctrl-C");
            }
            (Provider::Interval, Place::Period(unit, Number::Literal(count))) => {
                match timers::period(*unit, *count) {
                    Some(period) => {
                        let own = self.own(entry, point);
                        self.places.intervals.push((period, own));
                    }
                    None => self.refuse(point, "no time can be so short or so long", "1 us to 1 year"),
                }
            }
            (_, Place::Function { binary, .. } | Place::Offset(binary, _))
                if binary.path == "a.out" && self.scope.system_wide =>
            {
                self.refuse(
                    point,
                    "`a.out` is the program of a process, and none is named",
                    "name the process with -p, or the program by its path",
                );
            }
            (Provider::Uprobe | Provider::Uretprobe, Place::Function { binary, function, offset, .. }) => {
                let at = match (point.provider, offset) {
                    (Provider::Uretprobe, _) => FunctionPoint::Return,
                    (_, Some(offset)) => FunctionPoint::Offset(*offset),
                    (_, None) => FunctionPoint::Entry,
                };
                self.functions(handler, point, binary, function, at);
            }
            (Provider::Uprobe, Place::Offset(binary, address)) => {
                if self.is_probed(point, binary) {
                    self.address(handler, point, &module(binary), *address);
                }
            }
            (Provider::Uprobe, Place::Line { binary, file, line }) => {
                if self.is_probed(point, binary) {
                    self.line(handler, point, &module(binary), (file, *line));
                }
            }
            (Provider::Usdt, Place::Usdt { binary, .. }) => {
                if handler.sites.is_empty() {
                    self.missing(point, &module(binary), "there is no such static probe");
                }
                if self.scope.system_wide && handler.sites.iter().any(|site| site.semaphore.is_some()) {
                    return self.refuse(
                        point,
                        "the program asks whether this static probe is on, which cannot be told to all processes yet",
                        "name the process with -p, or a command behind `--`",
                    );
                }
                for site in &handler.sites {
                    self.places.semaphores.entry(site.file.clone()).or_default().extend(site.semaphore);
                    let name = format!("{}:{}:{}", point.provider.name(), site.file, site.name);
                    self.add(
                        (handler, point),
                        &site.file,
                        Location::Offset(site.offset),
                        (name, String::new()),
                    );
                }
            }
            (Provider::Kprobe | Provider::Kretprobe | Provider::Tracepoint, _) if !self.scope.system_wide => {
                self.refuse(
                    point,
                    "the kernel is probed for all processes",
                    "leave the process and the command out, and select by `pid` or `comm`",
                );
            }
            (Provider::Kprobe | Provider::Kretprobe, Place::Kernel { module, function, offset }) => {
                let at = match (point.provider, offset) {
                    (Provider::Kretprobe, _) => FunctionPoint::Return,
                    (_, Some(offset)) => FunctionPoint::Offset(*offset),
                    (_, None) => FunctionPoint::Entry,
                };
                let kind = module.as_ref().map_or(ModuleKind::Kernel, |_| ModuleKind::KernelModule);
                let file = module.as_deref().unwrap_or(KERNEL);
                let location = Location::Points { function: function.clone(), point: at };
                self.in_kernel(handler, point, (file, kind), location, function);
            }
            (Provider::Tracepoint, Place::Tracepoint(Some(system), name)) => {
                let location = Location::Tracepoint { system: system.clone(), name: name.clone() };
                self.in_kernel(handler, point, (KERNEL, ModuleKind::Kernel), location, name);
            }
            _ => self.refuse(
                point,
                &format!("`{}` probes are not available in a running script", point.provider.name()),
                "uprobe, uretprobe, usdt, kprobe, kretprobe, tracepoint, interval, begin and end can be used",
            ),
        }
    }

    /// Adds a probe of the kernel.
    fn in_kernel(
        &mut self,
        handler: &Handler,
        point: &AttachPoint,
        (file, kind): (&str, ModuleKind),
        location: Location,
        named: &str,
    ) {
        if Pattern::is_one(named) && names_its_point(self.compiled, handler) {
            return self.refuse(
                point,
                "what a pattern matches in the kernel is not told to its handlers",
                "leave `probe` and `func` out, or write a probe for each",
            );
        }
        let function = match point.provider {
            Provider::Tracepoint => String::new(),
            _ => named.to_owned(),
        };
        self.add_to((handler, point), (file, kind), location, (point.to_string(), function));
    }

    /// Numbers an attach point.
    fn number(&mut self, point: &AttachPoint, name: String, function: String) -> u32 {
        self.places.names.push((name, function));
        self.places.points.push(point.clone());
        self.places.names.len() as u32 - 1
    }

    fn own(&mut self, entry: usize, point: &AttachPoint) -> Own {
        Own { entry, minor: self.number(point, point.to_string(), String::new()) }
    }

    fn refuse(&mut self, point: &AttachPoint, why: &str, help: &str) {
        self.messages.push(Diagnostic::error(point.at.0, why).label("this attach point").help(help));
    }

    /// Whether the process that an attach point names is one of those that are probed.
    fn is_probed(&mut self, point: &AttachPoint, binary: &ProbedFile) -> bool {
        let Some(Process::Number(number)) = binary.process else { return true };
        let is = i32::try_from(number).is_ok_and(|number| self.scope.pids.contains(&number));
        if !is {
            let help = format!("give it with -p {number}");
            self.refuse(point, "this process is not among those that are probed", &help);
        }
        is
    }

    /// Adds the points of a function, or of those that a pattern matches.
    fn functions(
        &mut self,
        handler: &Handler,
        point: &AttachPoint,
        binary: &ProbedFile,
        function: &str,
        at: FunctionPoint,
    ) {
        if !self.is_probed(point, binary) {
            return;
        }
        let file = module(binary);
        let is_pattern = Pattern::is_one(function) && !function.contains("operator");
        let named = self.scope.expands || is_pattern && names_its_point(self.compiled, handler);
        let images = self.scope.images(&file, &mut self.cache);
        let mut functions: BTreeMap<String, ()> = BTreeMap::new();
        let mut reasons = Vec::new();
        for Found { image, .. } in &images {
            match engine::survey(function, at, None, image, image, true) {
                Ok(survey) => {
                    functions.extend(survey.sites.into_iter().map(|site| (site.function, ())));
                }
                Err(reason) => reasons.push(reason.to_string()),
            }
        }
        // Behind `a.out` is what a script of a shell will start.
        let is_missing = images.is_empty() && file != "a.out";
        if functions.is_empty() && (is_missing || !images.is_empty()) {
            let reason = match is_missing {
                true => "there is no such program or library".to_owned(),
                false => reasons.pop().unwrap_or_else(|| "nothing matches".to_owned()),
            };
            self.missing(point, &file, &reason);
            if !is_missing || self.compiled.settings.missing_probes == MissingProbes::Error {
                return;
            }
            // It may come later.
        }
        let provider = point.provider.name();
        let shown = |function: &str| match at {
            FunctionPoint::Offset(offset) => format!("{provider}:{file}:{function}+{offset}"),
            _ => format!("{provider}:{file}:{function}"),
        };
        if named && !functions.is_empty() {
            for name in functions.into_keys() {
                let location = Location::Points { function: name.clone(), point: at };
                self.add((handler, point), &file, location, (shown(&name), name));
            }
            return;
        }
        let location = Location::Points { function: function.to_owned(), point: at };
        self.add((handler, point), &file, location, (shown(function), function.to_owned()));
    }

    /// An attach point matches nothing.
    fn missing(&mut self, point: &AttachPoint, file: &str, reason: &str) {
        match self.compiled.settings.missing_probes {
            MissingProbes::Error => self.refuse(
                point,
                &format!("{}: {}", printable::text(file), printable::text(reason)),
                "`missing_probes = \"warn\"` in `config` lets the others be traced",
            ),
            MissingProbes::Warn => tell(&format!("{WARNING}{point}: {}", printable::text(reason))),
            MissingProbes::Ignore => {}
        }
    }

    /// Adds the instruction at an address of a file, as its symbol table counts.
    fn address(&mut self, handler: &Handler, point: &AttachPoint, file: &str, address: u64) {
        let images = self.scope.images(file, &mut self.cache);
        let offsets = images.iter().filter_map(|found| found.image.offset_of_address(address));
        match offsets.collect::<Vec<_>>().first() {
            Some(&offset) => {
                let name = (point.to_string(), String::new());
                self.add((handler, point), file, Location::Offset(offset), name);
            }
            None if images.is_empty() => self.missing(point, file, "there is no such program or library"),
            None => self.missing(point, file, &format!("no code of the file is at {address:#x}")),
        }
    }

    /// Adds the statements of a source line.
    fn line(&mut self, handler: &Handler, point: &AttachPoint, file: &str, (source, line): (&str, u64)) {
        let images = self.scope.images(file, &mut self.cache);
        let found = images.first().ok_or_else(|| "there is no such program or library".to_owned());
        match found.and_then(|found| lines::statements(&found.image, source, line)) {
            Err(reason) => self.missing(point, file, &reason),
            Ok(offsets) => {
                for offset in offsets {
                    let name = (point.to_string(), String::new());
                    self.add((handler, point), file, Location::Offset(offset), name);
                }
            }
        }
    }

    /// Adds a probe to the program of a module.
    fn add(&mut self, of: (&Handler, &AttachPoint), file: &str, location: Location, name: (String, String)) {
        self.add_to(of, (file, ModuleKind::User), location, name);
    }

    fn add_to(
        &mut self,
        (handler, point): (&Handler, &AttachPoint),
        (file, kind): (&str, ModuleKind),
        location: Location,
        (name, function): (String, String),
    ) {
        let minor = self.number(point, name.clone(), function);
        let objects = &mut self.places.objects;
        let is_it = |object: &Object| object.module == file && object.kind == kind;
        let object = match objects.iter_mut().position(|object| is_it(object)) {
            Some(place) => &mut objects[place],
            None => {
                objects.push(Object { kind, ..object(file) });
                let last = objects.len() - 1;
                &mut objects[last]
            }
        };
        object.probes.push(rpn::Probe {
            point: name,
            location,
            watch: None,
            opcode: None,
            minor,
            group: None,
            kind: None,
            ignore: 0,
            maxhits: UNLIMITED,
            logonfault: true,
            mask: script::EXCEPTIONS,
            heap: 0,
            entry: handler.entry,
            end: handler.end,
            span: Default::default(),
            sites: Vec::new(),
        });
    }
}

/// The module of the kernel itself.
const KERNEL: &str = "vmlinux";

/// The greatest `maxhits`, which means no limit.
const UNLIMITED: u64 = 0x7fff_ffff;

/// A program for a module, without probes and code.
fn object(file: &str) -> Object {
    Object {
        module: file.to_owned(),
        arch: Arch::X86_64,
        major: 0,
        logmax: vm::LOG_LIMIT,
        jmpmax: vm::JUMP_LIMIT,
        insmax: vm::INSTRUCTIONS,
        ..Object::default()
    }
}

/// Whether a handler asks which attach point was hit.
fn names_its_point(compiled: &Compiled, handler: &Handler) -> bool {
    let code = compiled.code.get(handler.entry..handler.end).unwrap_or(&[]);
    let instructions = vm::instructions(code, vm::Word::W8);
    instructions.filter_map(|it| it.instruction()).any(|it| it.op == Op::PushMinor)
}

/// The constants as handlers read them: literals, then names of attach points, then of functions.
/// Names are cut: a handler has no more room for one than for a string.
pub(super) fn constants(compiled: &Compiled, places: &Places) -> Vec<u8> {
    let cut = |name: &'_ str| name.len().min(compiled.settings.max_strlen);
    let names = places.names.iter().map(|(name, _)| &name.as_bytes()[..cut(name)]);
    let functions = places.names.iter().map(|(_, function)| &function.as_bytes()[..cut(function)]);
    let literals = compiled.constants.iter().map(Vec::as_slice);
    let classes: [Vec<&[u8]>; 3] = [literals.collect(), names.collect(), functions.collect()];
    let count: usize = classes.iter().map(Vec::len).sum();
    let mut head: Vec<u8> = classes.iter().flat_map(|class| (class.len() as u32).to_le_bytes()).collect();
    let mut bytes: Vec<u8> = Vec::new();
    for text in classes.iter().flatten() {
        let start = (12 + 8 * count + bytes.len()) as u32;
        head.extend(start.to_le_bytes());
        head.extend((text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text);
    }
    head.extend(bytes);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_found_by_class_and_number() {
        let compiled = Compiled { constants: vec![b"one".to_vec(), Vec::new()], ..Compiled::default() };
        let names = vec![("uprobe:a:f".to_owned(), "f".to_owned()), ("end".to_owned(), String::new())];
        let places = Places { names, ..Places::default() };
        let bytes = constants(&compiled, &places);
        let constants = vm::Constants(&bytes);
        let texts =
            [(0, &b"one"[..]), (1, b""), (1 << 32, b"uprobe:a:f"), (1 << 32 | 1, b"end"), (2 << 32, b"f")];
        for (number, text) in texts {
            assert_eq!(constants.get(number), Some(text), "{number:#x}");
        }
        assert_eq!(constants.get(2), None);
        let settings = script::Settings { max_strlen: 8, ..compiled.settings.clone() };
        let bytes = super::constants(&Compiled { settings, ..compiled }, &places);
        assert_eq!(vm::Constants(&bytes).get(1 << 32), Some(&b"uprobe:a"[..]));
    }
}
