//! `dprobes top`: shows counts live in the terminal.
//!
//! ```text
//! front: the terminal   <-- pipe: counts, as JSON lines --   tracer: the engine, Feed
//!   keys -> SIGINT      <-- pipe: what is said          --
//! ```
//!
//! The front owns the terminal, and the tracer the probes: so a terminal that hangs does not hold
//! up the probes, and the terminal is restored even if the tracer is killed. Where there is no
//! terminal, or with `--batch`, the front prints tables instead.

mod batch;
mod draw;
mod feed;
mod keys;
mod names;
mod screen;
mod view;

use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, PipeWriter};
use std::process::ExitCode;

use engine::{StartOptions, Tracer};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};
use trace::sink::Target;

use crate::arguments::Top;
use crate::control::{self, Watch};
use crate::hooks::Plugins;
use crate::session::{self, Loaded};
use crate::{Failure, cost, front, points, started_command};
use feed::Feed;
pub(crate) use view::Sort;
use view::View;

/// The pipes from the tracer to the front: counts, and standard error.
struct Pipes {
    counts: (PipeReader, PipeWriter),
    said: (PipeReader, PipeWriter),
}

impl Pipes {
    fn new() -> io::Result<Pipes> {
        Ok(Pipes { counts: io::pipe()?, said: io::pipe()? })
    }
}

/// Shows what probes count.
pub(crate) fn top(arguments: &Top) -> Result<ExitCode, Failure> {
    let Top { probes, select, tracing, engine, processes, .. } = arguments;
    let pids = processes.ids();
    let is_batch = is_batch(arguments);
    let machine = match &*pids {
        [] => arguments.command.first().and_then(|command| process::machine_of_command(command)),
        pids => session::machine_of(pids),
    };
    points::are_for(&probes.at, &pids)?;
    let programs = session::load(probes, select, tracing, *engine, machine)?;
    for &pid in &pids {
        session::is_not_itself(pid)?;
        points::check(&probes.at, pid)?;
    }
    if !is_batch && tracing.log_target.contains(&Target::Terminal) {
        return Err(Failure::new(
            "records on standard error have no place beside the screen; file:PATH and all other targets take them",
        ));
    }
    let output = match tracing.output.is_some() || !tracing.log_target.is_empty() {
        true => Some(session::open(tracing, &programs, false)?),
        false => None,
    };
    let mask = control::inherited_mask();
    let pipes = Pipes::new().map_err(|error| Failure::new(format!("pipe: {error}")))?;
    let mut view = View::new(title(arguments, &pids));
    view.sort = arguments.sort;
    view.filter = arguments.filter.clone().unwrap_or_default();
    let (front, pipes) = front::split_beside(pipes, |pipes, tracer| {
        let Pipes { counts: (counts, _), said: (said, _) } = pipes;
        match is_batch {
            true => batch::show(view, counts, tracer, arguments.count),
            false => screen::show(view, counts, said, tracer),
        }
    })?;
    let Pipes { counts: (_, counts), said: (_, said) } = pipes;
    if !is_batch {
        release_terminal(&said).map_err(|error| Failure::new(format!("/dev/null: {error}")))?;
    }
    drop(said);
    let plugins = Plugins::load(&tracing.plugin)?;
    let mut feed = session::behind_hooks(Feed::new(output, counts, arguments.interval), &programs);
    let watch = Watch::start(arguments.limit, front.ledger.pulse())?;
    let mut tracer = Tracer::new(Some(front.ledger.clone()), &mut feed);
    tracing.buffering.buffer.into_iter().for_each(|bytes| tracer.set_buffer(bytes));
    // A command that is started is nobody's yet.
    tracer.set_max_overhead(match arguments.command.is_empty() {
        true => tracing.cost.of_processes(),
        false => tracing.cost.of_command(),
    });
    if tracing.buffering.share_variables {
        tracer.share_variables();
    }
    for Loaded { program, options, .. } in programs {
        tracer.insert(program, options, None);
    }
    let surroundings = StartOptions { signal_mask: mask, group: Some(front.group) };
    let (started, result) = match &*pids {
        [] => match tracer.start(&arguments.command, &surroundings) {
            Ok(pid) => (Some(pid), Ok(())),
            Err(error) => (None, Err(error)),
        },
        pids => (None, pids.iter().try_for_each(|&pid| tracer.attach(pid))),
    };
    let result = result.and_then(|()| tracer.run(&watch.control));
    if let (Some(pid), Err(_)) = (started, &result) {
        // The command has not begun, and must not run without its probes.
        started_command::kill(pid, libc::SIGKILL);
    }
    let report = tracer.finish(&watch.control);
    let ended = started.and_then(|pid| tracer.status(pid));
    drop(watch);
    feed.events.destroy_all();
    drop(plugins);
    result.map_err(Failure::new)?;
    session::end(&report, feed.inner.output.as_mut(), tracing, &cost::text(&report, None))?;
    match (started, ended) {
        (_, Some(status)) => front::end_as(status),
        (None, None) => Ok(ExitCode::SUCCESS),
        // The user has quit: end the command that was started for this.
        (Some(pid), None) => {
            started_command::end_command(pid);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whether tables are printed: if that is asked for, or if there is no terminal to show a screen
/// in. The standard output of a command may be a file while the screen is shown.
fn is_batch(arguments: &Top) -> bool {
    let has_terminal = || File::open("/dev/tty").is_ok_and(|terminal| terminal.is_terminal());
    let is_piped = || arguments.command.is_empty() && !io::stdout().is_terminal();
    arguments.batch || arguments.count.is_some() || is_piped() || !has_terminal()
}

/// What is probed: the process, or the command line.
fn title(arguments: &Top, pids: &[i32]) -> String {
    let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
    match pids {
        [] => words.join(" "),
        [pid] => format!("process {pid}"),
        pids => format!("processes {}", pids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Leaves the terminal to the screen: neither this process nor the command that it starts uses it.
/// Their standard error goes into a pipe, and is shown when the screen has ended.
fn release_terminal(said: &PipeWriter) -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    if io::stdin().is_terminal() {
        dup2_stdin(&nothing)?;
    }
    if io::stdout().is_terminal() {
        dup2_stdout(&nothing)?;
    }
    if io::stderr().is_terminal() {
        dup2_stderr(said)?;
    }
    Ok(())
}
