//! Attach points: as programs of the engine, one for each module, and as what dprobes itself does.
//!
//! In: a compiled script, and what it may probe (`Scope`). Out: `Places`: programs (`Object`), and
//! the handlers that dprobes itself runs; or messages about attach points that are nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use image::{Image, Pattern};
use process::ImageCache;
use rpn::{FunctionPoint, Location, ModuleKind, Object};
use script::{AttachPoint, AttachTarget, Compiled, Handler, Number, ProbedFile, Process, Provider};
use source::{Diagnostic, Sources};

use super::missing::Missing;
use super::named::{names_in_libc, names_its_point};
use super::objects::{object, probe};
use super::scope::{self, Found, Scope, module};
use super::{events, lines, timers};
use crate::Failure;
use crate::kernel_engine::EVENTS;
use crate::messages::tell;

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
    /// The file of `--sym`, by the names of the modules whose symbols it has.
    pub(super) symbols: BTreeMap<String, Arc<Image>>,
    pub(super) begin: Vec<Own>,
    pub(super) end: Vec<Own>,
    /// Handlers that run regularly.
    pub(super) intervals: Vec<(Duration, Own)>,
    /// Handlers that signals to dprobes run.
    pub(super) signals: Vec<(i32, Own)>,
    /// The events of the program [`EVENTS`], by number.
    pub(super) events: Vec<bpf::Event>,
    /// The attach points' full names and their functions, by number.
    pub(super) names: Vec<(String, String)>,
    /// The attach points as the script has them, by number.
    pub(super) points: Vec<AttachPoint>,
    /// The addresses of probed instructions in their files, by the attach point's number, where a
    /// handler asks for them.
    pub(super) addresses: BTreeMap<usize, u64>,
}

/// Finds the places of all handlers.
///
/// # Errors
/// The messages about attach points that are not served here, or that match nothing.
pub(super) fn find(compiled: &Compiled, sources: &Sources, scope: &Scope<'_>) -> Result<Places, Failure> {
    let points = compiled.handlers.iter().map(|handler| handler.points.len()).sum::<usize>();
    let missing = Missing::new(compiled.settings.missing_probes, points == 1);
    let (places, messages, cache) = (Places::default(), Vec::new(), ImageCache::new());
    let mut finder = Finder { compiled, scope, places, messages, missing, cache };
    for handler in &compiled.handlers {
        for point in &handler.points {
            let before = finder.places.names.len();
            finder.find_point(handler, point);
            if finder.places.names.len() > before {
                finder.missing.is_served(handler.action);
            }
        }
    }
    let symbols = finder.symbols();
    let Finder { mut places, mut messages, missing, .. } = finder;
    messages.extend(missing.end(sources));
    if !messages.is_empty() {
        let messages: Vec<String> = messages.iter().map(|message| message.render(sources, false)).collect();
        return Err(Failure::complete(messages.join("\n\n")));
    }
    places.symbols = symbols?;
    let most = compiled.settings.max_probes.max(1);
    if scope.expands && places.names.len() > most {
        tell(&format!("note: the script has {} attach points", places.names.len()));
    }
    for object in &mut places.objects {
        object.code.clone_from(&compiled.code);
        object.fields.clone_from(&compiled.fields);
        object.lines.clone_from(&compiled.lines);
    }
    Ok(places)
}

pub(super) struct Finder<'a> {
    pub(super) compiled: &'a Compiled,
    pub(super) scope: &'a Scope<'a>,
    places: Places,
    messages: Vec<Diagnostic>,
    pub(super) missing: Missing,
    pub(super) cache: ImageCache,
}

impl Finder<'_> {
    fn find_point(&mut self, handler: &Handler, point: &AttachPoint) {
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
            (Provider::Own, AttachTarget::Signal(name)) => match events::own_signal(name) {
                Some(signal) => {
                    let own = self.own(entry, point);
                    self.places.signals.push((signal, own));
                }
                None => self.refuse(
                    point,
                    "this signal means something else to dprobes",
                    "SIGUSR1 and SIGUSR2 can be used; `end` is run at Ctrl-C",
                ),
            },
            (Provider::Interval, AttachTarget::Period(unit, Number::Literal(count))) => {
                match timers::period(*unit, *count) {
                    Some(period) => {
                        let own = self.own(entry, point);
                        self.places.intervals.push((period, own));
                    }
                    None => self.refuse(point, "no time can be so short or so long", "1 us to 1 year"),
                }
            }
            (_, AttachTarget::Function { binary, .. } | AttachTarget::Offset(binary, _))
                if binary.path == "a.out" && self.scope.system_wide =>
            {
                self.refuse(
                    point,
                    "`a.out` is the program of a process, and none is named",
                    "name the process with -p, or the program by its path",
                );
            }
            (Provider::Uprobe | Provider::Uretprobe, AttachTarget::Function { binary, function, offset, .. }) => {
                let at = match (point.provider, offset) {
                    (Provider::Uretprobe, _) => FunctionPoint::Return,
                    (_, Some(offset)) => FunctionPoint::Offset(*offset),
                    (_, None) => FunctionPoint::Entry,
                };
                self.functions(handler, point, binary, function, at);
            }
            (Provider::Uprobe, AttachTarget::Offset(binary, address)) => {
                if self.is_probed(point, binary) {
                    self.address(handler, point, &module(binary), *address);
                }
            }
            (Provider::Uprobe, AttachTarget::Line { binary, file, line }) => {
                if self.is_probed(point, binary) {
                    self.line(handler, point, &module(binary), (file, *line));
                }
            }
            (Provider::Usdt, AttachTarget::Usdt { binary, .. }) => {
                if handler.sites.is_empty() {
                    let file = module(binary);
                    self.missing.add(handler.action, point, &file, "there is no such static probe");
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
            (Provider::Profile | Provider::Hardware | Provider::Software, _) => {
                match events::event(point) {
                    Ok(event) => self.event(handler, point, event),
                    Err((why, help)) => self.refuse(point, &why, help),
                }
            }
            (_, AttachTarget::Kernel { .. } | AttachTarget::Tracepoint(..)) => self.kernel_point(handler, point),
            (Provider::Watchpoint, AttachTarget::Watch { memory, length, mode }) => {
                self.watch((handler, point), memory, *length, mode);
            }
            _ => self.refuse(
                point,
                &format!("`{}` probes are not available in a running script", point.provider.name()),
                "uprobe, uretprobe, usdt, kprobe, kretprobe, fentry, fexit, tracepoint, rawtracepoint, watchpoint, \
                 profile, software, hardware, interval, begin and end can be used",
            ),
        }
    }

    /// The file of `--sym` for each module whose symbols it has.
    ///
    /// # Errors
    /// It has those of none that is there.
    fn symbols(&mut self) -> Result<BTreeMap<String, Arc<Image>>, Failure> {
        let Some(symbols) = self.scope.symbols else { return Ok(BTreeMap::new()) };
        let (mut of, mut difference) = (BTreeMap::new(), None);
        for object in self.places.objects.iter().filter(|object| object.kind == ModuleKind::User) {
            for Found { image, .. } in self.scope.images(&object.module, &mut self.cache) {
                match engine::symbols_of(symbols, &image) {
                    Ok(()) => drop(of.insert(object.module.clone(), Arc::clone(symbols))),
                    Err(reason) => difference = Some(reason),
                }
            }
        }
        match difference {
            _ if !of.is_empty() => Ok(of),
            Some(difference) => Err(Failure::new(difference)),
            None => Err(Failure::new("--sym: the script probes no program or library that is there")),
        }
    }

    /// Adds a probe at an event.
    fn event(&mut self, handler: &Handler, point: &AttachPoint, event: bpf::Event) {
        self.places.events.push(event);
        let number = self.places.events.len() as u64 - 1;
        let name = (point.to_string(), String::new());
        self.add_to((handler, point), (EVENTS, ModuleKind::Kernel), Location::Offset(number), name);
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

    pub(super) fn refuse(&mut self, point: &AttachPoint, why: &str, help: &str) {
        let message = Diagnostic::error(point.at.0, why).label("this attach point");
        self.messages.push(if help.is_empty() { message } else { message.help(help) });
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
        let mut file = module(binary);
        let is_pattern = Pattern::is_one(function) && !function.contains("operator");
        let named = self.scope.expands || is_pattern && names_its_point(self.compiled, handler);
        let (mut functions, mut reason) = self.survey(&file, function, at);
        if functions.is_empty() && scope::may_be_in_libc(&file) && !names_in_libc(handler, function) {
            let (found, _) = self.survey(LIBC, function, at);
            if !found.is_empty() {
                (file, functions, reason) = (LIBC.to_owned(), found, None);
            }
        }
        // Behind `a.out` is what a script of a shell will start.
        let is_missing = reason.is_none() && functions.is_empty() && file != "a.out";
        if functions.is_empty() && (is_missing || reason.is_some()) {
            let reason = reason.unwrap_or_else(|| NO_FILE.to_owned());
            self.missing.add(handler.action, point, &file, &reason);
            if !is_missing || !self.missing.waits() {
                return;
            }
            // It may come later.
        }
        let provider = point.provider.name();
        let shown = |function: &str| match at {
            FunctionPoint::Offset(offset) => format!("{provider}:{file}:{function}+{offset}"),
            _ => format!("{provider}:{file}:{function}"),
        };
        if handler.addressed {
            return self.instructions(handler, point, &file, (function, at), &shown);
        }
        if named && !functions.is_empty() {
            for name in functions {
                let location = Location::Points { function: name.clone(), point: at };
                self.add((handler, point), &file, location, (shown(&name), name));
            }
            return;
        }
        let location = Location::Points { function: function.to_owned(), point: at };
        self.add((handler, point), &file, location, (shown(function), function.to_owned()));
    }

    /// Adds a probe for each instruction of functions: their handler asks where it is in the file.
    fn instructions(
        &mut self,
        handler: &Handler,
        point: &AttachPoint,
        file: &str,
        (function, at): (&str, FunctionPoint),
        shown: &dyn Fn(&str) -> String,
    ) {
        let images = self.scope.images(file, &mut self.cache);
        let surveys = images.first().map(|found| {
            let image = &found.image;
            let symbols = self.scope.symbols_of(image).unwrap_or(image);
            engine::survey(function, at, None, symbols, image, !self.scope.unverified)
        });
        let sites = match surveys {
            Some(Ok(survey)) => survey.sites,
            Some(Err(reason)) => return self.missing.add(handler.action, point, file, &reason.to_string()),
            None => return self.missing.add(handler.action, point, file, NO_FILE),
        };
        for site in sites {
            let function = scope::function_of(&site, at);
            let name = (shown(&function), function.clone());
            self.places.addresses.insert(self.places.names.len(), site.vaddr);
            let location = Location::Points { function, point: at };
            self.add((handler, point), file, location, name).sites = vec![site];
        }
    }

    /// The functions of a file that a name or a pattern means; why there is none, if the file is
    /// there.
    fn survey(
        &mut self,
        file: &str,
        function: &str,
        at: FunctionPoint,
    ) -> (BTreeSet<String>, Option<String>) {
        let images = self.scope.images(file, &mut self.cache);
        let mut functions = BTreeSet::new();
        let mut reason = (!images.is_empty()).then(|| "nothing matches".to_owned());
        for Found { image, .. } in &images {
            let symbols = self.scope.symbols_of(image).unwrap_or(image);
            match engine::survey(function, at, None, symbols, image, !self.scope.unverified) {
                Ok(survey) => functions.extend(survey.sites.iter().map(|site| scope::function_of(site, at))),
                Err(found) => reason = Some(found.to_string()),
            }
        }
        (functions, reason)
    }

    /// Adds the instruction at an address of a file, as its symbol table counts.
    fn address(&mut self, handler: &Handler, point: &AttachPoint, file: &str, address: u64) {
        let images = self.scope.images(file, &mut self.cache);
        let offset = |Found { image, .. }: &Found| {
            let symbols = self.scope.symbols_of(image).unwrap_or(image);
            Some((image.offset_of_address(address)?, lines::named_at(symbols, address)))
        };
        match images.iter().find_map(offset) {
            Some((offset, function)) => {
                let name = (point.to_string(), function);
                self.add((handler, point), file, Location::Offset(offset), name);
            }
            None if images.is_empty() => self.missing.add(handler.action, point, file, NO_FILE),
            None => {
                let reason = format!("no code of the file is at {address:#x}");
                self.missing.add(handler.action, point, file, &reason);
            }
        }
    }

    /// Adds the statements of a source line.
    fn line(&mut self, handler: &Handler, point: &AttachPoint, file: &str, (source, line): (&str, u64)) {
        let images = self.scope.images(file, &mut self.cache);
        let found = images.first().ok_or_else(|| NO_FILE.to_owned());
        let symbols = |image| self.scope.symbols_of(image).map(|symbols| &**symbols);
        let found = found.map(|found| &*found.image);
        match found.and_then(|image| lines::statements(image, symbols(image), (source, line))) {
            Err(reason) => self.missing.add(handler.action, point, file, &reason),
            Ok(statements) => {
                for (offset, function) in statements {
                    let name = (point.to_string(), function);
                    self.add((handler, point), file, Location::Offset(offset), name);
                }
            }
        }
    }

    /// Adds a probe to the program of a file.
    fn add(
        &mut self,
        of: (&Handler, &AttachPoint),
        file: &str,
        location: Location,
        name: (String, String),
    ) -> &mut rpn::Probe {
        if let Location::Offset(offset) = location
            && of.0.addressed
        {
            let images = self.scope.images(file, &mut self.cache);
            let address = images.iter().find_map(|found| found.image.address_of_offset(offset));
            self.places.addresses.extend(address.map(|address| (self.places.names.len(), address)));
        }
        // The kernel's probes are there before the command is mapped anywhere.
        let program = self.scope.command.filter(|_| self.scope.by_kernel && file == "a.out");
        let program = program.and_then(|path| std::path::absolute(path).ok());
        let file = program.as_deref().and_then(std::path::Path::to_str).unwrap_or(file);
        self.add_to(of, (file, ModuleKind::User), location, name)
    }

    /// Adds a probe to the program of a module.
    pub(super) fn add_to(
        &mut self,
        (handler, point): (&Handler, &AttachPoint),
        (file, kind): (&str, ModuleKind),
        location: Location,
        (name, function): (String, String),
    ) -> &mut rpn::Probe {
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
        object.probes.push(probe(name, location, minor, (handler.entry, handler.end)));
        let last = object.probes.len() - 1;
        &mut object.probes[last]
    }
}

/// Why nothing is found in a file.
const NO_FILE: &str = "there is no such program or library";

/// The C library.
const LIBC: &str = "libc";

/// The module of the kernel itself.
pub(super) const KERNEL: &str = "vmlinux";
