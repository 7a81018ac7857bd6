//! Large programs as they are installed, stopped at a function of their library: each of our stacks
//! is gdb's.

use std::path::Path;

use crate::common::have_gdb;
use crate::samples::{Plan, samples};
use testing::{Scratch, find_program, rounds};

/// Samples a program at a function, and then instruction by instruction from there.
fn check(test: &str, program: &Path, arguments: &[&str], from: (&str, &str, u64), hits: u64, steps: u64) {
    for (count, every) in [(hits, 0), (steps, 1)] {
        if count == 0 {
            continue;
        }
        let samples =
            samples(&Plan { program, arguments, start: from.0, from: (from.1, from.2), steps: count, every });
        let (whole, others) = samples.compare(test);
        assert!(whole as u64 * 10 >= count * 9, "{test}: {whole} of {count} stacks, and {others}");
        let depth = samples.list.iter().map(|sample| sample.expected.len()).max().unwrap_or(0);
        assert!(depth >= 8, "{test}: no stack has more than {depth} frames");
    }
}

#[test]
fn python() {
    let test = "unwind: python";
    if !have_gdb(test, &["python3"]) {
        return;
    }
    let python = find_program("python3").expect("just found");
    let text =
        "import json, os\ndef f(n): return json.dumps([f(n - 1), f(n - 1)]) if n else os.getppid()\nf(12)";

    check(test, &python, &["-c", text], ("getppid", "malloc", 500), rounds(200, 2000), rounds(400, 2000));
}

#[test]
fn sqlite() {
    let test = "unwind: sqlite";
    if !have_gdb(test, &["sqlite3"]) {
        return;
    }
    let sqlite = find_program("sqlite3").expect("just found");
    let text = "create table t (a, b); insert into t values (1, 'x'), (2, 'y'); create index i on t (b); \
                with recursive n(x) as (select 1 union all select x + 1 from n where x < 20) \
                insert into t select x, hex(x) from n; select sum(a), group_concat(b) from t group by a % 3;";
    check(test, &sqlite, &[":memory:", text], ("", "malloc", 30), rounds(200, 600), rounds(400, 2000));
}

/// The functions of libcrypto that are written in assembler say with expressions where their frame
/// is, or by registers.
#[test]
fn cryptography() {
    let test = "unwind: cryptography";
    if !have_gdb(test, &["openssl"]) {
        return;
    }
    let openssl = find_program("openssl").expect("just found");
    let scratch = Scratch::new();
    let file = scratch.file("text", &"0123456789abcdef".repeat(400));
    let file = file.to_str().expect("a path of ours");
    for arguments in [
        &["dgst", "-sha256", file][..],
        &["dgst", "-sha512", file],
        &["dgst", "-sha1", file],
        &["dgst", "-md5", file],
        &["enc", "-aes-128-cbc", "-pass", "pass:x", "-pbkdf2", "-in", file],
        &["enc", "-chacha20", "-pass", "pass:x", "-pbkdf2", "-in", file],
        &["genrsa", "512"],
    ] {
        let from = match arguments {
            ["genrsa", ..] => ("", "BN_mod_exp_mont", 0),
            ["enc", ..] => ("", "EVP_EncryptUpdate", 0),
            _ => ("", "EVP_DigestUpdate", 0),
        };
        check(test, &openssl, arguments, from, 0, rounds(700, 3000));
    }
}
