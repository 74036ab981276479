//! Pseudorandom numbers that are the same wherever they are computed.

/// Hash of `number`: the finalizer of MurmurHash3, applied to `number + 1` because it maps 0 to 0.
pub(crate) fn mixed(number: u32) -> u32 {
    let mut mixed = number.wrapping_add(1);
    mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    mixed ^ mixed >> 16
}
