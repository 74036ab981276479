/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The tag of a packet, which covers its receiver, too, and the words that a
 * step may carry behind it.
 */
#ifndef OMNES_TAG_H
#define OMNES_TAG_H

#include "siphash.h"
#include "wire.h"

/* Maximum number of 64-bit words that a tag covers: a header, the receiver's rank, and
 * the words behind the tag. */
#define OMNES_TAGGED_WORDS (OMNES_HEADER_BYTES / 8 + OMNES_FLAG_WORDS_MASK + 1)
#define OMNES_TAGGED_BYTES_MAX (OMNES_HEADER_BYTES + 4 + 8 * OMNES_FLAG_WORDS_MASK)

/*
 * omnes_tag returns the tag of a packet. `words` holds its header in memory
 * order, then the receiver's rank, big-endian, then `more` words, at most
 * OMNES_FLAG_WORDS_MASK, as they stand behind the tag, then zeros:
 * OMNES_TAGGED_WORDS in all or, if `more` is a constant, as many as it needs.
 */
static __always_inline u64 omnes_tag(const struct omnes_key *key, const u64 *words, u32 more)
{
	u32 bytes = OMNES_HEADER_BYTES + 4 + 8 * (more & OMNES_FLAG_WORDS_MASK);

	return omnes_siphash(key, words, bytes, OMNES_TAGGED_BYTES_MAX);
}

#endif
