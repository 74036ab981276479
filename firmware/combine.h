/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The operations by which a barrier combines two words into one.
 *
 * Words are 64 bits in host order. All operations are commutative; integers
 * wrap around; minimum and maximum compare signed integers. Whoever supplies
 * words of another type maps their bits to the order of signed integers.
 */
#ifndef OMNES_COMBINE_H
#define OMNES_COMBINE_H

#include "sum_f64.h"

enum omnes_combine {
	OMNES_COMBINE_NOTHING = 0, /* a barrier without words */
	OMNES_COMBINE_SUM = 1,
	OMNES_COMBINE_PRODUCT = 2,
	OMNES_COMBINE_MIN = 3,
	OMNES_COMBINE_MAX = 4,
	OMNES_COMBINE_AND = 5,
	OMNES_COMBINE_OR = 6,
	OMNES_COMBINE_XOR = 7,
	OMNES_COMBINE_SUM_F64 = 8, /* the words are IEEE 754 doubles */
	OMNES_COMBINE_KNOWN = 9,   /* the word is already the result */
};

/* omnes_combined returns two words combined into one, or 0 where `combine` combines
 * nothing. */
static __always_inline u64 omnes_combined(u32 combine, u64 a, u64 b)
{
	switch (combine) {
	case OMNES_COMBINE_SUM:
		return a + b;
	case OMNES_COMBINE_PRODUCT:
		return a * b;
	case OMNES_COMBINE_MIN:
		return (s64)a < (s64)b ? a : b;
	case OMNES_COMBINE_MAX:
		return (s64)a > (s64)b ? a : b;
	case OMNES_COMBINE_AND:
		return a & b;
	case OMNES_COMBINE_OR:
		return a | b;
	case OMNES_COMBINE_XOR:
		return a ^ b;
	case OMNES_COMBINE_SUM_F64:
		return omnes_sum_f64(a, b);
	default:
		return 0;
	}
}

#endif
