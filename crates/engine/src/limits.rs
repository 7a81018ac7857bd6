//! Whether `ignore` or `maxhits` require that hits of a probe are counted one by one.

/// Whether hits of a probe must be counted one by one, because `ignore` or `maxhits` is set. The
/// greatest `maxhits` means no limit.
pub(crate) fn has_limits(definition: &rpn::Probe) -> bool {
    const UNLIMITED: u64 = 0x7fff_ffff;
    definition.ignore > 0 || definition.maxhits < UNLIMITED
}
