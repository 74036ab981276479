/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * SipHash-2-4 over whole bytes stored in 64-bit words: the tag of a packet.
 *
 * Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF", 2012. The
 * same function as omnes-wire's tag.rs; a test compares them.
 *
 * Cost: 14 rounds for a header, about 40 ns in the kernel.
 */
#ifndef OMNES_SIPHASH_H
#define OMNES_SIPHASH_H

#include "types.h"

/* A key, as two little-endian words. */
struct omnes_key {
	u64 k0;
	u64 k1;
};
_Static_assert(sizeof(struct omnes_key) == 16, "layout shared with Rust");

#define OMNES_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define OMNES_SIPROUND(v0, v1, v2, v3)                                                             \
	do {                                                                                       \
		v0 += v1;                                                                          \
		v1 = OMNES_ROTL(v1, 13);                                                           \
		v1 ^= v0;                                                                          \
		v0 = OMNES_ROTL(v0, 32);                                                           \
		v2 += v3;                                                                          \
		v3 = OMNES_ROTL(v3, 16);                                                           \
		v3 ^= v2;                                                                          \
		v0 += v3;                                                                          \
		v3 = OMNES_ROTL(v3, 21);                                                           \
		v3 ^= v0;                                                                          \
		v2 += v1;                                                                          \
		v1 = OMNES_ROTL(v1, 17);                                                           \
		v1 ^= v2;                                                                          \
		v2 = OMNES_ROTL(v2, 32);                                                           \
	} while (0)

/*
 * omnes_siphash returns the hash of `bytes` bytes, stored in memory order in
 * the 64-bit words of `words` (on a little-endian machine: the bytes as they
 * are), the rest of the last word being 0. `bytes` is at most `bytes_max`, a
 * constant at most 248, so that the loop has a known length; there are as many
 * words as that needs, and one more if it is a multiple of 8.
 */
static __always_inline u64 omnes_siphash(const struct omnes_key *key, const u64 *words, u32 bytes,
					 u32 bytes_max)
{
	u64 v0 = key->k0 ^ 0x736f6d6570736575ull;
	u64 v1 = key->k1 ^ 0x646f72616e646f6dull;
	u64 v2 = key->k0 ^ 0x6c7967656e657261ull;
	u64 v3 = key->k1 ^ 0x7465646279746573ull;
	u64 last = (u64)bytes << 56;
	u32 i;

	/* Read first: after the loop, the verifier would follow the remaining code once
	 * for each length. */
	if (bytes % 8)
		last |= omnes_le64(words[bytes / 8]);
OMNES_UNROLL
	for (i = 0; i < bytes_max / 8; i++) {
		if (i < bytes / 8) {
			u64 m = omnes_le64(words[i]);

			v3 ^= m;
			OMNES_SIPROUND(v0, v1, v2, v3);
			OMNES_SIPROUND(v0, v1, v2, v3);
			v0 ^= m;
		}
	}
	v3 ^= last;
	OMNES_SIPROUND(v0, v1, v2, v3);
	OMNES_SIPROUND(v0, v1, v2, v3);
	v0 ^= last;
	v2 ^= 0xff;
	OMNES_SIPROUND(v0, v1, v2, v3);
	OMNES_SIPROUND(v0, v1, v2, v3);
	OMNES_SIPROUND(v0, v1, v2, v3);
	OMNES_SIPROUND(v0, v1, v2, v3);
	return v0 ^ v1 ^ v2 ^ v3;
}

#endif
