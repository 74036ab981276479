/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Datatypes of mix: one signature, laid out in memory in many ways.
 *
 * The program computes the position of each byte itself, so it also checks
 * MPI's packing, and that bytes between the data do not change.
 */
#include "mix.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FILLER = 0xa5,
	HOLES_MAX = 24,
	SCATTERED_MAX = 1 << 16, /* elements with holes, which need much memory */
};

/* Positions of the blocks of a unit, and the distance to the next unit. */
struct layout {
	MPI_Aint offset[BLOCKS_MAX];
	MPI_Aint extent;
};

struct mix_unit mix_unit_draw(uint64_t *generator)
{
	static const int bytes[] = {1, 1, 2, 4, 4, 8, 8};
	const MPI_Datatype basic[] = {MPI_BYTE, MPI_CHAR,   MPI_SHORT,	MPI_INT,
				      MPI_FLOAT, MPI_DOUBLE, MPI_INT64_T};
	int kinds = sizeof(bytes) / sizeof(*bytes);
	struct mix_unit unit = {.blocks = 1};

	if (mix_below(generator, 3) == 0)
		unit.blocks = 2 + mix_below(generator, BLOCKS_MAX - 1);
	for (int i = 0; i < unit.blocks; i++) {
		int which = mix_below(generator, kinds);

		unit.basic[i] = basic[which];
		unit.basic_bytes[i] = bytes[which];
		unit.count[i] = 1 + mix_below(generator, 4);
		unit.bytes += unit.count[i] * bytes[which];
	}
	return unit;
}

static void *allocate(size_t bytes)
{
	void *memory = malloc(bytes ? bytes : 1);

	if (!memory) {
		fprintf(stderr, "mix: no memory for %zu bytes\n", bytes);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memory;
}

/* Contiguous blocks. */
static struct layout dense(const struct mix_unit *unit)
{
	struct layout layout = {.extent = unit->bytes};
	MPI_Aint at = 0;

	for (int i = 0; i < unit->blocks; i++) {
		layout.offset[i] = at;
		at += (MPI_Aint)unit->count[i] * unit->basic_bytes[i];
	}
	return layout;
}

/* Blocks in another order in memory, with holes between them. */
static struct layout scattered(const struct mix_unit *unit, uint64_t *generator)
{
	struct layout layout;
	int order[BLOCKS_MAX];
	MPI_Aint at = mix_below(generator, HOLES_MAX);

	for (int i = 0; i < unit->blocks; i++)
		order[i] = i;
	for (int i = unit->blocks - 1; i > 0; i--) {
		int other = mix_below(generator, i + 1), swapped = order[i];

		order[i] = order[other];
		order[other] = swapped;
	}
	for (int i = 0; i < unit->blocks; i++) {
		layout.offset[order[i]] = at;
		at += (MPI_Aint)unit->count[order[i]] * unit->basic_bytes[order[i]];
		at += mix_below(generator, HOLES_MAX);
	}
	layout.extent = at + mix_below(generator, HOLES_MAX);
	return layout;
}

/*
 * Creates the MPI type of one unit in this layout, as a struct or as an hindexed of one basic type.
 */
static MPI_Datatype type_of(const struct mix_unit *unit, const struct layout *layout)
{
	MPI_Datatype bare, type;
	MPI_Datatype basic[BLOCKS_MAX];
	int count[BLOCKS_MAX], is_uniform = 1;
	MPI_Aint offset[BLOCKS_MAX];

	for (int i = 0; i < unit->blocks; i++) {
		basic[i] = unit->basic[i];
		count[i] = unit->count[i];
		offset[i] = layout->offset[i];
		is_uniform &= basic[i] == unit->basic[0];
	}
	if (is_uniform)
		MPI_Type_create_hindexed(unit->blocks, count, offset, unit->basic[0], &bare);
	else
		MPI_Type_create_struct(unit->blocks, count, offset, basic, &bare);
	MPI_Type_create_resized(bare, 0, layout->extent, &type);
	MPI_Type_free(&bare);
	return type;
}

/* A unit of one block as a vector: one item of the basic type, then a hole. */
static struct layout vector_of(const struct mix_unit *unit, uint64_t *generator,
			       struct mix_unit *split, MPI_Datatype *type)
{
	struct layout layout = {.extent = 0};
	int stride = 1 + mix_below(generator, 5);
	MPI_Datatype bare;

	*split = (struct mix_unit){.blocks = unit->count[0], .bytes = unit->bytes};
	for (int i = 0; i < split->blocks; i++) {
		split->basic[i] = unit->basic[0];
		split->basic_bytes[i] = unit->basic_bytes[0];
		split->count[i] = 1;
		layout.offset[i] = (MPI_Aint)i * stride * unit->basic_bytes[0];
	}
	layout.extent = (MPI_Aint)unit->count[0] * stride * unit->basic_bytes[0];
	MPI_Type_vector(unit->count[0], 1, stride, unit->basic[0], &bare);
	MPI_Type_create_resized(bare, 0, layout.extent, type);
	MPI_Type_free(&bare);
	return layout;
}

/* Replaces a type by a contiguous type of `count` elements. */
static void repeat(MPI_Datatype *type, int count)
{
	MPI_Datatype one = *type;

	MPI_Type_contiguous(count, one, type);
	MPI_Type_free(&one);
}

/* Replaces address, count and type by MPI_BOTTOM, 1 and a type that contains the address. */
static void make_absolute(struct mix_buffer *buffer)
{
	MPI_Datatype absolute;
	MPI_Aint address;

	MPI_Get_address(buffer->address, &address);
	MPI_Type_create_struct(1, &buffer->count, &address, &buffer->type, &absolute);
	if (buffer->is_own_type)
		MPI_Type_free(&buffer->type);
	buffer->address = MPI_BOTTOM;
	buffer->count = 1;
	buffer->type = absolute;
	buffer->is_own_type = 1;
}

/* Writes the data of `key` into the image. */
static void fill(struct mix_buffer *buffer, const struct mix_unit *unit,
		 const struct layout *layout, size_t elements, uint64_t key)
{
	uint64_t state = mix_hash(key);

	memset(buffer->image, FILLER, buffer->bytes);
	for (size_t element = 0; element < elements; element++) {
		unsigned char *start = buffer->image + element * (size_t)layout->extent;

		for (int i = 0; i < unit->blocks; i++) {
			int bytes = unit->count[i] * unit->basic_bytes[i];

			for (int byte = 0; byte < bytes; byte++) {
				state = state * 6364136223846793005u + 1442695040888963407u;
				start[layout->offset[i] + byte] = (unsigned char)(state >> 56);
			}
		}
	}
}

struct mix_buffer mix_buffer_make(const struct mix_unit *unit, size_t elements, uint64_t layout,
				  uint64_t key, int is_sender)
{
	struct mix_buffer buffer = {.count = (int)elements, .is_own_type = 1};
	struct mix_unit split = *unit;
	struct layout where = dense(unit);
	int is_dense = layout == MIX_DENSE || elements > SCATTERED_MAX;
	int how = mix_below(&layout, 5);

	if (unit->blocks == 1 && how < 2) { /* plain: the most frequent case in programs */
		buffer.type = unit->basic[0];
		buffer.is_own_type = 0;
		buffer.count = (int)elements * unit->count[0];
	} else if (unit->blocks == 1 && how == 2 && !is_dense) {
		where = vector_of(unit, &layout, &split, &buffer.type);
	} else {
		if (how > 0 && !is_dense)
			where = scattered(unit, &layout);
		buffer.type = type_of(unit, &where);
	}
	if (buffer.is_own_type && elements && elements % 4 == 0 && mix_below(&layout, 2)) {
		repeat(&buffer.type, 4);
		buffer.count /= 4;
	}
	buffer.bytes = elements * (size_t)where.extent + HOLES_MAX;
	buffer.memory = allocate(buffer.bytes);
	buffer.image = allocate(buffer.bytes);
	buffer.address = buffer.memory;
	if (mix_below(&layout, 6) == 0)
		make_absolute(&buffer);
	if (buffer.is_own_type)
		MPI_Type_commit(&buffer.type);
	fill(&buffer, &split, &where, elements, key);
	if (is_sender)
		memcpy(buffer.memory, buffer.image, buffer.bytes);
	else
		memset(buffer.memory, FILLER, buffer.bytes);
	return buffer;
}

long mix_buffer_wrong(const struct mix_buffer *buffer)
{
	if (!memcmp(buffer->memory, buffer->image, buffer->bytes))
		return -1;
	for (size_t i = 0; i < buffer->bytes; i++)
		if (buffer->memory[i] != buffer->image[i])
			return (long)i;
	return -1;
}

uint64_t mix_buffer_hash(const struct mix_buffer *buffer)
{
	uint64_t hash = buffer->bytes;

	for (size_t i = 0; i < buffer->bytes; i++)
		hash = (hash ^ buffer->memory[i]) * 0x100000001b3u;
	return hash;
}

void mix_buffer_free(struct mix_buffer *buffer)
{
	/* Legal while MPI still uses the type: it is freed after its last use. */
	if (buffer->is_own_type)
		MPI_Type_free(&buffer->type);
	free(buffer->memory);
	free(buffer->image);
}
