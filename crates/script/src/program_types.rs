//! What is known of the probed programs: functions' parameters, types, constants.
//!
//! It comes from debug information, which this crate does not read: a [`ProgramTypes`] is asked for
//! what a script names, and for nothing else. A type of a program is a [`Type`] like those of
//! scripts; the name of a struct, union or enum of a program is a [key](crate::key) that no script
//! can write, since two programs may have different ones of one name.

use std::fmt::Debug;
use std::rc::Rc;

use vm::Register;

use crate::attach_point::{AttachPoint, AttachTarget};
use crate::provider::Provider;
use crate::types::{Tag, Type};

/// Where functions have their arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Convention {
    /// As in C, on x86-64 (System V ABI).
    #[default]
    SystemV,
    /// As in Go since 1.17.
    Go,
    /// All on the stack: Go before 1.17, and functions of Go that are written in assembly.
    Stack,
}

/// A part of a value in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterPart {
    /// The register.
    pub register: Register,
    /// Where its bytes are in the value.
    pub offset: u16,
    /// How many.
    pub bytes: u8,
}

/// Where a value is when its function begins or returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// In registers.
    Registers(Vec<RegisterPart>),
    /// On the stack, so many bytes above the stack pointer.
    Stack(u64),
    /// In memory, at the address in a register.
    Pointed(Register),
    /// In a field of this name, with which the kernel calls handlers: an argument of a tracepoint
    /// or of a function, `retval`, or a field of a tracepoint's record. Of an array or a struct,
    /// the field is the address.
    Field(String),
    /// It cannot be read, for this reason.
    Nowhere(String),
}

/// A value that a function takes or returns.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionValue {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Its type as the program's language writes it.
    pub text: String,
    /// Where it is.
    pub place: ValuePlace,
}

/// What functions take and return.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The key of `args`, a struct of all arguments.
    pub key: Rc<str>,
    /// The arguments.
    pub arguments: Vec<FunctionValue>,
    /// What the function returns, if that is not nothing.
    pub result: Option<FunctionValue>,
}

impl Signature {
    /// Whether it is the same as another for probes of a provider.
    fn is_like(&self, other: &Signature, provider: Provider) -> bool {
        match provider {
            Provider::Uretprobe => self.result == other.result,
            _ => self.key == other.key,
        }
    }
}

/// Functions of one signature.
#[derive(Clone, Debug, PartialEq)]
pub struct Functions {
    /// Their names, if the attach point means several functions; else empty.
    pub names: Vec<String>,
    /// Their signature, or why it is not known.
    pub signature: Result<Rc<Signature>, String>,
}

/// A field of a record of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramField {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Where it is, in bytes; of a bit field, where the unit is that is read.
    pub offset: u64,
    /// Its first bit in the unit and its number of bits, if it is a bit field.
    pub bits: Option<(u8, u8)>,
}

/// A struct or union of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramRecord {
    /// Its fields; the first of a name is meant.
    pub fields: Vec<ProgramField>,
    /// Its bytes.
    pub size: u64,
    /// Its alignment.
    pub align: u64,
}

/// Knows the probed programs.
pub trait ProgramTypes: Debug {
    /// The functions that an attach point of a function means, by their signatures.
    ///
    /// # Errors
    /// Why nothing is known of them.
    fn functions(&self, point: &AttachPoint) -> Result<Vec<Functions>, String>;

    /// The type of a name in the program that an attach point names; `None` if it has none.
    ///
    /// # Errors
    /// Why that is not known.
    fn named(&self, point: &AttachPoint, tag: Tag, name: &str) -> Result<Option<Type>, String>;

    /// The constant of an enum in the program that an attach point names.
    ///
    /// # Errors
    /// Why it is not known.
    fn constant(&self, point: &AttachPoint, name: &str) -> Result<Option<(Type, i64)>, String>;

    /// The record of a key.
    ///
    /// # Errors
    /// Why its fields are not known.
    fn record(&self, key: &str) -> Result<ProgramRecord, String>;

    /// The constants of the enum of a key.
    fn constants(&self, key: &str) -> Vec<(String, i64)>;

    /// The address of a symbol in the file that an attach point names, as the file counts, and its
    /// size; `None` if it has none of that name.
    ///
    /// # Errors
    /// Why that is not known.
    fn symbol(&self, point: &AttachPoint, name: &str) -> Result<Option<(u64, u64)>, String>;

    /// How the functions that an attach point means have their arguments.
    fn convention(&self, point: &AttachPoint) -> Convention;
}

/// Knows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgramTypes;

impl ProgramTypes for NoProgramTypes {
    fn functions(&self, _: &AttachPoint) -> Result<Vec<Functions>, String> {
        Err("no program is known".into())
    }

    fn named(&self, _: &AttachPoint, _: Tag, _: &str) -> Result<Option<Type>, String> {
        Ok(None)
    }

    fn constant(&self, _: &AttachPoint, _: &str) -> Result<Option<(Type, i64)>, String> {
        Ok(None)
    }

    fn record(&self, _: &str) -> Result<ProgramRecord, String> {
        Err("no program is known".into())
    }

    fn constants(&self, _: &str) -> Vec<(String, i64)> {
        Vec::new()
    }

    fn symbol(&self, _: &AttachPoint, _: &str) -> Result<Option<(u64, u64)>, String> {
        Err("no program is known".into())
    }

    fn convention(&self, _: &AttachPoint) -> Convention {
        Convention::SystemV
    }
}

/// What is known of the functions that a probe's points mean, which have one signature.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probed {
    /// The signature, if it is known.
    pub(crate) signature: Option<Rc<Signature>>,
    /// Why it is not.
    pub(crate) reason: Option<String>,
}

impl Probed {
    /// Asks for the functions of all points.
    pub(crate) fn of(types: &dyn ProgramTypes, points: &[AttachPoint]) -> Probed {
        let is_function = |point: &AttachPoint| match (point.provider, &point.place) {
            (Provider::Uprobe | Provider::Uretprobe, place) => {
                matches!(place, AttachTarget::Function { offset: None, .. })
            }
            (Provider::Fentry | Provider::Fexit, place) => {
                matches!(place, AttachTarget::Kernel { offset: None, .. })
            }
            (Provider::Rawtracepoint | Provider::Tracepoint, _) => true,
            _ => false,
        };
        if !points.iter().all(is_function) {
            let reason = "the probe is not at the entry or the return of a function".to_owned();
            return Probed { signature: None, reason: Some(reason) };
        }
        let mut found: Option<Rc<Signature>> = None;
        for point in points {
            let known = match types.functions(point) {
                Ok(known) => known,
                Err(reason) => return Probed { signature: None, reason: Some(reason) },
            };
            for Functions { signature, .. } in known {
                match (signature, &found) {
                    (Err(reason), _) => return Probed { signature: None, reason: Some(reason) },
                    (Ok(signature), None) => found = Some(signature),
                    (Ok(signature), Some(first)) if signature.is_like(first, point.provider) => {}
                    (Ok(_), Some(_)) => {
                        let reason = "the functions have different parameters".to_owned();
                        return Probed { signature: None, reason: Some(reason) };
                    }
                }
            }
        }
        Probed { signature: found, reason: None }
    }
}
