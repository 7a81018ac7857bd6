//! What scripts ask of the kernel: the arguments of its functions and tracepoints, its structs and
//! constants, as its type information (BTF) tells them; fields of tracepoints, as tracefs does.
//!
//! Handlers at `fentry`, `fexit` and `rawtracepoint` get words, which are called `arg0` and so on,
//! and `retval`.

use std::collections::HashMap;
use std::rc::Rc;

use bpf::{KernelMember, KernelShape, KernelType, KernelTypes};
use image::{BitRange, Pattern, RecordMember, TypeId};
use kernel::tracepoints::Tracefs;
use script::{
    AttachPoint, AttachTarget, FunctionValue, Functions, Integer, ProgramRecord, Provider, Signature, Tag,
    Type, ValuePlace, key,
};

use super::program_values::{arguments, field, shown};
use super::tracepoint_types;

/// How deep pointers, arrays and records without names may be in each other.
const DEPTH: u32 = 16;
/// The most functions that one attach point means, if their parameters are asked for.
const MOST: usize = 1000;
/// Numbers of keys, away from those of programs.
const KEYS: usize = 1 << 40;

/// What is known of the kernel. It is read when something is asked for.
#[derive(Debug, Default)]
pub(super) struct KernelPrograms {
    types: Option<Result<Rc<KernelTypes>, String>>,
    keys: HashMap<KernelType, Rc<str>>,
    places: HashMap<Rc<str>, KernelType>,
    /// The constants of all enums.
    constants: Option<HashMap<String, (KernelType, i64)>>,
    /// The functions of attach points.
    functions: HashMap<String, Result<Vec<Functions>, String>>,
    signatures: HashMap<String, Rc<Signature>>,
    arguments: HashMap<Rc<str>, ProgramRecord>,
}

impl KernelPrograms {
    fn types(&mut self) -> Result<Rc<KernelTypes>, String> {
        let read = || {
            let untold =
                |error| format!("the kernel does not tell its types (/sys/kernel/btf/vmlinux): {error}");
            KernelTypes::read().map(Rc::new).map_err(untold)
        };
        self.types.get_or_insert_with(read).clone()
    }

    /// The functions or tracepoints that an attach point means, by their signatures.
    pub(super) fn functions(&mut self, point: &AttachPoint) -> Result<Vec<Functions>, String> {
        let asked = point.to_string();
        if let Some(known) = self.functions.get(&asked) {
            return known.clone();
        }
        let found = match (point.provider, &point.place) {
            (Provider::Fentry | Provider::Fexit, AttachTarget::Kernel { function, .. }) => {
                self.typed(function)
            }
            (Provider::Rawtracepoint, AttachTarget::Tracepoint(_, name)) => self.raw(name),
            (Provider::Tracepoint, AttachTarget::Tracepoint(Some(system), name)) => {
                self.recorded(system, name)
            }
            _ => Err("a probe at any instruction of the kernel has registers: `arg0` and so on".to_owned()),
        };
        self.functions.insert(asked, found.clone());
        found
    }

    fn typed(&mut self, function: &str) -> Result<Vec<Functions>, String> {
        let types = self.types()?;
        self.each(
            function,
            |types| types.functions(),
            |this, name| {
                let Some(found) = types.function(name) else {
                    return Err("the kernel has no such function, or does not tell its type".to_owned());
                };
                let result = match types.shape(found.result) {
                    KernelShape::Void => None,
                    _ => Some(this.value(&types, "", found.result, "retval")),
                };
                Ok(this.signature(&types, &found.parameters, result))
            },
        )
    }

    fn raw(&mut self, name: &str) -> Result<Vec<Functions>, String> {
        let types = self.types()?;
        self.each(
            name,
            |types| types.tracepoints(),
            |this, name| {
                let Some(found) = types.tracepoint(name) else {
                    return Err("the kernel does not tell the arguments of this tracepoint".to_owned());
                };
                if found.iter().all(|(name, _)| name.is_empty()) && !found.is_empty() {
                    return Err("the kernel does not tell the names of its arguments".to_owned());
                }
                Ok(this.signature(&types, &found, None))
            },
        )
    }

    /// The functions of a name, or of all names that match a pattern.
    fn each(
        &mut self,
        name: &str,
        all: impl Fn(&KernelTypes) -> Vec<String>,
        signature: impl Fn(&mut Self, &str) -> Result<Rc<Signature>, String>,
    ) -> Result<Vec<Functions>, String> {
        if !Pattern::is_one(name) {
            let signature = signature(self, name);
            return Ok(vec![Functions { names: Vec::new(), signature }]);
        }
        let pattern = Pattern::new(name).map_err(|error| error.to_string())?;
        let names = all(&*self.types()?).into_iter().filter(|name| pattern.matches(name));
        let names: Vec<String> = names.take(MOST + 1).collect();
        match names.len() {
            0 => return Err("nothing of the kernel matches".to_owned()),
            1..=MOST => {}
            _ => return Err(format!("the attach point means more than {MOST} functions")),
        }
        let mut found: Vec<Functions> = Vec::new();
        for name in names {
            let signature = signature(self, &name);
            match found.iter_mut().find(|other| other.signature == signature) {
                Some(functions) => functions.names.push(name),
                None => found.push(Functions { names: vec![name], signature }),
            }
        }
        Ok(found)
    }

    /// The fields of a tracepoint's record.
    fn recorded(&mut self, system: &str, name: &str) -> Result<Vec<Functions>, String> {
        if Pattern::is_one(name) || Pattern::is_one(system) {
            return Err("a pattern means tracepoints with different fields".to_owned());
        }
        let format = Tracefs::open()?.format(system, name)?;
        let (mut fields, mut sizes) = (Vec::new(), Vec::new());
        for field in &format.fields {
            let Some(ty) = tracepoint_types::of(field, &mut |tag, name| self.named(tag, name).ok().flatten())
            else {
                continue;
            };
            sizes.push(u64::from(field.size));
            fields.push(FunctionValue {
                name: shown(&field.name),
                ty,
                text: shown(&tracepoint_types::text(field)),
                place: ValuePlace::Field(field.name.clone()),
            });
        }
        let signature = self.kept(fields, &sizes, None);
        Ok(vec![Functions { names: Vec::new(), signature: Ok(signature) }])
    }

    fn signature(
        &mut self,
        types: &KernelTypes,
        parameters: &[(String, KernelType)],
        result: Option<FunctionValue>,
    ) -> Rc<Signature> {
        let (mut values, mut sizes) = (Vec::new(), Vec::new());
        let mut moved = false;
        for (number, (name, of)) in parameters.iter().enumerate() {
            let mut value = self.value(types, name, *of, &format!("arg{number}"));
            // A struct takes one word or two, by the version of the kernel.
            moved = moved || matches!(types.shape(*of), KernelShape::Record { .. });
            if moved {
                value.place = ValuePlace::Nowhere("a struct is passed there, or before it".to_owned());
            }
            if !name.is_empty() {
                values.push(value);
                sizes.push(types.size(*of).unwrap_or(8));
            }
        }
        self.kept(values, &sizes, result)
    }

    fn value(&mut self, types: &KernelTypes, name: &str, of: KernelType, word: &str) -> FunctionValue {
        let place = match types.shape(of) {
            KernelShape::Float(_) => ValuePlace::Nowhere("it is a floating-point number".to_owned()),
            KernelShape::Record { .. } => ValuePlace::Nowhere("it is a struct".to_owned()),
            _ => ValuePlace::Field(word.to_owned()),
        };
        FunctionValue {
            name: shown(name),
            ty: self.type_of(types, of, DEPTH),
            text: shown(&types.text(of)),
            place,
        }
    }

    /// A signature, which is the same for the same values.
    fn kept(
        &mut self,
        values: Vec<FunctionValue>,
        sizes: &[u64],
        result: Option<FunctionValue>,
    ) -> Rc<Signature> {
        let text = format!("{values:?}{result:?}");
        if let Some(known) = self.signatures.get(&text) {
            return Rc::clone(known);
        }
        let key = key("args", KEYS + self.signatures.len());
        let named: Vec<(String, Type)> = values.iter().map(|it| (it.name.clone(), it.ty.clone())).collect();
        self.arguments.insert(Rc::clone(&key), arguments(&named, sizes));
        let signature = Rc::new(Signature { key, arguments: values, result });
        self.signatures.insert(text, Rc::clone(&signature));
        signature
    }

    /// The type of a name.
    pub(super) fn named(&mut self, tag: Tag, name: &str) -> Result<Option<Type>, String> {
        let types = self.types()?;
        let found = match tag {
            Tag::Struct => types.record(false, name),
            Tag::Union => types.record(true, name),
            Tag::Enum => types.enumeration(name),
            Tag::Alias => types.alias(name),
        };
        Ok(found.map(|of| self.type_of(&types, of, DEPTH)))
    }

    /// The constant of an enum.
    pub(super) fn constant(&mut self, name: &str) -> Result<Option<(Type, i64)>, String> {
        let types = self.types()?;
        let all = self.constants.get_or_insert_with(|| types.constants());
        let found = all.get(name).copied();
        Ok(found.map(|(of, value)| (self.type_of(&types, of, DEPTH), value)))
    }

    /// The record of a key; `None` if it is none of the kernel.
    pub(super) fn record(&mut self, key: &str) -> Option<ProgramRecord> {
        if let Some(known) = self.arguments.get(key) {
            return Some(known.clone());
        }
        let of = *self.places.get(key)?;
        let types = self.types().ok()?;
        let mut record = ProgramRecord { size: types.size(of)?, align: 1, ..ProgramRecord::default() };
        self.members(&types, of, 0, &mut record, DEPTH);
        record.align = if record.size.is_multiple_of(record.align) { record.align } else { 1 };
        Some(record)
    }

    /// Adds the members of a record that begins so many bits into another one. Those of records
    /// without a name are its own.
    fn members(
        &mut self,
        types: &KernelTypes,
        of: KernelType,
        begin: u64,
        record: &mut ProgramRecord,
        depth: u32,
    ) {
        let Some(depth) = depth.checked_sub(1) else { return };
        for KernelMember { name, of, first, bits } in types.members(of) {
            let first = begin.saturating_add(first);
            if name.is_empty() {
                self.members(types, of, first, record, depth);
                continue;
            }
            let (ty, size) = (self.type_of(types, of, DEPTH), types.size(of).unwrap_or(0));
            if bits.is_none() && size.is_power_of_two() && (first / 8).is_multiple_of(size.min(8)) {
                record.align = record.align.max(size.min(8));
            }
            let bits = bits.map(|count| BitRange { first, count });
            let member = RecordMember { name, of: TypeId::default(), offset: first / 8, bits };
            record.fields.push(field(&member, ty, size));
        }
    }

    /// The constants of the enum of a key; `None` if it is none of the kernel.
    pub(super) fn constants(&self, key: &str) -> Option<Vec<(String, i64)>> {
        let of = *self.places.get(key)?;
        let types = self.types.as_ref()?.as_ref().ok()?;
        let shown = |(name, value): (String, i64)| (shown(&name), value);
        Some(types.enumerators(of).into_iter().map(shown).collect())
    }

    fn type_of(&mut self, types: &KernelTypes, of: KernelType, depth: u32) -> Type {
        let Some(depth) = depth.checked_sub(1) else { return Type::Void };
        let foreign = |bytes: u64| {
            Type::Foreign(shown(&types.text(of)).as_str().into(), u32::try_from(bytes).unwrap_or(u32::MAX))
        };
        match types.shape(of) {
            KernelShape::Void | KernelShape::Function => Type::Void,
            KernelShape::Bool => Type::Bool,
            KernelShape::Integer { bytes: bytes @ (1 | 2 | 4 | 8), signed } => {
                Type::Integer(Integer { bytes, signed })
            }
            KernelShape::Integer { bytes, .. } => foreign(bytes.into()),
            KernelShape::Float(bytes) => foreign(bytes.into()),
            KernelShape::Pointer(to) => Type::Pointer(Rc::new(self.type_of(types, to, depth))),
            KernelShape::Array { element, length } => {
                let inner = Rc::new(self.type_of(types, element, depth));
                Type::Array(inner, (length > 0).then_some(length))
            }
            KernelShape::Record { of, is_union, name } => {
                Type::Named(if is_union { Tag::Union } else { Tag::Struct }, self.key(of, &name))
            }
            // Enums of scripts have 4 bytes.
            KernelShape::Enumeration { of, name, bytes: 4, .. } => {
                Type::Named(Tag::Enum, self.key(of, &name))
            }
            KernelShape::Enumeration { bytes, signed, .. } => Type::Integer(Integer { bytes, signed }),
        }
    }

    fn key(&mut self, of: KernelType, name: &str) -> Rc<str> {
        if let Some(known) = self.keys.get(&of) {
            return Rc::clone(known);
        }
        let name = if name.is_empty() { "(anonymous)".to_owned() } else { shown(name) };
        let key = key(&name, KEYS + (KEYS >> 1) + self.keys.len());
        self.keys.insert(of, Rc::clone(&key));
        self.places.insert(Rc::clone(&key), of);
        key
    }
}
