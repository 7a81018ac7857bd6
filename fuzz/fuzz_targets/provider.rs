//! Descriptions of static probes: nothing panics or takes long; what is read comes back from its printed form; its
//! header has every macro.
#![no_main]

use libfuzzer_sys::fuzz_target;
use provider::{MAX_ARGUMENTS, header, read};

fuzz_target!(|text: &str| {
    let found = read("fuzzed.d", text);
    let said = found.render(false);
    if found.has_errors() {
        assert!(!said.is_empty());
        return;
    }
    let description = found.description;
    let again = read("again.d", &description.to_string());
    assert!(!again.has_errors(), "{}", again.render(false));
    assert_eq!(again.description, description);
    let header = header(&description, text);
    for provider in &description.providers {
        for probe in &provider.probes {
            assert!(probe.arguments.len() <= MAX_ARGUMENTS);
            assert!(header.contains(&format!("#define {}(", provider.macro_name(probe))));
        }
    }
    assert_eq!(header.matches("/*").count(), header.matches("*/").count());
});
