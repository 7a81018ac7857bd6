//! Modules of every kind: position-independent or not, static, stripped, loaded and unloaded while
//! the program runs.

use crate::support::{Run, Scratch, counting, file_offset, need, target, variant};

fn leaf(output: &str, flags: &[&str]) {
    let program = need!("modules", variant("leaf", output, flags), "gcc");
    let outcome =
        Run::new(&counting(&program, ["leaf_work"])).on([program.as_os_str(), "500".as_ref()]).ended_with(7);
    assert_eq!(outcome.stdout, "calls 500 sum 376750\n", "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 500, "{outcome:#?}");
}

#[test]
fn a_position_independent_program() {
    leaf("leaf", &[]);
}

#[test]
fn a_program_at_a_fixed_address() {
    leaf("leaf-fixed", &["-no-pie", "-fno-pie"]);
}

#[test]
fn a_static_program() {
    leaf("leaf-static", &["-static"]);
}

#[test]
fn a_static_position_independent_program() {
    leaf("leaf-static-pie", &["-static-pie"]);
}

#[test]
fn a_stripped_program_by_its_file_offset() {
    let whole = need!("modules", target("leaf"), "gcc");
    let stripped = need!("modules", variant("leaf", "leaf-stripped", &["-s"]), "gcc");
    assert_eq!(file_offset(&stripped, "leaf_work"), None, "it is not stripped");
    let offset = file_offset(&whole, "leaf_work").expect("the whole program has the symbol");
    let read = |path| std::fs::read(path).expect("the program can be read")[offset as usize..][..16].to_vec();
    assert_eq!(read(&whole), read(&stripped), "stripping moved the code");
    let outcome = Run::new(&counting(&stripped, [format!("{offset:#x}")]))
        .on([stripped.as_os_str(), "500".as_ref()])
        .ended_with(7);
    assert_eq!(outcome.stats.hits(1), 500, "{outcome:#?}");
}

#[test]
fn a_module_named_by_its_file_name_and_by_a_symbolic_link() {
    let program = need!("modules", target("leaf"), "gcc");
    let scratch = Scratch::new();
    let link = scratch.path().join("a link");
    std::os::unix::fs::symlink(&program, &link).expect("a link can be made");
    for name in [std::path::Path::new("leaf"), &link] {
        let outcome =
            Run::new(&counting(name, ["leaf_work"])).on([program.as_os_str(), "9".as_ref()]).ended_with(7);
        assert_eq!(outcome.stats.hits(1), 9, "{}: {outcome:#?}", name.display());
    }
}

#[test]
fn a_symbol_with_an_expression_and_an_opcode() {
    let program = need!("modules", target("exact"), "gcc");
    // exact_entry is push %rbp (1 byte), mov %rsp,%rbp (3), lea (%rdi,%rdi,2),%rax (4), then
    // exact_mid.
    for (point, opcode) in [("exact_mid - 0x4", 0x48), ("exact_entry+1", 0x48), ("exact_entry + (2*4)", 0x48)]
    {
        let text = format!(
            "name = \"{}\"\nmodtype = user\nvars = 1\noffset = {point}\nopcode = {opcode:#x}\nminor = 1\ninc lv, 0\nexit\n",
            program.display()
        );
        let outcome = Run::new(&text).on([&program]).ended_with(0);
        assert_eq!(outcome.stats.hits(1), 40_000, "{point}: {outcome:#?}");
    }
}

#[test]
fn a_library_that_comes_and_goes_is_probed_from_its_first_instruction() {
    let program = need!("modules", target("dlopen"), "gcc");
    let library = need!("modules", variant("plugin", "plugin.so", &[]), "gcc");
    let outcome = Run::new(&counting(&library, ["plugin_work"]))
        .on([program.as_os_str(), library.as_os_str()])
        .ended_with(0);
    assert_eq!(outcome.stdout, "calls 45\n", "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 45, "{outcome:#?}");
    assert!(outcome.stderr.contains("plugin.so"), "waiting for it is said: {outcome:#?}");
}
