//! A trace straight into an object store.

use std::fs;
use std::path::Path;
use std::process::Command;

use testing::ObjectStore;
use testing::object_store::NEEDS;

use super::trace;
use crate::support::{Scratch, dprobes, need, run};

/// A conversion to `to`, with these variables and no other that name a store.
fn converting(scratch: &Scratch, to: &str, variables: &[(&str, String)]) -> Command {
    let mut command = dprobes();
    command.args(["convert", "trace.dpt", "--to", "parquet", "--partition", "--host", "db/1", "-o", to]);
    for name in ["ENDPOINT_URL", "ENDPOINT_URL_S3", "SESSION_TOKEN", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"] {
        command.env_remove(format!("AWS_{name}"));
    }
    command.envs(variables.iter().cloned()).current_dir(scratch.path());
    command
}

/// The files below a directory: path and length.
fn files(directory: &Path, below: &str) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("a file")) {
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        match entry.path().is_dir() {
            true => all.extend(files(&entry.path(), &format!("{name}/"))),
            false => all.push(format!("{name} {}", entry.metadata().expect("it is there").len())),
        }
    }
    all.sort();
    all
}

#[test]
fn a_store_of_objects_has_the_files_that_a_directory_has() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    let mut store = need!("convert: s3", ObjectStore::start(), NEEDS);
    let variables = store.variables(&store.key);
    let (status, _, stderr) = run(&mut converting(&scratch, "all", &[]));
    assert!(status.success(), "{stderr}");
    // Twice: the second time replaces the first.
    for _ in 0..2 {
        let (status, _, stderr) = run(&mut converting(&scratch, "s3://traces/a/b", &variables));
        assert!(status.success() && stderr.is_empty(), "{stderr}");
    }
    let told = store.objects();
    let objects = told.iter().map(|line| line.rsplit_once(' ').expect("a digest").0.to_owned());
    assert_eq!(objects.collect::<Vec<_>>(), files(&scratch.path().join("all"), "a/b/"));
    let denied = store.variables(&store.other_key);
    let (status, _, stderr) = run(&mut converting(&scratch, "s3://traces/c", &denied));
    let is_said = stderr.contains("s3://traces/c: host=db%2F1/") && stderr.contains("(AccessDenied");
    assert!(status.code() == Some(1) && is_said, "{stderr}");
    assert_eq!((store.objects(), store.uploads()), (told, vec![]));
}

#[test]
fn what_is_wrong_with_a_store_is_told_before_a_trace_is_read() {
    let scratch = Scratch::new();
    need!("convert", trace(&scratch), "gcc");
    let mut command = dprobes();
    command.args(["convert", "trace.dpt", "--to", "json", "-o", "s3://traces/a"]);
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert!(status.code() == Some(2) && stderr.contains("only --to parquet --partition"), "{stderr}");
    let with = |endpoint: &str| {
        let key = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name, "x".to_owned()));
        [&[("AWS_ENDPOINT_URL", endpoint.to_owned())][..], &key].concat()
    };
    // A port at which nobody listens.
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
    for (to, variables, said) in [
        ("s3://traces", vec![], "AWS_ENDPOINT_URL is not set"),
        ("s3://traces", with("https://localhost"), "there is no TLS here"),
        ("s3://Traces", with("http://localhost"), "no name of a bucket"),
        ("s3:traces", with("http://localhost"), "expected `s3://BUCKET/PREFIX`"),
        ("s3://traces", with(&format!("http://{closed}")), "refused (os error 111), 4 times"),
    ] {
        let (status, _, stderr) = run(&mut converting(&scratch, to, &variables));
        assert!(status.code() == Some(1) && stderr.contains(said), "{to}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
