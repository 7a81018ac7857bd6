//! The keys of the screen.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::view::{Action, Sort};

/// The keys, and what the help says about them.
pub(super) const HELP: [(&str, &str); 10] = [
    ("q  Esc  Ctrl-C", "quit"),
    ("/", "show only names with a text: type it, Enter keeps it, Esc drops it"),
    ("s", "sort by the next column"),
    ("R  H  L  N", "sort by hits per second, hits, losses, name"),
    ("I", "turn the order around"),
    ("p  Space", "pause the screen; the probes go on"),
    ("Up  Down  k  j", "move by a row"),
    ("PgUp  PgDn", "move by 20 rows"),
    ("Home  End", "to the first, the last row"),
    ("h  ?", "this help; any key leaves it"),
];

/// What keys are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each key is a command.
    Commands,
    /// The help is shown.
    Help,
    /// A filter is typed.
    Typing,
}

/// The action for a key.
pub(super) fn action(key: KeyEvent, mode: Mode) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match (key.code, mode) {
        (KeyCode::Char('c'), _) if control => Some(Action::Quit),
        (_, Mode::Help) => Some(Action::Help),
        (KeyCode::Enter, Mode::Typing) => Some(Action::Accept),
        (KeyCode::Esc, Mode::Typing) => Some(Action::Cancel),
        (KeyCode::Backspace, Mode::Typing) => Some(Action::Erase),
        (KeyCode::Char('u'), Mode::Typing) if control => Some(Action::Filter),
        (KeyCode::Char(letter), Mode::Typing) if !control => Some(Action::Type(letter)),
        (_, Mode::Typing) => None,
        (code, Mode::Commands) => command(code),
    }
}

fn command(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('R') => Action::SortBy(Sort::Rate),
        KeyCode::Char('H') => Action::SortBy(Sort::Hits),
        KeyCode::Char('L') => Action::SortBy(Sort::Lost),
        KeyCode::Char('N') => Action::SortBy(Sort::Name),
        KeyCode::Char('I') => Action::Reverse,
        KeyCode::Char('p' | ' ') => Action::Pause,
        KeyCode::Char('h' | '?') => Action::Help,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Up | KeyCode::Char('k') => Action::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Move(1),
        KeyCode::PageUp => Action::Move(-20),
        KeyCode::PageDown => Action::Move(20),
        KeyCode::Home => Action::Move(isize::MIN),
        KeyCode::End => Action::Move(isize::MAX),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_means_what_its_mode_says() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let q = key(KeyCode::Char('q'));
        assert_eq!(action(q, Mode::Commands), Some(Action::Quit));
        assert_eq!(action(q, Mode::Typing), Some(Action::Type('q')));
        assert_eq!(action(q, Mode::Help), Some(Action::Help));
        assert_eq!(action(key(KeyCode::Esc), Mode::Typing), Some(Action::Cancel));
        let end = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for mode in [Mode::Commands, Mode::Typing, Mode::Help] {
            assert_eq!(action(end, mode), Some(Action::Quit));
        }
    }

    #[test]
    fn the_help_has_all_keys_that_are_letters() {
        let help: String = HELP.iter().map(|(keys, _)| format!("{keys} ")).collect();
        let has = |letter: char| help.split_whitespace().any(|key| key == letter.to_string());
        for letter in (' '..='~').filter(|letter| *letter != ' ') {
            assert_eq!(command(KeyCode::Char(letter)).is_some(), has(letter), "{letter}");
        }
    }
}
