/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The measuring loop for messages (pt2pt.h) on an MPI library, whose errors end
 * the job.
 */
#include "pt2pt.h"
#include <mpi.h>

enum { MESSAGE_TAG = 1 };

static void send_message(int to, const void *data, size_t bytes)
{
	MPI_Send(data, (int)bytes, MPI_BYTE, to, MESSAGE_TAG, MPI_COMM_WORLD);
}

static void receive_message(int from, void *buffer, size_t bytes)
{
	MPI_Recv(buffer, (int)bytes, MPI_BYTE, from, MESSAGE_TAG, MPI_COMM_WORLD,
		 MPI_STATUS_IGNORE);
}

static void stop_job(int status)
{
	MPI_Abort(MPI_COMM_WORLD, status);
}

int main(int argc, char **argv)
{
	struct pt2pt_backend backend = {
#ifdef OPEN_MPI
		.impl = "openmpi",
#else
		.impl = "mpich",
#endif
		.send = send_message,
		.recv = receive_message,
		.stop = stop_job,
	};
	int status;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &backend.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &backend.size);
	status = pt2pt_run(argc, argv, &backend);
	MPI_Finalize();
	return status;
}
