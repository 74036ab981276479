/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Memory of differ: the same elements, laid out in many ways, among bytes that
 * must not change.
 */
#include "differ.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM_BLOCKS_MAX = 1000, ALIGNMENT = 64 };

/* ---- types for some elements ---- */

static MPI_Datatype backwards(const struct basic *basic, int elements)
{
	int lengths[ITEM_BLOCKS_MAX];
	MPI_Aint places[ITEM_BLOCKS_MAX];
	MPI_Datatype made;

	for (int i = 0; i < elements; i++)
		lengths[i] = 1, places[i] = (MPI_Aint)(elements - 1 - i) * basic->extent;
	MPI_Type_create_hindexed(elements, lengths, places, basic->type, &made);
	return made;
}

static MPI_Datatype swapped(const struct basic *basic, int elements)
{
	int half = elements / 2, rest = elements - half;
	MPI_Datatype row, made;

	MPI_Type_contiguous(rest, basic->type, &row);
	MPI_Type_create_struct(2, (int[]){ half, 1 },
			       (MPI_Aint[]){ (MPI_Aint)(rest + 1) * basic->extent, 0 },
			       (MPI_Datatype[]){ basic->type, row }, &made);
	MPI_Type_free(&row);
	return made;
}

static MPI_Datatype resized(const struct basic *basic, int elements, int lower, int extent)
{
	MPI_Datatype row, made;

	MPI_Type_contiguous(elements, basic->type, &row);
	MPI_Type_create_resized(row, (MPI_Aint)lower * basic->extent,
				(MPI_Aint)extent * basic->extent, &made);
	MPI_Type_free(&row);
	return made;
}

static MPI_Datatype type_make(const struct basic *basic, int elements, enum layout layout)
{
	MPI_Datatype row, made;

	switch (layout) {
	case APART:
		MPI_Type_vector(elements, 1, 2, basic->type, &made);
		return made;
	case BACKWARDS:
		return backwards(basic, elements);
	case SWAPPED:
		return swapped(basic, elements);
	case WIDE:
		return resized(basic, elements, -1, elements + 3);
	case HOLLOW:
		MPI_Type_indexed(3, (int[]){ elements / 3, 0, elements - elements / 3 },
				 (int[]){ 0, 1, elements / 3 + 2 }, basic->type, &made);
		return made;
	case DOWNWARDS:
		return resized(basic, elements, 0, -elements - 1);
	default:
		MPI_Type_contiguous(elements, basic->type, &row);
		if (layout == ROW)
			return row;
		MPI_Type_dup(row, &made);
		MPI_Type_free(&row);
		return made;
	}
}

static void form_measure(struct form *form)
{
	MPI_Aint unused;

	MPI_Type_get_extent(form->type, &unused, &form->extent);
	MPI_Type_get_true_extent(form->type, &form->lower, &form->length);
}

struct form form_plain(const struct basic *basic)
{
	struct form form = { .basic = basic, .elements = 1, .type = basic->type };

	strcpy(form.name, "plain");
	form_measure(&form);
	return form;
}

struct form form_copy(const struct form *form)
{
	struct form copy = *form;

	if (form->type != form->basic->type)
		MPI_Type_dup(form->type, &copy.type);
	return copy;
}

struct form form_draw(const struct basic *basic, int elements, int layouts, uint64_t *generator)
{
	static const char *const NAMES[LAYOUTS] = {
		"row", "copy", "apart", "backwards", "swapped", "wide", "hollow", "downwards",
	};
	struct form form = { .basic = basic, .elements = elements };
	enum layout layout = (enum layout)below(generator, layouts);

	if (layout == BACKWARDS && elements > ITEM_BLOCKS_MAX)
		layout = APART;
	strcpy(form.name, NAMES[layout]);
	form.type = type_make(basic, elements, layout);
	MPI_Type_commit(&form.type);
	form_measure(&form);
	return form;
}

/* ---- memory ---- */

static void *room_make(size_t bytes)
{
	void *room = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);

	if (!room) {
		fprintf(stderr, "differ: no memory for %zu bytes\n", bytes);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return room;
}

/* Determines the memory that items span, relative to the item at place 0. */
static void find_span(const struct memory *memory, MPI_Aint *low, MPI_Aint *high)
{
	const struct form *form = &memory->form;

	*low = *high = 0;
	for (int i = 0; i < memory->runs_count; i++) {
		const struct run *run = &memory->runs[i];
		MPI_Aint first = run->place * form->extent;
		MPI_Aint last = first + (run->count - 1) * form->extent;
		MPI_Aint begin = (first < last ? first : last) + form->lower;
		MPI_Aint end = (first < last ? last : first) + form->lower + form->length;

		if (run->count == 0)
			continue;
		*low = begin < *low ? begin : *low;
		*high = end > *high ? end : *high;
	}
}

/* Unpacks elements to a run of items. */
static void put(const struct memory *memory, unsigned char *room, const struct run *run,
		const unsigned char *packed)
{
	size_t begin = (size_t)((unsigned char *)memory->origin - memory->now);
	int bytes = run->count * memory->form.elements * memory->form.basic->bytes, position = 0;

	if (bytes > 0)
		PMPI_Unpack(packed, bytes, &position,
			    room + begin + run->place * memory->form.extent, run->count,
			    memory->form.type, MPI_COMM_SELF);
}

static int elements_of(const struct memory *memory, const struct run *run)
{
	return run->count * memory->form.elements;
}

void memory_mask(struct memory *memory, int run, int from, unsigned char mask)
{
	const struct run *all = &memory->runs[run];
	struct run some = { all->count - from, all->place + from };
	size_t bytes = (size_t)elements_of(memory, &some) * (size_t)memory->form.basic->bytes;
	unsigned char *packed = room_make(bytes);

	if (mask == 1)
		basic_mask(memory->form.basic, packed, elements_of(memory, &some));
	else
		memset(packed, mask, bytes);
	put(memory, memory->mask, &some, packed);
	free(packed);
}

/* Describes the memory to MPI by absolute addresses. */
static void tell_far(struct memory *memory)
{
	MPI_Aint address;

	MPI_Get_address(memory->origin, &address);
	MPI_Type_create_hindexed(1, (int[]){ 1 }, &address, memory->form.type,
				 &memory->told_type);
	MPI_Type_commit(&memory->told_type);
	memory->told = MPI_BOTTOM;
}

enum where where_draw(uint64_t *generator)
{
	switch (below(generator, 6)) {
	case 0:
		return FAR;
	case 1:
		return ODD;
	default:
		return USUAL;
	}
}

void memory_make(struct memory *memory, const struct form *form, enum where where)
{
	MPI_Aint low, high;

	memory->form = *form;
	find_span(memory, &low, &high);
	/* The item at place 0 is aligned. */
	low = low / ALIGNMENT * ALIGNMENT - ALIGNMENT;
	memory->bytes = (size_t)(high - low) + 2 * GUARD;
	memory->now = room_make(memory->bytes);
	memory->before = room_make(memory->bytes);
	memory->after = room_make(memory->bytes);
	memory->mask = room_make(memory->bytes);
	memory->origin = (char *)memory->now + GUARD - low + (where == ODD);
	memory->told = memory->origin;
	memory->told_type = form->type;
	for (size_t i = 0; i < memory->bytes; i++)
		memory->now[i] = (unsigned char)(i * 7 + 0xa5);
	memset(memory->mask, 0, memory->bytes);
	for (int run = 0; run < memory->runs_count; run++)
		memory_mask(memory, run, 0, 1);
	if (where == FAR)
		tell_far(memory);
}

void memory_fill(struct memory *memory, enum values values, uint64_t *generator)
{
	for (int i = 0; i < memory->runs_count; i++) {
		const struct run *run = &memory->runs[i];
		int elements = elements_of(memory, run);
		unsigned char *packed =
			room_make((size_t)elements * (size_t)memory->form.basic->bytes);

		basic_fill(memory->form.basic, packed, elements, values, generator);
		put(memory, memory->now, run, packed);
		free(packed);
	}
}

void memory_begin(struct memory *memory)
{
	memcpy(memory->before, memory->now, memory->bytes);
}

void memory_reset(struct memory *memory)
{
	memcpy(memory->now, memory->before, memory->bytes);
}

void memory_keep(struct memory *memory)
{
	memcpy(memory->after, memory->now, memory->bytes);
}

long memory_wrong(const struct memory *memory, int is_read_only)
{
	const unsigned char *after = memory->after, *before = memory->before;

	for (size_t i = 0; i < memory->bytes; i++) {
		int is_as_before = after[i] == before[i];

		if (memory->mask[i] == 2 || (is_read_only && is_as_before))
			continue;
		/* In reductions the MPIs may change gaps. */
		if (is_read_only ||
		    (after[i] != memory->now[i] && (memory->mask[i] || !is_as_before)))
			return (long)i;
	}
	return -1;
}

void memory_free(struct memory *memory)
{
	if (memory->told_type != memory->form.type)
		MPI_Type_free(&memory->told_type);
	if (memory->form.type != memory->form.basic->type)
		MPI_Type_free(&memory->form.type);
	free(memory->now);
	free(memory->before);
	free(memory->after);
	free(memory->mask);
}
