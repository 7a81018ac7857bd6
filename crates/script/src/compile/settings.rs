//! The settings that have an effect on what is compiled, and on its reader.

use crate::ast::{Item, Script, Setting, SettingValue};
use crate::compiled::{MissingProbes, Settings};

use super::parameters::Parameters;

/// The shortest string that can be asked for.
const LEAST_STRLEN: u64 = 8;

/// The longest string that can be asked for: several must fit into a frame.
const MOST_STRLEN: u64 = 8192;

/// The most entries of a map that can be asked for.
const MOST_KEYS: u64 = 1 << 24;

/// The settings of a script, and over them those from outside, as in bpftrace.
pub(super) fn of(script: &Script, parameters: &Parameters) -> Settings {
    let mut settings = Settings::default();
    for item in &script.items {
        let Item::Config(all) = item else { continue };
        for Setting { name, value, .. } in all {
            set(&mut settings, name, value);
        }
    }
    for (name, value) in &parameters.settings {
        let value = value.parse().map_or_else(|_| SettingValue::Word(value.clone()), SettingValue::Number);
        set(&mut settings, name, &value);
    }
    settings
}

fn set(settings: &mut Settings, name: &str, value: &SettingValue) {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("bpftrace_").unwrap_or(&name);
    let text = || match value {
        SettingValue::Word(word) => word.clone(),
        SettingValue::Number(number) => number.to_string(),
        SettingValue::Text(text) => String::from_utf8_lossy(text).into_owned(),
    };
    let number = |least: u64, most: u64| match value {
        SettingValue::Number(number) => usize::try_from((*number).clamp(least, most)).ok(),
        _ => None,
    };
    let flag = || !matches!(text().as_str(), "false" | "0");
    match name {
        "max_strlen" => {
            settings.max_strlen = number(LEAST_STRLEN, MOST_STRLEN).unwrap_or(settings.max_strlen)
        }
        "max_map_keys" => {
            let keys = number(1, MOST_KEYS).and_then(|keys| u32::try_from(keys).ok());
            settings.max_map_keys = keys.unwrap_or(settings.max_map_keys);
        }
        "max_probes" => settings.max_probes = number(1, u64::MAX).unwrap_or(settings.max_probes),
        "max_cat_bytes" => settings.max_cat_bytes = number(0, u64::MAX).unwrap_or(settings.max_cat_bytes),
        "print_maps_on_exit" => settings.print_maps_on_exit = flag(),
        "show_debug_info" => settings.show_debug_info = flag(),
        "cpp_demangle" => settings.cpp_demangle = flag(),
        "str_trunc_trailer" => settings.trailer = text().as_str().into(),
        "missing_probes" => {
            settings.missing_probes = match text().as_str() {
                "warn" => MissingProbes::Warn,
                "ignore" => MissingProbes::Ignore,
                _ => MissingProbes::Error,
            };
        }
        "stack_mode" => settings.stack_mode = stack_mode(&text()).unwrap_or(0),
        // The others have no effect here.
        _ => {}
    }
}

/// The number of a way to show stacks.
pub(super) fn stack_mode(name: &str) -> Option<u8> {
    let place = ["bpftrace", "perf", "raw", "build_id"].iter().position(|mode| *mode == name)?;
    u8::try_from(place).ok()
}
