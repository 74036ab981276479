//! Variables that the preload library reads, for `omnes doctor --mpi` and the documents.

/// Variables that the preload library or `omnes mpirun` reads, with their meaning. The variables of
/// the library Omnes apply as well.
pub const VARIABLES: &[(&str, &str)] = &[
    (
        "OMNES_MPI",
        "calls that Omnes handles instead of the MPI: on (all), bcast, barrier, allreduce, reduce, \
         allgather, gather, scatter, alltoall, reduce_scatter, scan, off [default: on]",
    ),
    ("OMNES_MPI_ONE_NODE", "on: even if all ranks are on one node; off [default: off]"),
    (
        "OMNES_MPI_REPORT",
        "on: a line per communicator on stderr, with what Omnes has handled; off [default: off]",
    ),
    ("OMNES_MPI_LIBRARY", "the preload library, or its directory, for `omnes mpirun`"),
];
