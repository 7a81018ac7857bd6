//! Inserts a program in the session, in processes that can take it.
//!
//! A file with its options comes in; the program goes to the tracer, its outputs are opened, and
//! the reply says in how many processes its probes are and which were refused.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use engine::{Options, Versions};
use image::Machine;
use trace::sink::Target;

use super::protocol::{Insert, Mode, Reply};
use super::refused::{self, Refusal};
use super::scan;
use super::session::Session;
use super::sink::SessionOutput;
use crate::arguments::{Preprocessor, Program, Select, Shown};
use crate::{messages, program, symbols, targets, templates};

/// How long an insert waits for its probes to be in: tens of thousands take seconds on a busy
/// machine.
const SETTLING: Duration = Duration::from_secs(10);

impl Session<'_> {
    /// Inserts the probes of a file: admits it to the processes, opens its outputs, attaches.
    ///
    /// # Errors
    /// If nothing is inserted: why.
    pub(super) fn insert(&mut self, insert: &Insert) -> Result<Reply, String> {
        let program = Program {
            file: insert.file.clone(),
            text: insert.text.clone(),
            preprocessor: Preprocessor { define: insert.defines.clone(), include: insert.includes.clone() },
        };
        let select = Select { group: insert.groups.clone(), kind: insert.types.clone() };
        let mut program =
            program::load_again(&program, &select).map_err(|failure| failure.message().to_owned())?;
        let shown = Shown {
            log: insert.items.clone(),
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
            engine: insert.engine.into(),
            verify_opcodes: insert.verify_opcodes,
            items: targets::items(&targets, &shown),
            lossless: insert.lossless,
            max_dumps: insert.max_dumps,
            symbols,
            tables: None,
            semaphores: Vec::new(),
        };
        insert.buffer.into_iter().for_each(|bytes| self.tracer.set_buffer(bytes));
        if insert.share_variables {
            self.tracer.share_variables();
        }
        let module = program.main().module.clone();
        let old = self.programs(Some(&module));
        if insert.mode == Mode::New && !old.is_empty() {
            return Err(format!(
                "probes are inserted in `{module}` already; add --merge to add these to them, or --replace to put these in \
                 their place"
            ));
        }
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
        self.events.create(number, &module, &insert.file.display().to_string(), items);
        {
            let mut sinks = self.sinks.0.borrow_mut();
            sinks.direct(number, &opened, insert.lossless);
            let (name, view) = (insert.file.display().to_string(), targets::view(&shown, templates));
            sinks.targets.each_of(number, |open| open.program(number, &name, &object, items, &view));
        }
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
        let others = match probed {
            0 => {
                scan::processes_of_others().into_iter().filter(|&pid| scan::maps_module(pid, &module)).count()
            }
            _ => 0,
        };
        if others > 0 && insert.processes.is_empty() {
            reply.warnings.push(format!(
                "{} of other users: without -p, probes are for your own processes; with -p PID they are for any that you may \
                 trace",
                match others {
                    1 => "1 process that maps it is".to_owned(),
                    more => format!("{more} processes that map it are"),
                }
            ));
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
