//! The tree of a script.
//!
//! Every node knows its place in the text and its height. A tree higher than [`MAX_HEIGHT`] is
//! refused where it is built, so a function may walk a tree by recursion.

use source::Span;

use crate::attach_point::AttachPoint;
use crate::operator::{Binary, Unary};
use crate::provider::Provider;
use crate::types::{Tag, Type};

/// The maximum height of a tree.
pub(crate) const MAX_HEIGHT: u16 = 60;

/// A place in the text. Places do not make trees different.
#[derive(Clone, Copy, Debug, Default)]
pub struct At(pub Span);

impl PartialEq for At {
    fn eq(&self, _: &At) -> bool {
        true
    }
}

/// A script.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Script {
    /// What it consists of, in its order.
    pub items: Vec<Item>,
}

/// A part of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `config = { ... }`.
    Config(Vec<Setting>),
    /// `let @name = kind(size);`.
    Map(MapDeclaration),
    /// A struct or union.
    Record(Record),
    /// An enum.
    Enumeration(Enumeration),
    /// A macro.
    Macro(Macro),
    /// Attach points and what is done there.
    Probe(Probe),
}

/// A line of `config`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Where it is.
    pub at: At,
    /// Its name as written.
    pub name: String,
    /// Its value.
    pub value: SettingValue,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    /// A word.
    Word(String),
    /// A number.
    Number(u64),
    /// A string.
    Text(Vec<u8>),
}

/// The declaration of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct MapDeclaration {
    /// Where it is.
    pub at: At,
    /// The map's name without `@`.
    pub name: String,
    /// The kind of map.
    pub kind: String,
    /// The maximum number of entries.
    pub entries: u64,
}

/// A struct or union defined in the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Where it is.
    pub at: At,
    /// Struct or union.
    pub tag: Tag,
    /// Its name; inner ones may have none.
    pub name: Option<String>,
    /// Its fields.
    pub fields: Vec<Field>,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Where it is.
    pub at: At,
    /// Its name; the fields of an inner record without one belong to the outer record.
    pub name: Option<String>,
    /// What it is.
    pub kind: FieldKind,
    /// The number of its bits, if it is a bit field.
    pub bits: Option<u8>,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    /// A type.
    Plain(Type),
    /// A record defined in place.
    Inner(Record),
}

/// An enum defined in the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Enumeration {
    /// Where it is.
    pub at: At,
    /// Its name.
    pub name: Option<String>,
    /// Names and values.
    pub values: Vec<(String, i64)>,
}

/// A macro.
#[derive(Clone, Debug, PartialEq)]
pub struct Macro {
    /// Where its name is.
    pub at: At,
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// What a use is replaced by.
    pub body: Block,
}

/// A parameter of a macro.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// `$name`: a scratch variable.
    Local(String),
    /// `@name`: a map.
    Map(String),
    /// `name`: an expression.
    Expression(String),
}

/// A probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Where its points are.
    pub at: At,
    /// Where it fires.
    pub points: Vec<AttachPoint>,
    /// The condition of its action.
    pub predicate: Option<Expr>,
    /// The action.
    pub action: Block,
}

/// Statements in braces.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Block {
    /// The statements.
    pub statements: Vec<Statement>,
    /// Its value, if it is used as an expression: a last expression without a semicolon.
    pub value: Option<Box<Expr>>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Where it is.
    pub at: At,
    /// What it is.
    pub kind: StatementKind,
}

/// What a statement is.
#[derive(Clone, Debug, PartialEq)]
pub enum StatementKind {
    /// An expression evaluated for its effect.
    Expr(Expr),
    /// `_ = value`.
    Discard(Expr),
    /// `let $name: type = value`.
    Let {
        /// The variable.
        name: Local,
        /// Its declared type.
        declared: Option<Type>,
        /// Its first value.
        value: Option<Expr>,
    },
    /// `target op= value`.
    Assign {
        /// A scratch variable, a map, or an element of one.
        target: Expr,
        /// The operator of a combined assignment.
        operator: Option<Binary>,
        /// The value.
        value: Expr,
    },
    /// `if`, each `else if`, and `else`.
    If {
        /// Conditions and blocks in order.
        arms: Vec<(Expr, Block)>,
        /// `else`.
        otherwise: Option<Block>,
    },
    /// `while (condition) { ... }`.
    While(Expr, Block),
    /// `unroll (count) { ... }`.
    Unroll(Expr, Block),
    /// `for ($entry : @map) { ... }`.
    ForMap {
        /// The variable for key and value.
        entry: Local,
        /// The map's name.
        map: String,
        /// The body.
        body: Block,
    },
    /// `for ($index : from..to) { ... }`.
    ForRange {
        /// The variable for the number.
        index: Local,
        /// The first number.
        from: Expr,
        /// The number after the last.
        to: Expr,
        /// The body.
        body: Block,
    },
    /// `break`.
    Break,
    /// `continue`.
    Continue,
    /// `return`.
    Return(Option<Expr>),
    /// A block as a statement.
    Block(Block),
}

/// A scratch variable's name. Those of different uses of a macro are different.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Local {
    /// The name without `$`.
    pub name: String,
    /// The number of the macro's use; 0 outside.
    pub usage: u32,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Where it is.
    pub at: At,
    /// What it is.
    pub kind: ExprKind,
    /// Its type, once it is checked.
    pub ty: Type,
    height: u16,
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// An integer.
    Integer(u64),
    /// A string.
    Text(Vec<u8>),
    /// `true` or `false`.
    Bool(bool),
    /// A builtin, an enum's value, or a word that a function understands.
    Name(String),
    /// `$name`.
    Local(Local),
    /// `@name` or `@name[key]`.
    Map(String, Option<Box<Expr>>),
    /// `$1`.
    Positional(u32),
    /// `$#`.
    PositionalCount,
    /// `name(arguments)`.
    Call(String, Vec<Expr>),
    /// `operator value`.
    Unary(Unary, Box<Expr>),
    /// `++target`, `target--`.
    Step {
        /// Whether the result is the value after the step.
        before: bool,
        /// Whether one is added.
        up: bool,
        /// A variable or a map.
        target: Box<Expr>,
    },
    /// `left operator right`.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `condition ? yes : no`.
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `value.name`.
    Field(Box<Expr>, String),
    /// `value.0`.
    Member(Box<Expr>, u32),
    /// `value[index]`.
    Index(Box<Expr>, Box<Expr>),
    /// `(type) value`.
    Cast(Type, Box<Expr>),
    /// `sizeof(type)`.
    SizeOfType(Type),
    /// `sizeof(value)`.
    SizeOf(Box<Expr>),
    /// `offsetof(type, field.field)`.
    OffsetOfType(Type, Vec<String>),
    /// `offsetof(value, field.field)`.
    OffsetOf(Box<Expr>, Vec<String>),
    /// `(first, second)`.
    Tuple(Vec<Expr>),
    /// `{ statements; value }`.
    Block(Block),
}

impl Expr {
    /// An expression whose type is not known yet.
    pub fn new(at: At, kind: ExprKind) -> Expr {
        let height = kind.height().saturating_add(1);
        Expr { at, kind, ty: Type::Unknown, height }
    }

    /// The number of levels of its tree.
    pub(crate) fn height(&self) -> u16 {
        self.height
    }

    pub(crate) fn span(&self) -> Span {
        self.at.0
    }
}

fn tallest<'a>(all: impl IntoIterator<Item = &'a Expr>) -> u16 {
    all.into_iter().map(Expr::height).max().unwrap_or(0)
}

impl ExprKind {
    fn height(&self) -> u16 {
        match self {
            ExprKind::Integer(_)
            | ExprKind::Text(_)
            | ExprKind::Bool(_)
            | ExprKind::Name(_)
            | ExprKind::Local(_)
            | ExprKind::Positional(_)
            | ExprKind::PositionalCount
            | ExprKind::SizeOfType(_)
            | ExprKind::OffsetOfType(..) => 0,
            ExprKind::Map(_, key) => key.as_ref().map_or(0, |key| key.height),
            ExprKind::Call(_, all) | ExprKind::Tuple(all) => tallest(all),
            ExprKind::Unary(_, value)
            | ExprKind::Step { target: value, .. }
            | ExprKind::Field(value, _)
            | ExprKind::Member(value, _)
            | ExprKind::Cast(_, value)
            | ExprKind::SizeOf(value)
            | ExprKind::OffsetOf(value, _) => value.height,
            ExprKind::Binary(_, left, right) | ExprKind::Index(left, right) => left.height.max(right.height),
            ExprKind::Ternary(test, yes, no) => test.height.max(yes.height).max(no.height),
            ExprKind::Block(block) => block.height(),
        }
    }
}

impl Block {
    /// The number of levels of its tree.
    pub(crate) fn height(&self) -> u16 {
        let statements = self.statements.iter().map(Statement::height).max().unwrap_or(0);
        statements.max(tallest(self.value.as_deref())).saturating_add(1)
    }
}

impl Statement {
    pub(crate) fn height(&self) -> u16 {
        let height = match &self.kind {
            StatementKind::Expr(value) | StatementKind::Discard(value) => value.height,
            StatementKind::Let { value, .. } | StatementKind::Return(value) => tallest(value),
            StatementKind::Assign { target, value, .. } => target.height.max(value.height),
            StatementKind::If { arms, otherwise } => {
                let arms = arms.iter().map(|(test, block)| test.height.max(block.height())).max();
                arms.unwrap_or(0).max(otherwise.as_ref().map_or(0, Block::height))
            }
            StatementKind::While(test, body) | StatementKind::Unroll(test, body) => {
                test.height.max(body.height())
            }
            StatementKind::ForMap { body, .. } | StatementKind::Block(body) => body.height(),
            StatementKind::ForRange { from, to, body, .. } => tallest([from, to]).max(body.height()),
            StatementKind::Break | StatementKind::Continue => 0,
        };
        height.saturating_add(1)
    }
}

/// Whether an expression is the record of a tracepoint: `args` where all points are tracepoints.
pub(crate) fn is_record(expr: &Expr, providers: &[Provider]) -> bool {
    let is_args = matches!(&expr.kind, ExprKind::Name(name) if name == "args");
    is_args && !providers.is_empty() && providers.iter().all(|provider| *provider == Provider::Tracepoint)
}
