/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The sum of two binary64 numbers by integer arithmetic: eBPF has no floating
 * point.
 *
 * Source: IEEE 754-2019, 5.4.1 and 6.3, rounding to nearest, ties to even. Bit
 * for bit the result of a processor's addition, with one difference: every NaN
 * is OMNES_F64_NAN, because the NaN that results differs between processors and
 * with the order of the operands. So a + b and b + a have the same bits
 * everywhere.
 *
 * Pure, without a loop and without a branch: masks select what depends on a
 * comparison, so the verifier follows a single path. Words that are compared
 * differ by less than 2^63, so the top bit of their difference shows which is
 * less.
 *
 * Cost: about 160 instructions, 21 ns in the kernel.
 */
#ifndef OMNES_SUM_F64_H
#define OMNES_SUM_F64_H

#include "types.h"

#define OMNES_F64_SIGN 0x8000000000000000ull
#define OMNES_F64_INFINITY 0x7ff0000000000000ull
#define OMNES_F64_NAN 0x7ff8000000000000ull

/*
 * omnes_f64_mask returns all ones if the top bit is set, else 0. The compiler
 * must see neither where the bit comes from nor that the mask has only two
 * values: it would turn them back into comparisons and branches.
 */
static __always_inline u64 omnes_f64_mask(u64 word)
{
	__asm__("" : "+r"(word));
	word = 0 - (word >> 63);
	__asm__("" : "+r"(word));
	return word;
}

/*
 * omnes_f64_choose returns `word` if the mask is 0, else `other`. Not written
 * as `other & mask`: where the verifier sees a constant and such a mask, it
 * follows both of the mask's values, and each such place doubles its work.
 */
static __always_inline u64 omnes_f64_choose(u64 word, u64 other, u64 mask)
{
	return word ^ ((word ^ other) & mask);
}

/* omnes_f64_shift returns the lesser of `count` and 63, for a shift. */
static __always_inline u64 omnes_f64_shift(u64 count)
{
	return (count | omnes_f64_mask(63 - count)) & 63;
}

/*
 * omnes_f64_exponent returns the power of two of a magnitude's last bit,
 * relative to that of the smallest number: subnormals share it with the
 * smallest normal numbers.
 */
static __always_inline u64 omnes_f64_exponent(u64 magnitude)
{
	u64 field = magnitude >> 52;

	return field + omnes_f64_mask(0 - field);
}

/* omnes_leading_zeros counts the zeros above the highest one of `word`, which must not be 0. */
static __always_inline u64 omnes_leading_zeros(u64 word)
{
	word |= word >> 1;
	word |= word >> 2;
	word |= word >> 4;
	word |= word >> 8;
	word |= word >> 16;
	word |= word >> 32;
	word = ~word;
	word -= word >> 1 & 0x5555555555555555ull;
	word = (word & 0x3333333333333333ull) + (word >> 2 & 0x3333333333333333ull);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (word * 0x0101010101010101ull >> 56) & 63;
}

/* omnes_sum_f64 returns the bits of the sum of two numbers, given by their bits. */
static __always_inline u64 omnes_sum_f64(u64 a, u64 b)
{
	u64 swap = (a ^ b) & omnes_f64_mask((a & ~OMNES_F64_SIGN) - (b & ~OMNES_F64_SIGN));
	u64 sign = (a ^ swap) & OMNES_F64_SIGN;
	u64 large = (a ^ swap) & ~OMNES_F64_SIGN;
	u64 small = (b ^ swap) & ~OMNES_F64_SIGN;
	u64 differ = omnes_f64_mask(a ^ b);
	u64 exponent = omnes_f64_exponent(large);
	u64 behind = omnes_f64_exponent(small);
	u64 shift = omnes_f64_shift(exponent - behind);
	u64 sum, lost, is_zero, is_infinite, is_nan;

	/* Significands with their leading one at bit 62: one bit above for the carry,
	 * and ten below that take part in rounding. */
	sum = (large - (exponent << 52)) << 10;
	behind = (small - (behind << 52)) << 10;
	/* The last bit stands for all bits that are shifted out. */
	lost = behind & ((1ull << shift) - 1);
	behind = behind >> shift | (0 - lost) >> 63;
	sum += (behind ^ differ) - differ;
	is_zero = omnes_f64_mask((sum - 1) & ~sum);

	/* Move the leading one to bit 63, or as far as the exponent allows. */
	shift = omnes_leading_zeros(sum | 1ull << 62 >> omnes_f64_shift(exponent) | 1);
	sum <<= shift;
	exponent += 1 - shift;

	/* Round to nearest: up from above the half, and from the half if odd. A carry
	 * propagates into the exponent, as does the leading one. */
	lost = (sum & 0x7ff) + (sum >> 11 & 1) + 0x3ff;
	sum = (exponent << 52) + (sum >> 11) + (lost >> 11);

	/* An exact zero from operands of unlike signs is +0. */
	sum &= ~is_zero;
	sign &= ~(is_zero & differ);
	is_infinite = omnes_f64_mask((OMNES_F64_INFINITY - 1 - sum) |
				     (OMNES_F64_INFINITY - 1 - large));
	sum = omnes_f64_choose(sum, OMNES_F64_INFINITY, is_infinite) | sign;
	is_nan = omnes_f64_mask((OMNES_F64_INFINITY - large) |
				((OMNES_F64_INFINITY - 1 - small) & differ));
	return omnes_f64_choose(sum, OMNES_F64_NAN, is_nan);
}

#endif
