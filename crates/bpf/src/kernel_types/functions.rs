//! What functions take and return, and the arguments of tracepoints.

use super::{KernelShape, KernelType, KernelTypes, MOST};
use crate::btf::{kind, word};

/// What the types of tracepoints are called, before their name.
const TRACEPOINT: &str = "btf_trace_";

/// What a function takes and returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// The number of the function's type, to attach to it.
    pub function: u32,
    /// The names and types of its parameters.
    pub parameters: Vec<(String, KernelType)>,
    /// What it returns.
    pub result: KernelType,
}

impl KernelTypes {
    /// What a function takes and returns; `None` if the kernel has no such function, or does not
    /// tell its type.
    pub fn function(&self, name: &str) -> Option<Prototype> {
        let function = self.of_kind(name, &[kind::FUNCTION])?;
        let (parameters, result) = self.prototype(KernelType(self.raw(function)?.third))?;
        Some(Prototype { function: function.0, parameters, result })
    }

    /// The parameters and the result of a function's type.
    fn prototype(&self, of: KernelType) -> Option<(Vec<(String, KernelType)>, KernelType)> {
        let (_, raw) = self.plain(of).filter(|(_, raw)| raw.kind == kind::PROTOTYPE)?;
        let parameter = |index: usize| {
            let at = raw.rest + 8 * index;
            Some((self.string(word(&self.bytes, at)?), KernelType(word(&self.bytes, at + 4)?)))
        };
        Some(((0..raw.length.min(MOST)).map_while(parameter).collect(), KernelType(raw.third)))
    }

    /// The arguments of a tracepoint as the kernel passes them; `None` if it does not tell them.
    /// They have names if the kernel tells the types of the functions that call those who listen.
    pub fn tracepoint(&self, name: &str) -> Option<Vec<(String, KernelType)>> {
        // Each takes the listener's data first.
        let named = ["__probestub_", "__traceiter_"].iter().find_map(|prefix| {
            let parameters = self.function(&format!("{prefix}{name}"))?.parameters;
            parameters.iter().skip(1).all(|(name, _)| !name.is_empty()).then_some(parameters)
        });
        let parameters = named.or_else(|| {
            let pointer = self.of_kind(&format!("{TRACEPOINT}{name}"), &[kind::TYPEDEF])?;
            let KernelShape::Pointer(to) = self.shape(pointer) else { return None };
            Some(self.prototype(to)?.0)
        })?;
        Some(parameters.into_iter().skip(1).collect())
    }

    /// The names of all tracepoints whose arguments the kernel tells, sorted.
    pub fn tracepoints(&self) -> Vec<String> {
        let all = (1..self.starts.len() as u32).filter_map(|number| self.raw(KernelType(number)));
        let names = all.filter(|raw| raw.kind == kind::TYPEDEF && self.begins(raw.name, TRACEPOINT));
        let names = names.filter_map(|raw| self.string(raw.name).strip_prefix(TRACEPOINT).map(str::to_owned));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The names of all functions whose types the kernel tells, sorted.
    pub fn functions(&self) -> Vec<String> {
        let names = self.functions.iter().filter_map(|number| self.raw(KernelType(*number)));
        let mut names: Vec<String> = names.map(|raw| self.string(raw.name)).collect();
        names.sort();
        names.dedup();
        names
    }
}
