// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Parts of any lengths of all ranks at one rank, as described by the caller's arguments. */
#include <limits.h>

#include "shim.h"

static MPI_Count count_of(const struct shim_layout *layout, int rank)
{
	return layout->counts ? layout->counts[rank] : layout->large_counts[rank];
}

static MPI_Aint place_of(const struct shim_layout *layout, int rank)
{
	return layout->places ? layout->places[rank] : layout->large_places[rank];
}

/* Sets the length of an item, its distance from the next item, and whether it is contiguous. */
static bool item_set(struct shim_layout *layout)
{
	struct shim_data item;
	MPI_Count size, lower, extent;

	if (!shim_host_is_datatype(layout->type) ||
	    PMPI_Type_size_x(layout->type, &size) != MPI_SUCCESS || size < 0 ||
	    PMPI_Type_get_extent_x(layout->type, &lower, &extent) != MPI_SUCCESS)
		return false;
	layout->extent = (MPI_Aint)extent;
	layout->item_bytes = (size_t)size;
	layout->is_contiguous = false;
	/* Empty data are never accessed, and items of this length are never packed here. */
	if (layout->count == 0 || size > INT_MAX)
		return true;
	/*
	 * Relative to MPI_BOTTOM, which is NULL, places are absolute addresses, perhaps on this
	 * rank alone: some other address serves as a placeholder.
	 */
	if (!shim_data_set(&item, layout->buffer ? layout->buffer : &item, 1, layout->type))
		return false;
	layout->is_contiguous = item.is_contiguous;
	return true;
}

/* False if a part would be at NULL. */
static bool is_memory(const struct shim_layout *layout, int parts)
{
	if (layout->buffer || !layout->is_contiguous || layout->item_bytes == 0)
		return true;
	for (int part = 0; part < parts; part++)
		if (count_of(layout, part) > 0 && place_of(layout, part) == 0)
			return false;
	return true;
}

bool shim_layout_set(struct shim_layout *layout, int parts)
{
	if ((!layout->counts && !layout->large_counts) ||
	    (!layout->places && !layout->large_places))
		return false;
	layout->count = 0;
	for (int part = 0; part < parts; part++) {
		MPI_Count count = count_of(layout, part);

		if (count < 0)
			return false;
		if (__builtin_add_overflow(layout->count, count, &layout->count))
			layout->count = INT64_MAX;
	}
	return item_set(layout) && is_memory(layout, parts);
}

struct shim_data shim_layout_part(const struct shim_layout *layout, int rank)
{
	struct shim_data part = { .type = layout->type, .is_contiguous = layout->is_contiguous };

	part.count = count_of(layout, rank);
	if (part.count == 0)
		return part;
	part.buffer = (void *)((uintptr_t)layout->buffer +
			       (uintptr_t)(place_of(layout, rank) * layout->extent));
	part.bytes = (size_t)part.count * layout->item_bytes;
	return part;
}

bool shim_layout_is_a_row(const struct shim_layout *layout, int parts)
{
	MPI_Count next = 0;

	for (int part = 0; part < parts && layout->is_contiguous; part++) {
		MPI_Count count = count_of(layout, part);

		if (count > 0 && place_of(layout, part) != next)
			return false;
		next += count;
	}
	return layout->is_contiguous;
}
