//! Any text as a script: it is refused with messages that can be shown, or accepted. What parses comes back from its
//! printed form as the same tree; the typed form of an accepted script is accepted and gives itself; it compiles to
//! instructions of the table, or is refused with a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use script::{Parameters, check_text, compile, listing, parse, print};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(script) = parse("input", &text) {
        let printed = print(&script);
        match parse("printed", &printed) {
            Err((messages, sources)) => panic!("{printed}\n{}", messages[0].render(&sources, false)),
            Ok(again) => assert_eq!(again, script, "{printed}"),
        }
    }
    let checked = check_text("input", &text);
    // A few messages: rendering all of hundreds would be most of the time.
    for message in checked.diagnostics.iter().take(4) {
        assert!(!message.render(&checked.sources, false).is_empty());
    }
    if !checked.has_errors() {
        let typed = checked.typed();
        let again = check_text("typed", &typed);
        assert!(!again.has_errors(), "{typed}\n{}", again.render(false));
        assert_eq!(again.typed(), typed);
        match compile(&checked, &Parameters { allow_unsafe: true, ..Parameters::default() }) {
            Ok(compiled) => assert!(!listing(&compiled).contains(" ?\n"), "{typed}"),
            Err(messages) => assert!(!messages.is_empty(), "{typed}"),
        }
    }
});
