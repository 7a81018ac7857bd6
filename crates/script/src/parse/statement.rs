//! Statements and blocks.

use source::Diagnostic;

use super::cursor::{Cursor, too_deep};
use super::expression::{expression, unary};
use super::typename;
use crate::ast::{Block, Expr, ExprKind, Local, MAX_HEIGHT, Statement, StatementKind};
use crate::library;
use crate::operator::{Binary, Unary};
use crate::token::Token;

/// Statements in braces. If the block is used as a value, a last expression without a semicolon is
/// that value.
pub(crate) fn block(cursor: &mut Cursor<'_>, valued: bool) -> Result<Block, Diagnostic> {
    let in_predicate = std::mem::replace(&mut cursor.in_predicate, false);
    let result = cursor.deeper(|cursor| statements(cursor, valued));
    cursor.in_predicate = in_predicate;
    let block = result?;
    if block.height() > MAX_HEIGHT { Err(too_deep(cursor.last())) } else { Ok(block) }
}

fn statements(cursor: &mut Cursor<'_>, valued: bool) -> Result<Block, Diagnostic> {
    let open = cursor.span();
    if !cursor.take("{") {
        return Err(cursor.unexpected("expected `{`"));
    }
    let mut statements: Vec<Statement> = Vec::new();
    let mut value = None;
    loop {
        while cursor.take(";") {}
        if cursor.take("}") {
            return Ok(Block { statements, value });
        }
        if *cursor.peek() == Token::End || cursor.full() {
            return Err(Diagnostic::error(open, "the block is not closed")
                .label("opened here")
                .help("end it with `}`"));
        }
        let before = cursor.position();
        match statement(cursor) {
            Ok(Statement { kind: StatementKind::Expr(last), .. }) if valued && cursor.peek().is("}") => {
                value = Some(Box::new(last));
            }
            Ok(statement) => {
                let braced = matches!(
                    statement.kind,
                    StatementKind::If { .. }
                        | StatementKind::While(..)
                        | StatementKind::Unroll(..)
                        | StatementKind::ForMap { .. }
                        | StatementKind::ForRange { .. }
                        | StatementKind::Block(_)
                );
                statements.push(statement);
                if !braced && !cursor.peek().is("}") && !cursor.take(";") {
                    let message = cursor.unexpected("expected `;` or `}` after the statement");
                    cursor.report(message);
                    recover(cursor, false);
                }
            }
            Err(message) => {
                cursor.report(message);
                if cursor.position() == before {
                    cursor.next();
                }
                recover(cursor, false);
            }
        }
    }
}

/// Skips to the end of the statement: its semicolon or, unless that is needed, its braces.
pub(crate) fn recover(cursor: &mut Cursor<'_>, semicolon: bool) {
    let mut open = 0usize;
    loop {
        match cursor.peek() {
            Token::End => return,
            Token::Sign("{") => open += 1,
            Token::Sign("}") if open == 0 => return,
            Token::Sign("}") => {
                open -= 1;
                if open == 0 && !semicolon {
                    cursor.next();
                    return;
                }
            }
            Token::Sign(";") if open == 0 => {
                cursor.next();
                return;
            }
            _ => {}
        }
        cursor.next();
    }
}

fn statement(cursor: &mut Cursor<'_>) -> Result<Statement, Diagnostic> {
    let start = cursor.span();
    let kind = match cursor.peek() {
        Token::Name(word) => match &**word {
            "if" => condition(cursor)?,
            "while" => {
                cursor.next();
                let test = in_parentheses(cursor)?;
                StatementKind::While(test, block(cursor, false)?)
            }
            "unroll" => {
                cursor.next();
                let count = in_parentheses(cursor)?;
                StatementKind::Unroll(count, block(cursor, false)?)
            }
            "for" => for_loop(cursor)?,
            "let" => declaration(cursor)?,
            "break" => {
                cursor.next();
                StatementKind::Break
            }
            "continue" => {
                cursor.next();
                StatementKind::Continue
            }
            "return" => {
                cursor.next();
                let ends = cursor.peek().is(";") || cursor.peek().is("}");
                StatementKind::Return(if ends { None } else { Some(expression(cursor)?) })
            }
            "_" if cursor.ahead(1).is("=") => {
                cursor.next();
                cursor.next();
                StatementKind::Discard(expression(cursor)?)
            }
            _ => simple(cursor)?,
        },
        Token::Sign("{") => StatementKind::Block(block(cursor, false)?),
        _ => simple(cursor)?,
    };
    let statement = Statement { at: cursor.since(start), kind };
    if statement.height() > MAX_HEIGHT { Err(too_deep(start)) } else { Ok(statement) }
}

/// An expression or an assignment.
fn simple(cursor: &mut Cursor<'_>) -> Result<StatementKind, Diagnostic> {
    let target = expression(cursor)?;
    let Token::Sign(sign) = cursor.peek() else { return Ok(StatementKind::Expr(target)) };
    let operator = match sign.strip_suffix('=') {
        Some("") => None,
        Some(operator) => {
            let found = Binary::ALL.iter().find(|(each, sign, _)| *sign == operator && each.assigns());
            match found {
                Some((operator, ..)) => Some(*operator),
                None => return Ok(StatementKind::Expr(target)),
            }
        }
        None => return Ok(StatementKind::Expr(target)),
    };
    if !matches!(target.kind, ExprKind::Local(_) | ExprKind::Map(..))
        && !is_of_thread(&target)
        && !is_of_memory(&target)
    {
        let help = match target.kind {
            ExprKind::Name(_) => "a scratch variable begins with `$`, a map with `@`",
            _ => "scratch variables and maps can; with `--unsafe`, registers, arguments, `retval` and memory",
        };
        return Err(Diagnostic::error(target.span(), "this cannot be assigned to")
            .label("expected a variable or a map")
            .help(help));
    }
    cursor.next();
    Ok(StatementKind::Assign { target, operator, value: expression(cursor)? })
}

/// Whether an expression is a register, an argument or a result, which `--unsafe` allows to set.
pub(crate) fn is_of_thread(target: &Expr) -> bool {
    match &target.kind {
        ExprKind::Name(name) => name == "retval" || library::argument(name).is_some(),
        ExprKind::Call(name, _) => name == "reg",
        _ => false,
    }
}

/// Whether an expression may be memory of the program, which `--unsafe` allows to set.
pub(crate) fn is_of_memory(target: &Expr) -> bool {
    matches!(target.kind, ExprKind::Unary(Unary::Dereference, _) | ExprKind::Field(..) | ExprKind::Index(..))
}

fn in_parentheses(cursor: &mut Cursor<'_>) -> Result<Expr, Diagnostic> {
    cursor.expect("(")?;
    let value = expression(cursor)?;
    cursor.expect(")")?;
    Ok(value)
}

fn condition(cursor: &mut Cursor<'_>) -> Result<StatementKind, Diagnostic> {
    let mut arms = Vec::new();
    loop {
        cursor.next();
        let start = cursor.span();
        let at_once = cursor.take_word("comptime");
        // As in bpftrace, the parentheses may be left out.
        let test = expression(cursor)?;
        let test = match at_once {
            true => cursor.build(start, ExprKind::Call("comptime".to_owned(), vec![test]))?,
            false => test,
        };
        arms.push((test, block(cursor, false)?));
        if !cursor.take_word("else") {
            return Ok(StatementKind::If { arms, otherwise: None });
        }
        if !cursor.peek().is_word("if") {
            return Ok(StatementKind::If { arms, otherwise: Some(block(cursor, false)?) });
        }
    }
}

fn declaration(cursor: &mut Cursor<'_>) -> Result<StatementKind, Diagnostic> {
    cursor.next();
    let name = match cursor.peek() {
        Token::Local(name) => Local { name: name.to_string(), usage: 0 },
        Token::Map(_) => {
            return Err(cursor
                .unexpected("maps are declared outside of probes")
                .help("a map needs no declaration; `let @name = hash(100);` stands before the probes"));
        }
        _ => return Err(cursor.unexpected("expected a scratch variable, such as `$x`")),
    };
    cursor.next();
    let declared = if cursor.take(":") { Some(typename::whole(cursor)?) } else { None };
    let value = if cursor.take("=") { Some(expression(cursor)?) } else { None };
    Ok(StatementKind::Let { name, declared, value })
}

fn for_loop(cursor: &mut Cursor<'_>) -> Result<StatementKind, Diagnostic> {
    cursor.next();
    let parentheses = cursor.take("(");
    let Token::Local(name) = cursor.peek() else {
        return Err(cursor
            .unexpected("expected a scratch variable, such as `$i`")
            .help("write `for ($i : 0..10) { ... }` or `for ($entry : @map) { ... }`"));
    };
    let name = Local { name: name.to_string(), usage: 0 };
    cursor.next();
    cursor.expect(":")?;
    let from = unary(cursor)?;
    let range = match cursor.take("..") {
        true => Some(unary(cursor)?),
        false => None,
    };
    if parentheses {
        cursor.expect(")")?;
    }
    let body = block(cursor, false)?;
    match (range, from) {
        (Some(to), from) => Ok(StatementKind::ForRange { index: name, from, to, body }),
        (None, Expr { kind: ExprKind::Map(map, None), .. }) => {
            Ok(StatementKind::ForMap { entry: name, map, body })
        }
        (None, from) => Err(Diagnostic::error(from.span(), "a loop cannot go over this")
            .label("expected a map without a key, or a range such as `0..10`")),
    }
}
