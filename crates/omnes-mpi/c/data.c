// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Count and datatype as bytes. Data of basic types, and of types derived from
 * them by contiguous and dup, are sent in place; all others are packed, since
 * ranks may describe the same data with types that lay out memory differently.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* Values of the attribute that caches whether a type is contiguous. */
#define CONTIGUOUS ((void *)1)
#define APART ((void *)2)

/* True if a predefined type has no gaps. */
static bool named_is_contiguous(MPI_Datatype type)
{
	MPI_Count size, lower, extent;

	return PMPI_Type_size_x(type, &size) == MPI_SUCCESS &&
	       PMPI_Type_get_extent_x(type, &lower, &extent) == MPI_SUCCESS && lower == 0 &&
	       size == extent;
}

/* How a type was made. */
struct envelope {
	int integers, addresses, types, combiner;
	/* Created by a constructor of MPI 4 with counts that are not ints. */
	bool is_large;
};

#if MPI_VERSION >= 4
static bool envelope_get(struct envelope *envelope, MPI_Datatype type)
{
	MPI_Count integers, addresses, large, types;

	/* For a large type, the call without _c is an error, and a fatal one. */
	if (PMPI_Type_get_envelope_c(type, &integers, &addresses, &large, &types,
				     &envelope->combiner) != MPI_SUCCESS)
		return false;
	envelope->is_large =
		large > 0 || integers > INT_MAX || addresses > INT_MAX || types > INT_MAX;
	envelope->integers = (int)integers;
	envelope->addresses = (int)addresses;
	envelope->types = (int)types;
	return true;
}
#else
static bool envelope_get(struct envelope *envelope, MPI_Datatype type)
{
	envelope->is_large = false;
	return PMPI_Type_get_envelope(type, &envelope->integers, &envelope->addresses,
				      &envelope->types, &envelope->combiner) == MPI_SUCCESS;
}
#endif

static bool is_contiguous(MPI_Datatype type, const struct envelope *envelope);

/* True for types that must not be freed. */
static bool is_predefined(int combiner)
{
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
	       combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

/* True if a type derived from one other by contiguous or dup is contiguous. */
static bool made_is_contiguous(MPI_Datatype type, const struct envelope *envelope)
{
	MPI_Datatype inner;
	MPI_Aint no_address;
	struct envelope inside;
	int no_integer;
	bool contiguous;

	if (PMPI_Type_get_contents(type, envelope->integers, envelope->addresses, 1, &no_integer,
				   &no_address, &inner) != MPI_SUCCESS ||
	    !envelope_get(&inside, inner))
		return false;
	contiguous = is_contiguous(inner, &inside);
	if (!is_predefined(inside.combiner))
		PMPI_Type_free(&inner);
	return contiguous;
}

static bool derived_is_contiguous(MPI_Datatype type, const struct envelope *envelope)
{
	void *known;
	int is_known;
	bool contiguous;

	if (envelope->is_large || (envelope->combiner != MPI_COMBINER_CONTIGUOUS &&
				   envelope->combiner != MPI_COMBINER_DUP))
		return false;
	if (PMPI_Type_get_attr(type, shim_type_key, &known, &is_known) == MPI_SUCCESS && is_known)
		return known == CONTIGUOUS;
	if (envelope->integers > 1 || envelope->addresses > 0 || envelope->types != 1)
		return false;
	contiguous = made_is_contiguous(type, envelope);
	PMPI_Type_set_attr(type, shim_type_key, contiguous ? CONTIGUOUS : APART);
	return contiguous;
}

static bool is_contiguous(MPI_Datatype type, const struct envelope *envelope)
{
	if (envelope->combiner == MPI_COMBINER_NAMED)
		return named_is_contiguous(type);
	return derived_is_contiguous(type, envelope);
}

/* MPI reveals whether a type is committed only when the type is used. */
static bool is_committed(MPI_Datatype type)
{
	int position = 0;
	char nothing = 0;

	return PMPI_Pack(&nothing, 0, type, &nothing, sizeof(nothing), &position, shim_private) ==
	       MPI_SUCCESS;
}

bool shim_data_set(struct shim_data *data, void *buffer, MPI_Count count, MPI_Datatype type)
{
	struct envelope envelope;
	MPI_Count size;

	if (count < 0 || !shim_host_is_datatype(type) || buffer == MPI_IN_PLACE ||
	    PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size < 0)
		return false;
	/*
	 * The limit of MPI's packing, which some ranks may need: as a type may have any size, the
	 * limit applies to the data as a whole.
	 */
	if (size > 0 && count > INT_MAX / size)
		return false;
	if (!envelope_get(&envelope, type) ||
	    !(is_predefined(envelope.combiner) || is_committed(type)))
		return false;
	*data = (struct shim_data){ buffer, count, type, (size_t)(count * size),
				    is_contiguous(type, &envelope) };
	/* Types with absolute addresses are used with MPI_BOTTOM, which is NULL. */
	return buffer || !data->is_contiguous;
}

/* Packs or unpacks. */
static int convert(char *bytes, const struct shim_data *data, bool packs)
{
	int count = (int)data->count, length = (int)data->bytes, position = 0, error;

	if (packs)
		error = PMPI_Pack(data->buffer, count, data->type, bytes, length, &position,
				  shim_private);
	else
		error = PMPI_Unpack(bytes, length, &position, data->buffer, count, data->type,
				    shim_private);
	return error == MPI_SUCCESS && position != length ? MPI_ERR_TRUNCATE : error;
}

/*
 * The same for data with absolute addresses: MPICH packs nothing from
 * MPI_BOTTOM, so the addresses are made relative to another buffer.
 */
static int convert_addressed(char *bytes, const struct shim_data *data, bool packs)
{
	struct shim_data moved = { .buffer = bytes, .count = 1, .bytes = data->bytes };
	MPI_Aint from = -(MPI_Aint)(uintptr_t)bytes;
	int count = (int)data->count;
	int error = PMPI_Type_create_hindexed(1, &count, &from, data->type, &moved.type);

	if (error != MPI_SUCCESS)
		return error;
	error = PMPI_Type_commit(&moved.type);
	if (error == MPI_SUCCESS)
		error = convert(bytes, &moved, packs);
	PMPI_Type_free(&moved.type);
	return error;
}

/* The same for data anywhere. */
static int convert_any(char *bytes, const struct shim_data *data, bool packs)
{
	if (data->buffer == MPI_BOTTOM)
		return convert_addressed(bytes, data, packs);
	return convert(bytes, data, packs);
}

int shim_data_copy(void *bytes, const struct shim_data *data)
{
	if (!data->is_contiguous)
		return convert_any(bytes, data, true);
	memmove(bytes, data->buffer, data->bytes);
	return MPI_SUCCESS;
}

int shim_data_spread(const void *bytes, const struct shim_data *data)
{
	if (!data->is_contiguous)
		return convert_any((char *)bytes, data, false);
	memmove(data->buffer, bytes, data->bytes);
	return MPI_SUCCESS;
}

int shim_packed_make(struct shim_packed *packed, const struct shim_data *data, bool fills)
{
	int error = MPI_SUCCESS;

	packed->data = *data;
	packed->bytes = malloc(data->bytes);
	if (!packed->bytes)
		return MPI_ERR_NO_MEM;
	if (fills)
		error = convert_any(packed->bytes, data, true);
	if (error != MPI_SUCCESS)
		shim_packed_free(packed);
	return error;
}

int shim_packed_spread(const struct shim_packed *packed)
{
	return shim_data_spread(packed->bytes, &packed->data);
}

void shim_packed_free(struct shim_packed *packed)
{
	free(packed->bytes);
	packed->bytes = NULL;
}

int shim_row_make(struct shim_packed *row, const struct shim_data *data, bool fills)
{
	if (!data->is_contiguous)
		return shim_packed_make(row, data, fills);
	*row = (struct shim_packed){ .bytes = data->buffer, .data = *data };
	return MPI_SUCCESS;
}

void shim_row_free(struct shim_packed *row)
{
	if (!row->data.is_contiguous)
		shim_packed_free(row);
}
