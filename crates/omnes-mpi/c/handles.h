/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Tables of the MPI's own types and operations. Open MPI's handles are addresses,
 * found when the MPI is there; its Fortran types are other variables than those of C.
 */
#ifndef OMNES_SHIM_HANDLES_H
#define OMNES_SHIM_HANDLES_H

#include <mpi.h>
#include <stdint.h>

#ifdef OPEN_MPI
#include <dlfcn.h>
#define HANDLE(mpich, openmpi) #openmpi
typedef const char *handle;
#else
#define HANDLE(mpich, openmpi) mpich
typedef int handle;
#endif

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* The handle itself; 0 of what the MPI has not. */
static inline intptr_t handle_find(handle handle)
{
#ifdef OPEN_MPI
	return (intptr_t)dlsym(RTLD_DEFAULT, handle);
#else
	return handle;
#endif
}

#endif /* OMNES_SHIM_HANDLES_H */
