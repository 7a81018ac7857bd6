//! Checks expressions.

use source::{Diagnostic, Span, nearest, quote};

use super::checker::Checker;
use super::programs::is_unknown_name;
use super::statement::map_function;
use super::unify::{self, is_only_printed, join, stored};
use crate::ast::{Expr, ExprKind, is_record};
use crate::constant;
use crate::constant::stated;
use crate::library::{self, Gives, Usage};
use crate::type_key;
use crate::types::{Integer, MAX_PARTS, Tag, Type};

impl Checker<'_> {
    /// The type of an expression, which may be `void`.
    pub(crate) fn expr(&mut self, expr: &mut Expr) -> Type {
        let ty = self.type_of(expr);
        expr.ty = ty.clone();
        ty
    }

    /// The type of an expression whose value is used.
    pub(crate) fn value(&mut self, expr: &mut Expr) -> Type {
        let ty = self.expr(expr);
        if ty == Type::Void {
            let message = match &expr.kind {
                ExprKind::Call(name, _) | ExprKind::Name(name) => format!("`{name}` gives no value"),
                ExprKind::Block(_) => "the block gives no value".into(),
                _ => "this gives no value".into(),
            };
            let message = Diagnostic::error(expr.span(), message).label("expected a value");
            self.report(match &expr.kind {
                ExprKind::Block(_) => message.help("the value is the last expression, without `;` behind it"),
                _ => message,
            });
            return Type::Unknown;
        }
        if is_only_printed(&ty) {
            let message = format!("a value of type `{ty}` can only be printed");
            self.error(expr.span(), message, "expected a number");
            return Type::Unknown;
        }
        ty
    }

    /// An expression that must be an integer.
    pub(crate) fn integer(&mut self, expr: &mut Expr, why: &str) {
        let ty = self.value(expr);
        if ty != Type::Unknown && ty.as_integer().is_none() {
            self.error(expr.span(), why, format!("expected an integer, not `{ty}`"));
        }
    }

    /// An expression that must be true or false.
    pub(crate) fn condition(&mut self, expr: &mut Expr) {
        let ty = self.value(expr);
        self.must_be_condition(&ty, expr.span());
    }

    /// Checks the key of an element of a map.
    pub(crate) fn key_of(&mut self, name: &str, key: Option<&mut Expr>, span: Span) {
        let result = match key {
            None => self.maps.element(name, None, span),
            Some(key) => {
                let ty = self.value(key);
                self.maps.element(name, Some((&ty, stated(key))), span)
            }
        };
        self.keep(result);
    }

    fn type_of(&mut self, expr: &mut Expr) -> Type {
        let span = expr.span();
        match &mut expr.kind {
            ExprKind::Integer(value) => Type::Integer(Integer::of(*value)),
            ExprKind::Text(_) => Type::Text,
            ExprKind::Bool(_) => Type::Bool,
            ExprKind::Positional(_) => Type::Unknown,
            ExprKind::PositionalCount => Type::U64,
            ExprKind::Name(_) => self.name(expr),
            ExprKind::Local(name) => match self.locals.find(name) {
                Some(index) => self.locals.ty(index),
                None => {
                    let message = self.locals.unknown(name, span);
                    self.report(message);
                    Type::Unknown
                }
            },
            ExprKind::Map(name, key) => {
                let name = name.clone();
                self.key_of(&name, key.as_deref_mut(), span);
                let value = self.maps.value(&name, span);
                self.keep(value).unwrap_or_default()
            }
            ExprKind::Call(..) => match map_function(expr) {
                None => self.call(expr),
                Some(name) => {
                    let message = format!("`{name}()` can only be assigned to a map");
                    self.report(
                        Diagnostic::error(span, message)
                            .label("not a value of its own")
                            .help(format!("write `@x = {name}(...);` or `@x[key] = {name}(...);`")),
                    );
                    Type::Unknown
                }
            },
            ExprKind::Unary(operator, value) => {
                let operator = *operator;
                self.unary(operator, value)
            }
            ExprKind::Step { target, up, .. } => {
                let up = *up;
                self.step(target, up)
            }
            ExprKind::Binary(operator, left, right) => {
                let (left_ty, right_ty) = (self.value(left), self.value(right));
                self.operation(*operator, (&left_ty, left), (&right_ty, right), span)
            }
            ExprKind::Ternary(test, yes, no) => {
                self.condition(test);
                let (yes_ty, no_ty) = (self.expr(yes), self.expr(no));
                if yes_ty == Type::Void && no_ty == Type::Void {
                    return Type::Void;
                }
                match join(&stored(&yes_ty), &stored(&no_ty), stated(no)) {
                    Some(joined) => joined,
                    None => {
                        let message = format!("the values are of types `{yes_ty}` and `{no_ty}`");
                        self.error(span, message, "expected two values of one type");
                        Type::Unknown
                    }
                }
            }
            // A tracepoint's format tells when it is attached; numbers are extended to 64 bits.
            ExprKind::Field(value, _)
                if is_record(value, &self.providers) && self.names().of_signature("args").is_none() =>
            {
                Type::I64
            }
            ExprKind::Field(value, name) => {
                let (name, ty) = (name.clone(), self.value(value));
                self.field(&ty, &name, span)
            }
            ExprKind::Member(value, index) => {
                let (index, ty) = (*index, self.value(value));
                self.member(&ty, i128::from(index), span)
            }
            ExprKind::Index(value, index) => self.index(value, index, span),
            ExprKind::Cast(to, value) => {
                let from = self.value(value);
                self.resolve(to, span);
                if is_unknown_name(to) {
                    return Type::Unknown;
                }
                let (to, records) = (to.clone(), self.records);
                match unify::cast(&from, &to, |ty| records.size(ty)) {
                    Ok(ty) => ty,
                    Err(why) => {
                        let message = format!("a value of type `{from}` cannot be cast to `{to}`");
                        self.error(span, message, why);
                        Type::Unknown
                    }
                }
            }
            ExprKind::SizeOfType(ty) => {
                self.resolve(ty, span);
                let ty = ty.clone();
                self.sized(&ty, span)
            }
            ExprKind::SizeOf(value) => {
                if let Some(ty) = self.names().type_of(value) {
                    expr.kind = ExprKind::SizeOfType(ty.clone());
                    return self.sized(&ty, span);
                }
                let ty = self.value(value);
                self.sized(&ty, span)
            }
            ExprKind::OffsetOfType(ty, fields) => {
                self.resolve(ty, span);
                let (ty, fields) = (ty.clone(), fields.clone());
                self.offset(ty, &fields, span)
            }
            ExprKind::OffsetOf(value, fields) => {
                if let Some(ty) = self.names().type_of(value) {
                    let fields = std::mem::take(fields);
                    expr.kind = ExprKind::OffsetOfType(ty.clone(), fields.clone());
                    return self.offset(ty, &fields, span);
                }
                let (fields, ty) = (fields.clone(), self.value(value));
                self.offset(ty, &fields, span)
            }
            ExprKind::Tuple(members) => {
                let types: Vec<Type> = members.iter_mut().map(|member| stored(&self.value(member))).collect();
                let ty = Type::Tuple(types.into());
                if ty.count_parts() > MAX_PARTS {
                    let message = format!("the tuple has more than {MAX_PARTS} parts");
                    self.error(span, message, "too large");
                    return Type::Unknown;
                }
                ty
            }
            ExprKind::Block(block) => self.block(block),
        }
    }

    /// A name alone: a value of an enum, or a builtin.
    fn name(&mut self, expr: &mut Expr) -> Type {
        let span = expr.span();
        let ExprKind::Name(name) = &expr.kind else { return Type::Unknown };
        if let Some((ty, _)) = self.records.constant(name) {
            return ty.clone();
        }
        let name = name.clone();
        let Some(entry) = library::find(&name) else {
            if let Some(ty) = self.names().constant(expr) {
                return ty;
            }
            let rows = library::all().filter(|entry| entry.usage == Usage::Value).map(|entry| entry.name);
            let near = nearest(&name, self.records.constants().chain(rows)).map(str::to_string);
            let message = Diagnostic::error(span, format!("nothing is called {}", quote(&name)))
                .label("expected a builtin, a macro or a value of an enum");
            self.report(match near {
                Some(near) => message.suggest(Some(near)),
                None => message.help("constants of C headers must be defined: `#define NAME 1`"),
            });
            return Type::Unknown;
        };
        if entry.usage == Usage::MapFunction || entry.counts().0 > 0 {
            let message = format!("`{name}` is a function");
            self.report(
                Diagnostic::error(span, message)
                    .label("expected `(`")
                    .help(format!("write `{}`", entry.form())),
            );
            return Type::Unknown;
        }
        self.available(entry, &name, span);
        if let Some(ty) = self.names().of_signature(entry.name) {
            return ty;
        }
        // The type of what `fexit` returns is in the kernel's type information.
        if entry.name == "retval" && self.is_untyped_exit() {
            return Type::Unknown;
        }
        match entry.gives {
            Gives::OfDefault => Type::Bool,
            gives => gives.fixed().unwrap_or_default(),
        }
    }

    fn sized(&mut self, ty: &Type, span: Span) -> Type {
        let later = is_unknown_name(ty)
            || matches!(ty, Type::Unknown | Type::Text | Type::Bytes | Type::Tuple(_) | Type::Opaque(_))
            || matches!(ty, Type::Named(..)) && self.records.size(ty).is_none();
        if !later && self.records.size(ty).is_none() {
            self.error(span, format!("the size of `{ty}` is not known"), "expected a type with a size");
        }
        Type::U64
    }

    /// The type of a field. A pointer to a record is followed.
    pub(crate) fn field(&mut self, ty: &Type, name: &str, span: Span) -> Type {
        let record = match ty {
            Type::Unknown => return Type::Unknown,
            Type::Pointer(inner) => &**inner,
            other => other,
        };
        let (tag, record_name) = match record {
            Type::Unknown => return Type::Unknown,
            Type::Named(tag @ (Tag::Struct | Tag::Union), name) => (*tag, name),
            _ => {
                let message = Diagnostic::error(span, format!("a value of type `{ty}` has no fields"))
                    .label(format!("field {} is asked for", quote(name)));
                self.report(match ty {
                    Type::Tuple(_) => message.help("the members of a tuple have numbers: `.0`"),
                    Type::Integer(_) => message.help("cast it to a pointer: `((struct name *)x).field`"),
                    _ => message,
                });
                return Type::Unknown;
            }
        };
        // What is not known by now stays so, and is refused when the script is compiled.
        let Some(layout) = self.records.get(record_name) else { return Type::Unknown };
        match layout.fields.get(name) {
            Some(placed) => {
                let mut ty = placed.ty.clone();
                self.resolve(&mut ty, span);
                ty
            }
            None => {
                let near = nearest(name, layout.fields.keys().map(String::as_str));
                let shown = match type_key::is_key(record_name) {
                    true => type_key::shown(record_name),
                    false => record_name.split("::").next().unwrap_or(""),
                };
                let message = match self.names().is_args(record_name) {
                    true => format!("the function has no parameter {}", quote(name)),
                    false => format!("{} {} has no field {}", tag.word(), quote(shown), quote(name)),
                };
                self.report(Diagnostic::error(span, message).label("not a field of it").suggest(near));
                Type::Unknown
            }
        }
    }

    fn member(&mut self, ty: &Type, index: i128, span: Span) -> Type {
        match ty {
            Type::Unknown => Type::Unknown,
            Type::Tuple(members) => match usize::try_from(index).ok().and_then(|index| members.get(index)) {
                Some(member) => member.clone(),
                None => {
                    let message = format!("the tuple has no member {index}");
                    self.error(span, message, format!("it has {}: they count from 0", members.len()));
                    Type::Unknown
                }
            },
            _ => {
                self.error(
                    span,
                    format!("a value of type `{ty}` has no numbered members"),
                    "expected a tuple",
                );
                Type::Unknown
            }
        }
    }

    fn index(&mut self, value: &mut Expr, index: &mut Expr, span: Span) -> Type {
        let ty = self.value(value);
        self.integer(index, "an index is an integer");
        let number = constant::integer(index);
        match &ty {
            Type::Unknown => Type::Unknown,
            Type::Tuple(_) => match number {
                Some(number) => self.member(&ty, number, span),
                None => {
                    let message = "the index of a tuple is not known when the script is checked";
                    self.error(index.span(), message, "expected a number");
                    Type::Unknown
                }
            },
            Type::Array(inner, length) => {
                if let (Some(number), Some(length)) = (number, length)
                    && !(0..i128::from(*length)).contains(&number)
                {
                    let message = format!("the array has no element {number}");
                    self.error(index.span(), message, format!("it has {length}: they count from 0"));
                }
                (**inner).clone()
            }
            Type::Pointer(inner) if **inner != Type::Void => (**inner).clone(),
            _ => {
                let message = format!("a value of type `{ty}` has no elements");
                self.error(span, message, "expected an array, a pointer or a tuple");
                Type::Unknown
            }
        }
    }

    fn offset(&mut self, ty: Type, fields: &[String], span: Span) -> Type {
        let mut ty = ty;
        for field in fields {
            ty = self.field(&ty, field, span);
        }
        Type::U64
    }
}
