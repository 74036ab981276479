//! Sums without floating point: `firmware/sum_f64.h`.

/// The sum of two numbers, as the firmware computes it with integers.
///
/// The result has the bits of `a + b`, except that every NaN has the bits `0x7ff8_0000_0000_0000`:
/// the bits are the same on every machine, and for `sum_f64(b, a)`.
pub fn sum_f64(a: f64, b: f64) -> f64 {
    unsafe extern "C" {
        fn omnes_native_sum_f64(a: u64, b: u64) -> u64;
    }
    // SAFETY: the function takes any bits, and accesses nothing else.
    f64::from_bits(unsafe { omnes_native_sum_f64(a.to_bits(), b.to_bits()) })
}
