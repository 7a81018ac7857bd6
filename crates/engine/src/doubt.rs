//! Reasons why bytes may not be an instruction of their own.

/// Refuses a place that may be data.
pub(crate) fn check_doubt(image: &image::Image, vaddr: u64) -> Result<(), String> {
    match image.doubt(vaddr) {
        Some(doubt) => Err(format!("{doubt} (`--dont-verify-opcodes` probes it anyway)")),
        None => Ok(()),
    }
}

/// Refuses an instruction with a text relocation: the dynamic linker adds to the bytes it finds
/// there, whenever it gets to it.
pub(crate) fn not_relocated(
    image: &image::Image,
    vaddr: u64,
    displaced: &patch::Displaced,
) -> Result<(), String> {
    if image.is_relocated(vaddr, displaced.length() as u64) {
        return Err(format!(
            "`{}`: the dynamic linker relocates its bytes (a text relocation), and would overwrite the probe",
            displaced.text()
        ));
    }
    Ok(())
}
