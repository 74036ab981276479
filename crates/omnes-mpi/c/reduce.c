// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Reductions at all ranks, of the numbers that C and Fortran have, by the
 * operations that libomnes knows. Types and operations are compared with the
 * MPI's own, since what a program names or makes may mean anything.
 */
#include <string.h>

#include "shim.h"

/*
 * Longer data are passed: of those, every link has to carry all anyhow, and
 * the MPIs are as fast.
 */
#define BYTES_MAX ((size_t)32 << 10)

enum kind { SIGNED, UNSIGNED, FLOATING };

/*
 * Open MPI's handles are addresses, found when the MPI is there. Its Fortran
 * types are other variables than those of C.
 */
#ifdef OPEN_MPI
#include <dlfcn.h>
#define HANDLE(mpich, openmpi) #openmpi
typedef const char *handle;
#else
#define HANDLE(mpich, openmpi) mpich
typedef int handle;
#endif

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
	{ HANDLE(MPI_INTEGER, ompi_mpi_integer), SIGNED },
	{ HANDLE(MPI_REAL, ompi_mpi_real), FLOATING },
	{ HANDLE(MPI_DOUBLE_PRECISION, ompi_mpi_dblprec), FLOATING },
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

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* What they are, in order of the tables, once the MPI is there. */
static MPI_Datatype types[COUNT(TYPES)];
static MPI_Op ops[COUNT(OPS)];

static void *found(handle handle)
{
#ifdef OPEN_MPI
	return dlsym(RTLD_DEFAULT, handle);
#else
	return (void *)(intptr_t)handle;
#endif
}

void shim_reduce_begin(void)
{
	size_t i;

	for (i = 0; i < COUNT(TYPES); i++)
		types[i] = (MPI_Datatype)(intptr_t)found(TYPES[i].handle);
	for (i = 0; i < COUNT(OPS); i++)
		ops[i] = (MPI_Op)(intptr_t)found(OPS[i].handle);
}

/* The omnes_type of so many bytes, or 0. */
static int number_of(enum kind kind, MPI_Count size)
{
	static const int SIGNED_TYPES[] = { OMNES_INT8, OMNES_INT16, OMNES_INT32, OMNES_INT64 };

	if (kind == FLOATING && size == sizeof(float))
		return OMNES_FLOAT;
	if (kind == FLOATING)
		return size == sizeof(double) ? OMNES_DOUBLE : 0;
	for (int power = 0; power < 4; power++)
		if (size == (MPI_Count)1 << power)
			return SIGNED_TYPES[power] +
			       (kind == UNSIGNED ? OMNES_UINT8 - OMNES_INT8 : 0);
	return 0;
}

/* Some handles are none where the MPI has no such type, and then no program has it. */
static int type_of(MPI_Datatype type, MPI_Count *size, enum kind *kind)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		if (type != types[i])
			continue;
		*kind = TYPES[i].kind;
		return PMPI_Type_size_x(type, size) == MPI_SUCCESS ? number_of(*kind, *size) : 0;
	}
	return 0;
}

static int op_of(MPI_Op op, enum kind kind)
{
	for (size_t i = 0; i < COUNT(ops); i++) {
		if (op == ops[i])
			return kind == FLOATING && OPS[i].op >= OMNES_AND ? 0 : (int)OPS[i].op;
	}
	return 0;
}

bool shim_reduction_set(struct shim_reduction *reduction, const void *from, void *data,
			MPI_Count count, MPI_Datatype type, MPI_Op op)
{
	enum kind kind;
	MPI_Count size;

	/* What the MPI refuses. MPI_IN_PLACE stands for no memory where it is data. */
	if (count <= 0 || !type || type == MPI_DATATYPE_NULL || !op || !data ||
	    data == MPI_IN_PLACE || !from)
		return false;
	reduction->type = type_of(type, &size, &kind);
	reduction->op = reduction->type ? op_of(op, kind) : 0;
	if (!reduction->op || count > (MPI_Count)BYTES_MAX / size)
		return false;
	/* Some programs pass the same memory twice, which MPIs mostly let pass. */
	reduction->from = from == MPI_IN_PLACE || from == data ? NULL : from;
	reduction->data = data;
	reduction->count = (size_t)count;
	reduction->bytes = (size_t)(count * size);
	return true;
}

int shim_allreduce(struct shim_group *group, const struct shim_reduction *reduction)
{
	if (reduction->from)
		memmove(reduction->data, reduction->from, reduction->bytes);
	if (omnes_allreduce(group->comm, reduction->data, reduction->count, reduction->type,
			    reduction->op) != OMNES_SUCCESS)
		return shim_failure_raise(group->mpi);
	return MPI_SUCCESS;
}
