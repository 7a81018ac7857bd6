//! The bytes of a small PPDF as a hex dump: makes changes to the format visible.

use std::fmt::Write;

use dprobes_rpn::ppdf::{Places, Ppdf, read, write};
use dprobes_rpn::{ModuleFile, Options, Selection, Site, compile_text};

/// Formats like `hexdump -C`.
fn hex_dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (row, bytes) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' };
        let ascii: String = bytes.iter().map(shown).collect();
        writeln!(text, "{:08x}  {:47}  |{ascii}|", row * 16, hex.join(" ")).expect("a string takes it");
    }
    text
}

#[test]
fn the_bytes_of_a_small_file() {
    let text = "\
name = \"/usr/bin/app\"
modtype = user
vars = 1
groupdef = io
typedef = enter
offset = app_read + 4
opcode = 0x48
group = io
type = enter
    inc lv, 0
    exit
";
    let compiled = compile_text("app.rpn", text, &Options::default()).expect("it compiles");
    let places = Places::of(&compiled.object, &compiled.sources);
    let mut object = compiled.object;
    object.file =
        Some(ModuleFile { path: "/usr/bin/app".into(), build_id: (0xa0..0xb4).collect(), size: 0x4321 });
    let bytes = vec![0x48, 0x89, 0xe5];
    object.probes[0].sites = vec![Site { offset: 0x1144, vaddr: 0x2144, bytes, function: String::new() }];
    let ppdf = Ppdf { object, places };
    let file = write(&ppdf).expect("it is sound");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("ppdf-small", hex_dump(&file));
    });

    let mut found = read(&file).expect("it was just written");
    assert_eq!(found, ppdf);
    let span = found.object.line_at(0).expect("the code has instructions");
    assert_eq!(found.places.locate(span).as_deref(), Some("app.rpn:10:5"));
    let io = Selection { groups: vec!["IO".into()], types: Vec::new() };
    assert_eq!(io.apply(&mut found.object), Ok(0));
}
