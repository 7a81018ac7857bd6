//! Any file: the reader of ELF files takes what is sound in it, and names the rest. Everything that an image can be asked for is asked:
//! nothing panics, hangs, or takes more memory than the file explains; what is said to be in the file is in it.
#![no_main]

use std::ops::Range;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use image::Image;

/// Places that are looked at, of a kind.
const PLACES: usize = 40;

fuzz_target!(|data: &[u8]| {
    let Ok(image) = Image::parse(data.to_vec(), Path::new("fuzzed")) else { return };
    names(&image);
    let is_code = |vaddr: u64| image.text(vaddr, 1).is_some();
    let mut places: Vec<u64> = image.functions().iter().take(PLACES).map(|function| function.vaddr).collect();
    for segment in image.segments().iter().take(PLACES) {
        places.extend([segment.vaddr, segment.vaddr.wrapping_add(segment.file_size)]);
    }
    places.extend([image.entry(), 0, u64::MAX]);
    for vaddr in places.into_iter().flat_map(|vaddr| [vaddr.wrapping_sub(1), vaddr, vaddr.wrapping_add(1)]) {
        if image.check_boundary(vaddr).map_err(|misplaced| misplaced.to_string()).is_ok() {
            assert!(is_code(vaddr), "{vaddr:#x} is no code");
        }
        if let Ok(outline) = image.outline(vaddr) {
            assert!(outline.instructions.iter().all(|vaddr| is_code(*vaddr)));
        }
        let _ = (image.entered_inside(vaddr), image.instruction_text(vaddr), image.section_name(vaddr));
        let _ = (image.function_at(vaddr), image.text(vaddr, 16), image.text(vaddr, usize::MAX));
        let _ = (image.offset_of_address(vaddr), image.address_of_offset(vaddr), image.implementations(vaddr));
    }
    flow(&image, &is_code);
    for range in image.restartable_sequences() {
        assert!(range.start < range.end);
    }
    let _: Vec<String> = image.problems().iter().map(ToString::to_string).collect();
});

fn names(image: &Image) {
    let _ = (image.machine(), image.soname(), image.build_id(), image.interpreter(), image.file_id());
    let _ = (image.nearest_names("pick"), image.is_data("pick"));
    for name in ["pick", "pick@@V_2", "ns::f(int)"] {
        let _ = (image.lookup(name), image.select_named(name));
    }
    let _ = image.select_matching(&|name| name.len() % 2 == 0);
    let _ = image.static_probes();
    for function in image.functions().iter().take(PLACES) {
        let _ = (function.full_name(), function.demangled());
    }
    image.has_symbols_of(image).expect("they are its own");
}

/// What is proven of the control flow is within the code, and in order.
fn flow(image: &Image, is_code: &impl Fn(u64) -> bool) {
    let flow = image.control_flow();
    let all: Range<u64> = 0..u64::MAX;
    assert!(flow.instructions(all.clone()).into_iter().all(is_code));
    let padding = flow.padding(all);
    assert!(padding.iter().all(|range| range.start < range.end && is_code(range.start) && is_code(range.end - 1)));
    assert!(flow.tables().iter().all(|(jump, elements)| is_code(*jump) && *elements > 0));
    assert!(flow.unresolved().iter().all(|(jump, _)| is_code(*jump)));
}
