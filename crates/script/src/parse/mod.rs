//! The parser: tokens to the tree of a script.
//!
//! An error in a statement ends that statement only, and one in an item that item, so one run
//! reports most mistakes. Depth and height of the tree are limited: a function may walk it by
//! recursion.

mod cursor;
mod definition;
mod expression;
mod item;
mod statement;
mod typename;

use source::Messages;

use crate::ast::Script;
use crate::token::Placed;

use cursor::Cursor;
pub(crate) use statement::{is_of_memory, is_of_thread};
pub(crate) use typename::unknown as unknown_type;

/// Parses the tokens of a script, the last of which is its end.
pub(crate) fn parse(tokens: &[Placed], messages: &mut Messages) -> Script {
    item::script(&mut Cursor::new(tokens, messages))
}
