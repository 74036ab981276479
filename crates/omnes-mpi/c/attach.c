// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Attaches to an MPI that dlopen() loads after this library, such as the MPI of
 * a Python module or a plugin. The symbols of such an MPI are visible only to
 * the object that loaded it, so its library is promoted to the global scope
 * before we first call it.
 */
#define _GNU_SOURCE /* dl_iterate_phdr, dladdr, RTLD_DEFAULT */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

#define OBJECTS_MAX 4096

struct objects {
	char *names[OBJECTS_MAX];
	size_t count;
};

/* Called under the loader's lock, so it only copies names. */
static int note(struct dl_phdr_info *object, size_t size, void *context)
{
	struct objects *objects = context;
	char *name = object->dlpi_name[0] ? strdup(object->dlpi_name) : NULL;

	(void)size;
	if (name)
		objects->names[objects->count++] = name;
	return objects->count == OBJECTS_MAX;
}

/* True if this object is the MPI, or depends on it; the MPI is then visible globally. */
static bool show(const char *name)
{
	void *object = dlopen(name, RTLD_LAZY | RTLD_NOLOAD), *symbol;
	Dl_info found;
	bool is_shown = false;

	if (!object)
		return false;
	symbol = dlsym(object, "PMPI_Initialized");
	/* Never closed, since we rely on it staying loaded. */
	if (symbol && dladdr(symbol, &found))
		is_shown = dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL) != NULL;
	dlclose(object);
	return is_shown;
}

#ifdef OPEN_MPI
struct shim_handles shim_handles;

static bool find_handles(void)
{
	struct shim_handles *handles = &shim_handles;

	handles->byte = dlsym(RTLD_DEFAULT, "ompi_mpi_byte");
	handles->uint64 = dlsym(RTLD_DEFAULT, "ompi_mpi_uint64_t");
	handles->datatype_null = dlsym(RTLD_DEFAULT, "ompi_mpi_datatype_null");
	handles->comm_null = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_null");
	handles->comm_self = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_self");
	handles->comm_world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
	handles->errors_return = dlsym(RTLD_DEFAULT, "ompi_mpi_errors_return");
	handles->min = dlsym(RTLD_DEFAULT, "ompi_mpi_op_min");
	return handles->byte && handles->uint64 && handles->datatype_null &&
	       handles->comm_null && handles->comm_self && handles->comm_world &&
	       handles->errors_return && handles->min;
}
#else
/* Handles are ints: pointer handles of another MPI have been truncated by now. */
static bool find_handles(void)
{
	if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") &&
	    !dlsym(RTLD_DEFAULT, "PMPIX_Grequest_start")) {
		fputs("omnes-mpi: the program has Open MPI, whose calls MPICH's library cannot "
		      "pass on: preload libomnes-mpi-openmpi.so in its place\n",
		      stderr);
		_exit(EXIT_FAILURE);
	}
	return true;
}
#endif

static bool show_mpi(void)
{
	struct objects *objects = calloc(1, sizeof(*objects));
	bool is_shown = false;
	size_t i;

	if (!objects)
		return false;
	dl_iterate_phdr(note, objects);
	for (i = 0; i < objects->count; i++) {
		is_shown = is_shown || show(objects->names[i]);
		free(objects->names[i]);
	}
	free(objects);
	return is_shown;
}

static bool is_attached;

static void attach(void)
{
	/*
	 * None of these files may take the address of an MPI function: the linker would then bind
	 * all calls of that function when we are loaded, which may be too early.
	 */
	bool is_there = dlsym(RTLD_DEFAULT, "PMPI_Initialized") != NULL;

	is_attached = (is_there || show_mpi()) && find_handles();
}

bool shim_attach(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, attach);
	return is_attached;
}
