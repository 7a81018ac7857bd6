//! Tests that a store of format version 1 is read. The file in `data` is one, of a run of two
//! probes with templates.

use std::io::Cursor;

use dprobes_trace::store::{Item, Reader, VERSION};
use dprobes_trace::template::{StoredTemplates, Template};

const FILE: &[u8] = include_bytes!("../data/version-1.dpt");

#[test]
fn a_store_of_version_1_is_read_to_its_end() {
    assert_eq!((&FILE[8..10], VERSION), (&[1, 0][..], 2));
    let mut reader = Reader::new(Cursor::new(FILE)).expect("it is a store");
    let info = reader.info().clone();
    assert_eq!((info.records, info.complete, info.dropped()), (10, true, 0));
    assert_eq!((info.programs.len(), info.probes.len(), info.sites.len(), info.counts.len()), (1, 2, 2, 2));
    // Version 1 does not name the programs of templates: they apply to all.
    assert!(info.templates.iter().all(|template| template.program.is_none()));
    let kept = StoredTemplates::of(info.templates.iter().map(|stored| {
        let format = stored.format.as_deref();
        let template = Template::compile(stored.major, stored.minor, &stored.description, format);
        (stored.program, template.expect("it is right"))
    }));
    let mut texts = Vec::new();
    while let Some(item) = reader.next().expect("bytes in memory can be read") {
        match item {
            Item::Record(entry) => {
                let template = kept.get(entry.program, entry.record.major, entry.record.minor);
                let mut text = Vec::new();
                template.expect("each has one").format(entry.record, &mut text);
                texts.push(String::from_utf8(text).expect("text"));
            }
            Item::Fact(_) => {}
            Item::Damage(damage) => panic!("{damage}"),
        }
    }
    let expected: Vec<String> =
        (0..5).flat_map(|turn| [format!("size={}", turn * 4096), "name='a text'".to_owned()]).collect();
    assert_eq!(texts, expected);
}
