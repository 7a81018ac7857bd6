//! The semaphores of static probes: counters in the data of programs, which skip a probe whose
//! counter is 0.
//!
//! The kernel counts one up in every process where the probe is, also in those that come later, and
//! down again when the probe leaves, however dprobes ends.

use std::collections::BTreeMap;

use image::Image;

/// The counters of a file's static probes, as offsets in it, by the offsets of the probes; with a
/// remark about those that have no place in it. `wanted`: the addresses of the semaphores.
pub(super) fn counters(image: &Image, wanted: &[u64]) -> (BTreeMap<u64, u64>, Option<String>) {
    let mut counters = BTreeMap::new();
    let mut remark = None;
    if wanted.is_empty() {
        return (counters, remark);
    }
    for probe in image.static_probes() {
        let Some(semaphore) = probe.semaphore.filter(|semaphore| wanted.contains(semaphore)) else {
            continue;
        };
        let Some(site) = image.offset_of_address(probe.vaddr) else { continue };
        match image.offset_of_address(semaphore) {
            Some(counter) => drop(counters.insert(site, counter)),
            None => {
                let path = printable::path(image.path());
                remark = Some(format!(
                    "{path}: the semaphore of {}:{} is not in the file's data, and is not counted up: the probe fires only while another tracer has it on",
                    printable::text(&probe.provider),
                    printable::text(&probe.name)
                ));
            }
        }
    }
    (counters, remark)
}
