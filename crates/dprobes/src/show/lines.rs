//! Lines for the records of a store.

use std::io::{self, IsTerminal};

use trace::line::LineView;
use trace::store::Info;
use trace::{Text, stored};

use crate::arguments::Shown;

/// A writer that shows records as lines, if they are to be.
pub(super) fn with_lines(text: Text, shown: &Shown, info: &Info) -> Text {
    let Some(items) = shown.line_items() else { return text };
    let mut text = text.with_lines(LineView::new(items, Some(stored::functions(info))));
    text.set_colour(io::stdout().is_terminal() && trace::line::has_colours());
    text
}
