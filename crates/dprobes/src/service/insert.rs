//! Inserts a program in the session, in processes that can take it.
//!
//! A file with its options comes in; the program goes to the tracer, its outputs are opened, and
//! the reply says in how many processes its probes are and which were refused. Or a thread gets it,
//! which has the kernel run it (`in_kernel`).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use engine::{Options, Versions};
use image::Machine;
use rpn::{Object, Sources};
use trace::Items;
use trace::sink::Target;
use trace::template::Templates;

use super::choice::{self, Choice, WhyNot};
use super::in_kernel::{New, Starting};
use super::observer::{Opened, SessionOutput};
use super::protocol::{Insert, Mode, Reply};
use super::refused::{self, Refusal};
use super::scan;
use super::session::Session;
use crate::arguments::{Buffering, Preprocessor, Program, Select, Shown};
use crate::kernel_engine::{self, ToInsert};
use crate::points::PROGRAM;
use crate::program::ForKernel;
use crate::session::Loaded;
use crate::{Failure, messages, program, symbols, targets, templates};

/// How long an insert waits for its probes to be in: tens of thousands take seconds on a busy
/// machine.
const SETTLING: Duration = Duration::from_secs(10);

/// A program that is to be inserted.
struct Prepared {
    program: Versions,
    /// The texts that it was compiled from; `None` for a PPDF.
    sources: Option<Sources>,
    choice: Choice,
    options: Options,
    shown: Shown,
    templates: Option<Templates>,
    targets: Vec<Target>,
    /// The programs of its module.
    old: Vec<usize>,
}

/// A program whose records go to targets.
struct Directed<'a> {
    object: &'a Object,
    items: Items,
    shown: &'a Shown,
    templates: Option<Templates>,
    targets: &'a [Target],
}

/// The path of the program that processes run, if it is the same for all of them.
fn program_of(pids: &[i32]) -> Option<String> {
    let path =
        |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).ok()?.into_os_string().into_string().ok();
    let first = path(pids.first()?)?;
    let is_there = !first.ends_with(" (deleted)");
    (is_there && pids.iter().all(|pid| path(pid).as_ref() == Some(&first))).then_some(first)
}

impl Session<'_> {
    /// Inserts the probes of a file. The client gets its answer at once or, if the kernel runs
    /// them, when they are attached.
    pub(super) fn insert(&mut self, insert: &Insert, answer: Sender<Reply>) {
        self.insert_unless_refused(insert, None, answer);
    }

    /// The same for a program that the kernel may have `refused`.
    pub(super) fn insert_unless_refused(
        &mut self,
        insert: &Insert,
        refused: Option<&Failure>,
        answer: Sender<Reply>,
    ) {
        let reply = match self.prepare(insert, refused) {
            Err(failure) => Some(Reply::failed(failure)),
            Ok(prepared) if prepared.choice.is_kernel() => {
                self.insert_in_kernel(insert, prepared, &answer).err().map(|failure| Reply::refused(&failure))
            }
            Ok(prepared) => Some(self.insert_in_processes(insert, prepared).unwrap_or_else(Reply::failed)),
        };
        reply.into_iter().for_each(|reply| drop(answer.send(reply)));
    }

    /// Loads a file, with its options.
    fn prepare(&self, insert: &Insert, refused: Option<&Failure>) -> Result<Prepared, String> {
        let program = Program {
            file: insert.file.clone(),
            text: insert.text.clone(),
            preprocessor: Preprocessor { define: insert.defines.clone(), include: insert.includes.clone() },
        };
        let select = Select { group: insert.groups.clone(), kind: insert.types.clone() };
        let ForKernel { versions: mut program, sources } =
            program::load_again(&program, &select).map_err(|failure| failure.message().to_owned())?;
        // Programs of the session are told apart by their modules.
        if program.main().module == PROGRAM
            && let Some(path) = program_of(&insert.processes)
        {
            program = program.of_module(&path);
        }
        let module = &program.main().module;
        let old = self.programs(Some(module));
        let choice = self.choose(insert, program.main(), &old, refused)?;
        let shown = Shown {
            log: insert.items.clone(),
            log_format: insert.log_format,
            unformatted_output: insert.unformatted,
            templates: insert.templates.clone(),
        };
        let templates = templates::open(&shown).map_err(|failure| failure.message().to_owned())?;
        let targets =
            insert.targets.iter().map(|target| Target::parse(target).map_err(|error| error.to_string()));
        let targets = targets.collect::<Result<Vec<Target>, String>>()?;
        let symbols = symbols::of(program.main(), insert.symbols.as_deref());
        let symbols = symbols.map_err(|failure| failure.message().to_owned())?;
        let options = Options {
            engine: choice.engine().into(),
            verify_opcodes: insert.verify_opcodes,
            items: targets::items(&targets, &shown),
            lossless: insert.lossless,
            max_dumps: insert.max_dumps,
            symbols,
            tables: None,
            semaphores: Vec::new(),
            lenient: false,
        };
        if self.kernel.is_starting(module) {
            return Err(format!("probes are just being inserted in `{module}`; try it again"));
        }
        if insert.mode == Mode::New && !old.is_empty() {
            let own = match module.as_str() == PROGRAM {
                true => "; these are the programs of several processes: name one by its file",
                false => "",
            };
            return Err(format!(
                "probes are inserted in `{module}` already; add --merge to add these to them, or --replace to put these in \
                 their place{own}"
            ));
        }
        if old.iter().any(|&number| self.kernel.has(number) != choice.is_kernel()) {
            return Err(format!(
                "the probes that are inserted in `{module}` are run by another engine; `dprobes remove --name {module}` takes them out"
            ));
        }
        Ok(Prepared { program, sources, choice, options, shown, templates, targets, old })
    }

    /// Sets the targets of a program.
    fn direct(&mut self, number: usize, insert: &Insert, prepared: Directed<'_>, opened: &[Opened]) {
        let Directed { object, items, shown, templates, targets } = prepared;
        let name = insert.file.display().to_string();
        let header = targets::header_items(targets, shown);
        self.events.create(number, &object.module, &name, header);
        let mut sinks = self.sinks.0.borrow_mut();
        sinks.direct(number, opened, insert.lossless);
        let view = targets::view(shown, templates, &sinks.addresses);
        sinks.targets.each_of(number, |open| open.program(number, &name, object, items, &view));
    }

    /// Has the kernel run a program. The client gets its answer when it is attached.
    ///
    /// # Errors
    /// If nothing is inserted: why.
    fn insert_in_kernel(
        &mut self,
        insert: &Insert,
        prepared: Prepared,
        answer: &Sender<Reply>,
    ) -> Result<(), Failure> {
        let Prepared { program, sources, choice, options, shown, templates, targets, old } = prepared;
        let buffering = Buffering {
            lossless: insert.lossless,
            buffer: insert.buffer,
            share_variables: insert.share_variables,
        };
        kernel_engine::check_options(&buffering)?;
        kernel_engine::check_rights([program.main()].into_iter())?;
        self.is_free(program.main(), &insert.processes)?;
        insert.plugins.iter().try_for_each(|plugin| self.plugins.add(plugin))?;
        let globals = self.kernel.globals()?;
        let mut warnings = Vec::new();
        let opened = self.sinks.0.borrow_mut().begin(&targets, false, &mut warnings);
        let opened = opened.map_err(Failure::new)?;
        let number = self.tracer.reserve();
        let directed = Directed {
            object: program.main(),
            items: options.items,
            shown: &shown,
            templates,
            targets: &targets,
        };
        self.direct(number, insert, directed, &opened);
        let loaded = Loaded::new(insert.file.display().to_string(), program.clone(), options.clone());
        let to_insert = ToInsert {
            loaded,
            sources,
            pids: insert.processes.clone(),
            sym: insert.symbols.clone(),
            buffer: insert.buffer,
            globals,
            allow_panic: insert.allow_panic,
            wants_placed: self.sinks.0.borrow().targets.wants_placed(),
            publishes: self.metrics.is_some(),
        };
        let mut starting = Starting::new(answer.clone(), opened, old, insert.mode);
        starting.warnings = warnings;
        starting.or_tracer = matches!(choice, Choice::Kernel { or_tracer: true }).then(|| insert.clone());
        self.kernel.start(New { number, program, options, to_insert, starting })
    }

    /// Inserts the probes of a file: admits it to the processes, opens its outputs, attaches.
    ///
    /// # Errors
    /// If nothing is inserted: why.
    fn insert_in_processes(&mut self, insert: &Insert, prepared: Prepared) -> Result<Reply, String> {
        let Prepared { mut program, choice, options, shown, templates, targets, old, .. } = prepared;
        insert.buffer.into_iter().for_each(|bytes| self.tracer.set_buffer(bytes));
        if insert.share_variables {
            self.tracer.share_variables();
        }
        let module = program.main().module.clone();
        for plugin in &insert.plugins {
            self.plugins.add(plugin).map_err(|failure| failure.message().to_owned())?;
        }
        let processes = if insert.processes.is_empty() {
            let own = scan::own_processes().into_iter().chain(self.tracer.followed());
            self.check_processes(
                &mut program,
                &options,
                own.filter(|&pid| scan::maps_module(pid, &module)).collect(),
            )?
        } else {
            self.admit_named(&program, &options, &insert.processes)?;
            insert.processes.iter().map(|&pid| (pid, None)).collect()
        };
        let count = program.main().probes.len();
        let points: HashSet<String> = program.main().probes.iter().map(|probe| probe.point.clone()).collect();
        // Only after the program is admitted: a store begun in vain would block the next attempt.
        let mut reply = Reply::done("");
        let opened = self.sinks.0.borrow_mut().begin(&targets, insert.lossless, &mut reply.warnings)?;
        match insert.mode {
            Mode::Replace => old.into_iter().for_each(|number| self.take_out(number)),
            _ => old.into_iter().for_each(|number| self.take_out_points(number, &points)),
        }
        let only = (!insert.processes.is_empty()).then(|| insert.processes.clone());
        let (object, items) = (program.main().clone(), options.items);
        drop(self.sinks.0.borrow_mut().heard());
        let number = self.tracer.insert(program, options, only);
        let directed = Directed { object: &object, items, shown: &shown, templates, targets: &targets };
        self.direct(number, insert, directed, &opened);
        let followed = self.tracer.followed();
        let mut probed = 0;
        for (pid, reason) in processes {
            if let Some(reason) = reason {
                self.refused.note(number, pid, reason);
                continue;
            }
            match followed.contains(&pid).then_some(()).map_or_else(|| self.tracer.attach(pid), Ok) {
                Ok(()) => probed += 1,
                Err(error) if !insert.processes.is_empty() => {
                    self.take_out(number);
                    self.let_go_unprobed();
                    SessionOutput::remove_files(&opened);
                    return Err(error.to_string());
                }
                Err(error) => reply.warnings.push(error.to_string()),
            }
        }
        reply.warnings.extend(self.refused.lines(number));
        let control = Arc::clone(&self.watch.control);
        if !self.tracer.settle(&control, SETTLING) {
            reply
                .warnings
                .push("a process has not stopped yet: its probes are inserted as soon as it does".to_owned());
        }
        reply.warnings.extend(self.sinks.0.borrow_mut().heard());
        if insert.mode == Mode::Replace {
            self.let_go_unprobed();
        }
        reply.text = format!(
            "{} inserted in `{module}`, which {} now\n",
            messages::count(count as u64, "probe"),
            match probed {
                0 => "no process maps".to_owned(),
                1 => "1 process maps".to_owned(),
                more => format!("{more} processes map"),
            }
        );
        if let Choice::Tracer { why_not, .. } = choice
            && insert.processes.is_empty()
        {
            reply.text.extend(why_not.as_ref().and_then(WhyNot::line));
            reply.warnings.extend(choice::others(why_not, &object, &followed));
        }
        Ok(reply)
    }

    /// Determines in which of the processes that map a module a program can be placed, and why the
    /// others are refused. All processes of a machine are treated alike: if a probe cannot be
    /// placed in one of them, the program is refused to all.
    ///
    /// # Errors
    /// The program can be placed in none of them, since the module lacks something.
    fn check_processes(
        &mut self,
        program: &mut Versions,
        options: &Options,
        processes: Vec<i32>,
    ) -> Result<Vec<(i32, Option<Refusal>)>, String> {
        let (mut takes, mut failures) = (false, Vec::new());
        for machine in [Machine::X86_64, Machine::I386] {
            let own = processes.iter().filter(|&&pid| process::machine_of_process(pid) == Some(machine));
            let own: Vec<i32> = own.copied().collect();
            if own.is_empty() || program.of(machine).is_err() {
                continue;
            }
            let check = |&pid: &i32| match self.tracer.check(program, options.clone(), pid) {
                Err(engine::Error::Process(error)) if error.is_gone() => Ok(()),
                result => result,
            };
            match own.iter().try_for_each(check) {
                Ok(()) => takes = true,
                Err(error) => failures.push((machine, error.to_string())),
            }
        }
        if let (false, Some((_, reason))) = (takes, failures.first()) {
            return Err(reason.clone());
        }
        for (machine, reason) in failures {
            program.refuse(machine, reason);
        }
        Ok(processes.into_iter().map(|pid| (pid, refused::reason(program, pid))).collect())
    }

    /// Checks that a program can be placed in each of the named processes.
    fn admit_named(
        &mut self,
        program: &Versions,
        options: &Options,
        processes: &[i32],
    ) -> Result<(), String> {
        for &pid in processes {
            process::Status::read(pid).map_err(|error| error.to_string())?;
            if let Some((machine, reason)) = refused::reason(program, pid) {
                return Err(format!(
                    "process {pid} is a program for {machine}, which this is not for: {reason}"
                ));
            }
            self.tracer.check(program, options.clone(), pid).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Removes those probes of a program that a file to be merged redefines.
    fn take_out_points(&mut self, number: usize, points: &HashSet<String>) {
        let Some(program) = self.tracer.program(number) else { return };
        let probes = program.object.probes.iter().enumerate();
        let doubled: Vec<usize> =
            probes.filter(|(_, probe)| points.contains(&probe.point)).map(|(number, _)| number).collect();
        drop(program);
        self.tracer.remove_probes(number, &doubled);
    }
}
