/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The collective protocol's barrier: state in, action out.
 *
 * A group of up to OMNES_GROUP_MAX members runs barriers one after another;
 * each has a number, its epoch. A member walks through a table of steps: a step
 * first sends, then waits [CB-R9..R11]. The only state is one record per
 * barrier, with a bit for each message that has arrived [CB-R4]: messages are
 * named by (epoch, step, sender), carry a few words at most, and can be made
 * again from table and record at any time [CB-R8]. The caller provides the
 * memory of the bits: 64 per record, and more, one per member, only if a step
 * waits for everybody.
 *
 * Guarantees: a barrier is done only after every member has entered it; a
 * duplicate message changes nothing; a message of an epoch that cannot be in
 * progress changes nothing. No member can be more than one barrier ahead of
 * another, so two records are enough [CB-R8].
 *
 * Loss: there are no acknowledgements. A member that misses the message of a
 * step asks the one member that owes it, which sends it again if it has already
 * sent it (omnes_barrier_repeat) [CB-R6].
 *
 * Words: a barrier may reduce words on the way. All members contribute the same
 * number of words, and word i is combined only with the others' word i. A
 * message carries the sender's words combined with those that it has waited
 * for; once the results have arrived, messages carry the results. Words are
 * recomputed from what has arrived whenever a message is made, so they need no
 * memory of their own, and they are the same each time: members combine in the
 * order of their table, not of arrival.
 *
 * Pure functions: no clock, no helper, no packet, and no loop: a member's
 * progress follows from bit masks. The caller ensures that calls on one state
 * do not run concurrently.
 */
#ifndef OMNES_BARRIER_STEP_H
#define OMNES_BARRIER_STEP_H

#include "combine.h"

#define OMNES_STEPS_MAX 64
/* Members of a group whose barriers combine words in a step that waits for
 * everybody. */
#define OMNES_COMBINING_MEMBERS_MAX 64
/* Maximum number of words that a message carries. */
#define OMNES_CARRIED_MAX 4
/* Members of a group that the kernel NIC serves: its maps are sized for this number,
 * and the verifier follows as many bits. */
#define OMNES_KERNEL_GROUP_MAX 1024
#define OMNES_KERNEL_ARRIVED_WORDS (OMNES_KERNEL_GROUP_MAX / 64)
/* Members of a group that this build serves, a power of two. */
#ifdef __bpf__
#define OMNES_GROUP_MAX OMNES_KERNEL_GROUP_MAX
#else
#define OMNES_GROUP_MAX 65536
#endif
#define OMNES_ARRIVED_WORDS (OMNES_GROUP_MAX / 64)
/* Values in place of a member's index: */
#define OMNES_NOBODY 0xffffffffu
#define OMNES_EVERYBODY 0xfffffffeu

/* Members are identified by their index in the group, below its size. */
struct omnes_step {
	u32 send_to;
	u32 receive_from;
};

/*
 * What a member does in each barrier; written once. `steps` is at most
 * OMNES_STEPS_MAX and the same for all members; `own` is below `size`; `size`
 * is at most OMNES_GROUP_MAX. A step that waits for everybody is the only
 * waiting step of its table: it uses the bits of all others. The masks repeat
 * the steps, one bit each.
 */
struct omnes_barrier_table {
	u32 size;
	u32 own;
	u32 steps;
	u32 is_multicast; /* a message to everybody is one packet */
	u64 sends;	  /* steps that send */
	u64 waits;	  /* steps that wait for one member */
	u64 waits_for_all; /* the step that waits for everybody */
	struct omnes_step step[OMNES_STEPS_MAX];
};
_Static_assert(sizeof(struct omnes_barrier_table) == 552, "layout shared with Rust");

/* What has arrived for one barrier, besides the bits. */
struct omnes_barrier_record {
	u32 epoch;
	u32 count; /* messages of the step that waits for everybody */
};

/* The bits: one per step, or one per member if a step waits for everybody. Each of the
 * two records has `bit_words` words of them, at least 1 and at most
 * OMNES_ARRIVED_WORDS; the record of even epochs comes first. `carried` holds the words
 * that messages have carried, in the order of their bits, OMNES_COMBINING_MEMBERS_MAX
 * times OMNES_CARRIED_MAX words per record; null if nothing is combined. */
struct omnes_arrived {
	u64 *bits;
	u64 *carried;
	u32 bit_words;
};

/* What a message carries: always one word, which is 0 if nothing is combined, and
 * `more` others, fewer than OMNES_CARRIED_MAX; the remaining words are 0. */
struct omnes_words {
	u64 word[OMNES_CARRIED_MAX];
	u32 more;
	u32 reserved;
};

/* What a member contributes to a barrier. All members contribute the same number of
 * words and combine them in the same way. */
struct omnes_contribution {
	u32 combine;
	u32 reserved;
	struct omnes_words words;
};

/* All zero initially; the first barrier is epoch 1. Epochs wrap. */
struct omnes_barrier {
	u32 entered; /* newest barrier that this member has entered */
	u32 done;    /* newest barrier that is done: `entered` or the one before */
	u32 at;      /* the waiting step, if `entered` is not done */
	u32 reserved;
	struct omnes_barrier_record record[2]; /* by parity of the epoch */
	struct omnes_contribution own[2];      /* the same */
};
_Static_assert(sizeof(struct omnes_barrier) == 128, "layout shared with Rust");

/* What to do: send the messages of the steps whose bit is set in `sends`. */
struct omnes_barrier_action {
	u64 sends;
	u32 epoch;
	u32 is_done; /* this call has ended the barrier */
};

enum omnes_verdict {
	OMNES_TAKEN = 0,
	OMNES_DUPLICATE = 1, /* has arrived before */
	OMNES_IGNORED = 2,   /* of no use now */
	OMNES_NONSENSE = 3,  /* no correct member sends this */
};

/* omnes_ones_count returns the number of ones at the low end of a word, without a
 * branch: the number of consecutive steps that are ready. */
static __always_inline u32 omnes_ones_count(u64 word)
{
	u64 ones = word & ~(word + 1);

	ones -= ones >> 1 & 0x5555555555555555ull;
	ones = (ones & 0x3333333333333333ull) + (ones >> 2 & 0x3333333333333333ull);
	ones = (ones + (ones >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (u32)(ones * 0x0101010101010101ull >> 56);
}

/* omnes_bits_below returns ones in the `count` low bits, `count` being at most 64. */
static __always_inline u64 omnes_bits_below(u32 count)
{
	return count >= 64 ? ~0ull : (1ull << (count & 63)) - 1;
}

/* omnes_arrived_of returns the bits of an epoch's record. */
static __always_inline u64 *omnes_arrived_of(const struct omnes_arrived *arrived, u32 epoch)
{
	return arrived->bits + (epoch & 1) * arrived->bit_words;
}

/* omnes_carried_of returns the words of an epoch's record. */
static __always_inline u64 *omnes_carried_of(u64 *carried, u32 epoch)
{
	return carried + (epoch & 1) * OMNES_COMBINING_MEMBERS_MAX * OMNES_CARRIED_MAX;
}

/*
 * omnes_barrier_advance passes all steps whose message has arrived, beginning
 * with the waiting one, and adds the sends of the steps that begin. `begun` is
 * the number of steps that had begun before.
 */
static __always_inline void omnes_barrier_advance(struct omnes_barrier *barrier,
						  const struct omnes_arrived *arrived,
						  const struct omnes_barrier_table *table,
						  u32 begun, struct omnes_barrier_action *action)
{
	u32 epoch = barrier->entered;
	const struct omnes_barrier_record *record = &barrier->record[epoch & 1];
	u64 ready = ~(table->waits | table->waits_for_all);
	u32 at;

	if (record->epoch == epoch) {
		ready |= table->waits & *omnes_arrived_of(arrived, epoch);
		if (record->count + 1 >= table->size)
			ready |= table->waits_for_all;
	}
	/* Steps before the waiting one are over. */
	at = omnes_ones_count(ready | omnes_bits_below(barrier->at));
	if (at >= table->steps) {
		at = table->steps;
		barrier->done = epoch;
		action->is_done = 1;
	}
	barrier->at = at;
	action->sends |= table->sends & omnes_bits_below(at + 1) & ~omnes_bits_below(begun);
}

/*
 * omnes_barrier_enter begins barrier `epoch`, the one after the newest that is
 * done. Any other epoch is OMNES_IGNORED, and so is entering twice.
 */
static __always_inline enum omnes_verdict
omnes_barrier_enter(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
		    const struct omnes_barrier_table *table, u32 epoch,
		    const struct omnes_contribution *own, struct omnes_barrier_action *action)
{
	action->sends = 0;
	action->epoch = epoch;
	action->is_done = 0;
	if (barrier->entered != barrier->done || epoch != barrier->done + 1)
		return OMNES_IGNORED;
	barrier->entered = epoch;
	barrier->at = 0;
	barrier->own[epoch & 1] = *own;
	omnes_barrier_advance(barrier, arrived, table, 0, action);
	return OMNES_TAKEN;
}

/*
 * omnes_barrier_arrive records the message of `step` in barrier `epoch`, with
 * the words that it carries, from member `from`, whose identity has been
 * checked. A message with more or fewer words than this member contributes is
 * OMNES_NONSENSE, if that number is known yet.
 */
static __always_inline enum omnes_verdict
omnes_barrier_arrive(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
		     const struct omnes_barrier_table *table, u32 epoch, u32 step, u32 from,
		     const struct omnes_words *carried, struct omnes_barrier_action *action)
{
	u32 ahead = epoch - barrier->done;
	struct omnes_barrier_record *record = &barrier->record[epoch & 1];
	u64 *bits = omnes_arrived_of(arrived, epoch);
	u32 awaited, bit, word, i;
	u64 *place;

	action->sends = 0;
	action->epoch = epoch;
	action->is_done = 0;
	if (step >= table->steps || step >= OMNES_STEPS_MAX || from >= table->size ||
	    from >= OMNES_GROUP_MAX || from == table->own)
		return OMNES_NONSENSE;
	awaited = table->step[step].receive_from;
	if (awaited == OMNES_EVERYBODY)
		bit = from;
	else if (awaited == from)
		bit = step;
	else
		return OMNES_NONSENSE;
	/* The mask shows the verifier what the check above ensures. */
	word = (bit / 64) & (OMNES_ARRIVED_WORDS - 1);
	if (word >= arrived->bit_words)
		return OMNES_NONSENSE;
	/* Only a member that has entered can be one barrier behind another. */
	if (ahead != 1 && (ahead != 2 || barrier->entered == barrier->done))
		return (int)ahead <= 0 ? OMNES_DUPLICATE : OMNES_IGNORED;
	if (barrier->entered == epoch && barrier->own[epoch & 1].words.more != carried->more)
		return OMNES_NONSENSE;

	if (record->epoch != epoch) {
		record->epoch = epoch;
		record->count = 0;
		__builtin_memset(bits, 0, sizeof(*bits) * arrived->bit_words);
	}
	if (bits[word] >> (bit & 63) & 1)
		return OMNES_DUPLICATE;
	bits[word] |= 1ull << (bit & 63);
	if (arrived->carried && bit < OMNES_COMBINING_MEMBERS_MAX) {
		place = omnes_carried_of(arrived->carried, epoch) + bit * OMNES_CARRIED_MAX;
OMNES_UNROLL
		for (i = 0; i < OMNES_CARRIED_MAX; i++)
			place[i] = carried->word[i];
	}
	if (awaited == OMNES_EVERYBODY)
		record->count++;
	if (barrier->entered == epoch)
		omnes_barrier_advance(barrier, arrived, table, barrier->at + 1, action);
	return OMNES_TAKEN;
}

/*
 * omnes_barrier_repeat decides whether the message of `step` in barrier `epoch`
 * is sent again to member `to`, which misses it: OMNES_TAKEN if so,
 * OMNES_IGNORED if it has not been sent yet or no member can miss it any more.
 */
static __always_inline enum omnes_verdict
omnes_barrier_repeat(const struct omnes_barrier *barrier, const struct omnes_barrier_table *table,
		     u32 epoch, u32 step, u32 to)
{
	u32 receiver;

	if (step >= table->steps || step >= OMNES_STEPS_MAX || to >= table->size ||
	    to == table->own)
		return OMNES_NONSENSE;
	receiver = table->step[step].send_to;
	if (receiver != to && receiver != OMNES_EVERYBODY)
		return OMNES_NONSENSE;
	if (epoch == barrier->done)
		return OMNES_TAKEN;
	if (epoch == barrier->entered && barrier->entered != barrier->done && step <= barrier->at)
		return OMNES_TAKEN;
	return OMNES_IGNORED;
}

/* How one word of a message is made: `word`, combined in order with each entry of
 * `words`, one in OMNES_CARRIED_MAX, whose bit is set in `takes`. */
struct omnes_word_fold {
	const u64 *words;
	u64 takes;
	u64 word;
	u32 combine;
	u32 reserved;
};

/*
 * omnes_barrier_word returns how word `which` is made of the message of `step`
 * in barrier `epoch`, a message that has been sent or is about to be; with
 * `step` OMNES_STEPS_MAX, for a barrier that is done, word `which` of the
 * result. The inputs do not change until no member can miss the message any
 * more.
 *
 * In the second half of a table that combines, messages carry the result.
 */
static __always_inline struct omnes_word_fold
omnes_barrier_word(const struct omnes_barrier *barrier, const struct omnes_barrier_table *table,
		   const u64 *carried, u32 epoch, u32 step, u32 which)
{
	const struct omnes_contribution *own = &barrier->own[epoch & 1];
	u64 over = omnes_bits_below(step);
	u64 waits = over & table->waits;
	u64 results = waits & ~omnes_bits_below(table->steps / 2);
	struct omnes_word_fold fold = { .combine = own->combine };

	which &= OMNES_CARRIED_MAX - 1;
	fold.word = own->words.word[which];

	if (own->combine == OMNES_COMBINE_NOTHING || own->combine == OMNES_COMBINE_KNOWN ||
	    !carried)
		return fold;
	fold.words =
		carried + (epoch & 1) * OMNES_COMBINING_MEMBERS_MAX * OMNES_CARRIED_MAX + which;
	if (results)
		fold.word = fold.words[(omnes_ones_count((results - 1) & ~results) &
					(OMNES_COMBINING_MEMBERS_MAX - 1)) *
				       OMNES_CARRIED_MAX];
	else if (over & table->waits_for_all)
		fold.takes = omnes_bits_below(table->size) & ~(1ull << (table->own & 63));
	else
		fold.takes = waits;
	return fold;
}

/* omnes_word_fold_next combines the word at `index`; returns 1 if no words remain from there on.
 * Call it for each index below OMNES_COMBINING_MEMBERS_MAX. */
static __always_inline int omnes_word_fold_next(struct omnes_word_fold *fold, u32 index)
{
	u32 bit = index & (OMNES_COMBINING_MEMBERS_MAX - 1);
	u64 takes = fold->takes >> bit;

	if (takes & 1)
		fold->word = omnes_combined(fold->combine, fold->word,
					    fold->words[bit * OMNES_CARRIED_MAX]);
	return !takes;
}

#endif
