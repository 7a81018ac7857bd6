//! What this machine can do.

use bpf::Feature;

use crate::support::permitted;

#[test]
fn what_linux_6_1_promises_is_found() {
    if !permitted("what_linux_6_1_promises_is_found") {
        return;
    }
    let promised = [Feature::RingBuffer, Feature::Loop, Feature::SleepableUprobe];
    for feature in promised {
        assert!(feature.is_available(), "{feature:?}");
    }
    // The kernel that limits links to processes has such links.
    assert!(Feature::UprobeMulti.is_available() || !Feature::UprobeMultiProcess.is_available());
    let found: Vec<Feature> = Feature::ALL.into_iter().filter(|feature| feature.is_available()).collect();
    let again: Vec<Feature> = Feature::ALL.into_iter().filter(|feature| feature.is_available()).collect();
    assert_eq!(found, again);
    println!("{found:?}");
}
