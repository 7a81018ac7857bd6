//! The messages for what this engine does not have, or does not know.

use source::{Diagnostic, Span, quote};

use crate::ast::{Expr, ExprKind};
use crate::attach_point::{AttachPoint, AttachTarget, Memory};
use crate::library::{Entry, Needs};
use crate::program_types::{FunctionValue, ValuePlace};
use crate::provider::Provider;
use crate::type_key::shown;
use crate::types::{Tag, Type};

use super::compiler::Result;

/// Names that are refused here: what they need, and what to do instead.
const REFUSED: &[(&str, &str, &str)] = &[
    ("ctx", "a context of the kernel", "use `arg0` or `reg()`"),
    ("cgroup", "a function of the kernel that no handler can call yet", "leave it out"),
    ("jiffies", "a variable of the kernel", "read it in a probe of the kernel: `*kaddr(\"jiffies\")`"),
];

/// A builtin or function that is not available.
pub(super) fn entry(entry: &Entry, span: Span) -> Diagnostic {
    let row = REFUSED.iter().find(|(name, ..)| *name == entry.name);
    let message = Diagnostic::error(span, format!("`{}` is not available in a running script", entry.name));
    match (row, entry.needs) {
        (Some((_, needs, help)), _) => message.label(format!("needs {needs}")).help(*help),
        (None, Needs::Kernel) => message
            .label("needs code in the kernel")
            .help("use it in a `kprobe`, `tracepoint` or `profile` probe"),
        (None, Needs::Missing(needs)) => message.label(format!("needs {needs}")).help("leave it out"),
        (None, _) => message.label("not done yet").help("leave it out"),
    }
}

/// Whether a builtin or function is refused whatever its arguments are.
pub(super) fn is_refused(entry: &Entry) -> bool {
    matches!(entry.needs, Needs::Kernel | Needs::Missing(_))
        || REFUSED.iter().any(|(name, ..)| *name == entry.name)
}

/// A function that is asked about a task of the kernel.
pub(super) fn task(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error(span, format!("`{name}` of a task needs the kernel's structures"))
        .label("expected nothing here")
        .help(format!("write `{name}`, for the process that hit the probe"))
}

/// Something that needs `--unsafe`.
pub(super) fn is_unsafe(what: &str, span: Span) -> Diagnostic {
    Diagnostic::error(span, format!("{what} changes more than what is traced"))
        .label("not allowed")
        .help("start dprobes with `--unsafe` to allow it")
}

/// The record of which an expression is a field that nobody knows.
pub(super) fn unknown_record(expr: &Expr) -> Option<(Tag, &str, Span)> {
    let (Type::Unknown, ExprKind::Field(value, _)) = (&expr.ty, &expr.kind) else { return None };
    let record = match &value.ty {
        Type::Pointer(inner) => &**inner,
        other => other,
    };
    match record {
        Type::Named(tag, name) => Some((*tag, name, value.at.0)),
        _ => None,
    }
}

/// An expression whose type is not known.
pub(super) fn unknown(expr: &Expr) -> Diagnostic {
    if let Some((tag, name, span)) = unknown_record(expr) {
        return not_defined(tag, name, None, span);
    }
    let mut inner = expr;
    while let ExprKind::Field(value, _) | ExprKind::Index(value, _) | ExprKind::Unary(_, value) = &inner.kind
    {
        inner = value;
    }
    if let ExprKind::Name(name) | ExprKind::Call(name, _) = &inner.kind
        && let Some(found) = crate::library::find(name)
        && is_refused(found)
    {
        return entry(found, inner.at.0);
    }
    unknown_type(&expr.ty, expr.at.0)
}

/// A value of a type that is not known.
pub(super) fn unknown_type(ty: &Type, span: Span) -> Diagnostic {
    match ty {
        Type::Named(tag, name) => not_defined(*tag, name, None, span),
        Type::Foreign(name, _) => {
            let message = format!("scripts do not calculate with values of type {}", quote(name));
            Diagnostic::error(span, message)
                .label("it can only be printed as a part of its struct")
                .help("`printf(\"%r\", buf(&value, size))` shows its bytes")
        }
        Type::Unknown => Diagnostic::error(span, "the type of this value is not known")
            .label("nothing in the script tells it")
            .help("cast it, or define the struct: `((struct name *)x)->field`"),
        Type::Aggregate(_) => Diagnostic::error(span, format!("a value of type `{ty}` can only be printed"))
            .label("as a whole map")
            .help("write `print(@x);`"),
        Type::Tuple(members) if members.contains(&Type::Unknown) => {
            Diagnostic::error(span, format!("a member of `{ty}` is of a type that is not known"))
                .label("nothing in the script tells it")
                .help("cast the member")
        }
        Type::Array(inner, None) => Diagnostic::error(span, format!("the length of `{ty}` is not known"))
            .label("expected an array with a length")
            .help(format!("state it: `({inner}[8])`")),
        _ => Diagnostic::error(span, format!("a value of type `{ty}` is not available in this form"))
            .label("not done yet")
            .help("assign its parts to variables, and use these"),
    }
}

/// A struct that neither the script nor debug information defines, for this reason.
pub(super) fn not_defined(tag: Tag, name: &str, reason: Option<String>, span: Span) -> Diagnostic {
    let (tag, name) = (tag.word(), shown(name));
    Diagnostic::error(span, format!("the fields of {tag} {} are not known", quote(name)))
        .label(reason.unwrap_or_else(|| "neither the script nor debug information defines it".into()))
        .help(format!("define it: `{tag} {name} {{ ... }};`"))
}

/// The size of what a pointer points to.
pub(super) fn no_size(ty: &Type, span: Span) -> Diagnostic {
    match ty {
        Type::Named(tag, name) => not_defined(*tag, name, None, span),
        _ => Diagnostic::error(span, format!("the size of `{ty}` is not known"))
            .label("needed here")
            .help("cast the pointer to one to a type with a size"),
    }
}

/// Attach points that this engine does not serve.
pub(super) fn provider(point: &AttachPoint) -> Result<()> {
    match point.provider {
        Provider::Begin
        | Provider::End
        | Provider::Own
        | Provider::Interval
        | Provider::Uprobe
        | Provider::Uretprobe
        | Provider::Usdt
        | Provider::Kprobe
        | Provider::Kretprobe
        | Provider::Tracepoint
        | Provider::Profile
        | Provider::Fentry
        | Provider::Fexit
        | Provider::Rawtracepoint
        | Provider::Hardware
        | Provider::Software => Ok(()),
        Provider::Watchpoint => match &point.place {
            AttachTarget::Watch { memory: Memory::Argument(..), .. } => Err(watches_argument(point)),
            _ => Ok(()),
        },
        Provider::Asyncwatchpoint => Err(Diagnostic::error(
            point.at.0,
            "`asyncwatchpoint` sets a watchpoint while the process runs on, and misses what it does meanwhile",
        )
        .label("refused: what it shows would not be all")
        .help("`watchpoint:ADDRESS:LENGTH:MODE` and `watchpoint:VARIABLE:LENGTH:MODE` are set before the probes count")),
        _ => {
            let message = format!("`{}` probes are not available in a running script", point.provider.name());
            Err(Diagnostic::error(point.at.0, message)
                .label("not done yet")
                .help("probe a function (`uprobe:PATH:FUNCTION`, `kprobe:FUNCTION`) or a tracepoint"))
        }
    }
}

/// Memory that is known only when a function is called.
fn watches_argument(point: &AttachPoint) -> Diagnostic {
    let message = "the address is known only when the function is called";
    Diagnostic::error(point.at.0, message)
        .label("the process would have to be stopped there by a signal, and would stay so if dprobes ended")
        .help("print the address by a `uprobe`, and watch it: `watchpoint:ADDRESS:LENGTH:MODE`")
}

/// An argument, or what a function returns, that cannot be read.
pub(super) fn nowhere(value: &FunctionValue, span: Span) -> Diagnostic {
    let what = match value.name.as_str() {
        "" => format!("what the function returns, a `{}`,", value.text),
        name => format!("the argument {}, a `{}`,", quote(name), value.text),
    };
    let reason = match &value.place {
        ValuePlace::Nowhere(reason) => reason.as_str(),
        _ => "scripts do not calculate with values of this type",
    };
    Diagnostic::error(span, format!("{what} cannot be read"))
        .label(reason.to_owned())
        .help("leave it out; the others can be read")
}
