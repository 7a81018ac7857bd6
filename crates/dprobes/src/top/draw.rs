//! Draws the view of `dprobes top`.

use convert::report::{grouped, rate};
use printable::text as clean;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::view::{Line, Sort, View};

/// Draws the view on the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(heading(view), head);
    frame.render_widget(table(view, body.height, body.width), body);
    frame.render_widget(footer(view), foot);
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
    let key = |key: &'static str| Span::styled(key, Style::new().add_modifier(Modifier::REVERSED));
    Paragraph::new(Text::from(vec![
        key(" q "),
        Span::raw(" quit  "),
        key(" s "),
        Span::raw(format!(" sort (by {})  ", view.sort.name())),
        key(" p "),
        Span::raw(if view.paused { " go on  " } else { " pause  " }),
        key(" ↑↓ "),
        Span::raw(" move"),
    ]))
}

fn table(view: &View, height: u16, width: u16) -> Table<'static> {
    let shown = usize::from(height.saturating_sub(1));
    let greatest = view.lines.iter().map(|line| line.rate).fold(0.0, f64::max);
    let rows: Vec<Row<'static>> =
        view.lines.iter().skip(view.top).take(shown).map(|line| row(line, greatest)).collect();
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
    // A narrow terminal has no room for bars; a very narrow one shows only hits and losses.
    let widths = match width {
        ..80 => [9, 0, 11, 0, 7, 8, 0],
        80..100 => [9, 0, 12, 11, 8, 8, 9],
        100.. => [9, 10, 13, 13, 9, 9, 18],
    };
    let widths = widths.map(Constraint::Length);
    Table::new(rows, widths.into_iter().chain([Constraint::Min(12)])).header(head)
}

fn row(line: &Line, greatest: f64) -> Row<'static> {
    let right = |text: String, style: Style| Cell::from(Text::styled(text, style).right_aligned());
    let counted = |count: Option<u64>, style: fn(u64) -> Style| match count {
        Some(count) => right(grouped(count), style(count)),
        None => Cell::from(""),
    };
    let plain: fn(u64) -> Style = |_| Style::new();
    let counts = line.row.counts;
    let eighths = if greatest > 0.0 { (line.rate / greatest * 80.0).round() as usize } else { 0 };
    let how = match (line.row.state.as_str(), line.row.tactic.as_str()) {
        ("armed", "") => line.row.engine.clone(),
        ("armed", tactic) => format!("{} {tactic}", line.row.engine),
        (state, _) => state.to_owned(),
    };
    let quiet = if line.rate > 0.0 { Style::new() } else { Style::new().fg(Color::DarkGray) };
    // Indent the functions of a probe.
    let name = if counts.is_some() {
        clean(&line.row.name).into_owned()
    } else {
        format!("  {}", clean(&line.row.name))
    };
    Row::new(vec![
        right(rate(line.rate), quiet.add_modifier(Modifier::BOLD)),
        Cell::from(Text::styled(bar(eighths), Style::new().fg(Color::Cyan))),
        right(grouped(line.row.hits), Style::new()),
        counted(counts.map(|counts| counts.logged), plain),
        counted(counts.map(|counts| counts.missed), lossy),
        counted(counts.map(|counts| counts.dropped), lossy),
        Cell::from(Text::styled(how, Style::new().fg(Color::DarkGray))),
        Cell::from(name),
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
                "   20.0 k ██████████     1,220,000     1,220,000         0         0 jump punned        a.out:mem*:entry",
                "   16.4 k ████████▎      1,000,000                                   jump punned          libc.so.6:memcpy",
                "        0                        0             0         7         3 jump punned        a.out:quiet\\x1b:entry",
                "",
                " q  quit   s  sort (by hits/s)   p  pause   ↑↓  move",
            ]
        );
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
