//! The commands that talk to the background session.

use crate::stdout;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::daemon::{self, RunMode};
use super::metrics::Exports;
use super::protocol::{self, Mode, Reply, Request};
use super::socket;
use rpn::Object;
use trace::sink::Target;

use crate::arguments::{
    ApplyPpdf, Cost, Export, GetVars, Insert, Placing, Plugin, Preprocessor, Program, Query, Remove, Runner,
    Session, SessionAction, Which,
};
use crate::{Failure, at_programs, kernel_engine, points, ppdf, program, symbols, targets, templates};

/// How long a new session may take to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Inserts programs and returns; the session keeps the probes.
pub(crate) fn insert(arguments: &Insert) -> Result<ExitCode, Failure> {
    let programs = at_programs::programs(&arguments.probes, has_targets(&arguments.placing))?;
    let pids = arguments.placing.processes.ids();
    let for_all = arguments.probes.at.iter().find(|at| ["a.out", "*"].contains(&at.module.as_str()));
    if let Some(at) = for_all.filter(|_| pids.is_empty()) {
        let module = &at.module;
        return Err(Failure::new(format!(
            "`{module}` is a module of every process; name it, or give -p PID"
        )));
    }
    points::are_for(&arguments.probes.at, &pids)?;
    for &pid in &pids {
        points::check(&arguments.probes.at, pid)?;
    }
    let sym = arguments.sym.as_deref();
    for program in &programs {
        let versions = program::load_for_kernel(program, &arguments.placing.select, None)?.versions;
        is_possible(versions.main(), &arguments.placing)?;
        symbols::of(versions.main(), sym)?;
    }
    let mut code = ExitCode::SUCCESS;
    // `stop_cpus` needs no action: the engine answers no hit of a process before all its probes are
    // in.
    for program in programs {
        code = send_program(program, sym, &arguments.placing)?;
    }
    Ok(code)
}

/// Inserts the probes of a PPDF and returns.
pub(crate) fn apply(arguments: &ApplyPpdf) -> Result<ExitCode, Failure> {
    let program = Program { file: arguments.file.clone(), text: None, preprocessor: Preprocessor::default() };
    if program.file.is_file() && ppdf::load(&program)?.is_none() {
        return Err(Failure::new(format!(
            "{} is no PPDF; `dprobes insert` takes programs, and `dprobes build-ppdf` makes PPDFs of them",
            printable::path(&program.file)
        )));
    }
    let versions = program::load_for_kernel(&program, &arguments.placing.select, None)?.versions;
    is_possible(versions.main(), &arguments.placing)?;
    send_program(program, None, &arguments.placing)
}

/// Checks what can be checked without the session.
fn is_possible(object: &Object, arguments: &Placing) -> Result<(), Failure> {
    let is_for_all = arguments.processes.ids().is_empty();
    let runner = arguments.engine.runner(kernel_engine::is_needed(object), is_for_all);
    if runner.map_err(Failure::new)? != Runner::Kernel {
        return Ok(());
    }
    kernel_engine::check_options(&arguments.buffering)?;
    kernel_engine::can_be_found(object, &arguments.processes.ids())
}

/// Whether the user says where records go.
fn has_targets(placing: &Placing) -> bool {
    placing.output.is_some() || !placing.log_target.is_empty()
}

fn send_program(program: Program, sym: Option<&Path>, arguments: &Placing) -> Result<ExitCode, Failure> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| Failure::new(format!("{}: {error}", printable::path(path))))
    };
    let targets = targets::named(&arguments.log_target, arguments.output.as_deref(), arguments.format, None);
    let is_usual = targets.is_empty();
    let targets = match is_usual {
        true => {
            let failed = |error| {
                Failure::new(format!("the file for records: {error}; -o or --log-target says where they go"))
            };
            vec![Target::File(socket::records().map_err(failed)?)]
        }
        false => targets,
    };
    let usual = is_usual.then(|| targets[0].path().map(|path| printable::path(path).to_string())).flatten();
    targets::suit(&targets, &arguments.shown)?;
    let targets = targets.into_iter().map(|target| match target.path().map(absolute).transpose()? {
        Some(path) => Ok(target.with_path(path).to_string()),
        None => Ok(target.to_string()),
    });
    // The session uses the templates that are correct; the mistakes in others are reported here.
    templates::open(&arguments.shown)?;
    let mode = match (arguments.merge, arguments.replace) {
        (true, _) => Mode::Merge,
        (_, true) => Mode::Replace,
        _ => Mode::New,
    };
    let file = match &program.text {
        Some(_) => program.file,
        None => absolute(&program.file)?,
    };
    let request = Request::Insert(Box::new(protocol::Insert {
        file,
        text: program.text,
        defines: program.preprocessor.define,
        includes: program
            .preprocessor
            .include
            .iter()
            .map(|path| absolute(path))
            .collect::<Result<Vec<PathBuf>, _>>()?,
        groups: arguments.select.group.clone(),
        types: arguments.select.kind.clone(),
        verify_opcodes: !arguments.dont_verify_opcodes,
        engine: arguments.engine,
        items: arguments.shown.log.clone(),
        log_format: arguments.shown.log_format,
        unformatted: arguments.shown.unformatted_output,
        lossless: arguments.buffering.lossless,
        max_dumps: arguments.max_dumps,
        buffer: arguments.buffering.buffer,
        share_variables: arguments.buffering.share_variables,
        allow_panic: arguments.allow_panic,
        templates: arguments.shown.templates.as_deref().map(absolute).transpose()?,
        symbols: sym.map(absolute).transpose()?,
        mode,
        processes: arguments.processes.ids(),
        plugins: arguments
            .plugin
            .iter()
            .map(|plugin| Ok(Plugin { file: absolute(&plugin.file)?, argument: plugin.argument.clone() }))
            .collect::<Result<Vec<Plugin>, _>>()?,
        targets: targets.collect::<Result<Vec<String>, Failure>>()?,
    }));
    let stream = match connect()? {
        Some(stream) => stream,
        None => begin(Exports::bind(&Export::default())?, Cost::default())?,
    };
    let mut reply = ask(&stream, &request)?;
    if let (Some(path), true) = (usual, reply.done) {
        reply.text.push_str(&format!("its records go to {path}; -o or --log-target names another place\n"));
    }
    show(reply)
}

/// Removes programs.
pub(crate) fn remove(arguments: &Remove) -> Result<ExitCode, Failure> {
    let name = arguments.which.name()?;
    with_session(&Request::Remove { name }, "nothing is inserted")
}

/// Shows the inserted programs.
pub(crate) fn query(arguments: &Query) -> Result<ExitCode, Failure> {
    let name = arguments.which.name()?;
    with_session(&Request::Query { name, extended: arguments.extended }, "nothing is inserted")
}

/// Shows or resets variables.
pub(crate) fn getvars(arguments: &GetVars) -> Result<ExitCode, Failure> {
    let request = Request::GetVars(protocol::GetVars {
        name: arguments.which.name()?,
        local: arguments.local,
        global: arguments.global,
        range: arguments.index,
        reset: arguments.reset,
    });
    with_session(&request, "nothing is inserted")
}

/// Starts, shows or ends the session.
pub(crate) fn session(arguments: &Session) -> Result<ExitCode, Failure> {
    match &arguments.action {
        SessionAction::Start { foreground: true, export, cost } => {
            let exports = Exports::bind(export)?;
            exports.announcements().iter().for_each(|line| crate::messages::tell(line));
            daemon::become_session(RunMode::Foreground, exports, cost.of_processes())?;
            Err(Failure::new("there is a session already; `dprobes session stop` ends it"))
        }
        SessionAction::Start { foreground: false, export, cost } => {
            let given = [("--export", !export.export.is_empty()), ("--max-overhead", cost.is_given())];
            let stream = match (connect()?, given.iter().find(|(_, is_given)| *is_given)) {
                (Some(_), Some((option, _))) => {
                    return Err(Failure::new(format!(
                        "there is a session already, and {option} is for a new one; `dprobes session stop` ends it",
                    )));
                }
                (Some(stream), None) => stream,
                (None, _) => {
                    let exports = Exports::bind(export)?;
                    let lines = exports.announcements();
                    let stream = begin(exports, *cost)?;
                    lines.iter().for_each(|line| crate::messages::tell(line));
                    stream
                }
            };
            show(ask(&stream, &Request::Status)?)
        }
        SessionAction::Status => with_session(&Request::Status, "there is no session"),
        SessionAction::Stop => with_session(&Request::Stop, "there is no session"),
    }
}

impl Which {
    /// The selected module, or `None` for all.
    fn name(&self) -> Result<Option<String>, Failure> {
        match (&self.name, self.all) {
            (Some(name), false) => Ok(Some(name.clone())),
            (None, true) => Ok(None),
            _ => Err(Failure::new("either --name MODULE or --all is needed").with_status(2)),
        }
    }
}

fn connect() -> Result<Option<UnixStream>, Failure> {
    socket::connect().map_err(|error| Failure::new(format!("the session: {error}")))
}

/// Asks the running session; fails with the message `without` if there is none.
fn with_session(request: &Request, without: &str) -> Result<ExitCode, Failure> {
    match connect()? {
        Some(stream) => show(ask(&stream, request)?),
        None => Err(Failure::new(without)),
    }
}

/// Starts a session, whose traps may cost so much, and connects to it.
fn begin(exports: Exports, cost: Cost) -> Result<UnixStream, Failure> {
    // SAFETY: the process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => return Err(Failure::new(format!("fork: {}", std::io::Error::last_os_error()))),
        0 => {
            let ended = daemon::become_session(RunMode::Background, exports, cost.of_processes());
            if let Err(failure) = &ended {
                crate::messages::tell(failure.message());
            }
            std::process::exit(i32::from(ended.is_err()));
        }
        _ => {}
    }
    let end = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(stream) = connect()? {
            return Ok(stream);
        }
        if Instant::now() > end {
            return Err(Failure::new("the session does not begin"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a request and waits for the answer.
fn ask(stream: &UnixStream, request: &Request) -> Result<Reply, Failure> {
    let lost = |error: std::io::Error| Failure::new(format!("the session does not answer: {error}"));
    // The session may answer a request that could not be written completely; the user should see
    // that answer.
    let written = protocol::write(request, &mut &*stream);
    let answer = protocol::read(&mut BufReader::new(stream));
    match written {
        Err(error) if answer.is_err() => Err(lost(error)),
        _ => answer.map_err(lost),
    }
}

/// Shows an answer.
fn show(reply: Reply) -> Result<ExitCode, Failure> {
    for warning in &reply.warnings {
        crate::messages::tell(&format!("warning: {warning}"));
    }
    if reply.is_whole && !reply.done {
        return Err(Failure::complete(reply.text));
    }
    if !reply.done {
        return Err(Failure::new(reply.text.trim_end()));
    }
    stdout::show(&printable::lines(&reply.text))?;
    Ok(ExitCode::SUCCESS)
}
