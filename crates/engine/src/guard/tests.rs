use super::*;

#[test]
fn a_mask_that_took_the_handler_away_once_is_looked_after_for_ever() {
    let mut masks = Masks::default();
    assert!(masks.is_harmless(0) && !masks.is_harmless(7));
    masks.note(7, true);
    assert!(masks.is_harmless(7));
    masks.note(7, false);
    assert!(!masks.is_harmless(7));
    // The handler is installed again and the signal unblocked, until the thread blocks it
    // again.
    masks.note(7, true);
    assert!(!masks.is_harmless(7));
    masks.note(8, true);
    assert!(masks.is_harmless(8) && !masks.is_harmless(7));
}
