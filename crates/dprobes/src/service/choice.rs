//! What runs a program that is inserted: the session's tracer, or the kernel.
//!
//! In: the program, its options, and what is inserted already. Out: the runner, and why the kernel
//! does not run what it could have run for the processes of all users.

use engine::Inserted;
use rpn::{ModuleKind, Object};

use super::protocol::Insert;
use super::scan;
use super::session::Session;
use crate::arguments::{Buffering, Engine, Runner};
use crate::{Failure, kernel_engine};

/// What runs a program.
pub(super) enum Choice {
    Tracer {
        engine: Engine,
        /// Why the kernel does not; `None` if the user has chosen.
        why_not: Option<WhyNot>,
    },
    Kernel {
        /// Whether the tracer is to run it if the kernel refuses it.
        or_tracer: bool,
    },
}

/// Why the kernel does not run a program that nobody has chosen an engine for.
pub(super) enum WhyNot {
    /// This process may not have it run anything.
    Rights,
    /// It could not.
    Reason(String),
    /// It has tried, and could not attach it.
    Refused(String),
}

impl Choice {
    pub(super) fn is_kernel(&self) -> bool {
        matches!(self, Choice::Kernel { .. })
    }

    /// How the tracer would run it.
    pub(super) fn engine(&self) -> Engine {
        match self {
            Choice::Tracer { engine, .. } => *engine,
            Choice::Kernel { .. } => Engine::default(),
        }
    }
}

impl WhyNot {
    /// What is told in any case.
    pub(super) fn line(&self) -> Option<String> {
        match self {
            WhyNot::Rights => Some(
                "processes of other users are not probed: that takes root, or CAP_BPF and CAP_PERFMON\n"
                    .to_owned(),
            ),
            WhyNot::Reason(_) => None,
            WhyNot::Refused(reason) => Some(format!(
                "processes of other users are not probed: the kernel engine refuses the program ({reason})\n"
            )),
        }
    }
}

/// What is said of processes of other users that map the module of a program that the tracer runs,
/// and are not probed. `followed`: those that are.
pub(super) fn others(why_not: Option<WhyNot>, object: &Object, followed: &[i32]) -> Option<String> {
    let others = scan::processes_of_others().into_iter();
    let others = others.filter(|pid| !followed.contains(pid) && scan::maps_module(*pid, &object.module));
    let others = match others.count() {
        0 => return None,
        1 => "1 process that maps it is".to_owned(),
        more => format!("{more} processes that map it are"),
    };
    let by_kernel = match why_not {
        Some(WhyNot::Rights | WhyNot::Refused(_)) => return None,
        Some(WhyNot::Reason(reason)) => Err(reason),
        None => kernel_engine::could_run(object),
    };
    let by_kernel = match by_kernel {
        Ok(()) => "with --engine kernel for those of all users".to_owned(),
        Err(reason) => {
            format!("--engine kernel, which is for those of all users, cannot run them ({reason})")
        }
    };
    Some(format!(
        "{others} of other users: without -p, the tracer's probes are for your own processes; with -p PID they are \
         for any that you may trace; {by_kernel}"
    ))
}

impl Session<'_> {
    /// What runs a program. `old`: the programs of its module. `refused`: why the kernel has
    /// refused it.
    ///
    /// # Errors
    /// It cannot run by the engine that was asked for.
    pub(super) fn choose(
        &self,
        insert: &Insert,
        object: &Object,
        old: &[usize],
        refused: Option<&Failure>,
    ) -> Result<Choice, String> {
        let is_for_all = insert.processes.is_empty();
        let runner = insert.engine.runner(kernel_engine::is_needed(object), is_for_all)?;
        Ok(match runner {
            Runner::Tracer(engine) => Choice::Tracer { engine, why_not: None },
            Runner::Kernel => Choice::Kernel { or_tracer: false },
            Runner::KernelOrTracer => {
                let tracer = |why_not| Choice::Tracer { engine: Engine::Auto, why_not: Some(why_not) };
                match (refused, self.suits_kernel(insert, object, old)) {
                    (None, Ok(())) => Choice::Kernel { or_tracer: true },
                    (None, Err(why_not)) => tracer(why_not),
                    (Some(refused), _) => tracer(WhyNot::Refused(refused.message().to_owned())),
                }
            }
        })
    }

    /// Whether the kernel can run a program for all processes as the tracer would, as far as that
    /// is known without trying.
    fn suits_kernel(&self, insert: &Insert, object: &Object, old: &[usize]) -> Result<(), WhyNot> {
        if !kernel_engine::is_allowed() {
            return Err(WhyNot::Rights);
        }
        let buffering = Buffering {
            lossless: insert.lossless,
            buffer: insert.buffer,
            share_variables: insert.share_variables,
        };
        kernel_engine::check_options(&buffering).map_err(|failure| reason(&failure))?;
        kernel_engine::can_be_found(object, &[]).map_err(|failure| reason(&failure))?;
        if old.iter().any(|&number| !self.kernel.has(number)) {
            return Err(WhyNot::Reason("the module's other probes are jumps or traps".to_owned()));
        }
        kernel_engine::could_run(object).map_err(WhyNot::Reason)?;
        self.is_free(object, &[]).map_err(|failure| reason(&failure))
    }

    /// Refuses probes of the kernel engine in a file in which the tracer has probes: the kernel's
    /// breakpoints would be put over them.
    pub(super) fn is_free(&self, object: &Object, processes: &[i32]) -> Result<(), Failure> {
        if object.kind != ModuleKind::User {
            return Ok(());
        }
        let inserted = self.tracer.inserted();
        let is_meant = |pid: &i32| processes.is_empty() || processes.contains(pid);
        for pid in self.tracer.followed().into_iter().filter(is_meant) {
            let meets =
                |program: &&Inserted<'_>| scan::maps_both(pid, &program.object.module, &object.module);
            if let Some(program) = inserted.iter().find(meets) {
                let module = &program.object.module;
                return Err(Failure::new(format!(
                    "`{}` has probes by jumps or traps in process {pid}, which the kernel would overwrite; \
                     `dprobes remove --name {module}` takes them out",
                    object.module
                )));
            }
        }
        Ok(())
    }
}

fn reason(failure: &Failure) -> WhyNot {
    WhyNot::Reason(failure.message().to_owned())
}
