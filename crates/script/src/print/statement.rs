//! Prints statements, and the expressions in them.

use super::expression::{local, rank, text};
use crate::ast::{Block, Expr, ExprKind, Statement, StatementKind};
use crate::types::Type;

/// A text that grows.
pub(crate) struct Printer {
    out: String,
    indent: usize,
    typed: bool,
}

impl Printer {
    pub(crate) fn new(typed: bool) -> Printer {
        Printer { out: String::new(), indent: 0, typed }
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, text: &str) {
        if !text.is_empty() {
            self.out.push_str(&"    ".repeat(self.indent));
            self.out.push_str(text);
        }
        self.out.push('\n');
    }

    /// A block, each brace on its line.
    pub(crate) fn braces(&mut self, block: &Block) {
        self.line("{");
        self.inside(block);
        self.line("}");
    }

    fn inside(&mut self, block: &Block) {
        self.indent += 1;
        for statement in &block.statements {
            self.statement(statement);
        }
        if let Some(value) = &block.value {
            let value = self.statement_value(value);
            self.line(&value);
        }
        self.indent -= 1;
    }

    /// A line with a block behind it.
    fn headed(&mut self, head: &str, block: &Block) {
        self.line(&format!("{head} {{"));
        self.inside(block);
        self.line("}");
    }

    /// The comment that tells a type.
    fn comment(&self, ty: &Type) -> String {
        match ty {
            Type::Unknown | Type::Void => String::new(),
            ty if self.typed => format!(" // {ty}"),
            _ => String::new(),
        }
    }

    pub(crate) fn statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::Expr(value) => {
                let value = self.statement_value(value);
                self.line(&format!("{value};"));
            }
            StatementKind::Discard(value) => {
                let value = self.value(value);
                self.line(&format!("_ = {value};"));
            }
            StatementKind::Let { name, declared, value } => {
                let declared = declared.as_ref().map_or(String::new(), |ty| format!(": {ty}"));
                let comment = value.as_ref().map_or(String::new(), |value| self.comment(&value.ty));
                let value = value.as_ref().map_or(String::new(), |value| format!(" = {}", self.value(value)));
                self.line(&format!("let {}{declared}{value};{comment}", local(name)));
            }
            StatementKind::Assign { target, operator, value } => {
                let comment = self.comment(&target.ty);
                let operator = operator.map_or("", |operator| operator.sign());
                let (target, value) = (self.value(target), self.value(value));
                self.line(&format!("{target} {operator}= {value};{comment}"));
            }
            StatementKind::If { arms, otherwise } => {
                for (index, (test, block)) in arms.iter().enumerate() {
                    let test = self.value(test);
                    let word = if index == 0 { "if" } else { "} else if" };
                    self.line(&format!("{word} ({test}) {{"));
                    self.inside(block);
                }
                if let Some(block) = otherwise {
                    self.line("} else {");
                    self.inside(block);
                }
                self.line("}");
            }
            StatementKind::While(test, body) => {
                let test = self.value(test);
                self.headed(&format!("while ({test})"), body);
            }
            StatementKind::Unroll(count, body) => {
                let count = self.value(count);
                self.headed(&format!("unroll ({count})"), body);
            }
            StatementKind::ForMap { entry, map, body } => {
                self.headed(&format!("for ({} : @{map})", local(entry)), body);
            }
            StatementKind::ForRange { index, from, to, body } => {
                let (from, to) = (self.bound(from, 11), self.bound(to, 11));
                self.headed(&format!("for ({} : {from}..{to})", local(index)), body);
            }
            StatementKind::Break => self.line("break;"),
            StatementKind::Continue => self.line("continue;"),
            StatementKind::Return(value) => {
                let value = value.as_ref().map_or(String::new(), |value| format!(" {}", self.value(value)));
                self.line(&format!("return{value};"));
            }
            StatementKind::Block(block) => self.braces(block),
        }
    }

    /// An expression as a statement: one that begins with a brace would be read as a block.
    fn statement_value(&mut self, value: &Expr) -> String {
        let text = self.value(value);
        if text.starts_with('{') { format!("({text})") } else { text }
    }

    /// An expression where any may stand.
    pub(crate) fn value(&mut self, value: &Expr) -> String {
        self.bound(value, 0)
    }

    /// An expression where one is expected that binds at least as strongly as `least`.
    fn bound(&mut self, value: &Expr, least: u8) -> String {
        let text = self.expression(&value.kind);
        let block = matches!(value.kind, ExprKind::Block(_)) && least > 0;
        if rank(&value.kind) < least || block { format!("({text})") } else { text }
    }

    fn list(&mut self, values: &[Expr]) -> String {
        values.iter().map(|value| self.value(value)).collect::<Vec<_>>().join(", ")
    }

    fn expression(&mut self, kind: &ExprKind) -> String {
        match kind {
            ExprKind::Integer(value) => value.to_string(),
            ExprKind::Text(bytes) => text(bytes),
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Name(name) => name.clone(),
            ExprKind::Local(name) => local(name),
            ExprKind::Positional(index) => format!("${index}"),
            ExprKind::PositionalCount => "$#".into(),
            ExprKind::Map(name, key) => match key.as_deref() {
                None => format!("@{name}"),
                Some(Expr { kind: ExprKind::Tuple(keys), .. }) if keys.len() > 1 => {
                    format!("@{name}[{}]", self.list(keys))
                }
                Some(key) => format!("@{name}[{}]", self.value(key)),
            },
            ExprKind::Call(name, arguments) => format!("{name}({})", self.list(arguments)),
            ExprKind::Unary(operator, value) => self.prefixed(operator.sign(), value),
            ExprKind::Step { before: true, up, target } => {
                self.prefixed(if *up { "++" } else { "--" }, target)
            }
            ExprKind::Step { before: false, up, target } => {
                format!("{}{}", self.bound(target, 12), if *up { "++" } else { "--" })
            }
            ExprKind::Binary(operator, left, right) => {
                let (rank, sign) = (operator.rank(), operator.sign());
                format!("{} {sign} {}", self.bound(left, rank), self.bound(right, rank + 1))
            }
            ExprKind::Ternary(test, yes, no) => {
                format!("{} ? {} : {}", self.bound(test, 1), self.value(yes), self.value(no))
            }
            ExprKind::Field(value, name) => format!("{}.{name}", self.operand(value)),
            ExprKind::Member(value, index) => format!("{}.{index}", self.operand(value)),
            ExprKind::Index(value, index) => match &value.kind {
                // `@x[1]` is the map's element; `(@x)[1]` is not.
                ExprKind::Map(_, None) => format!("({})[{}]", self.value(value), self.value(index)),
                _ => format!("{}[{}]", self.operand(value), self.value(index)),
            },
            ExprKind::Cast(ty, value) => format!("({ty}){}", self.bound(value, 11)),
            ExprKind::SizeOfType(ty) => format!("sizeof({ty})"),
            ExprKind::SizeOf(value) => format!("sizeof({})", self.value(value)),
            ExprKind::OffsetOfType(ty, fields) => format!("offsetof({ty}, {})", fields.join(".")),
            ExprKind::OffsetOf(value, fields) => {
                format!("offsetof({}, {})", self.value(value), fields.join("."))
            }
            ExprKind::Tuple(members) if members.len() == 1 => format!("({},)", self.list(members)),
            ExprKind::Tuple(members) => format!("({})", self.list(members)),
            ExprKind::Block(block) => {
                let mut inner = Printer { out: String::new(), indent: self.indent, typed: self.typed };
                inner.line("{");
                inner.inside(block);
                inner.line("}");
                inner.out.trim().to_string()
            }
        }
    }

    /// The value before `.` or `[`. A number before `.` would be read with it.
    fn operand(&mut self, value: &Expr) -> String {
        let text = self.bound(value, 12);
        if matches!(value.kind, ExprKind::Integer(_)) { format!("({text})") } else { text }
    }

    /// A sign before a value; `- -x` is not `--x`.
    fn prefixed(&mut self, sign: &str, value: &Expr) -> String {
        let text = self.bound(value, 11);
        match text.chars().next() == sign.chars().next() {
            true => format!("{sign} {text}"),
            false => format!("{sign}{text}"),
        }
    }
}
