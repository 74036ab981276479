//! The variables that the preload library reads, for `omnes doctor --mpi` and the documents.

/// All variables that the preload library, or what starts it, reads, with their meaning. Those of
/// the library Omnes apply as well.
pub const VARIABLES: &[(&str, &str)] = &[
    (
        "OMNES_MPI",
        "what is taken from the MPI: on (all), bcast, barrier, allreduce, reduce, allgather, \
         gather, scatter, alltoall, reduce_scatter, scan, off",
    ),
    ("OMNES_MPI_ONE_NODE", "on: also where all ranks are on one node; off where unset"),
    (
        "OMNES_MPI_REPORT",
        "on: a line per communicator on stderr, of what was taken; off where unset",
    ),
    ("OMNES_MPI_LIBRARY", "the preload library, or the folder that has it, for `omnes mpirun`"),
];
