//! Files in an object store that others have written, which checks signatures.

use std::io::{self, Write};

use export::s3::{Address, Bucket, Settings, Uploads};
use sha2::{Digest, Sha256};
use testing::object_store::NEEDS;
use testing::{ObjectStore, need};

/// A place in the store, with a key.
fn bucket(store: &ObjectStore, key: &[String; 2], address: &str) -> Bucket {
    let variables = store.variables(key);
    let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
    let settings = Settings::of(|name| find(name).map(|(_, value)| value.clone())).expect("all is there");
    Bucket::new(address.parse::<Address>().expect("an address"), settings)
}

/// Bytes that are the same nowhere.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn write(uploads: &Uploads, path: &str, bytes: &[u8]) -> io::Result<()> {
    let mut upload = uploads.begin(path)?;
    bytes.chunks(700_001).try_for_each(|piece| upload.write_all(piece))
}

#[test]
fn large_and_small_files_are_whole_objects_at_the_end() {
    let mut store = need!("export: s3", ObjectStore::start(), NEEDS);
    let bucket = bucket(&store, &store.key.clone(), "s3://traces/all of them/\u{e9}+%");
    bucket.check().expect("it is there");
    let uploads = Uploads::new(bucket, |text| panic!("{text}"));
    let files = [("host=a%2Fb/1", bytes((9 << 20) + 7)), ("host=a%2Fb/2", bytes(5)), ("3", bytes(8 << 20))];
    files.iter().for_each(|(path, bytes)| write(&uploads, path, bytes).expect("it is taken"));
    assert_eq!(store.objects(), [""; 0]);
    assert_eq!(store.uploads().len(), 2);
    uploads.commit().expect("it is taken");
    let line = |(path, bytes): &(&str, Vec<u8>)| {
        let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("all of them/\u{e9}+%/{path} {} {digest}", bytes.len())
    };
    let mut expected: Vec<String> = files.iter().map(line).collect();
    expected.sort();
    assert_eq!(store.objects(), expected);
    assert_eq!(store.uploads(), [""; 0]);
}

#[test]
fn what_is_not_committed_leaves_nothing() {
    let mut store = need!("export: s3", ObjectStore::start(), NEEDS);
    let uploads = Uploads::new(bucket(&store, &store.key.clone(), "s3://traces"), |text| panic!("{text}"));
    write(&uploads, "a", &bytes(8 << 20)).expect("it is taken");
    assert_eq!(store.uploads(), ["a"]);
    drop(uploads);
    assert_eq!((store.objects(), store.uploads()), (vec![], vec![]));
}

#[test]
fn a_wrong_key_or_bucket_is_told() {
    let mut store = need!("export: s3", ObjectStore::start(), NEEDS);
    let [first, _] = store.key.clone();
    for (key, address, said) in [
        ([first, "wrong".to_owned()], "s3://traces", "AWS_SECRET_ACCESS_KEY are no key of this store"),
        (["unknown".to_owned(), "x".to_owned()], "s3://traces", "(InvalidAccessKeyId"),
        (store.other_key.clone(), "s3://traces", "(AccessDenied"),
        (store.key.clone(), "s3://elsewhere", "there is no bucket `elsewhere`"),
    ] {
        let uploads = Uploads::new(bucket(&store, &key, address), |text| panic!("{text}"));
        write(&uploads, "a/b", &bytes(5)).expect("it waits");
        let error = uploads.commit().expect_err("it is not taken").to_string();
        assert!(error.starts_with("a/b: HTTP status 40") && error.contains(said), "{error}");
    }
    let nowhere = bucket(&store, &store.key.clone(), "s3://elsewhere");
    let error = nowhere.check().expect_err("there is none").to_string();
    assert!(error.contains("there is no bucket `elsewhere`"), "{error}");
    assert_eq!(store.objects(), [""; 0]);
}
