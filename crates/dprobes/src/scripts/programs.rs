//! What scripts ask of the probed programs: functions, types and constants, from debug information.
//!
//! A program is read when a script asks for something in it, and nothing else of it is. What was
//! asked once is kept, since a script is checked several times.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use image::{DebugTypes, Image, Machine, NoTypes, Pattern, Selected, TypeName};
use process::ImageCache;
use script::{
    AttachPoint, AttachTarget, Convention, FunctionValue, Functions, ProbedFile, ProgramRecord, ProgramTypes,
    Signature, Tag, Type, key,
};

use super::kernel_types::KernelPrograms;
use super::lines;
use super::program_values::{Keys, shown, value_place};
use super::scope::{Found, Scope, module};

/// The most functions that one attach point means, if their parameters are asked for.
const FUNCTIONS: usize = 20_000;

/// The probed programs.
#[derive(Debug)]
pub(super) struct Programs {
    pids: Vec<i32>,
    command: Option<PathBuf>,
    /// The file of `--sym`.
    symbols: Option<Arc<Image>>,
    state: RefCell<State>,
    kernel: RefCell<KernelPrograms>,
}

#[derive(Debug, Default)]
struct State {
    cache: ImageCache,
    /// The programs and libraries that were asked for, by the name of their file.
    programs: HashMap<String, Result<Rc<Program>, String>>,
    keys: Keys,
    /// The functions of attach points.
    functions: HashMap<String, Result<Vec<Functions>, String>>,
    /// The signatures, by what is in them, and the records of their arguments.
    signatures: HashMap<String, Rc<Signature>>,
    arguments: HashMap<Rc<str>, ProgramRecord>,
}

/// A program or library.
#[derive(Debug)]
pub(super) struct Program {
    /// Its number, in the order in which programs were asked for.
    pub(super) number: usize,
    pub(super) image: Arc<Image>,
    /// The file with its symbols: itself, or that of `--sym`.
    pub(super) names: Arc<Image>,
    pub(super) types: Result<DebugTypes, NoTypes>,
    /// Why the file of `--sym` is not that of its symbols, if so.
    difference: Option<String>,
}

impl Programs {
    /// Those that a script's attach points are found in.
    pub(super) fn new(scope: &Scope<'_>) -> Programs {
        Programs {
            pids: scope.pids.to_vec(),
            command: scope.command.map(PathBuf::from),
            symbols: scope.symbols.cloned(),
            state: RefCell::default(),
            kernel: RefCell::default(),
        }
    }

    /// The program of a file.
    fn program(&self, state: &mut State, binary: &ProbedFile) -> Result<Rc<Program>, String> {
        let file = module(binary);
        if let Some(known) = state.programs.get(&file) {
            return known.clone();
        }
        // Only files are looked for.
        let scope = Scope {
            pids: &self.pids,
            command: self.command.as_deref(),
            symbols: self.symbols.as_ref(),
            ..Scope::default()
        };
        let images = scope.images(&file, &mut state.cache).into_iter().map(|Found { image, .. }| image);
        let mut images: Vec<Arc<Image>> = images.filter(|image| image.machine() == Machine::X86_64).collect();
        let identity = |image: &Arc<Image>| (image.build_id().map(<[u8]>::to_vec), image.file_id().copied());
        images.dedup_by_key(|image| match identity(image) {
            (Some(build), _) => (Some(build), None),
            (None, file) => (None, file),
        });
        let found = match &images[..] {
            [] => Err("there is no such program or library".to_owned()),
            [image] => {
                let symbols = scope.symbols_of(image);
                Ok(Rc::new(Program {
                    number: state.programs.len(),
                    image: Arc::clone(image),
                    names: Arc::clone(symbols.unwrap_or(image)),
                    difference: scope.difference(image),
                    types: lines::types(image, symbols.map(|symbols| &**symbols)),
                }))
            }
            _ => Err("several files have this name, and types may differ in them".to_owned()),
        };
        state.programs.insert(file, found.clone());
        found
    }

    fn described<T>(
        &self,
        point: &AttachPoint,
        ask: impl FnOnce(&mut State, &Program, &DebugTypes) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some(binary) = binary(point) else { return Ok(None) };
        let mut state = self.state.borrow_mut();
        let program = self.program(&mut state, binary)?;
        match &program.types {
            Ok(types) => ask(&mut state, &program, types).map(Some),
            Err(reason) => Err(match &program.difference {
                Some(difference) => format!("{reason}; {difference}"),
                None => reason.to_string(),
            }),
        }
    }
}

impl ProgramTypes for Programs {
    fn functions(&self, point: &AttachPoint) -> Result<Vec<Functions>, String> {
        if is_of_kernel(point) {
            return self.kernel.borrow_mut().functions(point);
        }
        let asked = point.to_string();
        if let Some(known) = self.state.borrow().functions.get(&asked) {
            return known.clone();
        }
        let found = self.described(point, |state, program, types| functions(state, program, types, point));
        let found = match found {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err("the attach point means no function of a program".to_owned()),
            Err(reason) => Err(reason),
        };
        self.state.borrow_mut().functions.insert(asked, found.clone());
        found
    }

    fn named(&self, point: &AttachPoint, tag: Tag, name: &str) -> Result<Option<Type>, String> {
        if is_of_kernel(point) {
            return self.kernel.borrow_mut().named(tag, name);
        }
        let kind = match tag {
            Tag::Struct => TypeName::Struct,
            Tag::Union => TypeName::Union,
            Tag::Enum => TypeName::Enum,
            Tag::Alias => TypeName::Plain,
        };
        let found = self.described(point, |state, program, types| {
            let near = addresses(program, point);
            match types.named(kind, name, &near).map_err(|error| error.to_string())?[..] {
                [] => Ok(None),
                [one] => Ok(Some(state.keys.type_of(program, types, one))),
                [..] => Err(several(name)),
            }
        });
        found.map(Option::flatten)
    }

    fn constant(&self, point: &AttachPoint, name: &str) -> Result<Option<(Type, i64)>, String> {
        if is_of_kernel(point) {
            return self.kernel.borrow_mut().constant(name);
        }
        let found = self.described(point, |state, program, types| {
            let near = addresses(program, point);
            let found = types.constant(name, &near).map_err(|error| error.to_string())?;
            match found[..] {
                [] => Ok(None),
                [(id, value), ref others @ ..] if others.iter().all(|other| other.1 == value) => {
                    Ok(Some((state.keys.type_of(program, types, id), value)))
                }
                [..] => Err(several(name)),
            }
        });
        found.map(Option::flatten)
    }

    fn record(&self, key: &str) -> Result<ProgramRecord, String> {
        if let Some(record) = self.kernel.borrow_mut().record(key) {
            return Ok(record);
        }
        let mut state = self.state.borrow_mut();
        if let Some(arguments) = state.arguments.get(key) {
            return Ok(arguments.clone());
        }
        let Some((number, id)) = state.keys.type_place(key) else { return Err("it is not known".to_owned()) };
        let mut programs = state.programs.values().filter_map(|program| program.as_ref().ok());
        let Some(program) = programs.find(|program| program.number == number).map(Rc::clone) else {
            return Err("its program is not known".to_owned());
        };
        match &program.types {
            Ok(types) => state.keys.record(&program, types, id),
            Err(reason) => Err(reason.to_string()),
        }
    }

    fn constants(&self, key: &str) -> Vec<(String, i64)> {
        if let Some(constants) = self.kernel.borrow().constants(key) {
            return constants;
        }
        let state = self.state.borrow();
        let Some((number, id)) = state.keys.type_place(key) else { return Vec::new() };
        let mut programs = state.programs.values().filter_map(|program| program.as_ref().ok());
        let types = programs.find(|program| program.number == number).map(|program| &program.types);
        let constants = types.and_then(|types| types.as_ref().ok()?.enumerators(id).ok());
        constants.unwrap_or_default().into_iter().map(|(name, value)| (shown(&name), value)).collect()
    }

    fn symbol(&self, point: &AttachPoint, name: &str) -> Result<Option<(u64, u64)>, String> {
        let Some(binary) = binary(point) else { return Ok(None) };
        let program = self.program(&mut self.state.borrow_mut(), binary)?;
        program.names.symbol(name).map_err(|count| format!("{count} symbols have this name"))
    }

    fn convention(&self, point: &AttachPoint) -> Convention {
        let AttachTarget::Function { binary, function, .. } = &point.place else {
            return Convention::SystemV;
        };
        // Functions of Go have the name of their package in front; those of C there do not.
        if !function.contains('.') && !function.contains('*') {
            return Convention::SystemV;
        }
        match self.program(&mut self.state.borrow_mut(), binary) {
            Ok(program) if program.image.is_go() => match program.image.go_version() {
                _ if function.ends_with(".abi0") => Convention::Stack,
                Some(version) if version < (1, 17) => Convention::Stack,
                _ => Convention::Go,
            },
            _ => Convention::SystemV,
        }
    }
}

/// Whether an attach point is in the kernel.
fn is_of_kernel(point: &AttachPoint) -> bool {
    matches!(point.place, AttachTarget::Kernel { .. } | AttachTarget::Tracepoint(..))
}

fn several(name: &str) -> String {
    format!("the program has several different ones that are called `{}`", printable::text(name))
}

/// The program or library of an attach point.
fn binary(point: &AttachPoint) -> Option<&ProbedFile> {
    match &point.place {
        AttachTarget::Function { binary, .. }
        | AttachTarget::Offset(binary, _)
        | AttachTarget::Line { binary, .. }
        | AttachTarget::Usdt { binary, .. } => Some(binary),
        _ => None,
    }
}

/// Where the code is that an attach point means: types of its source file are meant first.
fn addresses(program: &Program, point: &AttachPoint) -> Vec<u64> {
    const MOST: usize = 16;
    match &point.place {
        AttachTarget::Function { function, .. } => {
            selected(&program.names, function).iter().take(MOST).map(|function| function.vaddr).collect()
        }
        AttachTarget::Offset(_, vaddr) => vec![*vaddr],
        _ => Vec::new(),
    }
}

/// The functions that a name or a pattern means.
fn selected(image: &Image, function: &str) -> Vec<Selected> {
    let named = image.select_named(function);
    if !named.is_empty() || !Pattern::is_one(function) || function.contains("operator") {
        return named;
    }
    match Pattern::new(function) {
        Ok(pattern) => image.select_matching(&|name| pattern.matches(name)),
        Err(_) => Vec::new(),
    }
}

/// The functions of an attach point, by their signatures.
fn functions(
    state: &mut State,
    program: &Program,
    types: &DebugTypes,
    point: &AttachPoint,
) -> Result<Vec<Functions>, String> {
    let AttachTarget::Function { function, .. } = &point.place else {
        return Err("the attach point means no function".to_owned());
    };
    let selected = selected(&program.names, function);
    if selected.is_empty() {
        return Err("there is no such function".to_owned());
    }
    if selected.len() > FUNCTIONS {
        return Err(format!("the attach point means more than {FUNCTIONS} functions"));
    }
    let several = selected.len() > 1;
    let mut found: Vec<Functions> = Vec::new();
    for Selected { vaddr, name, indirect } in selected {
        let symbol = program.names.function_at(vaddr).map(|function| function.name.clone());
        let symbols: Vec<&str> = [Some(function.as_str()), symbol.as_deref()].into_iter().flatten().collect();
        let signature = match indirect {
            true => Err("it is chosen among several when the program is linked".to_owned()),
            false => match types.function(vaddr, &symbols) {
                Ok(function) => Ok(signature(state, program, types, &function)),
                Err(reason) => Err(reason.to_string()),
            },
        };
        let is_like = |other: &&mut Functions| match (&other.signature, &signature) {
            (Ok(one), Ok(other)) => one.key == other.key,
            (one, other) => one == other,
        };
        match found.iter_mut().find(is_like) {
            Some(functions) => functions.names.push(name),
            None => found.push(Functions { names: vec![name], signature }),
        }
    }
    if let ([only], _) | ([only, ..], false) = (&mut found[..], several) {
        only.names.clear();
    }
    Ok(found)
}

/// The signature of a function.
fn signature(
    state: &mut State,
    program: &Program,
    types: &DebugTypes,
    function: &image::FunctionType,
) -> Rc<Signature> {
    let mut arguments: Vec<FunctionValue> = Vec::new();
    for parameter in &function.parameters {
        let Some(name) = parameter.name.clone().filter(|name| !name.is_empty()) else { continue };
        arguments.push(FunctionValue {
            name: shown(&name),
            ty: state.keys.type_of(program, types, parameter.of),
            text: shown(&types.text(Some(parameter.of))),
            place: value_place(&parameter.passed),
        });
    }
    let result = function.result.map(|of| FunctionValue {
        name: String::new(),
        ty: state.keys.type_of(program, types, of),
        text: shown(&types.text(Some(of))),
        place: value_place(&function.returned),
    });
    let text = format!("{arguments:?}{result:?}");
    if let Some(known) = state.signatures.get(&text) {
        return Rc::clone(known);
    }
    let key = key("args", state.signatures.len());
    let named: Vec<(String, Type)> = arguments.iter().map(|it| (it.name.clone(), it.ty.clone())).collect();
    let sizes = function.parameters.iter().filter(|it| it.name.as_ref().is_some_and(|name| !name.is_empty()));
    let sizes: Vec<u64> = sizes.map(|parameter| types.size(parameter.of).unwrap_or(8)).collect();
    state.arguments.insert(Rc::clone(&key), super::program_values::arguments(&named, &sizes));
    let signature = Rc::new(Signature { key, arguments, result });
    state.signatures.insert(text, Rc::clone(&signature));
    signature
}
