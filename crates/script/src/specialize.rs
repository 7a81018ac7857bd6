//! Divides probes whose attach points mean functions with different parameters, or programs with
//! different types: each then has one signature, and one program.

use std::collections::BTreeMap;

use source::{Diagnostic, Messages};

use crate::ast::{Expr, ExprKind, Item, Probe, Script};
use crate::attach_point::{AttachPoint, AttachTarget};
use crate::library;
use crate::program_types::{Functions, ProgramTypes};
use crate::provider::Provider;
use crate::types::{Tag, Type};
use crate::walk;

/// The most probes that one becomes.
const MOST: usize = 512;

/// What a probe asks of its program.
#[derive(Clone, Copy, Debug, Default)]
struct Asks {
    /// `args`.
    names: bool,
    /// `retval`.
    result: bool,
    /// `arg0` and its like.
    numbers: bool,
    /// Types, or constants.
    types: bool,
}

/// Divides the probes of a script where that is needed.
pub(crate) fn specialize(script: &mut Script, types: &dyn ProgramTypes, messages: &mut Messages) {
    let items = std::mem::take(&mut script.items);
    for item in items {
        match item {
            Item::Probe(probe) => {
                let divided = divide(probe, types, messages);
                script.items.extend(divided.into_iter().map(Item::Probe));
            }
            item => script.items.push(item),
        }
    }
}

fn divide(probe: Probe, types: &dyn ProgramTypes, messages: &mut Messages) -> Vec<Probe> {
    let asks = asks(&probe);
    if !(asks.names || asks.result || asks.numbers || asks.types) {
        return vec![probe];
    }
    // The points of each part, in the order of its first one.
    let mut parts: Vec<Vec<AttachPoint>> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut add = |name: String, point: AttachPoint| {
        let number = *known.entry(name).or_insert_with(|| {
            parts.push(Vec::new());
            parts.len() - 1
        });
        if let Some(part) = parts.get_mut(number) {
            part.push(point);
        }
    };
    for point in &probe.points {
        let mut name = String::new();
        if asks.types {
            name.push_str(binary(point).unwrap_or_default());
        }
        if asks.numbers && point.provider == Provider::Uprobe {
            name.push_str(&format!("\n{:?}", types.convention(point)));
        }
        // Their arguments are in fields, those of others in registers.
        if let Provider::Fentry | Provider::Fexit | Provider::Rawtracepoint | Provider::Tracepoint =
            point.provider
        {
            name.push_str(point.provider.name());
        }
        let is_typed = match point.provider {
            Provider::Uprobe | Provider::Fentry | Provider::Rawtracepoint | Provider::Tracepoint => {
                asks.names
            }
            Provider::Uretprobe => asks.result,
            Provider::Fexit => asks.names || asks.result,
            _ => false,
        };
        let functions = match is_typed {
            true => types.functions(point).unwrap_or_default(),
            false => Vec::new(),
        };
        if functions.is_empty() {
            add(name.clone(), point.clone());
        }
        for Functions { names, signature } in functions {
            let name = match &signature {
                Ok(signature) if point.provider == Provider::Uretprobe => {
                    format!("{name}\n{:?}", signature.result)
                }
                Ok(signature) => format!("{name}\n{}", signature.key),
                Err(_) => format!("{name}\n?"),
            };
            if names.is_empty() {
                add(name.clone(), point.clone());
            }
            for function in names {
                let mut point = point.clone();
                if let AttachTarget::Function { function: meant, .. }
                | AttachTarget::Kernel { function: meant, .. }
                | AttachTarget::Tracepoint(_, meant) = &mut point.place
                {
                    *meant = function;
                }
                add(name.clone(), point);
            }
        }
    }
    if parts.len() > MOST && !asks.names {
        // What so many functions return is a number.
        return vec![probe];
    }
    if parts.len() > MOST {
        let message = format!("the probe means functions with {} different lists of parameters", parts.len());
        messages.add(
            Diagnostic::error(probe.at.0, message)
                .label(format!("more than {MOST}"))
                .help("name fewer functions, or use `arg0` and its like"),
        );
        return vec![probe];
    }
    parts.into_iter().map(|points| Probe { points, ..probe.clone() }).collect()
}

/// The program or library of an attach point, or the kernel.
pub(crate) fn binary(point: &AttachPoint) -> Option<&str> {
    match &point.place {
        AttachTarget::Kernel { .. } | AttachTarget::Tracepoint(..) => Some("vmlinux"),
        AttachTarget::Function { binary, .. }
        | AttachTarget::Offset(binary, _)
        | AttachTarget::Line { binary, .. }
        | AttachTarget::Usdt { binary, .. } => Some(&binary.path),
        _ => None,
    }
}

fn asks(probe: &Probe) -> Asks {
    let mut asks = Asks::default();
    let mut see = |expr: &Expr| note(expr, &mut asks);
    walk::of_block(&probe.action, &mut see);
    probe.predicate.iter().for_each(&mut see);
    asks.types |= walk::declares(&probe.action, &is_named);
    asks
}

/// Notes what an expression and those in it ask for.
fn note(expr: &Expr, asks: &mut Asks) {
    match &expr.kind {
        ExprKind::Name(name) => match library::find(name).map(|entry| entry.name) {
            Some("args") => asks.names = true,
            Some("retval") => asks.result = true,
            Some("argN") => asks.numbers = true,
            Some(_) => {}
            None => asks.types = true,
        },
        ExprKind::Cast(ty, _) | ExprKind::SizeOfType(ty) | ExprKind::OffsetOfType(ty, _) => {
            asks.types |= is_named(ty);
        }
        _ => {}
    }
    walk::visit_parts(expr, &mut |part| note(part, asks));
}

/// Whether a type has a name that a program may know.
fn is_named(ty: &Type) -> bool {
    match ty {
        Type::Named(Tag::Struct | Tag::Union | Tag::Enum | Tag::Alias, _) => true,
        Type::Pointer(inner) | Type::Array(inner, _) => is_named(inner),
        Type::Tuple(members) => members.iter().any(is_named),
        _ => false,
    }
}
