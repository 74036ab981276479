/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The MPI functions that the shim needs, as weak symbols: preloaded into a
 * process without MPI, such as the shell that starts a program, the shim is
 * idle instead of keeping the process from starting. It is not linked to an
 * MPI, which would load that MPI into all processes.
 */
#ifndef OMNES_SHIM_MPI_WEAK_H
#define OMNES_SHIM_MPI_WEAK_H

#pragma weak PMPI_Add_error_class
#pragma weak PMPI_Add_error_code
#pragma weak PMPI_Add_error_string
#pragma weak PMPI_Allgather
#pragma weak PMPI_Allgatherv
#pragma weak PMPI_Allreduce
#pragma weak PMPI_Alltoall
#pragma weak PMPI_Alltoallv
#pragma weak PMPI_Barrier
#pragma weak PMPI_Bcast
#pragma weak PMPI_Cancel
#pragma weak PMPI_Comm_call_errhandler
#pragma weak PMPI_Comm_create_keyval
#pragma weak PMPI_Comm_disconnect
#pragma weak PMPI_Comm_free
#pragma weak PMPI_Comm_get_attr
#pragma weak PMPI_Comm_get_errhandler
#pragma weak PMPI_Comm_get_name
#pragma weak PMPI_Comm_rank
#pragma weak PMPI_Comm_set_attr
#pragma weak PMPI_Comm_set_errhandler
#pragma weak PMPI_Comm_size
#pragma weak PMPI_Comm_split
#pragma weak PMPI_Comm_test_inter
#pragma weak PMPI_Comm_group
#pragma weak PMPI_Errhandler_free
#pragma weak PMPI_Exscan
#pragma weak PMPI_Finalize
#pragma weak PMPI_Finalized
#pragma weak PMPI_Gather
#pragma weak PMPI_Get_library_version
#pragma weak PMPI_Group_free
#pragma weak PMPI_Group_translate_ranks
#pragma weak PMPI_Grequest_complete
#pragma weak PMPI_Grequest_start
#pragma weak PMPI_Iallgather
#pragma weak PMPI_Iallreduce
#pragma weak PMPI_Ibarrier
#pragma weak PMPI_Ibcast
#pragma weak PMPI_Initialized
#pragma weak PMPI_Irecv
#pragma weak PMPI_Ireduce
#pragma weak PMPI_Isend
#pragma weak PMPI_Op_commutative
#pragma weak PMPI_Pack
#pragma weak PMPI_Reduce
#pragma weak PMPI_Reduce_local
#pragma weak PMPI_Reduce_scatter
#pragma weak PMPI_Reduce_scatter_block
#pragma weak PMPI_Request_free
#pragma weak PMPI_Request_get_status
#pragma weak PMPI_Scan
#pragma weak PMPI_Scatter
#pragma weak PMPI_Scatterv
#pragma weak PMPI_Sendrecv
#pragma weak PMPI_Status_set_cancelled
#pragma weak PMPI_Status_set_elements
#pragma weak PMPI_Type_commit
#pragma weak PMPI_Type_contiguous
#pragma weak PMPI_Type_create_hindexed
#pragma weak PMPI_Type_create_keyval
#pragma weak PMPI_Type_free
#pragma weak PMPI_Type_get_attr
#pragma weak PMPI_Type_get_contents
#pragma weak PMPI_Type_get_envelope
#pragma weak PMPI_Type_get_extent
#pragma weak PMPI_Type_get_extent_x
#pragma weak PMPI_Type_get_true_extent_x
#pragma weak PMPI_Type_set_attr
#pragma weak PMPI_Type_size_x
#pragma weak PMPI_Unpack
#pragma weak PMPI_Wait

#if MPI_VERSION >= 4
#pragma weak PMPI_Allgather_c
#pragma weak PMPI_Allgatherv_c
#pragma weak PMPI_Alltoall_c
#pragma weak PMPI_Alltoallv_c
#pragma weak PMPI_Gather_c
#pragma weak PMPI_Scatter_c
#pragma weak PMPI_Scatterv_c
#pragma weak PMPI_Allreduce_c
#pragma weak PMPI_Bcast_c
#pragma weak PMPI_Exscan_c
#pragma weak PMPI_Iallgather_c
#pragma weak PMPI_Iallreduce_c
#pragma weak PMPI_Ibcast_c
#pragma weak PMPI_Irecv_c
#pragma weak PMPI_Ireduce_c
#pragma weak PMPI_Isend_c
#pragma weak PMPI_Reduce_c
#pragma weak PMPI_Reduce_scatter_block_c
#pragma weak PMPI_Reduce_scatter_c
#pragma weak PMPI_Scan_c
#pragma weak PMPI_Sendrecv_c
#pragma weak PMPI_Type_get_envelope_c
#endif

#ifdef OPEN_MPI
#pragma weak PMPI_Comm_c2f
#pragma weak PMPI_Comm_f2c
#pragma weak PMPI_Op_f2c
#pragma weak PMPI_Request_c2f
#pragma weak PMPI_Type_f2c
#endif

#ifdef MPICH
#pragma weak PMPIX_Grequest_start
#endif

#endif /* OMNES_SHIM_MPI_WEAK_H */
