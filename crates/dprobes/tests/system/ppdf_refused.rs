//! PPDFs that do not fit the module, are damaged, or cannot be built.

use crate::i386::target_32;
use crate::ppdf::{KINDS, Kind, build, build_id, hits, refusal, store};
use crate::support::{
    Run, Scratch, Server, counting, dprobes, file_offset, find_program, need, run, target, text_differences,
    variant,
};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target `store` under the name `prog`, in a directory of its own.
fn placed(scratch: &Scratch, directory: &str, program: &Path) -> PathBuf {
    let directory = scratch.path().join(directory);
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let path = directory.join("prog");
    std::fs::copy(program, &path).expect("a program can be copied");
    path
}

#[test]
fn another_build_of_the_module_is_refused_with_both_build_ids() {
    for kind in KINDS {
        another_build_of_the_module_is_refused_with_both_build_ids_of(kind);
    }
}

fn another_build_of_the_module_is_refused_with_both_build_ids_of(kind: Kind) {
    let program = need!("ppdf", kind.target("store", &[]), "gcc and gcc -m32");
    let changed = need!("ppdf", kind.target("store", &["-DCHANGED"]), "gcc and gcc -m32");
    let none = need!("ppdf", kind.target("store", &["-Wl,--build-id=none"]), "gcc and gcc -m32");
    let scratch = Scratch::new();
    let (ppdf, _) = build(&scratch, &store("prog"), &["--sym".as_ref(), program.as_os_str()]);
    // The same build somewhere else is the same module.
    let same = placed(&scratch, "same", &program);
    let outcome = Run::file(&ppdf).on([same.as_os_str(), "20".as_ref()]).ended_with(3);
    assert_eq!(outcome.stats.hits(3), 40, "{outcome:#?}");

    let changed = placed(&scratch, "changed", &changed);
    let words = |program: &Path, options: &[&str]| {
        let mut words = vec!["run".into(), ppdf.clone().into_os_string()];
        words.extend(options.iter().map(Into::into));
        words.extend(["--".into(), program.into()]);
        words
    };
    // No option overrides this: positions of one build are meaningless in another.
    for options in [&[][..], &["--dont-verify-opcodes"]] {
        let said = refusal(125, words(&changed, options));
        assert!(said.contains(&format!("build-id {} expected", build_id(&program))), "{said}");
        assert!(said.contains(&format!("build-id {} found", build_id(&changed))), "{said}");
        assert!(said.contains("store_open, store_read, store_write, store_close: "), "{said}");
    }
    let said = refusal(125, words(&placed(&scratch, "none", &none), &[]));
    assert!(said.contains(&build_id(&program)) && said.contains("no build-id found"), "{said}");

    // Without a build-id, the size decides.
    let (ppdf, said) = build(&scratch, &store("prog"), &["--sym".as_ref(), none.as_os_str()]);
    assert!(said.contains("no build-id"), "{said}");
    let longer = placed(&scratch, "longer", &none);
    let outcome = Run::file(&ppdf).on([longer.as_os_str(), "20".as_ref()]).ended_with(3);
    assert_eq!(outcome.stats.hits(3), 40, "{outcome:#?}");
    let mut bytes = std::fs::read(&longer).expect("it was copied");
    let size = bytes.len();
    bytes.push(0);
    std::fs::write(&longer, bytes).expect("it can be written");
    let said = refusal(125, [OsStr::new("run"), ppdf.as_os_str(), "--".as_ref(), longer.as_os_str()]);
    assert!(said.contains(&format!("{size} bytes expected, one of {} found", size + 1)), "{said}");
}

#[test]
fn another_build_of_a_running_process_is_refused_before_it_is_touched() {
    for kind in KINDS {
        another_build_of_a_running_process_is_refused_before_it_is_touched_of(kind);
    }
}

fn another_build_of_a_running_process_is_refused_before_it_is_touched_of(kind: Kind) {
    let program = need!("ppdf", kind.target("server", &[]), "gcc and gcc -m32");
    let other = need!("ppdf", kind.target("server", &["-O1", "-Wl,--build-id=sha1"]), "gcc and gcc -m32");
    let scratch = Scratch::new();
    let text = counting(Path::new("server"), ["server_work"]);
    let (ppdf, _) = build(&scratch, &text, &["--sym".as_ref(), other.as_os_str()]);
    // The path as the program names it.
    let server = scratch.path().join("server");
    std::fs::copy(&program, &server).expect("a program can be copied");
    let mut server = Server::start(&server, [] as [&str; 0]);
    server.line();
    let pid = server.pid().to_string();
    let said = refusal(1, [OsStr::new("attach"), "-p".as_ref(), pid.as_ref(), ppdf.as_os_str()]);
    assert!(said.contains(&build_id(&other)) && said.contains(&build_id(&program)), "{said}");
    assert_eq!(text_differences(server.pid()), [""; 0]);
    assert_eq!(server.ask("call 5"), "done 5");
}

#[test]
fn another_build_that_is_loaded_later_is_left_alone_and_told() {
    let program = need!("ppdf", target("dlopen"), "gcc");
    let plugin = need!("ppdf", variant("plugin", "plugin-id.so", &["-Wl,--build-id=sha1"]), "gcc");
    let other = need!("ppdf", variant("plugin", "plugin-other.so", &["-Wl,--build-id=0x0123456789"]), "gcc");
    let scratch = Scratch::new();
    let (ppdf, _) = build(
        &scratch,
        &counting(Path::new("plugin-other.so"), ["plugin_work"]),
        &["--sym".as_ref(), plugin.as_os_str()],
    );
    let outcome = Run::file(&ppdf).on([program.as_os_str(), other.as_os_str()]).ended_with(0);
    assert_eq!(outcome.stdout, "calls 45\n", "{outcome:#?}");
    assert_eq!(
        (outcome.stats.hits(1), outcome.stats.probes[0].state.as_str()),
        (0, "refused"),
        "{outcome:#?}"
    );
    assert!(outcome.stderr.contains(&build_id(&plugin)), "{outcome:#?}");
    assert!(outcome.stderr.contains("build-id 0123456789 found"), "{outcome:#?}");
    let same = scratch.path().join("plugin-other.so");
    std::fs::copy(&plugin, &same).expect("a library can be copied");
    let outcome = Run::file(&ppdf).on([program.as_os_str(), same.as_os_str()]).ended_with(0);
    assert_eq!(outcome.stats.hits(1), 45, "{outcome:#?}");
}

#[test]
fn a_changed_instruction_is_refused_with_both() {
    for kind in KINDS {
        a_changed_instruction_is_refused_with_both_of(kind);
    }
}

fn a_changed_instruction_is_refused_with_both_of(kind: Kind) {
    let program = need!(
        "ppdf",
        kind.target("store", if kind.narrow { &["-no-pie", "-fno-pie"] } else { &[] }),
        "gcc and gcc -m32"
    );
    let scratch = Scratch::new();
    let (ppdf, _) = build(&scratch, &store("prog"), &["--sym".as_ref(), program.as_os_str()]);
    let patched = placed(&scratch, "patched", &program);
    let mut bytes = std::fs::read(&patched).expect("it was copied");
    let place = file_offset(&program, "store_read").expect("it has the symbol") as usize;
    let shown = |bytes: &[u8]| {
        bytes[place..place + 4].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    };
    let before = shown(&bytes);
    // mov state(%rip), %rax, and mov state, %eax: another address, the same length.
    let opcode = if kind.narrow { "a1" } else { "48 8b 05" };
    assert!(before.starts_with(opcode), "the target was compiled to something else: {before}");
    bytes[place + opcode.split(' ').count()] ^= 8;
    std::fs::write(&patched, &bytes).expect("it can be written");
    assert_eq!(build_id(&patched), build_id(&program));
    let words = [OsStr::new("run"), ppdf.as_os_str(), "--".as_ref(), patched.as_os_str()];
    let said = refusal(125, words);
    assert!(said.contains(&format!("the instruction `{before}")), "{said}");
    assert!(said.contains(&format!("expected, `{}", shown(&bytes))), "{said}");
    assert!(said.contains("prog:store_read: ") && !said.contains("store_write"), "{said}");
    // Probes that are not selected do not matter; and the check can be switched off.
    let outcome =
        Run::file(&ppdf).option("--group=life").on([patched.as_os_str(), "20".as_ref()]).ended_with(3);
    assert_eq!(hits(&outcome), [(1, 1), (4, 1)]);
    let outcome = Run::file(&ppdf)
        .option("--dont-verify-opcodes")
        .on([patched.as_os_str(), "20".as_ref()])
        .ended_with(3);
    assert_eq!(outcome.stats.hits(2), 20, "{outcome:#?}");
}

#[test]
fn a_stripped_module_is_probed_by_symbols_from_elsewhere() {
    for kind in KINDS {
        a_stripped_module_is_probed_by_symbols_from_elsewhere_of(kind);
    }
}

fn a_stripped_module_is_probed_by_symbols_from_elsewhere_of(kind: Kind) {
    let program = need!("ppdf", kind.target("store", &[]), "gcc and gcc -m32");
    let strip = need!("ppdf", find_program("strip"), "binutils");
    let scratch = Scratch::new();
    let stripped = placed(&scratch, "stripped", &program);
    let (status, _, stderr) = run(Command::new(strip).arg(&stripped));
    assert!(status.success(), "{stderr}");
    let on = [stripped.as_os_str(), "20".as_ref()];
    // Built with the whole module; applied to the stripped one.
    let (ppdf, _) = build(&scratch, &store("prog"), &["--sym".as_ref(), program.as_os_str()]);
    assert_eq!(Run::file(&ppdf).on(on).ended_with(3).stats.hits(2), 20);
    // The stripped module here, its symbols beside it.
    let text = store(&stripped.to_string_lossy());
    let (ppdf, said) = build(&scratch, &text, &["--sym".as_ref(), program.as_os_str()]);
    assert!(said.contains("stripped/prog"), "{said}");
    assert_eq!(Run::file(&ppdf).on(on).ended_with(3).stats.hits(2), 20);

    let rpn = scratch.file("again.rpn", &text);
    let said = refusal_lines(["build-ppdf".as_ref(), rpn.as_os_str()]);
    assert_eq!(said.lines().filter(|line| line.contains("no symbol `store_")).count(), 4, "{said}");
    let changed = need!("ppdf", kind.target("store", &["-DCHANGED"]), "gcc and gcc -m32");
    let said = refusal(1, ["build-ppdf".as_ref(), rpn.as_os_str(), "--sym".as_ref(), changed.as_os_str()]);
    assert!(said.contains(&build_id(&program)) && said.contains(&build_id(&changed)), "{said}");
}

/// Like [`refusal`], for several lines.
#[track_caller]
fn refusal_lines<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> String {
    let (status, stdout, stderr) = run(dprobes().args(words));
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""), "{stderr}");
    stderr
}

#[test]
fn what_cannot_be_probed_is_refused_when_it_is_built() {
    let program = need!("ppdf", target("store"), "gcc");
    let scratch = Scratch::new();
    let text =
        |point: &str| format!("name = \"{}\"\nmodtype = user\noffset = {point}\nexit\n", program.display());
    let cases = [
        ("store_reed", "no symbol `store_reed`; did you mean `store_read`"),
        ("store_read + 1", "is inside the instruction `"),
        ("store_read\nopcode = 0x90", "opcode 0x90 expected, 0x48 found"),
        ("0x7fffffff", "no code at offset 0x7fffffff"),
    ];
    for (point, expected) in cases {
        let rpn = scratch.file("wrong.rpn", &text(point));
        let said = refusal(1, [OsStr::new("build-ppdf"), rpn.as_os_str()]);
        assert!(said.contains(expected), "{said}");
        assert!(!scratch.path().join("wrong.ppdf").exists(), "nothing is written");
    }
    let rpn = scratch.file("nowhere.rpn", "name = \"libno-such.so.1\"\nmodtype = user\noffset = f\nexit\n");
    let said = refusal(1, [OsStr::new("build-ppdf"), rpn.as_os_str()]);
    assert!(said.contains("`libno-such.so.1` is not found") && said.contains("--sym"), "{said}");
    let rpn = scratch.file("right.rpn", &text("store_read"));
    let words = ["build-ppdf".as_ref(), rpn.as_os_str(), "-o".as_ref(), rpn.as_os_str()];
    assert!(refusal(1, words).contains("would overwrite the program"));
    assert_eq!(std::fs::read_to_string(&rpn).expect("it is there"), text("store_read"));
}

#[test]
fn a_damaged_file_gives_one_error_and_starts_nothing() {
    let program = need!("ppdf", target("store"), "gcc");
    let scratch = Scratch::new();
    let (ppdf, _) = build(&scratch, &store(&program.to_string_lossy()), &[]);
    let whole = std::fs::read(&ppdf).expect("it was built");
    let said_of = |bytes: &[u8]| {
        std::fs::write(&ppdf, bytes).expect("it can be written");
        let said = refusal(125, [OsStr::new("run"), ppdf.as_os_str(), "--".as_ref(), program.as_os_str()]);
        assert!(said.contains("program.ppdf: invalid PPDF: offset 0x"), "{said}");
        assert!(said.contains("expected") && said.contains("found"), "{said}");
        said
    };
    for end in [0, 5, 8, 20, 31, 32, whole.len() / 2, whole.len() - 1] {
        said_of(&whole[..end]);
    }
    for place in [0, 9, 13, 17, 21, 25, 40, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x40;
        said_of(&damaged);
    }
    let checksum = said_of(&[&whole[..whole.len() - 1], &[!whole[whole.len() - 1]]].concat());
    assert!(checksum.contains("the checksum: expected 0x"), "{checksum}");
    let longer = said_of(&[&whole[..], b"\n"].concat());
    assert!(longer.contains(&format!("found {} bytes", whole.len() + 1)), "{longer}");

    std::fs::write(&ppdf, &whole).expect("it can be written");
    let words = ["check".as_ref(), ppdf.as_os_str(), "-D".as_ref(), OsStr::new("A=1")];
    assert!(refusal(1, words).contains("-D and -I are given when it is built"));
    let words = ["build-ppdf".as_ref(), ppdf.as_os_str()];
    assert!(refusal(1, words).contains("is a PPDF already"));
    let (status, stdout, _) = run(dprobes().arg("check").arg(&ppdf));
    assert!(status.success() && stdout.contains("  store_write  offset 0x"), "{stdout}");
    assert!(stdout.contains("  group data  type out\n"), "{stdout}");
    let (status, stdout, _) = run(dprobes().args(["check", "--emit", "asm"]).arg(&ppdf));
    assert!(status.success() && stdout.contains("offset = store_write"), "{stdout}");
}

#[test]
fn a_library_is_looked_for_by_the_machine_that_was_asked_for() {
    let program = need!("ppdf", target_32("leaf", &[]), "gcc -m32");
    let wide = need!("ppdf", target("leaf"), "gcc");
    let scratch = Scratch::new();
    let text = "name = \"libc.so.6\"\nmodtype = user\nvars = 1\noffset = exit\nminor = 1\ninc lv, 0\npush 1\nlog 1\nexit\n";
    let [narrow_ppdf, wide_ppdf] = ["i386", "x86-64"].map(|arch| {
        let scratch = Scratch::new();
        let (ppdf, said) = build(&scratch, text, &["--arch".as_ref(), arch.as_ref()]);
        (ppdf, said, scratch)
    });
    assert_ne!(narrow_ppdf.1, wide_ppdf.1, "both are of one file");
    let outcome = Run::file(&narrow_ppdf.0).on([program.as_os_str(), "3".as_ref()]).ended_with(7);
    assert_eq!(outcome.stats.hits(1), 1, "{outcome:#?}");
    assert!(outcome.records.contains("0x00000000 : 01000000   "), "{outcome:#?}");
    let outcome = Run::file(&wide_ppdf.0).on([wide.as_os_str(), "3".as_ref()]).ended_with(7);
    assert_eq!(outcome.stats.hits(1), 1, "{outcome:#?}");
    // In processes of the other machine it is not inserted, which is reported.
    let outcome = Run::file(&narrow_ppdf.0).on([wide.as_os_str(), "3".as_ref()]).ended_with(7);
    assert_eq!(outcome.stats.hits(1), 0, "{outcome:#?}");
    assert!(outcome.stderr.contains("is 64-bit code and is not probed: "), "{outcome:#?}");
    assert!(outcome.stderr.contains(" was built for i386"), "{outcome:#?}");

    // A file for the other machine is not the module's.
    let rpn = scratch.file("again.rpn", text);
    let words = [
        "build-ppdf".as_ref(),
        rpn.as_os_str(),
        "--arch".as_ref(),
        "i386".as_ref(),
        "--sym".as_ref(),
        wide.as_os_str(),
    ];
    let said = refusal(1, words);
    assert!(said.contains("it is for x86-64, and the program is compiled for i386"), "{said}");
}
