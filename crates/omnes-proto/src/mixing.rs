//! Numbers that look drawn at random, and are the same wherever they are computed.

/// One of them for each number: the finalizer of MurmurHash3, of numbers from 1 on, since it gives
/// 0 for 0.
pub(crate) fn mixed(number: u32) -> u32 {
    let mut mixed = number.wrapping_add(1);
    mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    mixed ^ mixed >> 16
}
