//! `dprobes build-ppdf`, and reading PPDFs that other commands get instead of a probe program.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{Error, Refused};
use image::{Image, Machine};
use rpn::ppdf::{MAX_FILE_BYTES, Places, Ppdf, is_ppdf};
use rpn::{Arch, Compiled, ModuleFile, ModuleKind, Object};

use crate::arguments::{BuildPpdf, Preprocessor, Program};
use crate::messages::tell;
use crate::{Failure, outfile, program};

/// Compiles a program, resolves its probes in the module's file, and writes the result.
pub(crate) fn build(arguments: &BuildPpdf) -> Result<ExitCode, Failure> {
    let input = &arguments.program.file;
    if load(&arguments.program)?.is_some() {
        return Err(Failure::new(format!("{} is a PPDF already", printable::path(input))));
    }
    let output = arguments.output.clone().unwrap_or_else(|| input.with_extension("ppdf"));
    if is_same_file(input, &output) {
        return Err(Failure::new(format!(
            "{}: the PPDF would overwrite the program",
            printable::path(&output)
        )));
    }
    let compiled = compile(arguments)?;
    let ppdf = resolve(compiled, arguments.sym.as_deref(), !arguments.dont_verify_opcodes)?;
    let failed =
        |cause: &dyn std::fmt::Display| Failure::new(format!("{}: {cause}", printable::path(&output)));
    let bytes = rpn::ppdf::write(&ppdf).map_err(|error| failed(&error))?;
    outfile::write_whole(&output, &bytes).map_err(|error| failed(&error))?;
    tell(&format!("{}: {}", printable::path(&output), described(&ppdf.object)));
    Ok(ExitCode::SUCCESS)
}

/// Compiles the program for the machine asked for, else for that of its module's file.
fn compile(arguments: &BuildPpdf) -> Result<Compiled, Failure> {
    if let Some(arch) = arguments.arch {
        return program::compile(&arguments.program, arch);
    }
    program::compile_for_module(&arguments.program, |module| {
        let path = find_module(module).or_else(|| arguments.sym.clone())?;
        Image::open(&path).ok().map(|image| image.machine())
    })
}

/// Reads the PPDF given as a probe program; `None` if the file is not a PPDF.
///
/// # Errors
/// The file cannot be read or is damaged, or options are given that do not apply to a PPDF.
pub(crate) fn load(program: &Program) -> Result<Option<Ppdf>, Failure> {
    let path = &program.file;
    let failed = |cause: &dyn std::fmt::Display| Failure::new(format!("{}: {cause}", printable::path(path)));
    // A pipe can be read only once, by the compiler. The compiler also reports files that cannot be
    // opened.
    let Ok(file) = File::open(path).and_then(|file| match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }) else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let mut file = file.take(MAX_FILE_BYTES as u64 + 1);
    let magic = rpn::ppdf::MAGIC;
    (&mut file).take(magic.len() as u64).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    // No program text begins with this byte; so a damaged PPDF is reported as such.
    let is_meant =
        path.extension().is_some_and(|extension| extension == "ppdf") || bytes.first() == magic.first();
    if !is_ppdf(&bytes) && !is_meant {
        return Ok(None);
    }
    if program.preprocessor != Preprocessor::default() {
        return Err(failed(&"a PPDF is compiled already: -D and -I are given when it is built"));
    }
    file.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    let ppdf = rpn::ppdf::read(&bytes);
    let ppdf = ppdf.map_err(|damaged| failed(&format!("invalid PPDF: {damaged}; build it again")))?;
    Ok(Some(ppdf))
}

/// Checks that this version can apply a PPDF: this machine runs its programs, and its sites are
/// resolved. Returns its object.
pub(crate) fn check_ppdf(ppdf: Ppdf, path: &Path) -> Result<Object, Failure> {
    let failed = |cause: &str| Failure::new(format!("{}: {cause}", printable::path(path)));
    if machine_of(ppdf.object.arch).is_none() {
        return Err(failed(&format!(
            "it was built for {}; only x86-64 and i386 programs can be probed",
            ppdf.object.arch
        )));
    }
    let object = ppdf.object;
    if object.kind == ModuleKind::User
        && let Some(probe) = object.probes.iter().find(|probe| probe.sites.is_empty())
    {
        return Err(failed(&format!("the probe at {} is not resolved; build the PPDF again", probe.point)));
    }
    Ok(object)
}

/// A description of a PPDF in one line.
pub(crate) fn described(object: &Object) -> String {
    let probes = crate::messages::count(object.probes.len() as u64, "probe");
    match &object.file {
        Some(file) => format!("{probes} in {} ({})", file.path, build_id(&file.build_id)),
        None => format!("{probes} in {}, not resolved", object.module),
    }
}

/// The probes of a PPDF, a line each: position in the file, instruction, group and type.
pub(crate) fn sites(object: &Object) -> String {
    let line = |probe: &rpn::Probe| {
        let mut line = format!("  {}", probe.point);
        let place = |site: &rpn::Site| {
            format!("offset {:#x}, address {:#x}: {}", site.offset, site.vaddr, image::hex(&site.bytes))
        };
        match probe.sites.as_slice() {
            [] => {}
            [site] => line += &format!("  {}", place(site)),
            sites => line += &format!("  {}", crate::messages::count(sites.len() as u64, "site")),
        }
        for (what, name) in [("group", &probe.group), ("type", &probe.kind)] {
            line += &name.as_ref().map_or(String::new(), |name| format!("  {what} {name}"));
        }
        for site in probe.sites.iter().filter(|_| probe.sites.len() > 1) {
            line += &format!("\n    {}  {}", site.function, place(site));
        }
        line + "\n"
    };
    object.probes.iter().map(line).collect()
}

fn build_id(bytes: &[u8]) -> String {
    match bytes {
        [] => "no build-id".to_owned(),
        bytes => format!("build-id {}", image::hex(bytes)),
    }
}

/// Resolves all probes of a program in the file of its module.
fn resolve(compiled: Compiled, sym: Option<&Path>, verify: bool) -> Result<Ppdf, Failure> {
    let Compiled { mut object, sources, .. } = compiled;
    let places = Places::of(&object, &sources);
    if object.kind != ModuleKind::User {
        if let Some(sym) = sym {
            return Err(Failure::new(format!(
                "{}: this version resolves no kernel symbols; without --sym, the PPDF keeps them as they are written",
                printable::path(sym)
            )));
        }
        let kind = object.kind.name();
        tell(&format!(
            "note: `modtype = {kind}`: the probes are not resolved; the kernel on which they are applied says where they are"
        ));
        return Ok(Ppdf { object, places });
    }
    if machine_of(object.arch).is_none() {
        tell(&format!(
            "warning: a program for {}: the probes are not resolved, and this machine cannot apply them",
            object.arch
        ));
        return Ok(Ppdf { object, places });
    }
    let (module, symbols) = files(&object, sym)?;
    let mut refused = Vec::new();
    for (number, probe) in object.probes.iter_mut().enumerate() {
        match engine::resolve(probe, symbols.as_ref().unwrap_or(&module), &module, verify) {
            Ok(resolved) => {
                for remark in resolved.remarks {
                    tell(&format!("note: {}: {remark}", probe.point));
                }
                probe.sites = resolved.sites;
            }
            Err(reason) => refused.push(Refused {
                module: module.path().display().to_string(),
                point: probe.point.clone(),
                probe: number,
                reason,
            }),
        }
    }
    if !refused.is_empty() {
        return Err(Failure::new(Error::Refused(refused)));
    }
    object.file = Some(ModuleFile {
        path: std::path::absolute(module.path()).unwrap_or_default().display().to_string(),
        build_id: module.build_id().unwrap_or_default().to_vec(),
        size: module.file_id().map_or(0, |id| id.size),
    });
    Ok(Ppdf { object, places })
}

/// The module's file and, if it is a different one, the file that has its symbols.
fn files(object: &Object, sym: Option<&Path>) -> Result<(Image, Option<Image>), Failure> {
    let open = |path: &Path| {
        let image = Image::open(path).map_err(Failure::new)?;
        match machine_of(object.arch) {
            Some(machine) if machine == image.machine() => Ok(image),
            _ => Err(Failure::new(format!(
                "{}: it is for {}, and the program is compiled for {}",
                printable::path(path),
                image.machine(),
                object.arch
            ))),
        }
    };
    let symbols = sym.map(open).transpose()?;
    symbols.as_ref().map_or(Ok(()), crate::symbols::check)?;
    let found = match machine_of(object.arch) {
        Some(machine) if !object.module.contains('/') => process::find_library(&object.module, machine),
        _ => find_module(&object.module),
    };
    match (found, symbols) {
        (Some(path), None) => Ok((open(&path)?, None)),
        (Some(path), Some(symbols)) => {
            let module = open(&path)?;
            engine::symbols_of(&symbols, &module).map_err(Failure::new)?;
            Ok((module, Some(symbols)))
        }
        (None, Some(symbols)) if !symbols.has_code() => Err(Failure::new(format!(
            "`{}` is not found on this machine, and {} has symbols but no code; give the module's path in `name =`",
            object.module,
            printable::path(symbols.path())
        ))),
        // Built on a machine without the module: the file with the symbols has the code too.
        (None, Some(symbols)) => Ok((symbols, None)),
        (None, None) => Err(Failure::new(format!(
            "`{}` is not found {}; give the module's path in `name =`, or the file with --sym",
            object.module,
            match object.module.contains('/') {
                true => "on this machine",
                false => "in the dynamic linker's cache and directories",
            }
        ))),
    }
}

/// Finds the file of a module by its name in a program: a path, or a library's name; a 64-bit
/// library is preferred.
fn find_module(name: &str) -> Option<PathBuf> {
    match name.contains('/') {
        true => Some(PathBuf::from(name)).filter(|path| path.exists()),
        false => [Machine::X86_64, Machine::I386]
            .into_iter()
            .find_map(|machine| process::find_library(name, machine)),
    }
}

/// The machine of a program, if this machine runs it.
fn machine_of(arch: Arch) -> Option<Machine> {
    match arch {
        Arch::X86_64 => Some(Machine::X86_64),
        Arch::I386 => Some(Machine::I386),
        _ => None,
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}
