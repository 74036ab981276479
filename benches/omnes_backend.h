/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the two measuring programs for Omnes share: the job, and an exit with
 * the error's text, because a measuring loop cannot continue after a failed
 * call.
 */
#ifndef OMNES_BACKEND_H
#define OMNES_BACKEND_H

#include "omnes.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static omnes_comm *world;

/*
 * stop_job ends this process without a farewell, so that the other ranks see
 * that it failed. status is in [1,255].
 */
static void stop_job(int status)
{
	fflush(NULL);
	_exit(status);
}

/*
 * checked returns a result, or ends the job if it is an error; what names the
 * call.
 */
static int checked(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, omnes_last_error());
		stop_job(1);
	}
	return result;
}

#endif
