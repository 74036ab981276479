/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checks that end a test program and report the location. */
#ifndef CHECK_H
#define CHECK_H

#include "omnes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless the condition holds. */
#define CHECK(condition)                                                                 \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__,        \
				__LINE__, #condition, omnes_last_error());               \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

/* Ends the program unless the call succeeds. */
#define OK(call) CHECK((call) == OMNES_SUCCESS)

/*
 * Ends the program unless the call is rejected because of an argument, with a text that names it.
 */
#define REFUSED(call, name)                                                              \
	do {                                                                             \
		CHECK((call) == OMNES_ERROR_ARGUMENT);                                   \
		CHECK(strstr(omnes_last_error(), name) != NULL);                         \
	} while (0)

#endif
