// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * Drives the native form of the firmware with random bytes: valid and invalid
 * tables, states and calls. A sanitizer checks memory and arithmetic; this
 * program checks what must hold of every answer.
 *
 *     cc -fsanitize=address,undefined native.c native_test.c -o native_test
 *     ./native_test SEED ROUNDS
 *
 * Exits with 0; with 1 and a line on stderr if an answer is wrong; with 2 for
 * wrong usage. omnes-firmware's test `sanitized` builds and runs it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"
#include "tag.h"

#define CALLS 200

static u64 chance;

static u64 draw(void)
{
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return chance;
}

/* A number below `limit`, or occasionally any number, or one near the limit. */
static u32 near(u32 limit)
{
	switch (draw() % 16) {
	case 0:
		return (u32)draw();
	case 1:
		return limit + (u32)(draw() % 3) - 1;
	case 2:
		return 0xfffffffdu + (u32)(draw() % 3);
	default:
		return limit ? (u32)(draw() % limit) : 0;
	}
}

static void fill(void *bytes, size_t count)
{
	u8 *at = bytes;

	while (count--)
		*at++ = (u8)(draw() >> 24);
}

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "native_test: %s\n", what);
	exit(1);
}

static void table_draw(struct omnes_barrier_table *table)
{
	u32 at;

	fill(table, sizeof(*table));
	if (draw() % 4 == 0)
		return;
	table->size = 1 + near(OMNES_GROUP_MAX);
	table->own = near(table->size);
	table->steps = near(OMNES_STEPS_MAX + 1);
	for (at = 0; at < OMNES_STEPS_MAX; at++) {
		table->step[at].send_to = near(table->size);
		table->step[at].receive_from = near(table->size);
	}
	if (draw() % 2)
		table->waits_for_all = 0;
}

/* Bits for a member with such a table, or too few for it, with no memory allocated
 * behind them. */
static struct omnes_arrived arrived_draw(const struct omnes_barrier_table *table)
{
	struct omnes_arrived arrived;

	arrived.bit_words = 1 + (u32)(draw() % 3);
	if (draw() % 4 && table->size <= OMNES_GROUP_MAX)
		arrived.bit_words = table->size / 64 + (table->size % 64 || !table->size);
	arrived.bits = calloc(2 * arrived.bit_words, sizeof(u64));
	arrived.carried = NULL;
	if (draw() % 4)
		arrived.carried =
			calloc(2 * OMNES_COMBINING_MEMBERS_MAX * OMNES_CARRIED_MAX, sizeof(u64));
	check(arrived.bits != NULL, "no memory");
	return arrived;
}

/* Calls a member at random, from its first state or from any. */
static void barrier_drive(void)
{
	struct omnes_barrier_table table;
	struct omnes_arrived arrived;
	struct omnes_barrier barrier, before;
	struct omnes_barrier_action action;
	struct omnes_contribution own;
	struct omnes_words carried, made;
	u32 call, epoch, step, member;
	int verdict;

	table_draw(&table);
	arrived = arrived_draw(&table);
	memset(&barrier, 0, sizeof(barrier));
	if (draw() % 2) {
		fill(&barrier, sizeof(barrier));
		fill(arrived.bits, 2 * arrived.bit_words * sizeof(u64));
	}
	for (call = 0; call < CALLS; call++) {
		epoch = barrier.done + (u32)(draw() % 4);
		if (draw() % 16 == 0)
			epoch = (u32)draw();
		step = near(table.steps);
		member = near(table.size);
		if (draw() % 2 && step < OMNES_STEPS_MAX)
			member = table.step[step].receive_from;
		before = barrier;
		fill(&action, sizeof(action));
		fill(&own, sizeof(own));
		own.combine = near(OMNES_COMBINE_KNOWN + 1);
		fill(&carried, sizeof(carried));
		if (draw() % 4)
			own.words.more = carried.more = near(OMNES_CARRIED_MAX);
		memset(&made, 0, sizeof(made));
		omnes_native_barrier_words(&barrier, &table, arrived.carried, epoch, step, &made);
		check(made.more < OMNES_CARRIED_MAX, "more words than there are");
		switch (draw() % 4) {
		case 0:
			verdict = omnes_native_barrier_enter(&barrier, &arrived, &table, epoch,
							     &own, &action);
			break;
		case 1:
			verdict = omnes_native_barrier_repeat(&barrier, &table, epoch, step,
							      member);
			check(!memcmp(&before, &barrier, sizeof(barrier)), "repeat has written");
			check(verdict >= OMNES_TAKEN && verdict <= OMNES_NONSENSE, "no verdict");
			continue;
		default:
			verdict = omnes_native_barrier_arrive(&barrier, &arrived, &table, epoch,
							      step, member, &carried, &action);
		}
		check(verdict >= OMNES_TAKEN && verdict <= OMNES_NONSENSE, "no verdict");
		check(!(action.sends & ~table.sends), "sends what no step sends");
		check(action.epoch == epoch, "acts in another barrier");
		check(action.is_done <= 1, "neither done nor not");
		if (verdict != OMNES_TAKEN) {
			check(!action.sends && !action.is_done, "acts though refused");
			check(before.done == barrier.done && before.entered == barrier.entered &&
				      before.at == barrier.at, "moved though refused");
		}
		check(!action.is_done || barrier.done == epoch, "done, but not this barrier");
	}
	free(arrived.bits);
	free(arrived.carried);
}

/* The longest possible table, with messages in any order: each step sends once, and the
 * barrier ends with the last message. */
static void longest_drive(void)
{
	struct omnes_barrier_table table = { .size = 2, .steps = OMNES_STEPS_MAX };
	struct omnes_barrier barrier = { 0 };
	struct omnes_barrier_action action;
	u64 bits[2] = { 0 };
	struct omnes_arrived arrived = { bits, NULL, 1 };
	struct omnes_contribution own = { 0 };
	struct omnes_words carried = { 0 };
	u64 sent, came = 0;
	u32 step, at;

	table.sends = table.waits = ~0ull;
	for (step = 0; step < OMNES_STEPS_MAX; step++)
		table.step[step].send_to = table.step[step].receive_from = 1;
	omnes_native_barrier_enter(&barrier, &arrived, &table, 1, &own, &action);
	sent = action.sends;
	check(sent == 1, "more than the first step");
	while (came != ~0ull) {
		step = (u32)(draw() % OMNES_STEPS_MAX);
		if (came >> step & 1)
			continue;
		came |= 1ull << step;
		omnes_native_barrier_arrive(&barrier, &arrived, &table, 1, step, 1, &carried,
					    &action);
		check(!(sent & action.sends), "sent twice");
		sent |= action.sends;
		for (at = 0; at < OMNES_STEPS_MAX && came >> at & 1; at++)
			;
		check(sent == (at + 1 >= OMNES_STEPS_MAX ? ~0ull : (2ull << at) - 1),
		      "not the steps whose turn it is");
		check(action.is_done == (came == ~0ull), "done at the wrong time");
	}
}

static void multisend_drive(void)
{
	struct omnes_multisend_table table;
	struct omnes_children run;
	u32 call, place, source, child, parent;

	fill(&table, sizeof(table));
	if (draw() % 4) {
		table.size = 1 + near(OMNES_KERNEL_GROUP_MAX);
		table.own = near(table.size);
	}
	for (call = 0; call < CALLS; call++) {
		source = near(table.size);
		omnes_native_multisend_children(&table, source, &run);
		check(!run.count || (source < table.size && table.size <= OMNES_KERNEL_GROUP_MAX),
		      "children of no group");
		for (place = run.first; place < run.first + run.count && place < run.first + 8;
		     place++) {
			child = omnes_native_multisend_child(&table, source, place);
			check(child < table.size || child == OMNES_NOBODY,
			      "a child beyond the group");
		}
		omnes_native_multisend_child(&table, source, (u32)draw());
		parent = omnes_native_multisend_parent(&table, source);
		check(parent < table.size || parent == OMNES_NOBODY, "a parent beyond the group");
	}
}

static void tag_drive(void)
{
	u32 more = (u32)(draw() % OMNES_CARRIED_MAX);
	u32 covered = OMNES_HEADER_BYTES + 4 + 8 * more;
	u64 words[OMNES_TAGGED_WORDS] = { 0 };
	struct omnes_key key;
	u64 tag;

	fill(&key, sizeof(key));
	fill(words, covered);
	tag = omnes_native_tag(&key, words, more);
	words[draw() % (covered / 8)] ^= 1ull << draw() % 64;
	check(tag != omnes_native_tag(&key, words, more), "a bit does not matter to the tag");
}

static u64 sum_by_processor(u64 a, u64 b)
{
	double x, y;
	u64 bits;

	memcpy(&x, &a, sizeof(x));
	memcpy(&y, &b, sizeof(y));
	x += y;
	memcpy(&bits, &x, sizeof(bits));
	return x != x ? OMNES_F64_NAN : bits;
}

/* Any numbers, and numbers whose exponents are close. */
static void sum_drive(void)
{
	u32 call;
	u64 a, b;

	for (call = 0; call < CALLS; call++) {
		a = draw();
		b = draw();
		if (draw() % 4)
			b = (b & ~OMNES_F64_INFINITY) |
			    ((a + (draw() % 128 << 52) - (64ull << 52)) & OMNES_F64_INFINITY);
		check(omnes_native_sum_f64(a, b) == sum_by_processor(a, b),
		      "a sum is not the processor's");
		check(omnes_native_sum_f64(a, b) == omnes_native_sum_f64(b, a),
		      "a sum has an order");
	}
}

int main(int count, char **words)
{
	unsigned long long rounds;

	if (count != 3) {
		fprintf(stderr, "usage: native_test SEED ROUNDS\n");
		return 2;
	}
	chance = strtoull(words[1], NULL, 10) | 1;
	for (rounds = strtoull(words[2], NULL, 10); rounds; rounds--) {
		barrier_drive();
		longest_drive();
		multisend_drive();
		tag_drive();
		sum_drive();
	}
	return 0;
}
