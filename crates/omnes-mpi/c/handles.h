/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Tables of predefined types and operations. Open MPI's handles are addresses, looked up once the
 * MPI is loaded; its Fortran types are not the same variables as its C types.
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

/* The handle itself; 0 for what the MPI lacks. */
static inline intptr_t handle_find(handle handle)
{
#ifdef OPEN_MPI
	return (intptr_t)dlsym(RTLD_DEFAULT, handle);
#else
	return handle;
#endif
}

#endif /* OMNES_SHIM_HANDLES_H */
