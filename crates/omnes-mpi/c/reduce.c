// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Reductions at all ranks or at one, of the number types of C and Fortran, with the operations that
 * libomnes supports. Types and operations are recognized by comparison with the predefined handles,
 * since user-defined ones may mean anything.
 */
#include <stdlib.h>
#include <string.h>

#include "handles.h"
#include "shim.h"

/* Longer data are passed: in labs of 8 hosts, libomnes was no faster for them. */
#define BYTES_MAX ((size_t)64 << 10)

enum kind {
	SIGNED,
	UNSIGNED,
	OTHER_INTEGER, /* signed, of Fortran or of MPI itself (MPI_AINT etc.) */
	FLOATING,
};

static const struct {
	handle handle;
	enum kind kind;
} TYPES[] = {
	{ HANDLE(MPI_DOUBLE, ompi_mpi_double), FLOATING },
	{ HANDLE(MPI_FLOAT, ompi_mpi_float), FLOATING },
	{ HANDLE(MPI_INT, ompi_mpi_int), SIGNED },
	{ HANDLE(MPI_LONG, ompi_mpi_long), SIGNED },
	{ HANDLE(MPI_LONG_LONG, ompi_mpi_long_long_int), SIGNED },
	{ HANDLE(MPI_SHORT, ompi_mpi_short), SIGNED },
	{ HANDLE(MPI_SIGNED_CHAR, ompi_mpi_signed_char), SIGNED },
	{ HANDLE(MPI_UNSIGNED, ompi_mpi_unsigned), UNSIGNED },
	{ HANDLE(MPI_UNSIGNED_LONG, ompi_mpi_unsigned_long), UNSIGNED },
	{ HANDLE(MPI_UNSIGNED_LONG_LONG, ompi_mpi_unsigned_long_long), UNSIGNED },
	{ HANDLE(MPI_UNSIGNED_SHORT, ompi_mpi_unsigned_short), UNSIGNED },
	{ HANDLE(MPI_UNSIGNED_CHAR, ompi_mpi_unsigned_char), UNSIGNED },
	{ HANDLE(MPI_INT8_T, ompi_mpi_int8_t), SIGNED },
	{ HANDLE(MPI_INT16_T, ompi_mpi_int16_t), SIGNED },
	{ HANDLE(MPI_INT32_T, ompi_mpi_int32_t), SIGNED },
	{ HANDLE(MPI_INT64_T, ompi_mpi_int64_t), SIGNED },
	{ HANDLE(MPI_UINT8_T, ompi_mpi_uint8_t), UNSIGNED },
	{ HANDLE(MPI_UINT16_T, ompi_mpi_uint16_t), UNSIGNED },
	{ HANDLE(MPI_UINT32_T, ompi_mpi_uint32_t), UNSIGNED },
	{ HANDLE(MPI_UINT64_T, ompi_mpi_uint64_t), UNSIGNED },
	{ HANDLE(MPI_INTEGER, ompi_mpi_integer), OTHER_INTEGER },
	{ HANDLE(MPI_REAL, ompi_mpi_real), FLOATING },
	{ HANDLE(MPI_DOUBLE_PRECISION, ompi_mpi_dblprec), FLOATING },
	{ HANDLE(MPI_REAL8, ompi_mpi_real8), FLOATING },
	{ HANDLE(MPI_INTEGER8, ompi_mpi_integer8), OTHER_INTEGER },
	{ HANDLE(MPI_REAL4, ompi_mpi_real4), FLOATING },
	{ HANDLE(MPI_INTEGER4, ompi_mpi_integer4), OTHER_INTEGER },
	{ HANDLE(MPI_AINT, ompi_mpi_aint), OTHER_INTEGER },
	{ HANDLE(MPI_OFFSET, ompi_mpi_offset), OTHER_INTEGER },
	{ HANDLE(MPI_COUNT, ompi_mpi_count), OTHER_INTEGER },
};

static const struct {
	handle handle;
	enum omnes_op op;
} OPS[] = {
	{ HANDLE(MPI_SUM, ompi_mpi_op_sum), OMNES_SUM },
	{ HANDLE(MPI_PROD, ompi_mpi_op_prod), OMNES_PRODUCT },
	{ HANDLE(MPI_MIN, ompi_mpi_op_min), OMNES_MIN },
	{ HANDLE(MPI_MAX, ompi_mpi_op_max), OMNES_MAX },
	{ HANDLE(MPI_BAND, ompi_mpi_op_band), OMNES_AND },
	{ HANDLE(MPI_BOR, ompi_mpi_op_bor), OMNES_OR },
	{ HANDLE(MPI_BXOR, ompi_mpi_op_bxor), OMNES_XOR },
};

/* Handles, in the order of the tables, once the MPI is initialized. */
static struct {
	MPI_Datatype handle;
	MPI_Count size;
	int number; /* the enum omnes_type, or 0 */
} types[COUNT(TYPES)];
static MPI_Op ops[COUNT(OPS)];

static int number_of(enum kind kind, MPI_Count size)
{
	if (kind == FLOATING && size == sizeof(float))
		return OMNES_FLOAT;
	if (kind == FLOATING)
		return size == sizeof(double) ? OMNES_DOUBLE : 0;
	for (int power = 0; power < 4; power++)
		if (size == (MPI_Count)1 << power)
			return (kind == UNSIGNED ? OMNES_UINT8 : OMNES_INT8) + power;
	return 0;
}

void shim_reduce_begin(void)
{
	size_t i;

	for (i = 0; i < COUNT(TYPES); i++) {
		types[i].handle = (MPI_Datatype)handle_find(TYPES[i].handle);
		/* An MPI without Fortran lacks some of them. */
		if (types[i].handle && types[i].handle != MPI_DATATYPE_NULL &&
		    PMPI_Type_size_x(types[i].handle, &types[i].size) == MPI_SUCCESS)
			types[i].number = number_of(TYPES[i].kind, types[i].size);
	}
	for (i = 0; i < COUNT(OPS); i++)
		ops[i] = (MPI_Op)handle_find(OPS[i].handle);
}

bool shim_is_c_integer(MPI_Datatype type)
{
	for (size_t i = 0; i < COUNT(types); i++)
		if (type == types[i].handle)
			return TYPES[i].kind == SIGNED || TYPES[i].kind == UNSIGNED;
	return false;
}

static int op_of(MPI_Op op, enum kind kind)
{
	for (size_t i = 0; i < COUNT(ops); i++) {
		if (op == ops[i])
			return kind == FLOATING && OPS[i].op >= OMNES_AND ? 0 : (int)OPS[i].op;
	}
	return 0;
}

bool shim_reduction_set(struct shim_reduction *reduction, MPI_Count count, MPI_Datatype type,
			MPI_Op op)
{
	size_t at = 0;

	/* The MPI rejects these. */
	if (count <= 0 || !type || !op)
		return false;
	while (at < COUNT(types) && types[at].handle != type)
		at++;
	if (at == COUNT(types) || !types[at].number ||
	    count > (MPI_Count)BYTES_MAX / types[at].size)
		return false;
	reduction->type = types[at].number;
	reduction->op = op_of(op, TYPES[at].kind);
	if (!reduction->op)
		return false;
	reduction->count = (size_t)count;
	reduction->bytes = (size_t)(count * types[at].size);
	return true;
}

bool shim_reduction_place(struct shim_reduction *reduction, const void *from, void *data)
{
	/* Some programs pass the same buffer twice, which MPICH rejects and Open MPI accepts. */
	reduction->from = from == MPI_IN_PLACE || from == data ? NULL : from;
	reduction->data = data;
	/* As data, MPI_IN_PLACE is not a buffer. */
	return from && data && data != MPI_IN_PLACE;
}

bool shim_reduction_bring(struct shim_reduction *reduction, const void *from)
{
	reduction->from = from;
	reduction->data = NULL;
	return from && from != MPI_IN_PLACE;
}

void shim_reduction_load(const struct shim_reduction *reduction, void *data)
{
	if (reduction->from)
		memmove(data, reduction->from, reduction->bytes);
}

int shim_allreduce(struct shim_group *group, const struct shim_reduction *reduction)
{
	shim_reduction_load(reduction, reduction->data);
	if (omnes_allreduce(group->comm, reduction->data, reduction->count, reduction->type,
			    reduction->op) != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	return MPI_SUCCESS;
}

static int reduce(struct shim_group *group, const struct shim_reduction *reduction, int root)
{
	shim_reduction_load(reduction, reduction->data);
	if (omnes_reduce(group->comm, reduction->data, reduction->count, reduction->type,
			 reduction->op, root) != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	return MPI_SUCCESS;
}

/*
 * Blocks that together fit into a packet are faster as a whole: one message from each rank and one
 * for all ranks, instead of one from each rank to each other.
 */
#define WHOLE_BYTES_MAX ((size_t)1024)

/* Reduces all numbers in all, which is our own memory. */
static int reduce_blocks(struct shim_group *group, const struct shim_reduction *reduction,
			 char *all)
{
	size_t block = reduction->bytes / (size_t)group->size, first, count;
	int failure;

	memcpy(all, reduction->from ? reduction->from : reduction->data, reduction->bytes);
	if (reduction->bytes <= WHOLE_BYTES_MAX)
		failure = omnes_allreduce(group->comm, all, reduction->count, reduction->type,
					  reduction->op);
	else
		failure = omnes_reduce_scatter(group->comm, all, reduction->count, reduction->type,
					       reduction->op, &first, &count);
	if (failure != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	memcpy(reduction->data, all + (size_t)group->rank * block, block);
	return MPI_SUCCESS;
}

int shim_reduce_scatter(struct shim_group *group, const struct shim_reduction *reduction)
{
	char few[WHOLE_BYTES_MAX], *all = few;
	int error;

	if (reduction->bytes > sizeof(few))
		all = malloc(reduction->bytes);
	if (!all)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	error = reduce_blocks(group, reduction, all);
	if (all != few)
		free(all);
	return error;
}

int shim_reduce(struct shim_group *group, const struct shim_reduction *reduction, int root)
{
	struct shim_reduction through = *reduction;
	char few[256];
	int error;

	if (reduction->data)
		return reduce(group, reduction, root);
	/* The caller's data must not change. */
	through.data = reduction->bytes > sizeof(few) ? malloc(reduction->bytes) : few;
	if (!through.data)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	error = reduce(group, &through, root);
	if (through.data != few)
		free(through.data);
	return error;
}
