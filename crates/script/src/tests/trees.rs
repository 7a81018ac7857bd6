//! Makes trees of scripts.

use proptest::prelude::*;
use proptest::strategy::Union;

use crate::operator::{Binary, Unary};
use crate::{
    At, AttachPoint, AttachTarget, Block, Enumeration, Expr, ExprKind, Field, FieldKind, Item, Local, Macro,
    MapDeclaration, Number, Parameter, Probe, ProbedFile, Provider, Record, Script, Setting, SettingValue,
    Statement, StatementKind, Tag, Type, Unit,
};

fn at<T>(make: impl Fn(At) -> T) -> T {
    make(At::default())
}

fn expr(kind: ExprKind) -> Expr {
    at(|at| Expr::new(at, kind.clone()))
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["pid", "arg0", "comm", "x", "y_1", "Z"]).prop_map(String::from)
}

fn local() -> impl Strategy<Value = Local> {
    name().prop_map(|name| Local { name, usage: 0 })
}

fn ty() -> impl Strategy<Value = Type> {
    let base = prop_oneof![
        Just(Type::unsigned(1)),
        Just(Type::signed(4)),
        Just(Type::Bool),
        Just(Type::Named(Tag::Struct, "S".into())),
        Just(Type::Named(Tag::Enum, "E".into())),
    ];
    (base, 0..3usize, prop::option::of(prop::option::of(1..9u32))).prop_map(|(base, stars, array)| {
        let pointer = (0..stars).fold(base, |ty, _| ty.pointer());
        match array {
            Some(length) => Type::Array(pointer.into(), length),
            None => pointer,
        }
    })
}

fn leaf() -> impl Strategy<Value = Expr> {
    prop_oneof![
        any::<u64>().prop_map(ExprKind::Integer),
        (0..20u64).prop_map(ExprKind::Integer),
        prop::collection::vec(any::<u8>(), 0..8).prop_map(ExprKind::Text),
        "[ -~é\n\t]{0,8}".prop_map(|text| ExprKind::Text(text.into_bytes())),
        any::<bool>().prop_map(ExprKind::Bool),
        name().prop_map(ExprKind::Name),
        local().prop_map(ExprKind::Local),
        name().prop_map(|name| ExprKind::Map(name, None)),
        Just(ExprKind::Map(String::new(), None)),
        (1..9u32).prop_map(ExprKind::Positional),
        Just(ExprKind::PositionalCount),
        ty().prop_map(ExprKind::SizeOfType),
        ty().prop_map(|ty| ExprKind::OffsetOfType(ty, vec!["a".into(), "b".into()])),
    ]
    .prop_map(expr)
}

fn value() -> impl Strategy<Value = Expr> {
    leaf().prop_recursive(5, 40, 4, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let binary = prop::sample::select(Binary::ALL).prop_map(|(operator, ..)| operator);
        let unary = prop::sample::select(Unary::ALL).prop_map(|(operator, _)| operator);
        let all = |range| prop::collection::vec(inner.clone(), range);
        let statements = prop::collection::vec(simple(inner.clone().boxed()), 0..3);
        prop_oneof![
            (unary, boxed()).prop_map(|(operator, value)| ExprKind::Unary(operator, value)),
            (binary, boxed(), boxed())
                .prop_map(|(operator, left, right)| ExprKind::Binary(operator, left, right)),
            (any::<bool>(), any::<bool>(), boxed()).prop_map(|(before, up, target)| ExprKind::Step {
                before,
                up,
                target
            }),
            (boxed(), boxed(), boxed()).prop_map(|(test, yes, no)| ExprKind::Ternary(test, yes, no)),
            (boxed(), name()).prop_map(|(value, name)| ExprKind::Field(value, name)),
            (boxed(), 0..20u32).prop_map(|(value, index)| ExprKind::Member(value, index)),
            (boxed(), boxed()).prop_map(|(value, index)| ExprKind::Index(value, index)),
            (ty(), boxed()).prop_map(|(ty, value)| ExprKind::Cast(ty, value)),
            boxed().prop_map(ExprKind::SizeOf),
            boxed().prop_map(|value| ExprKind::OffsetOf(value, vec!["f".into()])),
            all(0..4).prop_map(ExprKind::Tuple),
            (name(), all(0..4)).prop_map(|(name, arguments)| ExprKind::Call(name, arguments)),
            (name(), boxed()).prop_map(|(name, key)| ExprKind::Map(name, Some(key))),
            (statements, prop::option::of(boxed()))
                .prop_map(|(statements, value)| ExprKind::Block(Block { statements, value })),
        ]
        .prop_map(expr)
    })
}

fn target() -> impl Strategy<Value = Expr> {
    prop_oneof![
        local().prop_map(ExprKind::Local),
        name().prop_map(|name| ExprKind::Map(name, None)),
        (name(), leaf()).prop_map(|(name, key)| ExprKind::Map(name, Some(Box::new(key)))),
    ]
    .prop_map(expr)
}

/// A statement without blocks of its own.
fn simple(value: BoxedStrategy<Expr>) -> impl Strategy<Value = Statement> {
    let operators: Vec<Option<Binary>> = Binary::ALL
        .iter()
        .filter(|(each, ..)| each.assigns())
        .map(|(each, ..)| Some(*each))
        .chain([None])
        .collect();
    prop_oneof![
        value.clone().prop_map(StatementKind::Expr),
        value.clone().prop_map(StatementKind::Discard),
        (local(), prop::option::of(ty()), prop::option::of(value.clone()))
            .prop_map(|(name, declared, value)| StatementKind::Let { name, declared, value }),
        (target(), prop::sample::select(operators), value.clone())
            .prop_map(|(target, operator, value)| StatementKind::Assign { target, operator, value }),
        Just(StatementKind::Break),
        Just(StatementKind::Continue),
        prop::option::of(value).prop_map(StatementKind::Return),
    ]
    .prop_map(|kind| at(|at| Statement { at, kind: kind.clone() }))
}

fn statement() -> impl Strategy<Value = Statement> {
    simple(value().boxed()).prop_recursive(3, 12, 3, |inner| {
        let block = || {
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|statements| Block { statements, value: None })
        };
        prop_oneof![
            (prop::collection::vec((value(), block()), 1..3), prop::option::of(block()))
                .prop_map(|(arms, otherwise)| StatementKind::If { arms, otherwise }),
            (value(), block()).prop_map(|(test, body)| StatementKind::While(test, body)),
            (value(), block()).prop_map(|(count, body)| StatementKind::Unroll(count, body)),
            (local(), name(), block()).prop_map(|(entry, map, body)| StatementKind::ForMap {
                entry,
                map,
                body
            }),
            (local(), value(), value(), block())
                .prop_map(|(index, from, to, body)| StatementKind::ForRange { index, from, to, body }),
            block().prop_map(StatementKind::Block),
        ]
        .prop_map(|kind| at(|at| Statement { at, kind: kind.clone() }))
    })
}

fn block(valued: bool) -> impl Strategy<Value = Block> {
    let value = value().prop_map(Box::new);
    let value = if valued { prop::option::of(value).boxed() } else { Just(None).boxed() };
    (prop::collection::vec(statement(), 0..4), value)
        .prop_map(|(statements, value)| Block { statements, value })
}

/// A part of an attach point, with all that may need quotes.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_*?.-]{1,6}",
        "[a-z:, {}/;+0-9\"\\\\]{1,6}",
        Just("return".to_string()),
        Just("cpp".to_string())
    ]
}

fn point() -> impl Strategy<Value = AttachPoint> {
    let file = || part().prop_map(|path| ProbedFile { path, process: None });
    let offset = || prop::option::of(any::<u64>());
    let places = Union::new([
        Just((Provider::Begin, AttachTarget::Only)).boxed(),
        (1..999u64)
            .prop_map(|count| {
                (Provider::Interval, AttachTarget::Period(Unit::Seconds, Number::Literal(count)))
            })
            .boxed(),
        (part(), offset())
            .prop_map(|(function, offset)| {
                (Provider::Kprobe, AttachTarget::Kernel { module: None, function, offset })
            })
            .boxed(),
        (file(), part(), offset())
            .prop_map(|(binary, function, offset)| {
                (Provider::Uprobe, AttachTarget::Function { binary, function, cpp: false, offset })
            })
            .boxed(),
        (file(), part())
            .prop_map(|(binary, function)| {
                (Provider::Uretprobe, AttachTarget::Function { binary, function, cpp: true, offset: None })
            })
            .boxed(),
        (file(), any::<u64>())
            .prop_map(|(binary, at)| (Provider::Uprobe, AttachTarget::Offset(binary, at)))
            .boxed(),
        (file(), "[a-z/]{0,5}[a-z][.]c", 1..9999u64)
            .prop_map(|(binary, file, line)| (Provider::Uprobe, AttachTarget::Line { binary, file, line }))
            .boxed(),
        (file(), prop::option::of(part()), part())
            .prop_map(|(binary, namespace, name)| {
                (Provider::Usdt, AttachTarget::Usdt { binary, namespace, name })
            })
            .boxed(),
        (part(), part())
            .prop_map(|(group, event)| (Provider::Tracepoint, AttachTarget::Tracepoint(Some(group), event)))
            .boxed(),
    ]);
    places.prop_map(|(provider, place)| {
        at(|at| AttachPoint { at, label: None, provider, place: place.clone() })
    })
}

fn field() -> impl Strategy<Value = Field> {
    (name(), ty(), prop::option::of(1..8u8)).prop_map(|(name, ty, bits)| {
        let bits = bits.filter(|_| matches!(ty, Type::Integer(_)));
        at(|at| Field { at, name: Some(name.clone()), kind: FieldKind::Plain(ty.clone()), bits })
    })
}

fn record() -> impl Strategy<Value = Record> {
    let inner =
        (prop::option::of(name()), prop::collection::vec(field(), 0..3)).prop_map(|(name, fields)| {
            let record = at(|at| Record { at, tag: Tag::Union, name: None, fields: fields.clone() });
            at(|at| Field { at, name: name.clone(), kind: FieldKind::Inner(record.clone()), bits: None })
        });
    (name(), prop::collection::vec(prop_oneof![field(), inner], 0..4)).prop_map(|(name, fields)| {
        at(|at| Record { at, tag: Tag::Struct, name: Some(name.clone()), fields: fields.clone() })
    })
}

fn item() -> impl Strategy<Value = Item> {
    let probe = (prop::collection::vec(point(), 1..4), prop::option::of(value()), block(false)).prop_map(
        |(points, predicate, action)| {
            at(|at| {
                let (points, predicate, action) = (points.clone(), predicate.clone(), action.clone());
                Item::Probe(Probe { at, points, predicate, action })
            })
        },
    );
    let parameters =
        vec![Parameter::Local("a".into()), Parameter::Map("b".into()), Parameter::Expression("c".into())];
    let setting = prop_oneof![
        Just(SettingValue::Word("perf".into())),
        (0..9u64).prop_map(SettingValue::Number),
        "[a-z\"]{0,4}".prop_map(|text| SettingValue::Text(text.into_bytes())),
    ];
    prop_oneof![
        6 => probe,
        1 => (name(), block(true)).prop_map(move |(name, body)| {
            at(|at| Item::Macro(Macro { at, name: name.clone(), parameters: parameters.clone(), body: body.clone() }))
        }),
        1 => record().prop_map(Item::Record),
        1 => (prop::option::of(name()), any::<i32>()).prop_map(|(name, first)| {
            let values = vec![("A".to_string(), i64::from(first)), ("B".to_string(), 2)];
            at(|at| Item::Enumeration(Enumeration { at, name: name.clone(), values: values.clone() }))
        }),
        1 => (name(), 1..99u64).prop_map(|(name, entries)| {
            at(|at| Item::Map(MapDeclaration { at, name: name.clone(), kind: "hash".into(), entries }))
        }),
        1 => prop::collection::vec((name(), setting), 0..3).prop_map(|all| {
            let settings = all.into_iter().map(|(name, value)| {
                at(|at| Setting { at, name: name.clone(), value: value.clone() })
            });
            Item::Config(settings.collect())
        }),
    ]
}

/// A script.
pub(super) fn script() -> impl Strategy<Value = Script> {
    prop::collection::vec(item(), 0..4).prop_map(|items| Script { items })
}
