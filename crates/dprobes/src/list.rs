//! `dprobes list`: shows modules, functions, points of functions and static probes that can be
//! probed, functions of the kernel, and variables that can be watched.

mod kernel_functions;
mod static_probes;
mod tactics;
mod variables;

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use glob::Pattern;
use image::{Function, FunctionKind, Image, Machine};
use patch::Mode;
use process::{ImageCache, Module};
use rpn::FunctionPoint;

use crate::Failure;
use crate::arguments::List;
use crate::scripts::program_named;

/// Bytes of the longest instruction.
const LONGEST: usize = 15;
/// The kernel, as `--at` names it.
const KERNEL: &str = "kernel";

/// Lists the modules of a process, or the functions or static probes of a file or process.
pub(crate) fn list(arguments: &List) -> Result<ExitCode, Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let found = match arguments.pid {
        None => {
            let file = arguments.file.as_deref().map(file_named).unwrap_or_default();
            if arguments.usdt {
                return finish(static_probes::of_file(&file, arguments.pattern.as_deref(), &mut out)?, out);
            }
            if arguments.data {
                return finish(variables::of_file(&file, arguments.pattern.as_deref(), &mut out)?, out);
            }
            if file.as_os_str() == KERNEL && !file.exists() {
                if arguments.tactics || arguments.points.is_some() {
                    return Err(Failure::new("of the kernel, functions are listed, and no points of them")
                        .with_status(2));
                }
                let wanted = Wanted::parse(arguments.pattern.as_deref().unwrap_or("*"))?;
                return finish(kernel_functions::of_kernel(&wanted.function, &mut out)?, out);
            }
            let image = Image::open(&file).map_err(Failure::new)?;
            let wanted = Wanted::parse(arguments.pattern.as_deref().unwrap_or("*"))?;
            match arguments.points {
                point if arguments.tactics => {
                    tactics::of_file(&image, &file, &wanted, point, arguments.json, &mut out)?
                }
                None if !wanted.matches_module(&file) => 0,
                None => functions(&image, &file, &wanted, &mut out),
                Some(point) => points(&image, &file, &wanted, point, &mut out)?,
            }
        }
        Some(pid) => {
            if arguments.pattern.is_some() {
                return Err(Failure::new("give either a file or -p PID, and one pattern").with_status(2));
            }
            let pattern = arguments.file.as_ref().map(|pattern| pattern.to_string_lossy().into_owned());
            if arguments.usdt {
                return finish(static_probes::of_process(pid, pattern.as_deref(), &mut out)?, out);
            }
            if arguments.data {
                return finish(variables::of_process(pid, pattern.as_deref(), &mut out)?, out);
            }
            match arguments.tactics {
                true => {
                    tactics::of_process(pid, pattern.as_deref(), arguments.points, arguments.json, &mut out)?
                }
                false => process(pid, pattern.as_deref(), arguments.points, &mut out)?,
            }
        }
    };
    finish(found, out)
}

/// The file that a word means: its path, or the name of a library or of a program in PATH.
fn file_named(word: &OsStr) -> PathBuf {
    let path = PathBuf::from(word);
    if path.components().count() > 1 || path.exists() {
        return path;
    }
    let library = word.to_str().and_then(|name| process::libraries_named(name).into_iter().next());
    library.or_else(|| program_named(word)).unwrap_or(path)
}

fn finish(found: usize, mut out: impl Write) -> Result<ExitCode, Failure> {
    let _ = out.flush();
    if found == 0 {
        return Err(Failure::new("nothing matches"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists what a process has; returns the number of lines.
fn process(
    pid: i32,
    pattern: Option<&str>,
    point: Option<FunctionPoint>,
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let survey = process::survey(pid, &mut ImageCache::new()).map_err(Failure::new)?;
    let Some(pattern) = pattern.or(point.map(|_| "*")) else {
        for module in &survey.modules {
            let count = module.image.functions().len();
            let _ = writeln!(
                out,
                "{:#018x}  {count:>6} functions  {}",
                module.span().start,
                printable::path(&module.path)
            );
        }
        let _ = out.flush();
        for skipped in &survey.skipped {
            let path = printable::path(&skipped.path);
            crate::messages::tell(&format!("{:#x}: {path}: {}", skipped.range.start, skipped.why));
        }
        return Ok(survey.modules.len());
    };
    let wanted = Wanted::parse_in(pattern, pid, &survey.modules)?;
    let named: Vec<_> = survey.modules.iter().filter(|module| wanted.matches(pid, module)).collect();
    let Some(point) = point else {
        return Ok(named.iter().map(|it| functions(&it.image, &it.path, &wanted, out)).sum());
    };
    // A failure in one of many modules is no error.
    let found = named.iter().map(|it| points(&it.image, &it.path, &wanted, point, out));
    let mut found: Vec<_> = found.collect();
    match found.iter().any(Result::is_ok) {
        true => Ok(found.into_iter().flatten().sum()),
        false => found.pop().unwrap_or(Ok(0)),
    }
}

/// The functions and modules that a pattern selects.
struct Wanted {
    /// The module's pattern, and as written.
    module: Option<(Pattern, String)>,
    /// The function's pattern as written.
    name: String,
    function: Pattern,
}

impl Wanted {
    fn parse(text: &str) -> Result<Wanted, Failure> {
        // `ns::f` is a function's name, not a module's.
        let split = text.match_indices(':').find(|&(place, _)| {
            let double = text[place + 1..].starts_with(':') || text[..place].ends_with(':');
            !double
        });
        let (module, function) = match split {
            Some((place, _)) => (Some(&text[..place]), &text[place + 1..]),
            None => (None, text),
        };
        let pattern = |text: &str| {
            Pattern::new(text).map_err(|error| Failure::new(format!("pattern `{text}`: {error}")))
        };
        Ok(Wanted {
            module: module.map(|text| pattern(text).map(|pattern| (pattern, text.to_owned()))).transpose()?,
            name: function.to_owned(),
            function: pattern(function)?,
        })
    }

    /// Parses what is wanted of a process: a word may also be the name of one of its modules.
    fn parse_in(text: &str, pid: i32, modules: &[Module]) -> Result<Wanted, Failure> {
        let wanted = Wanted::parse(text)?;
        let of_module = Wanted::parse(&format!("{text}:*"));
        let has = |module: &Module| {
            module.image.functions().iter().any(|function| wanted.matches_function(function))
        };
        match of_module {
            Ok(of_module)
                if wanted.module.is_none()
                    && !modules.iter().any(has)
                    && modules.iter().any(|module| of_module.matches(pid, module)) =>
            {
                Ok(of_module)
            }
            _ => Ok(wanted),
        }
    }

    /// Whether a module of a process is selected, by its file's name or as `--at` names it.
    fn matches(&self, pid: i32, module: &Module) -> bool {
        let Some((_, name)) = &self.module else { return true };
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        self.matches_module(&module.path) || module.is_named(name, &root)
    }

    /// The functions' pattern; `*` if empty.
    fn name(&self) -> &str {
        if self.name.is_empty() { "*" } else { &self.name }
    }

    fn matches_module(&self, path: &Path) -> bool {
        let Some((pattern, _)) = &self.module else { return true };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        pattern.matches(&name) || pattern.matches(&path.to_string_lossy())
    }

    fn matches_function(&self, function: &Function) -> bool {
        self.function.matches(&function.name)
            || function.demangled().is_some_and(|name| self.function.matches(&name))
    }
}

/// Lists the functions of one module that can be probed; returns their number.
fn functions(image: &Image, path: &Path, wanted: &Wanted, out: &mut dyn Write) -> usize {
    let file = printable::path(path.file_name().unwrap_or_default().as_ref()).to_string();
    let mode = if image.machine() == Machine::I386 { Mode::Bits32 } else { Mode::Bits64 };
    let mut found = 0;
    for function in image.functions().iter().filter(|function| wanted.matches_function(function)) {
        let Some(bytes) = (1..=LONGEST).rev().find_map(|length| image.text(function.vaddr, length)) else {
            continue;
        };
        if patch::displace_in(mode, &bytes, function.vaddr).is_err()
            || image.check_boundary(function.vaddr).is_err()
        {
            continue;
        }
        // This number can be used for `offset =`.
        let Some(offset) = image.offset_of_address(function.vaddr) else { continue };
        let name = function.demangled().unwrap_or_else(|| function.name.clone());
        let name = printable::text(&name);
        let kind = if function.kind == FunctionKind::Indirect { "  (resolver)" } else { "" };
        if writeln!(out, "{offset:#010x} {:>7}  {file}:{name}{kind}", function.size).is_err() {
            break;
        }
        found += 1;
    }
    found
}

/// Lists points of functions of one module as a probe would be placed there, and reports those left
/// out; returns the number of points.
fn points(
    image: &Image,
    path: &Path,
    wanted: &Wanted,
    point: FunctionPoint,
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let file = printable::path(path.file_name().unwrap_or_default().as_ref()).to_string();
    let name = wanted.name();
    let survey = engine::survey(name, point, None, image, image, true)
        .map_err(|reason| Failure::new(format!("{file}:{name}:{point}: {reason}")))?;
    for site in &survey.sites {
        // A file offset, as for functions.
        let Some(offset) = image.offset_of_address(site.vaddr) else { continue };
        let text = image.instruction_text(site.vaddr).unwrap_or_default();
        // A function may have several returns; `--at` takes one by its offset.
        let mut functions = image.select_named(&site.function).into_iter().map(|function| function.vaddr);
        let start = functions.find(|start| point == FunctionPoint::Return && *start <= site.vaddr);
        let distance = start.map(|start| format!("+{:#x}", site.vaddr - start));
        let function = site.function.clone() + &distance.unwrap_or_default();
        if writeln!(out, "{offset:#010x}  {file}:{}  {text}", printable::text(&function)).is_err() {
            break;
        }
    }
    let _ = out.flush();
    for remark in survey.remarks.iter().chain(&survey.left_out) {
        crate::messages::tell(&format!("note: {file}:{name}:{point}: {remark}"));
    }
    Ok(survey.sites.len())
}
