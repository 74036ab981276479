/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Barriers in the kernel NIC: what becomes of an arriving step, of a request
 * for a missing step, and of the host's first step.
 *
 * The steps that a packet enables leave as clones of it with other bytes; the
 * last one is the packet itself [CB-R3, R7].
 *
 * Over IPv4 steps have no UDP checksum: the tag covers every byte of them. IPv6
 * requires one. Only the kernel knows whether a packet's checksum is complete
 * or still to be summed by a device, so its helper makes one form from the
 * other.
 *
 * State, page and counters of arriving steps change under one lock; a result is
 * computed outside the lock and published under it.
 */
#ifndef OMNES_NIC_BARRIER_H
#define OMNES_NIC_BARRIER_H

#include "nic_packet.h"

/* ---- sending steps ------------------------------------------------------ */

/* What a member sends as one step, besides the words in the scratch memory; it is
 * patched into the static packet. */
struct nic_step {
	u32 epoch;
	u16 step;
	u16 is_to_all;
};

/* nic_lengthen adapts the headers of a static packet to `more` words behind Omnes's
 * header. */
static __always_inline void nic_lengthen(struct nic_frame *frame, int is_v6, u32 more)
{
	u16 bytes = 8 * more;

	frame->udp.len = bpf_htons(bpf_ntohs(frame->udp.len) + bytes);
	if (is_v6) {
		frame->v6.ip.payload_len = bpf_htons(bpf_ntohs(frame->v6.ip.payload_len) + bytes);
		frame->udp.check = nic_fold((u32)frame->udp.check + bpf_htons(bytes));
	} else {
		frame->v4.ip.tot_len = bpf_htons(bpf_ntohs(frame->v4.ip.tot_len) + bytes);
		frame->v4.ip.check = ~nic_fold((u16)~frame->v4.ip.check + bpf_htons(bytes));
	}
}

/* nic_step_store writes a step with `more` words behind its header into `skb`, which
 * already has its length; returns 0 on success. */
static __always_inline int nic_step_store(struct __sk_buff *skb, struct nic_static *step, int is_v6,
					  u32 more)
{
	const u32 udp_bytes =
		offsetof(struct nic_static, behind) - offsetof(struct nic_static, frame.udp);
	u16 pseudo_sum = step->frame.udp.check;
	s64 sum;

	if (more &&
	    nic_behind_store(skb, &step->behind, is_v6 ? STEP_BYTES_V6 : STEP_BYTES_V4, more))
		return -1;
	if (!is_v6)
		return bpf_skb_store_bytes(skb, 0, step->frame.v4.ether.mac_to, STEP_BYTES_V4, 0);
	/* The sum of the pseudo header is right if a device sums the rest. Otherwise
	 * the helper subtracts it, so it is added twice. */
	sum = bpf_csum_diff(0, 0, (__be32 *)&step->frame.udp, udp_bytes, pseudo_sum);
	if (more)
		sum = bpf_csum_diff(0, 0, (__be32 *)&step->behind, sizeof(step->behind), sum);
	return bpf_skb_store_bytes(skb, 0, step->frame.v6.ether.mac_to, STEP_BYTES_V6, 0) ||
	       bpf_l4_csum_replace(skb, OMNES_FRAME_BYTES_V6 - UDP_CHECK_BYTES, 0, (u32)sum,
				   BPF_F_MARK_MANGLED_0);
}

/* nic_step_write makes `skb`, which already has the right length, the message of a
 * step. Returns 0 on success. */
OMNES_VERIFIED_ONCE int nic_step_write(struct __sk_buff *skb, struct omnes_slot *slot,
				       struct omnes_peer *peer, const struct nic_step *step)
{
	struct nic_scratch *scratch = nic_scratch();
	struct omnes_words *words;
	struct nic_head *head;
	u32 to, more, i;

	if (!slot || !peer || !step || !scratch)
		return -1;
	words = &scratch->words;
	head = &scratch->step.head;
	more = words->more & (OMNES_CARRIED_MAX - 1);
	head->magic = bpf_htons(OMNES_MAGIC);
	head->version = OMNES_VERSION;
	head->kind = OMNES_KIND_STEP;
	head->job = slot->job;
	head->communicator = slot->communicator;
	head->channel = slot->channel;
	head->flags = more | (step->is_to_all ? OMNES_FLAG_GROUP : 0);
	head->source = bpf_htons((u16)slot->rank);
	head->seq = bpf_htonl(step->epoch);
	head->word[0] = bpf_htonl(words->word[0] >> 32);
	head->word[1] = bpf_htonl((u32)words->word[0]);
	head->argument = bpf_htonl(step->step);
	to = step->is_to_all ? OMNES_RANK_ALL : peer->rank;
	scratch->step.frame = *(const struct nic_frame *)peer;
	if (more) {
OMNES_UNROLL
		for (i = 0; i < OMNES_CARRIED_MAX - 1; i++)
			scratch->step.behind.word[i] = omnes_be64(words->word[i + 1]);
		nic_lengthen(&scratch->step.frame, slot->is_v6, more);
		head->tag = omnes_be64(
			nic_tag_long(&slot->key, head, to, &scratch->step.behind, more));
	} else {
		head->tag = omnes_be64(nic_tag(&slot->key, head, to));
	}
	return nic_step_store(skb, &scratch->step, slot->is_v6, more);
}

/* nic_mark returns the mark of a packet for a peer: complete, or with an address to
 * resolve. */
static __always_inline u32 nic_mark(const struct omnes_peer *peer, u32 index, int asks)
{
	if (index == OMNES_PEER_GROUP || (peer->is_resolved && !asks))
		return MARK_SENT;
	return MARK_RESOLVE | (index & MARK_PEER);
}

static long nic_word_combine_next(u32 index, void *context)
{
	return omnes_word_fold_next(context, index);
}

/* nic_word_combine combines `word` with the words that the slot's members have sent in its
 * place; see omnes_word_fold. `place` is the word's place in a message, less than
 * OMNES_CARRIED_MAX, plus OMNES_CARRIED_MAX if the epoch is odd. */
OMNES_VERIFIED_ONCE u64 nic_word_combine(u32 slot_number, u32 place, u64 takes, u64 word,
					 u32 combine)
{
	struct nic_state *state = bpf_map_lookup_elem(&nic_states, &slot_number);
	struct omnes_word_fold fold = { .takes = takes, .word = word, .combine = combine };

	if (!state)
		return 0;
	fold.words = omnes_carried_of(state->carried, place / OMNES_CARRIED_MAX) +
		     place % OMNES_CARRIED_MAX;
	bpf_loop(OMNES_COMBINING_MEMBERS_MAX, nic_word_combine_next, &fold, 0);
	return fold.word;
}

/*
 * nic_words_out puts the words of a step that has begun, or of a barrier that
 * is done, into the scratch memory; returns 0 on success. These words do not
 * change until no member can miss them any more, so no lock is needed.
 */
OMNES_VERIFIED_ONCE int nic_words_out(u32 slot_number, u32 epoch, u32 step)
{
	struct nic_state *state = bpf_map_lookup_elem(&nic_states, &slot_number);
	struct omnes_slot *slot = bpf_map_lookup_elem(&nic_slots, &slot_number);
	struct nic_scratch *scratch = nic_scratch();
	struct omnes_word_fold fold;
	u32 which, more;

	if (!state || !slot || !scratch)
		return -1;
	more = state->barrier.own[epoch & 1].words.more & (OMNES_CARRIED_MAX - 1);
	scratch->words.more = more;
	for (which = 0; which < OMNES_CARRIED_MAX; which++) {
		scratch->words.word[which] = 0;
		if (which > more)
			continue;
		fold = omnes_barrier_word(&state->barrier, &slot->barrier, state->carried, epoch,
					  step, which);
		if (fold.takes)
			fold.word = nic_word_combine(slot_number,
						     (epoch & 1) * OMNES_CARRIED_MAX + which,
						     fold.takes, fold.word, fold.combine);
		scratch->words.word[which] = fold.word;
	}
	return 0;
}

/* A run of sends, for loops in which the verifier cannot follow. */
struct nic_run {
	struct __sk_buff *skb;
	struct omnes_slot *slot;
	struct omnes_page *page;
	u64 sends; /* all carry the same words: a member sends up once, and then down */
	u32 slot_number;
	u32 epoch;
	u32 step; /* of a release to all by clones */
	u32 except; /* bit or peer that the caller sends itself */
	u32 sent;
};

static __always_inline void nic_clone_step(struct nic_run *run, u32 number, u32 index,
					   u32 is_to_all)
{
	struct nic_step step = { run->epoch, number, is_to_all };
	struct omnes_peer *peer = nic_peer(run->slot_number, index);
	struct __sk_buff *skb = run->skb;

	if (!peer || nic_step_write(skb, run->slot, peer, &step))
		return;
	skb->mark = nic_mark(peer, index, 0);
	if (bpf_clone_redirect(skb, run->slot->ifindex, 0))
		__sync_fetch_and_add(&run->page->clone_failures, 1);
	else
		run->sent++;
	skb->mark = 0;
}

/* Sends a release to all that goes by clones to one member. */
static long nic_release_one(u32 index, void *context)
{
	struct nic_run *run = context;

	if (index != run->slot->barrier.own && index != run->except)
		nic_clone_step(run, run->step, index, 1);
	return 0;
}

/* Sends one step of a run. */
static long nic_clone_one(u32 number, void *context)
{
	struct nic_run *run = context;
	struct omnes_barrier_table *table = &run->slot->barrier;
	u32 to;

	if (!(run->sends >> (number & 63) & 1) || number == run->except)
		return 0;
	to = table->step[number & (OMNES_STEPS_MAX - 1)].send_to;
	if (to != OMNES_EVERYBODY)
		nic_clone_step(run, number, to, 0);
	else if (table->is_multicast)
		nic_clone_step(run, number, OMNES_PEER_GROUP, 1);
	return 0;
}

/* nic_pick returns the send of an action that the packet at hand will become: the last
 * message to one member, or the release to all. It is the highest bit, found without a
 * branch: the verifier would follow every path to it. */
static __always_inline u32 nic_pick(u64 sends)
{
	return 63 - omnes_leading_zeros(sends);
}

/* nic_last_of_all returns the member to which the packet at hand goes in a release to
 * all by clones. */
static __always_inline u32 nic_last_of_all(const struct omnes_slot *slot)
{
	return slot->barrier.own ? 0 : 1;
}

/*
 * nic_steps_clone sends the steps of an action, whose words are in the scratch
 * memory, as clones: all except step `except`, which the packet at hand will
 * become, or all of them if `except` is OMNES_STEPS_MAX. A release to all by
 * clones leaves out the one message that the packet at hand will become.
 * Returns how many have left.
 */
OMNES_VERIFIED_ONCE u32 nic_steps_clone(struct __sk_buff *skb, u32 slot_number, u64 sends,
					u32 epoch, u32 except)
{
	struct nic_run run = { .skb = skb, .sends = sends, .slot_number = slot_number };
	const struct omnes_barrier_table *table;

	run.slot = bpf_map_lookup_elem(&nic_slots, &run.slot_number);
	run.page = nic_page(slot_number);
	if (!run.slot || !run.page)
		return 0;
	run.epoch = epoch;
	run.step = nic_pick(sends);
	run.except = except;
	if (except >= OMNES_STEPS_MAX || sends & (sends - 1))
		bpf_loop(OMNES_STEPS_MAX, nic_clone_one, &run, 0);
	table = &run.slot->barrier;
	if (table->step[run.step & (OMNES_STEPS_MAX - 1)].send_to == OMNES_EVERYBODY &&
	    !table->is_multicast) {
		run.except = except < OMNES_STEPS_MAX ? nic_last_of_all(run.slot) : OMNES_NOBODY;
		bpf_loop(table->size, nic_release_one, &run, 0);
	}
	return run.sent;
}

/*
 * nic_steps_send sends all steps of an action: all but one as clones, and the
 * packet at hand becomes the last one, which the caller lets go. Returns the
 * mark that the packet needs, or 0 if it has not become a step. `is_made` says
 * that the words are already in the scratch memory.
 */
OMNES_VERIFIED_ONCE u32 nic_steps_send(struct __sk_buff *skb, u32 slot_number, u64 sends, u32 epoch,
				       u32 is_made)
{
	struct omnes_slot *slot = bpf_map_lookup_elem(&nic_slots, &slot_number);
	struct omnes_page *page = nic_page(slot_number);
	u32 picked = nic_pick(sends);
	struct nic_step step = { epoch, picked, 0 };
	struct omnes_peer *peer;
	u32 sent = 0;
	u32 last;

	if (!slot || !page || !sends)
		return 0;
	if (!is_made && nic_words_out(slot_number, epoch, picked))
		return 0;
	last = slot->barrier.step[picked & (OMNES_STEPS_MAX - 1)].send_to;
	if (last == OMNES_EVERYBODY) {
		step.is_to_all = 1;
		last = slot->barrier.is_multicast ? OMNES_PEER_GROUP : nic_last_of_all(slot);
	}
	if (sends & (sends - 1) || (step.is_to_all && !slot->barrier.is_multicast))
		sent = nic_steps_clone(skb, slot_number, sends, epoch, picked);
	__sync_fetch_and_add(&page->packets_out, sent + 1);
	peer = nic_peer(slot_number, last);
	if (!peer || nic_step_write(skb, slot, peer, &step))
		return 0;
	return nic_mark(peer, last, 0);
}

/* ---- the barrier -------------------------------------------------------- */

/* nic_page_show publishes the progress of the barrier to the process. */
static __always_inline void nic_page_show(struct omnes_page *page, const struct omnes_barrier *now)
{
	page->at = now->at;
	page->entered = now->entered;
}

/* nic_page_done publishes to the process that a barrier is done, and its result, which
 * every message sent from now on carries. If another processor has meanwhile ended the
 * next barrier, which the process may enter as soon as it hears from another member, that
 * processor publishes instead. `done` is written last, by an exchange, which orders it
 * before the read of `is_sleeping`. Returns 1 if the words are in the scratch memory. */
static __always_inline u32 nic_page_done(struct nic_packet *packet, u32 epoch)
{
	struct nic_state *state = bpf_map_lookup_elem(&nic_states, &packet->slot_number);
	struct nic_scratch *scratch = nic_scratch();
	struct omnes_page *page = packet->page;
	u32 i;

	if (!state || !scratch || nic_words_out(packet->slot_number, epoch, OMNES_STEPS_MAX))
		return 0;
	bpf_spin_lock(&state->lock);
	if (state->barrier.done == epoch) {
OMNES_UNROLL
		for (i = 0; i < OMNES_CARRIED_MAX; i++)
			page->results[i] = scratch->words.word[i];
		__sync_lock_test_and_set(&page->done, epoch);
	}
	bpf_spin_unlock(&state->lock);
	return 1;
}

/* nic_arrived_of returns where a state records what has arrived. */
static __always_inline struct omnes_arrived nic_arrived_of(struct nic_state *state)
{
	struct omnes_arrived arrived = {
		.bits = state->arrived,
		.carried = state->carried,
		.bit_words = OMNES_KERNEL_ARRIVED_WORDS,
	};

	return arrived;
}

/* nic_page_begin shows which members arrived before this one entered, if a step waits
 * for everybody. */
static __always_inline void nic_page_begin(struct omnes_page *page,
					   const struct omnes_barrier *now,
					   const struct omnes_arrived *arrived)
{
	const struct omnes_barrier_record *record = &now->record[now->entered & 1];
	const u64 *bits = omnes_arrived_of(arrived, now->entered);
	u32 word;

	if (record->epoch == now->entered) {
		page->arrived_count = record->count;
OMNES_UNROLL
		for (word = 0; word < OMNES_KERNEL_ARRIVED_WORDS; word++)
			page->arrived[word] = bits[word];
	} else {
		page->arrived_count = 0;
		__builtin_memset(page->arrived, 0, sizeof(page->arrived));
	}
}

/* nic_page_count counts an arriving step by its verdict; the caller holds the state's
 * lock. */
static __always_inline void nic_page_count(struct omnes_page *page, enum omnes_verdict verdict)
{
	page->packets_in++;
	if (verdict == OMNES_DUPLICATE)
		page->duplicates++;
	else if (verdict == OMNES_IGNORED)
		page->ignored++;
	else if (verdict == OMNES_NONSENSE)
		page->nonsense++;
}

/* nic_arrive records an arriving step and publishes its effect. */
static __always_inline enum omnes_verdict nic_arrive(struct nic_packet *packet, u32 from,
						     struct omnes_barrier_action *action)
{
	struct nic_state *state = bpf_map_lookup_elem(&nic_states, &packet->slot_number);
	const struct omnes_barrier_table *table = &packet->slot->barrier;
	struct omnes_page *page = packet->page;
	u32 epoch = bpf_ntohl(packet->head.seq);
	u32 number = bpf_ntohl(packet->head.argument);
	const struct omnes_contribution *came = nic_words_in(packet);
	struct omnes_arrived arrived;
	enum omnes_verdict verdict;

	if (!state || !came)
		return OMNES_IGNORED;
	arrived = nic_arrived_of(state);
	bpf_spin_lock(&state->lock);
	verdict = omnes_barrier_arrive(&state->barrier, &arrived, table, epoch, number, from,
				       &came->words, action);
	nic_page_count(page, verdict);
	if (verdict == OMNES_TAKEN) {
		if (table->waits_for_all && state->barrier.entered == epoch) {
			page->arrived[from / 64 & (OMNES_KERNEL_ARRIVED_WORDS - 1)] |=
				1ull << (from & 63);
			page->arrived_count++;
		}
		nic_page_show(page, &state->barrier);
	}
	bpf_spin_unlock(&state->lock);
	return verdict;
}

/* nic_step_wake sends what a step enables as clones, and lets the step itself go on to
 * the host, which sleeps. */
static __noinline void nic_step_wake(struct __sk_buff *skb, struct nic_packet *packet, u64 sends,
				     u32 epoch)
{
	struct nic_scratch *scratch = nic_scratch();
	u32 is_v6, sent;

	if (!packet || !packet->page || !packet->slot)
		return;
	__sync_fetch_and_add(&packet->page->wakes, 1);
	if (!sends || !scratch)
		return;
	/* Clones leave with other headers; afterwards the packet gets its own back. */
	is_v6 = packet->slot->is_v6;
	if (bpf_skb_load_bytes(skb, 0, scratch->frame,
			       is_v6 ? OMNES_FRAME_BYTES_V6 : OMNES_FRAME_BYTES_V4))
		return;
	sent = nic_steps_clone(skb, packet->slot_number, sends, epoch, OMNES_STEPS_MAX);
	__sync_fetch_and_add(&packet->page->packets_out, sent);
	if (is_v6) {
		bpf_skb_store_bytes(skb, 0, scratch->frame, OMNES_FRAME_BYTES_V6, 0);
		bpf_skb_store_bytes(skb, OMNES_FRAME_BYTES_V6, &packet->head, HEAD_BYTES, 0);
	} else {
		bpf_skb_store_bytes(skb, 0, scratch->frame, OMNES_FRAME_BYTES_V4, 0);
		bpf_skb_store_bytes(skb, OMNES_FRAME_BYTES_V4, &packet->head, HEAD_BYTES, 0);
	}
	if (packet->more)
		nic_behind_store(skb, &scratch->behind, is_v6 ? STEP_BYTES_V6 : STEP_BYTES_V4,
				 packet->more);
}

/* A step has arrived from the wire. */
static __always_inline int nic_step_arrived(struct __sk_buff *skb, struct nic_packet *packet,
					    u32 from)
{
	struct omnes_barrier_action action = {};
	u32 is_made = 0;
	u32 mark;

	if (nic_arrive(packet, from, &action) != OMNES_TAKEN)
		return NIC_DROP;
	if (action.is_done)
		is_made = nic_page_done(packet, action.epoch);
	if (action.is_done && *(volatile u32 *)&packet->page->is_sleeping) {
		nic_step_wake(skb, packet, is_made ? action.sends : 0, action.epoch);
		/* Only now: its clones must not have it. */
		skb->tc_index = INDEX_SEEN;
		return NIC_NEXT;
	}
	if (!action.sends)
		return NIC_DROP;
	mark = nic_steps_send(skb, packet->slot_number, action.sends, action.epoch, is_made);
	if (!mark)
		return NIC_DROP;
	skb->mark = mark;
	return bpf_redirect(packet->slot->ifindex, 0);
}

/* A member misses a step of this one: it is sent again if it has been sent. */
static __noinline int nic_step_missed(struct __sk_buff *skb, struct nic_packet *packet, u32 from)
{
	struct nic_state *state = bpf_map_lookup_elem(&nic_states, &packet->slot_number);
	u32 epoch = bpf_ntohl(packet->head.seq);
	u32 number = bpf_ntohl(packet->head.argument);
	struct nic_step step = { .epoch = epoch, .step = number };
	struct nic_scratch *scratch = nic_scratch();
	enum omnes_verdict verdict;
	struct omnes_peer *peer;

	if (!state || !scratch)
		return NIC_NEXT;
	bpf_spin_lock(&state->lock);
	verdict = omnes_barrier_repeat(&state->barrier, &packet->slot->barrier, epoch, number,
				       from);
	nic_page_count(packet->page, verdict);
	bpf_spin_unlock(&state->lock);
	if (verdict != OMNES_TAKEN)
		return NIC_DROP;
	peer = nic_peer(packet->slot_number, from);
	if (!peer || nic_words_out(packet->slot_number, epoch, number))
		return NIC_DROP;
	/* The request carries no words. */
	if (scratch->words.more &&
	    bpf_skb_change_tail(skb, skb->len + 8 * scratch->words.more, 0))
		return NIC_DROP;
	if (nic_step_write(skb, packet->slot, peer, &step))
		return NIC_DROP;
	__sync_fetch_and_add(&packet->page->repeated, 1);
	skb->mark = nic_mark(peer, from, 1);
	return bpf_redirect(packet->slot->ifindex, 0);
}

/* nic_enter begins the barrier of the host's first step and publishes its progress. */
static __always_inline enum omnes_verdict nic_enter(struct nic_packet *packet,
						    struct omnes_barrier_action *action)
{
	struct nic_state *state = bpf_map_lookup_elem(&nic_states, &packet->slot_number);
	u32 epoch = bpf_ntohl(packet->head.seq);
	struct omnes_contribution *own = nic_words_in(packet);
	struct omnes_arrived arrived;
	enum omnes_verdict verdict;

	if (!state || !own)
		return OMNES_IGNORED;
	/* The host's operation; the number of its step is known. */
	own->combine = bpf_ntohl(packet->head.argument) >> OMNES_COMBINE_SHIFT;
	arrived = nic_arrived_of(state);
	bpf_spin_lock(&state->lock);
	verdict = omnes_barrier_enter(&state->barrier, &arrived, &packet->slot->barrier, epoch,
				      own, action);
	if (verdict == OMNES_TAKEN) {
		if (packet->slot->barrier.waits_for_all)
			nic_page_begin(packet->page, &state->barrier, &arrived);
		nic_page_show(packet->page, &state->barrier);
	}
	bpf_spin_unlock(&state->lock);
	return verdict;
}

/* The host sends its first step: it has entered. */
static __always_inline int nic_step_entered(struct __sk_buff *skb, struct nic_packet *packet)
{
	struct omnes_barrier_action action = {};
	u32 is_made = 0;
	u32 mark;

	if (nic_enter(packet, &action) != OMNES_TAKEN)
		return NIC_DROP;
	if (action.is_done)
		is_made = nic_page_done(packet, action.epoch);
	if (!action.sends)
		return NIC_DROP;
	mark = nic_steps_send(skb, packet->slot_number, action.sends, action.epoch, is_made);
	if (!mark)
		return NIC_DROP;
	/* The mark is also for the hook of a lower interface, if there is one. */
	skb->mark = mark;
	if (mark == MARK_SENT)
		return NIC_NEXT;
	/* Once more through this hook, which asks the neighbour table. */
	return bpf_redirect(packet->slot->ifindex, 0);
}

#endif
