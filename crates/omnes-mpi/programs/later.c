/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that is not linked to an MPI: a part of it is, and is loaded by
 * dlopen() with local symbols, like a Python module.
 *
 *	later nothing|collectives|fortran
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int (*run_fn)(const char *what);

int main(int argc, char **argv)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - sizeof(".fortran.so"));
	void *part;
	run_fn run;

	if (argc != 2 || length < 0)
		return 2;
	/* The parts are in the same folder, under the same name. */
	strcpy(path + length, strcmp(argv[1], "fortran") ? ".so" : ".fortran.so");
	part = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (part)
		*(void **)&run = dlsym(part, "later_run");
	if (!part || !run) {
		fprintf(stderr, "later: %s\n", dlerror());
		return 1;
	}
	return run(argv[1]);
}
