/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Completion in mix: all kinds of requests in one array, and every completion
 * call of MPI.
 */
#include "mix.h"
#include <stdlib.h>

enum { NULLS_MAX = 3 }; /* null requests inserted into an array */

/* The requests of one completing call; whose[i] is NULL for a null request. */
struct selection {
	int count;
	MPI_Request requests[PENDING_MAX + NULLS_MAX];
	struct mix_pending *whose[PENDING_MAX + NULLS_MAX];
	MPI_Status statuses[PENDING_MAX + NULLS_MAX];
	int indices[PENDING_MAX + NULLS_MAX];
};

static void swap(struct mix_thread *thread, struct selection *selection, int i)
{
	int other = mix_below(&thread->local, i + 1);
	MPI_Request request = selection->requests[i];
	struct mix_pending *whose = selection->whose[i];

	selection->requests[i] = selection->requests[other];
	selection->whose[i] = selection->whose[other];
	selection->requests[other] = request;
	selection->whose[other] = whose;
}

/* Takes some, or all, of the pending requests out of the thread's list, in random order. */
static void choose(struct mix_thread *thread, struct selection *selection, int is_all,
		   int is_test_only)
{
	int kept = 0;

	selection->count = 0;
	for (int i = 0; i < thread->pending_count; i++) {
		struct mix_pending *pending = thread->pending[i];
		int is_ready = is_test_only || pending->ready_step <= thread->step;

		if (is_ready && (is_all || mix_below(&thread->local, 3))) {
			selection->requests[selection->count] = pending->request;
			selection->whose[selection->count++] = pending;
		} else {
			thread->pending[kept++] = pending;
		}
	}
	thread->pending_count = kept;
	for (int nulls = mix_below(&thread->local, NULLS_MAX + 1); nulls > 0; nulls--) {
		selection->requests[selection->count] = MPI_REQUEST_NULL;
		selection->whose[selection->count++] = NULL;
	}
	for (int i = selection->count - 1; i > 0; i--)
		swap(thread, selection, i);
}

/* Handles a completed request of the selection: MPI has set it to null. */
static void ended(struct mix_thread *thread, struct selection *selection, int i,
		  const MPI_Status *status)
{
	struct mix_pending *pending = selection->whose[i];

	if (!pending)
		return;
	if (selection->requests[i] != MPI_REQUEST_NULL)
		mix_fail(thread, &pending->item, "a request that has ended is not null", i);
	selection->whose[i] = NULL;
	mix_completed(thread, pending, status);
}

/* Handles the completed requests that a call with indices has reported. */
static void ended_some(struct mix_thread *thread, struct selection *selection, int count)
{
	for (int i = 0; i < count; i++)
		ended(thread, selection, selection->indices[i], &selection->statuses[i]);
}

static void ended_all(struct mix_thread *thread, struct selection *selection, int has_statuses)
{
	for (int i = 0; i < selection->count; i++)
		ended(thread, selection, i, has_statuses ? &selection->statuses[i] : NULL);
}

/* ---- one by one ---------------------------------------------------------- */

static void by_wait(struct mix_thread *thread, struct selection *selection)
{
	for (int i = 0; i < selection->count; i++) {
		MPI_Wait(&selection->requests[i], &selection->statuses[i]);
		ended(thread, selection, i, &selection->statuses[i]);
	}
}

static void by_test(struct mix_thread *thread, struct selection *selection)
{
	for (int i = 0; i < selection->count; i++) {
		int is_done = 0;

		while (!is_done)
			MPI_Test(&selection->requests[i], &is_done, &selection->statuses[i]);
		ended(thread, selection, i, &selection->statuses[i]);
	}
}

static void by_status(struct mix_thread *thread, struct selection *selection)
{
	for (int i = 0; i < selection->count; i++) {
		int is_done = 0;

		while (!is_done)
			MPI_Request_get_status(selection->requests[i], &is_done,
					       &selection->statuses[i]);
		if (selection->whose[i] && selection->requests[i] == MPI_REQUEST_NULL)
			mix_fail(thread, &selection->whose[i]->item,
				 "MPI_Request_get_status has freed a request", i);
		/* The request has completed, so this must not wait. */
		MPI_Test(&selection->requests[i], &is_done, MPI_STATUS_IGNORE);
		if (!is_done)
			mix_fail(thread, &selection->whose[i]->item, "ended, then not", i);
		ended(thread, selection, i, &selection->statuses[i]);
	}
}

/* ---- many at once -------------------------------------------------------- */

static void by_waitall(struct mix_thread *thread, struct selection *selection)
{
	int has_statuses = mix_below(&thread->local, 2);

	MPI_Waitall(selection->count, selection->requests,
		    has_statuses ? selection->statuses : MPI_STATUSES_IGNORE);
	ended_all(thread, selection, has_statuses);
}

static void by_testall(struct mix_thread *thread, struct selection *selection)
{
	int is_done = 0;

	while (!is_done)
		MPI_Testall(selection->count, selection->requests, &is_done, selection->statuses);
	ended_all(thread, selection, 1);
}

static void by_any(struct mix_thread *thread, struct selection *selection, int is_test)
{
	for (;;) {
		int index, is_done = 1;
		MPI_Status status;

		if (is_test)
			MPI_Testany(selection->count, selection->requests, &index, &is_done,
				    &status);
		else
			MPI_Waitany(selection->count, selection->requests, &index, &status);
		if (!is_done)
			continue;
		if (index == MPI_UNDEFINED)
			return;
		ended(thread, selection, index, &status);
	}
}

static void by_some(struct mix_thread *thread, struct selection *selection, int is_test)
{
	int count = 0;

	while (count != MPI_UNDEFINED) {
		if (is_test)
			MPI_Testsome(selection->count, selection->requests, &count,
				     selection->indices, selection->statuses);
		else
			MPI_Waitsome(selection->count, selection->requests, &count,
				     selection->indices, selection->statuses);
		if (count != MPI_UNDEFINED)
			ended_some(thread, selection, count);
	}
}

void mix_complete(struct mix_thread *thread, int is_all)
{
	struct selection *selection = malloc(sizeof(*selection));

	if (!selection)
		mix_fail(thread, NULL, "no memory", 0);
	choose(thread, selection, is_all, 0);
	switch (mix_below(&thread->local, 9)) {
	case 0:
		by_wait(thread, selection);
		break;
	case 1:
		by_test(thread, selection);
		break;
	case 2:
		by_status(thread, selection);
		break;
	case 3:
		by_waitall(thread, selection);
		break;
	case 4:
		by_testall(thread, selection);
		break;
	case 5:
	case 6:
		by_any(thread, selection, mix_below(&thread->local, 2));
		break;
	default:
		by_some(thread, selection, mix_below(&thread->local, 2));
	}
	for (int i = 0; i < selection->count; i++)
		if (selection->whose[i])
			mix_fail(thread, &selection->whose[i]->item, "a request was forgotten", i);
	free(selection);
}

/* Puts the requests that have not completed back into the thread's list. */
static void put_back(struct mix_thread *thread, struct selection *selection)
{
	for (int i = 0; i < selection->count; i++) {
		if (!selection->whose[i])
			continue;
		selection->whose[i]->request = selection->requests[i];
		thread->pending[thread->pending_count++] = selection->whose[i];
	}
}

void mix_poll(struct mix_thread *thread)
{
	struct selection *selection = malloc(sizeof(*selection));
	int count = 0, is_done = 0;

	if (!selection)
		mix_fail(thread, NULL, "no memory", 0);
	choose(thread, selection, 0, 1);
	switch (mix_below(&thread->local, 4)) {
	case 0:
		MPI_Testsome(selection->count, selection->requests, &count, selection->indices,
			     selection->statuses);
		if (count != MPI_UNDEFINED)
			ended_some(thread, selection, count);
		break;
	case 1:
		MPI_Testany(selection->count, selection->requests, &count, &is_done,
			    selection->statuses);
		if (is_done && count != MPI_UNDEFINED)
			ended(thread, selection, count, selection->statuses);
		break;
	case 2:
		MPI_Testall(selection->count, selection->requests, &is_done, selection->statuses);
		if (is_done)
			ended_all(thread, selection, 1);
		break;
	default:
		for (int i = 0; i < selection->count; i++) {
			MPI_Test(&selection->requests[i], &is_done, selection->statuses);
			if (is_done)
				ended(thread, selection, i, selection->statuses);
		}
	}
	put_back(thread, selection);
	free(selection);
}

void mix_free(struct mix_thread *thread, MPI_Comm *comm)
{
	int kept = 0;

	for (int i = 0; i < thread->pending_count; i++) {
		struct mix_pending *pending = thread->pending[i];

		if (thread->is_early_free || pending->item.on.comm != *comm) {
			thread->pending[kept++] = pending;
			continue;
		}
		/* All its ranks start it before they get here. */
		MPI_Wait(&pending->request, MPI_STATUS_IGNORE);
		mix_completed(thread, pending, NULL);
	}
	thread->pending_count = kept;
	MPI_Comm_free(comm);
}
