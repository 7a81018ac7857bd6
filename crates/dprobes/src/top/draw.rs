//! Draws the view of `dprobes top`.

use convert::report::{grouped, rate};
use printable::text as clean;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::keys::HELP;
use super::names::shortened;
use super::view::{Line, Sort, View};

/// Draws the view on the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(heading(view), head);
    match view.help {
        true => frame.render_widget(help(), body),
        false => frame.render_widget(table(view, body.height, body.width), body),
    }
    frame.render_widget(footer(view), foot);
}

/// The keys and what they do.
fn help() -> Paragraph<'static> {
    let line = |(keys, what): &(&'static str, &'static str)| {
        Text::from(vec![bold(format!("  {keys:<16}")), Span::raw(*what)])
    };
    let mut lines = vec![Text::from("")];
    lines.extend(HELP.iter().map(line));
    lines.push(Text::from(""));
    lines.push(Text::from(
        "  Bars are parts of the greatest rate of a row; sums of several functions have none.",
    ));
    Paragraph::new(lines)
}

fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

/// What is probed, the time, and the totals.
fn heading(view: &View) -> Paragraph<'static> {
    let seconds = view.time / 1_000_000;
    let (all, hits, missed, dropped) = view.totals();
    let mut first = vec![bold("dprobes top"), Span::raw(format!("  {}  ", clean(&view.title)))];
    first.push(Span::raw(format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)));
    if view.paused {
        first.push(Span::styled("  PAUSED", Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD)));
    }
    let mut second = vec![
        bold(rate(all)),
        Span::raw(" hits/s  "),
        bold(grouped(hits)),
        Span::raw(" hits  "),
        Span::styled(grouped(missed), lossy(missed)),
        Span::raw(" missed  "),
        Span::styled(grouped(dropped), lossy(dropped)),
        Span::raw(" records dropped"),
    ];
    if !view.note.is_empty() {
        second.push(Span::styled(format!("  {}", clean(&view.note)), Style::new().fg(Color::DarkGray)));
    }
    Paragraph::new(vec![Text::from(first), Text::from(second)])
}

/// The style of a count that should be 0.
fn lossy(count: u64) -> Style {
    match count {
        0 => Style::new(),
        _ => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}

fn footer(view: &View) -> Paragraph<'static> {
    if view.typing {
        return Paragraph::new(Text::from(vec![
            bold("/"),
            Span::raw(clean(&view.filter).into_owned()),
            Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
            Span::raw("  Enter keeps it, Esc drops it"),
        ]));
    }
    let key = |key: &'static str| Span::styled(key, Style::new().add_modifier(Modifier::REVERSED));
    Paragraph::new(Text::from(vec![
        key(" q "),
        Span::raw(" quit  "),
        key(" s "),
        Span::raw(format!(" sort (by {})  ", view.sort.name())),
        key(" / "),
        Span::raw(match view.filter.as_str() {
            "" => " filter  ".to_owned(),
            filter => format!(" filter ({})  ", clean(filter)),
        }),
        key(" p "),
        Span::raw(if view.paused { " go on  " } else { " pause  " }),
        key(" ↑↓ "),
        Span::raw(" move  "),
        key(" h "),
        Span::raw(" help"),
    ]))
}

/// Widths of the columns before the name, by how much room they take. Narrow terminals have no room
/// for all; hits and losses are always there. What is cut last is the name.
const WIDTHS: [[u16; 7]; 5] = [
    [9, 10, 13, 13, 9, 9, 18],
    [9, 10, 13, 13, 9, 9, 9],
    [9, 10, 12, 11, 8, 8, 0],
    [9, 10, 11, 0, 7, 8, 0],
    [9, 0, 11, 0, 7, 8, 0],
];
/// The same where there is no room for losses either; the heading has them.
const NARROWEST: [u16; 7] = [9, 0, 12, 0, 0, 0, 0];

/// Most columns of a name that others make room for.
const NAME: usize = 48;

/// The widths of the columns before the name, and that of the name.
fn widths(view: &View, width: u16) -> ([u16; 7], usize) {
    let longest = view.shown().map(|line| name(line).chars().count()).max().unwrap_or(0);
    let room = |widths: &[u16; 7]| {
        // A blank between two columns.
        let taken = widths.iter().sum::<u16>() + 7;
        usize::from(width.saturating_sub(taken))
    };
    let fits = WIDTHS.iter().find(|widths| room(widths) >= longest.clamp(12, NAME));
    let least = WIDTHS.last().filter(|widths| room(widths) >= 12);
    let widths = fits.or(least).unwrap_or(&NARROWEST);
    (*widths, room(widths).max(12))
}

/// The name of a line. Those of a probe's functions are indented.
fn name(line: &Line) -> String {
    let indent = if line.row.counts.is_some() { "" } else { "  " };
    format!("{indent}{}", clean(&line.row.name))
}

fn table(view: &View, height: u16, width: u16) -> Table<'static> {
    let shown = usize::from(height.saturating_sub(1));
    let (widths, room) = widths(view, width);
    let greatest = view.greatest();
    let rows: Vec<Row<'static>> =
        view.shown().skip(view.top).take(shown).map(|line| row(line, greatest, room)).collect();
    let column = |name: &'static str, sort: Option<Sort>, right: bool| {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let style = if sort == Some(view.sort) { style.fg(Color::Cyan) } else { style };
        let text = Text::styled(name, style);
        Cell::from(if right { text.right_aligned() } else { text })
    };
    let head = Row::new(vec![
        column("hits/s", Some(Sort::Rate), true),
        column("", None, false),
        column("hits", Some(Sort::Hits), true),
        column("logged", None, true),
        column("missed", Some(Sort::Lost), true),
        column("dropped", Some(Sort::Lost), true),
        column("engine", None, false),
        column("probe", Some(Sort::Name), false),
    ]);
    let widths = widths.map(Constraint::Length);
    Table::new(rows, widths.into_iter().chain([Constraint::Min(12)])).header(head)
}

/// How a line's probe fires, or why it does not.
pub(super) fn how(line: &Line) -> String {
    match (line.row.state.as_str(), line.row.tactic.as_str()) {
        ("armed", "") => line.row.engine.clone(),
        ("armed", tactic) => format!("{} {tactic}", line.row.engine),
        (state, _) => state.to_owned(),
    }
}

fn row(line: &Line, greatest: f64, room: usize) -> Row<'static> {
    let right = |text: String, style: Style| Cell::from(Text::styled(text, style).right_aligned());
    let counted = |count: Option<u64>, style: fn(u64) -> Style| match count {
        Some(count) => right(grouped(count), style(count)),
        None => Cell::from(""),
    };
    let plain: fn(u64) -> Style = |_| Style::new();
    let counts = line.row.counts;
    let has_bar = greatest > 0.0 && !line.row.is_sum;
    let eighths = if has_bar { (line.rate / greatest * 80.0).round() as usize } else { 0 };
    let quiet = if line.rate > 0.0 { Style::new() } else { Style::new().fg(Color::DarkGray) };
    Row::new(vec![
        right(rate(line.rate), quiet.add_modifier(Modifier::BOLD)),
        Cell::from(Text::styled(bar(eighths), Style::new().fg(Color::Cyan))),
        right(grouped(line.row.hits), Style::new()),
        counted(counts.map(|counts| counts.logged), plain),
        counted(counts.map(|counts| counts.missed), lossy),
        counted(counts.map(|counts| counts.dropped), lossy),
        Cell::from(Text::styled(how(line), Style::new().fg(Color::DarkGray))),
        Cell::from(shortened(&name(line), room)),
    ])
}

/// A bar with a length in eighths of a character.
fn bar(eighths: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::feed::{Others, Row, Snapshot};
    use super::super::view::Action;
    use super::*;

    fn view() -> View {
        let row = |name: &str, hits, counts| Row {
            name: name.to_owned(),
            hits,
            counts,
            is_sum: name.contains('*'),
            engine: "jump".to_owned(),
            tactic: "punned".to_owned(),
            state: "armed".to_owned(),
        };
        let counts = |logged, missed, dropped| Some(Others { logged, missed, dropped });
        let mut view = View::new("ls -l".to_owned());
        view.take(Snapshot::default());
        view.take(Snapshot {
            time: 61_000_000,
            rows: vec![
                row("a.out:mem*:entry", 1_220_000, counts(1_220_000, 0, 0)),
                row("libc.so.6:memcpy", 1_000_000, None),
                row("a.out:quiet\u{1b}:entry", 0, counts(0, 7, 3)),
            ],
            notes: vec!["2 probes armed".to_owned()],
        });
        view
    }

    fn screen(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("there is room");
        terminal.draw(|frame| draw(frame, view)).expect("it takes everything");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn the_screen_shows_rates_sums_and_keys() {
        let lines = screen(&view(), 110, 8);
        assert_eq!(
            lines,
            [
                "dprobes top  ls -l  0:01:01",
                "20.0 k hits/s  1,220,000 hits  7 missed  3 records dropped  2 probes armed",
                "   hits/s                     hits        logged    missed   dropped engine             probe",
                "   20.0 k                1,220,000     1,220,000         0         0 jump punned        a.out:mem*:entry",
                "   16.4 k ██████████     1,000,000                                   jump punned          libc.so.6:memcpy",
                "        0                        0             0         7         3 jump punned        a.out:quiet\\x1b:entry",
                "",
                " q  quit   s  sort (by hits/s)   /  filter   p  pause   ↑↓  move   h  help",
            ]
        );
        let wide = screen(&view(), 130, 8);
        assert!(wide[3].ends_with("jump punned        a.out:mem*:entry"), "{wide:?}");
        let narrow = screen(&view(), 40, 8);
        assert!(narrow[4].ends_with(" 1,000,000       libc…emcpy"), "{narrow:?}");
    }

    #[test]
    fn the_help_and_the_filter_are_shown() {
        let mut view = view();
        view.wish(Action::Help);
        let lines = screen(&view, 110, 20);
        assert!(lines[3].starts_with("  q  Esc  Ctrl-C  quit"), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("memcpy")), "{lines:?}");
        view.wish(Action::Help);
        view.wish(Action::Filter);
        "MEMC".chars().for_each(|letter| view.wish(Action::Type(letter)));
        let lines = screen(&view, 110, 6);
        assert!(lines[3].ends_with("libc.so.6:memcpy") && lines[4].is_empty(), "{lines:?}");
        assert!(lines[5].starts_with("/MEMC   Enter keeps it"), "{lines:?}");
        view.wish(Action::Accept);
        assert!(screen(&view, 110, 6)[5].contains(" /  filter (MEMC)"));
    }

    #[test]
    fn a_small_screen_shows_what_fits() {
        let mut view = view();
        view.wish(Action::Move(1));
        view.wish(Action::Pause);
        let lines = screen(&view, 60, 5);
        assert!(lines[0].ends_with("PAUSED"), "{lines:?}");
        assert!(lines[3].contains("16.4 k"), "{lines:?}");
        for (width, height) in [(1, 1), (5, 2), (200, 3)] {
            screen(&view, width, height);
        }
    }
}
