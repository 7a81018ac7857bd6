//! Measures how long reading an image takes; run by hand: `cargo test --release -p dprobes-process
//! --test all -- --ignored --nocapture speed`. Files come from DPROBES_COMPARE, separated by
//! colons; the C library by default.

use crate::common;
use std::path::Path;
use std::time::Instant;

use dprobes_process::{ImageCache, modules};
use image::Image;

#[test]
#[ignore = "measures, does not judge"]
fn reading() {
    let default = common::libc().display().to_string();
    let files = std::env::var("DPROBES_COMPARE").unwrap_or(default);
    for file in files.split(':') {
        let started = Instant::now();
        let image = Image::open(Path::new(file)).unwrap();
        let opened = started.elapsed();
        let functions = image.functions().len();
        let symbols = started.elapsed() - opened;
        let somewhere = image.functions().get(functions / 2).map_or(image.entry(), |function| function.vaddr);
        let before = Instant::now();
        let _ = image.check_boundary(somewhere);
        let first = before.elapsed();
        let before = Instant::now();
        let places: Vec<_> = image.functions().iter().step_by(10).take(10_000).collect();
        let sound = places.iter().filter(|function| image.check_boundary(function.vaddr).is_ok()).count();
        let each = before.elapsed() / places.len().max(1) as u32;
        let before = Instant::now();
        let _ = image.lookup("a::name::nobody(has)");
        let miss = before.elapsed();
        let before = Instant::now();
        let _ = image.nearest_names("mallco");
        let nearest = before.elapsed();
        println!(
            "{file}: {functions} functions; open {opened:.1?}, symbols {symbols:.1?}, first boundary {first:.1?}, \
             each further function {each:.1?} ({sound} of {} sound), unknown C++ name {miss:.1?}, nearest names {nearest:.1?}",
            places.len()
        );
    }
    let started = Instant::now();
    let mut cache = ImageCache::new();
    let found = modules(std::process::id() as i32, &mut cache).unwrap().len();
    let cold = started.elapsed();
    let started = Instant::now();
    modules(std::process::id() as i32, &mut cache).unwrap();
    println!("{found} modules of this process: {cold:.1?}, again {:.1?}", started.elapsed());
}
