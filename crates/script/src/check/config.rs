//! The settings of a script, as one table.

use source::{Diagnostic, Messages, nearest, quote};

use crate::ast::{Setting, SettingValue};

/// What a setting may be.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Boolean,
    Number,
    Text,
    Words(&'static [&'static str]),
}

/// A setting: its name, its values, and why it has no effect here, if it has none.
type Row = (&'static str, Kind, Option<&'static str>);

const UNSTABLE: Kind = Kind::Words(&["error", "warn", "enable"]);
const VERIFIER: Option<&str> = Some("it is a limit of bpftrace's own code in the kernel");
const SYMBOLS: Option<&str> = Some("dprobes finds symbols in its own way");

/// All settings.
const TABLE: &[Row] = &[
    ("cache_user_symbols", Kind::Words(&["PER_PROGRAM", "PER_PID", "NONE"]), SYMBOLS),
    ("cpp_demangle", Kind::Boolean, None),
    ("lazy_symbolication", Kind::Boolean, SYMBOLS),
    ("license", Kind::Text, Some("dprobes states the licence of its own code")),
    ("log_size", Kind::Number, VERIFIER),
    ("max_bpf_progs", Kind::Number, VERIFIER),
    ("max_cat_bytes", Kind::Number, None),
    ("max_map_keys", Kind::Number, None),
    ("max_probes", Kind::Number, None),
    ("max_strlen", Kind::Number, None),
    ("missing_probes", Kind::Words(&["error", "warn", "ignore"]), None),
    ("on_stack_limit", Kind::Number, VERIFIER),
    ("perf_rb_pages", Kind::Number, VERIFIER),
    ("print_maps_on_exit", Kind::Boolean, None),
    ("show_debug_info", Kind::Boolean, None),
    ("stack_mode", Kind::Words(&["bpftrace", "perf", "raw", "build_id"]), None),
    ("str_trunc_trailer", Kind::Text, None),
    ("unstable_addr", UNSTABLE, None),
    ("unstable_import", UNSTABLE, None),
    ("unstable_map_decl", UNSTABLE, None),
    ("unstable_tseries", UNSTABLE, None),
];

/// Names and values of all settings, for the documentation.
pub(crate) fn markdown() -> String {
    let mut out = String::from("| setting | values | |\n|---|---|---|\n");
    for (name, kind, unused) in TABLE {
        let values = match kind {
            Kind::Boolean => "`true`, `false`".to_string(),
            Kind::Number => "a number".into(),
            Kind::Text => "a string".into(),
            Kind::Words(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        };
        let effect = unused.map_or(String::new(), |why| format!("no effect: {why}"));
        out.push_str(&format!("| `{name}` | {values} | {effect} |\n"));
    }
    out
}

/// Checks a block of settings.
pub(crate) fn check(settings: &[Setting], messages: &mut Messages) {
    for setting in settings {
        // As environment variables they are in capitals and have a prefix.
        let name = setting.name.to_ascii_lowercase();
        let name = name.strip_prefix("bpftrace_").unwrap_or(&name);
        let Some((name, kind, unused)) = TABLE.iter().find(|(each, ..)| *each == name) else {
            let names = TABLE.iter().map(|(name, ..)| *name);
            messages.add(
                Diagnostic::error(setting.at.0, format!("no setting is called {}", quote(&setting.name)))
                    .label("expected a setting")
                    .suggest(nearest(name, names)),
            );
            continue;
        };
        if let Err(expected) = fits(*kind, &setting.value) {
            let message = format!("setting `{name}` cannot have this value");
            messages.add(Diagnostic::error(setting.at.0, message).label(format!("expected {expected}")));
        } else if let Some(why) = unused {
            let message = format!("setting `{name}` has no effect");
            messages.add(Diagnostic::note(setting.at.0, message).label(*why));
        }
    }
}

fn fits(kind: Kind, value: &SettingValue) -> Result<(), String> {
    let fits = match (kind, value) {
        (Kind::Boolean, SettingValue::Number(0 | 1)) => true,
        (Kind::Boolean, SettingValue::Word(word)) => matches!(word.as_str(), "true" | "false"),
        (Kind::Number, SettingValue::Number(_)) | (Kind::Text, SettingValue::Text(_)) => true,
        (Kind::Words(words), SettingValue::Word(word)) => words.contains(&word.as_str()),
        (Kind::Words(words), SettingValue::Text(text)) => words.iter().any(|word| word.as_bytes() == text),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(match kind {
        Kind::Boolean => "`true` or `false`".into(),
        Kind::Number => "a number".into(),
        Kind::Text => "a string".into(),
        Kind::Words(words) => words.join(", "),
    })
}
