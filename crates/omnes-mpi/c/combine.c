// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Reductions for which only the MPI can combine two elements: logical
 * operations, MPI_MINLOC and MPI_MAXLOC, complex numbers, long double, and
 * user-defined operations. libomnes transfers the elements packed, and where
 * two meet, PMPI_Reduce_local() combines them, laid out according to their
 * type.
 *
 * Whether a reduction is taken depends on count, type and op, which MPI requires to be the same on
 * all ranks; for a derived type it depends on the type signature alone, since only the signature is
 * sure to agree on all ranks. User-defined functions may differ by rank, but not in whether they
 * are commutative: in the MPIs, too, this determines which messages are sent.
 *
 * A predefined operation is taken for the types that the standard allows for it. For other types
 * the MPI would report an error, and not to the communicator's error handler if it were called
 * here.
 */
#include <stddef.h>
#include <stdlib.h>

#include "handles.h"
#include "shim.h"

/* Longer data are passed, as in reduce.c. */
#define BYTES_MAX ((MPI_Count)64 << 10)

/* Sufficient for any type. */
#define ALIGNMENT ((MPI_Count)_Alignof(max_align_t))

enum kind {
	INTEGER = 1,
	FLOATING = 2,
	LOGICAL = 4,
	COMPLEX = 8,
	PAIR = 16,
	BYTE = 32,
};

/* All types except the integers of C. Types that few MPIs can combine are left out. */
static const struct {
	handle handle;
	enum kind kind;
} TYPES[] = {
	{ HANDLE(MPI_DOUBLE_INT, ompi_mpi_double_int), PAIR },
	{ HANDLE(MPI_C_BOOL, ompi_mpi_c_bool), LOGICAL },
	{ HANDLE(MPI_LOGICAL, ompi_mpi_logical), LOGICAL },
	{ HANDLE(MPI_C_DOUBLE_COMPLEX, ompi_mpi_c_double_complex), COMPLEX },
	{ HANDLE(MPI_DOUBLE_COMPLEX, ompi_mpi_dblcplex), COMPLEX },
	{ HANDLE(MPI_LONG_DOUBLE, ompi_mpi_long_double), FLOATING },
	{ HANDLE(MPI_2INT, ompi_mpi_2int), PAIR },
	{ HANDLE(MPI_FLOAT_INT, ompi_mpi_float_int), PAIR },
	{ HANDLE(MPI_LONG_INT, ompi_mpi_long_int), PAIR },
	{ HANDLE(MPI_SHORT_INT, ompi_mpi_short_int), PAIR },
	{ HANDLE(MPI_LONG_DOUBLE_INT, ompi_mpi_longdbl_int), PAIR },
	{ HANDLE(MPI_BYTE, ompi_mpi_byte), BYTE },
	{ HANDLE(MPI_2INTEGER, ompi_mpi_2integer), PAIR },
	{ HANDLE(MPI_2REAL, ompi_mpi_2real), PAIR },
	{ HANDLE(MPI_2DOUBLE_PRECISION, ompi_mpi_2dblprec), PAIR },
	{ HANDLE(MPI_C_FLOAT_COMPLEX, ompi_mpi_c_float_complex), COMPLEX },
	{ HANDLE(MPI_C_LONG_DOUBLE_COMPLEX, ompi_mpi_c_long_double_complex), COMPLEX },
	{ HANDLE(MPI_COMPLEX, ompi_mpi_cplex), COMPLEX },
};

/* For integers, only operations that libomnes does not support itself. */
static const struct {
	handle handle;
	unsigned kinds; /* for which the operation is defined */
} OPS[] = {
	{ HANDLE(MPI_MINLOC, ompi_mpi_op_minloc), PAIR },
	{ HANDLE(MPI_MAXLOC, ompi_mpi_op_maxloc), PAIR },
	{ HANDLE(MPI_SUM, ompi_mpi_op_sum), COMPLEX | FLOATING },
	{ HANDLE(MPI_PROD, ompi_mpi_op_prod), COMPLEX | FLOATING },
	{ HANDLE(MPI_MIN, ompi_mpi_op_min), FLOATING },
	{ HANDLE(MPI_MAX, ompi_mpi_op_max), FLOATING },
	{ HANDLE(MPI_LAND, ompi_mpi_op_land), LOGICAL | INTEGER },
	{ HANDLE(MPI_LOR, ompi_mpi_op_lor), LOGICAL | INTEGER },
	{ HANDLE(MPI_LXOR, ompi_mpi_op_lxor), LOGICAL | INTEGER },
	{ HANDLE(MPI_BAND, ompi_mpi_op_band), BYTE },
	{ HANDLE(MPI_BOR, ompi_mpi_op_bor), BYTE },
	{ HANDLE(MPI_BXOR, ompi_mpi_op_bxor), BYTE },
	{ HANDLE(MPI_REPLACE, ompi_mpi_op_replace), 0 },
	{ HANDLE(MPI_NO_OP, ompi_mpi_op_no_op), 0 },
	{ HANDLE(MPI_OP_NULL, ompi_mpi_op_null), 0 },
};

/* In the order of the tables; a null handle for what the MPI lacks. */
static MPI_Datatype types[COUNT(TYPES)];
static MPI_Op ops[COUNT(OPS)];

void shim_combine_begin(void)
{
	size_t i;

	for (i = 0; i < COUNT(TYPES); i++)
		types[i] = (MPI_Datatype)handle_find(TYPES[i].handle);
	for (i = 0; i < COUNT(OPS); i++)
		ops[i] = (MPI_Op)handle_find(OPS[i].handle);
}

/* 0 for a type that is in no table. */
static unsigned kind_of(MPI_Datatype type)
{
	for (size_t i = 0; i < COUNT(types); i++)
		if (type == types[i])
			return TYPES[i].kind;
	return shim_is_c_integer(type) ? INTEGER : 0;
}

/* True if op is defined for the type, and commutative. */
static bool combines(MPI_Op op, MPI_Datatype type)
{
	int is_commutative;

	for (size_t i = 0; i < COUNT(ops); i++)
		if (op == ops[i])
			return OPS[i].kinds & kind_of(type);
	return shim_host_is_op(op) && PMPI_Op_commutative(op, &is_commutative) == MPI_SUCCESS &&
	       is_commutative;
}

bool shim_combination_set(struct shim_combination *combination, MPI_Count count, MPI_Datatype type,
			  MPI_Op op)
{
	combination->op = op;
	/*
	 * One of the two functions below sets the real buffer later; until then, some other address
	 * serves as a placeholder, as contiguous data at NULL would be rejected.
	 */
	return count > 0 && count <= BYTES_MAX && op && combines(op, type) &&
	       shim_data_set(&combination->brought, combination, count, type) &&
	       combination->brought.bytes > 0 && combination->brought.bytes <= (size_t)BYTES_MAX;
}

/*
 * Types with absolute addresses are used with MPI_BOTTOM, which is NULL, perhaps on this rank
 * alone. Other reductions with a NULL buffer are not taken: user-defined functions would have to
 * expect it.
 */
static bool is_memory(const struct shim_combination *combination, const void *buffer)
{
	const struct shim_data *brought = &combination->brought;

	return buffer || !(brought->is_contiguous || kind_of(brought->type));
}

bool shim_combination_place(struct shim_combination *combination, const void *from, void *data)
{
	combination->brought.buffer = from == MPI_IN_PLACE ? data : (void *)from;
	combination->result = data;
	combination->has_result = true;
	return is_memory(combination, from) && is_memory(combination, data) &&
	       data != MPI_IN_PLACE;
}

bool shim_combination_bring(struct shim_combination *combination, const void *from)
{
	combination->brought.buffer = (void *)from;
	combination->has_result = false;
	return is_memory(combination, from) && from != MPI_IN_PLACE;
}

/* State for combining elements. */
struct meeting {
	const struct shim_combination *combination;
	size_t element_bytes;
	void *rooms[2];	 /* for elements laid out by their type; NULL until needed */
	void *places[2]; /* the buffer addresses of the elements in rooms */
	int error;	 /* the first error of the MPI */
};

static MPI_Count min_of(MPI_Count a, MPI_Count b)
{
	return a < b ? a : b;
}

static MPI_Count max_of(MPI_Count a, MPI_Count b)
{
	return a > b ? a : b;
}

/*
 * Determines the memory that count elements span, relative to their buffer address: their data, and
 * their whole extents, which user-defined operations may copy as a unit.
 */
static int find_span(const struct shim_data *elements, MPI_Count *lower, MPI_Count *length)
{
	MPI_Count true_lower, true_extent, extent, upper, last;
	int error = PMPI_Type_get_true_extent_x(elements->type, &true_lower, &true_extent);

	if (error == MPI_SUCCESS)
		error = PMPI_Type_get_extent_x(elements->type, lower, &extent);
	if (error != MPI_SUCCESS)
		return error;
	upper = *lower + extent;
	/* If elements run downwards, their extent is negative, and upper is below lower. */
	*lower = min_of(true_lower, min_of(*lower, upper));
	*length = max_of(true_lower + true_extent, max_of(upper, upper - extent)) - *lower;
	if (__builtin_mul_overflow(elements->count - 1, extent, &last) ||
	    __builtin_add_overflow(*length, last < 0 ? -last : last, length))
		return MPI_ERR_NO_MEM;
	/* Later elements may precede earlier ones in memory. */
	*lower += last < 0 ? last : 0;
	return MPI_SUCCESS;
}

/* Allocates room for all elements, twice. */
static int make_rooms(struct meeting *meeting)
{
	MPI_Count lower, length, before;
	int error = find_span(&meeting->combination->brought, &lower, &length);

	if (error != MPI_SUCCESS)
		return error;
	/* Elements are aligned if their buffer address is. */
	before = lower & (ALIGNMENT - 1);
	for (int i = 0; i < 2; i++) {
		char *room = meeting->rooms[i] = malloc((size_t)length + (size_t)before);

		if (!room)
			return MPI_ERR_NO_MEM;
		meeting->places[i] = (void *)((uintptr_t)room + (uintptr_t)(before - lower));
	}
	return MPI_SUCCESS;
}

/* For elements that must be unpacked or aligned before the operation can combine them. */
static int combine_apart(struct meeting *meeting, void *into, const void *from,
			 struct shim_data *elements)
{
	struct shim_packed packed = { .data = *elements };
	int error = meeting->places[1] ? MPI_SUCCESS : make_rooms(meeting);

	packed.bytes = (void *)from;
	packed.data.buffer = meeting->places[0];
	if (error == MPI_SUCCESS)
		error = shim_packed_spread(&packed);
	packed.bytes = into;
	packed.data.buffer = elements->buffer = meeting->places[1];
	if (error == MPI_SUCCESS)
		error = shim_packed_spread(&packed);
	if (error == MPI_SUCCESS)
		error = PMPI_Reduce_local(meeting->places[0], meeting->places[1],
					  (int)elements->count, elements->type,
					  meeting->combination->op);
	return error == MPI_SUCCESS ? shim_data_copy(into, elements) : error;
}

/* Called by libomnes with packed elements, on the caller's thread, without holding a lock. */
static void combine(void *into, const void *from, size_t count, void *context)
{
	struct meeting *meeting = context;
	struct shim_data elements = meeting->combination->brought;
	bool is_aligned = (((uintptr_t)into | (uintptr_t)from) & (uintptr_t)(ALIGNMENT - 1)) == 0;

	if (meeting->error != MPI_SUCCESS)
		return;
	elements.count = (MPI_Count)count;
	elements.bytes = count * meeting->element_bytes;
	if (elements.is_contiguous && is_aligned)
		meeting->error = PMPI_Reduce_local(from, into, (int)count, elements.type,
						   meeting->combination->op);
	else
		meeting->error = combine_apart(meeting, into, from, &elements);
}

enum { AT_ALL = -1 };

/* Reduces packed elements at root, or at all ranks; returns the result of libomnes. */
static int reduce_packed(struct shim_group *group, struct meeting *meeting, void *bytes, int root)
{
	size_t count = (size_t)meeting->combination->brought.count, each = meeting->element_bytes;
	int failure;

	if (root == AT_ALL)
		failure = omnes_allreduce_by(group->comm, bytes, count, each, combine, meeting);
	else
		failure = omnes_reduce_by(group->comm, bytes, count, each, combine, meeting, root);
	for (int i = 0; i < 2; i++)
		free(meeting->rooms[i]);
	return failure;
}

static int reduce(struct shim_group *group, const struct shim_combination *combination, int root)
{
	const struct shim_data *brought = &combination->brought;
	struct meeting meeting = {
		.combination = combination,
		.element_bytes = brought->bytes / (size_t)brought->count,
		.error = MPI_SUCCESS,
	};
	struct shim_packed packed;
	int error = shim_packed_make(&packed, brought, true), failure;

	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	failure = reduce_packed(group, &meeting, packed.bytes, root);
	error = meeting.error;
	packed.data.buffer = combination->result;
	if (failure == OMNES_SUCCESS && error == MPI_SUCCESS && combination->has_result)
		error = shim_packed_spread(&packed);
	shim_packed_free(&packed);
	if (failure != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	return error == MPI_SUCCESS ? MPI_SUCCESS : shim_raise_mpi(group->mpi, error);
}

int shim_allcombine(struct shim_group *group, const struct shim_combination *combination)
{
	return reduce(group, combination, AT_ALL);
}

int shim_combine(struct shim_group *group, const struct shim_combination *combination, int root)
{
	return reduce(group, combination, root);
}
