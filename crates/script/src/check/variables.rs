//! Scratch variables and maps, and their types.

use std::collections::BTreeMap;

use source::{Diagnostic, Span, nearest, quote};

use super::MapTypes;
use super::unify::{join, stored};
use crate::ast::Local;
use crate::types::{Integer, Type};

/// A scratch variable.
#[derive(Debug, Default)]
pub(crate) struct Variable {
    /// `None` before it is assigned to.
    pub(crate) ty: Option<Type>,
    /// Whether the script states its type.
    fixed: bool,
    span: Span,
}

/// The scratch variables of all probes. They are numbered in their order, which is the same in each
/// pass.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    all: Vec<Variable>,
    next: usize,
    scopes: Vec<BTreeMap<Local, usize>>,
    /// The names of variables whose block has ended in this probe.
    ended: BTreeMap<Local, Span>,
    changed: bool,
}

impl Locals {
    /// Begins a pass; whether the last one changed a type.
    pub(crate) fn begin_pass(&mut self) {
        self.next = 0;
        self.changed = false;
    }

    pub(crate) fn changed(&self) -> bool {
        self.changed
    }

    pub(crate) fn begin_probe(&mut self) {
        self.scopes.clear();
        self.ended.clear();
    }

    pub(crate) fn open(&mut self) {
        self.scopes.push(BTreeMap::new());
    }

    pub(crate) fn close(&mut self) {
        for (name, index) in self.scopes.pop().unwrap_or_default() {
            let span = self.all.get(index).map_or(Span::default(), |variable| variable.span);
            self.ended.insert(name, span);
        }
    }

    /// The variable that a name means here.
    pub(crate) fn find(&self, name: &Local) -> Option<usize> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    pub(crate) fn ty(&self, index: usize) -> Type {
        self.all.get(index).and_then(|variable| variable.ty.clone()).unwrap_or_default()
    }

    /// A new variable in the innermost block.
    pub(crate) fn declare(&mut self, name: &Local, declared: Option<&Type>, span: Span) -> usize {
        let index = self.next;
        self.next += 1;
        if index == self.all.len() {
            self.all.push(Variable { ty: declared.cloned(), fixed: declared.is_some(), span });
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.clone(), index);
        }
        index
    }

    /// The message if a name is declared that means a variable already.
    pub(crate) fn declared_again(&self, name: &Local, span: Span) -> Option<Diagnostic> {
        let first = self.all.get(self.find(name)?)?;
        let message = format!("variable {} is declared already", quote(&format!("${}", name.name)));
        Some(
            Diagnostic::error(span, message)
                .label("second declaration")
                .related(first.span, "first here")
                .help("use another name, or assign without `let`"),
        )
    }

    /// Assigns a value of a type; gives the type of the variable.
    pub(crate) fn assign(
        &mut self,
        index: usize,
        ty: &Type,
        stated: Option<u64>,
        span: Span,
    ) -> Result<Type, Diagnostic> {
        let ty = stored(ty);
        let Some(variable) = self.all.get_mut(index) else { return Ok(ty) };
        let have = variable.ty.clone().unwrap_or_default();
        match join(&have, &ty, stated) {
            Some(joined) if !variable.fixed || joined == have => {
                if variable.ty.as_ref() != Some(&joined) {
                    variable.ty = Some(joined.clone());
                    self.changed = true;
                }
                Ok(joined)
            }
            _ => {
                let message = format!("a value of type `{ty}` does not fit a variable of type `{have}`");
                let whole = if variable.fixed { "declared here" } else { "its type follows from here" };
                Err(mismatch(span, message, &have, &ty).related(variable.span, whole))
            }
        }
    }

    /// The message for a name that means no variable.
    pub(crate) fn unknown(&self, name: &Local, span: Span) -> Diagnostic {
        let shown = format!("${}", name.name);
        if let Some(first) = self.ended.get(name) {
            return Diagnostic::error(span, format!("variable {} is not known here", quote(&shown)))
                .label("used outside of its block")
                .related(*first, "its block is around this")
                .help(format!("declare it before the block: `let {shown};`"));
        }
        let names = self.scopes.iter().flat_map(|scope| scope.keys()).map(|local| local.name.as_str());
        let near = nearest(&name.name, names).map(|near| format!("${near}"));
        Diagnostic::error(span, format!("variable {} is not assigned before", quote(&shown)))
            .label("has no value")
            .suggest(near)
    }
}

/// The message for types that do not go together.
pub(crate) fn mismatch(span: Span, message: String, have: &Type, new: &Type) -> Diagnostic {
    let message = Diagnostic::error(span, message).label(format!("is `{new}`"));
    match (have, new) {
        (Type::Integer(have), Type::Integer(new)) if have.common(*new).is_some() => {
            message.help("the declared type is too small: declare a larger one, or cast the value")
        }
        (Type::Integer(_), Type::Integer(_)) => {
            message.help(format!("no type has all values of both: cast one, as in `({have})...`"))
        }
        (Type::Pointer(_), Type::Integer(_)) | (Type::Integer(_), Type::Pointer(_)) => {
            message.help("an address and a number: cast one everywhere, as in `(uint64)args.p`")
        }
        (Type::Text, Type::Integer(Integer { bytes: 8, .. }) | Type::Pointer(_)) => {
            message.help("read the string with `str()`")
        }
        (Type::Aggregate(_), _) => {
            message.help("a map that is set to a function can be set to that function only")
        }
        _ => message,
    }
}

/// A map.
#[derive(Debug)]
struct Map {
    /// `None` before it is used; then whether it has keys, and of which type.
    key: Option<Option<Type>>,
    value: Option<Type>,
    span: Span,
}

/// The maps of a script.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    all: BTreeMap<String, Map>,
    changed: bool,
}

impl Maps {
    pub(crate) fn begin_pass(&mut self) {
        self.changed = false;
    }

    pub(crate) fn changed(&self) -> bool {
        self.changed
    }

    fn map(&mut self, name: &str, span: Span) -> &mut Map {
        if !self.all.contains_key(name) {
            self.changed = true;
        }
        self.all.entry(name.to_string()).or_insert(Map { key: None, value: None, span })
    }

    /// An element of a map is used, or a map without keys.
    pub(crate) fn element(
        &mut self,
        name: &str,
        key: Option<(&Type, Option<u64>)>,
        span: Span,
    ) -> Result<(), Diagnostic> {
        let map = self.map(name, span);
        let shown = quote(&format!("@{name}"));
        let joined = match (&map.key, key) {
            (None, key) => Some(key.map(|(ty, _)| stored(ty))),
            (Some(None), None) => return Ok(()),
            (Some(Some(have)), Some((new, stated))) => {
                let new = stored(new);
                match join(have, &new, stated) {
                    Some(joined) => Some(Some(joined)),
                    None => {
                        let message = format!(
                            "a key of type `{new}` does not fit map {shown}, whose keys are `{have}`"
                        );
                        return Err(mismatch(span, message, have, &new)
                            .related(map.span, "its keys follow from here"));
                    }
                }
            }
            (Some(Some(_)), None) => {
                return Err(Diagnostic::error(span, format!("map {shown} has keys"))
                    .label("is used without a key")
                    .related(map.span, "is used with a key here"));
            }
            (Some(None), Some(_)) => {
                return Err(Diagnostic::error(span, format!("map {shown} has no keys"))
                    .label("is used with a key")
                    .related(map.span, "is used without a key here"));
            }
        };
        if map.key != joined {
            map.key = joined;
            self.changed = true;
        }
        Ok(())
    }

    /// A value is assigned to a map or an element of it; gives the type of its values.
    pub(crate) fn assign(
        &mut self,
        name: &str,
        ty: &Type,
        stated: Option<u64>,
        span: Span,
    ) -> Result<Type, Diagnostic> {
        let map = self.map(name, span);
        let have = map.value.clone().unwrap_or_default();
        let Some(joined) = join(&have, ty, stated) else {
            let shown = quote(&format!("@{name}"));
            let message =
                format!("a value of type `{ty}` does not fit map {shown}, whose values are `{have}`");
            return Err(mismatch(span, message, &have, ty).related(map.span, "the map is first used here"));
        };
        if map.value.as_ref() != Some(&joined) {
            map.value = Some(joined.clone());
            self.changed = true;
        }
        Ok(joined)
    }

    /// The type of a map's values; the message if nothing is ever assigned to it.
    pub(crate) fn value(&self, name: &str, span: Span) -> Result<Type, Diagnostic> {
        if let Some(value) = self.all.get(name).and_then(|map| map.value.clone()) {
            return Ok(value);
        }
        let names = self.all.iter().filter(|(_, map)| map.value.is_some()).map(|(name, _)| name.as_str());
        let near = nearest(name, names).map(|near| format!("@{near}"));
        Err(Diagnostic::error(span, format!("map {} is never assigned", quote(&format!("@{name}"))))
            .label("has no value")
            .suggest(near))
    }

    /// The type of a map's keys: `None` if it has none or was not used yet.
    pub(crate) fn key(&self, name: &str) -> Option<&Type> {
        self.all.get(name).and_then(|map| map.key.as_ref()?.as_ref())
    }

    /// Whether a map is known to have no keys.
    pub(crate) fn is_scalar(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|map| map.key == Some(None))
    }

    /// The types of all maps.
    pub(crate) fn types(self) -> BTreeMap<String, MapTypes> {
        let types = |map: Map| MapTypes { key: map.key.flatten(), value: map.value.unwrap_or_default() };
        self.all.into_iter().map(|(name, map)| (name, types(map))).collect()
    }
}
