//! The variables of a rank's environment, as its users read of them; [`crate::environment`] reads
//! them.

/// All variables that Omnes reads for itself, with their meaning.
pub const VARIABLES: &[(&str, &str)] = &[
    ("OMNES_RANK", "this process's rank, from 0"),
    ("OMNES_SIZE", "number of ranks"),
    ("OMNES_RENDEZVOUS", "host:port of rank 0 at which the ranks meet; overrides the launcher's"),
    (
        "OMNES_INTERFACE",
        "interface, or network such as 10.0.0.0/24, whose address is this rank's; where unset, \
         that by which it reaches rank 0",
    ),
    ("OMNES_JOB_KEY", "the job's secret, 32 hexadecimal digits; drawn by rank 0 where unset"),
    ("OMNES_LOCAL_SIZE", "ranks that share this machine's cores; this job's where unset"),
    (
        "OMNES_BCAST",
        "broadcast algorithm: multicast, basic, window, tree-ack, co-root=K, ack-every=M, \
         skewed=M, nack, combined, combinations with +; original, binomial, chain, flat, \
         knomial=4, kary=3, postal=6; chosen for each size where unset; the same \
         on all ranks",
    ),
    (
        "OMNES_TUNE",
        "auto: choose by figures kept of this network; off: by rules; or their file; auto where \
         unset",
    ),
    ("OMNES_NETWORK", "name of this network, where its address does not tell it from others"),
    (
        "OMNES_BARRIER",
        "barrier algorithm: dissemination, pairwise, gather-broadcast, counter; chosen where \
         unset; the same on all ranks",
    ),
    (
        "OMNES_NIC",
        "the kernel's network interface, for barriers and small packets. auto: lent by the agent \
         or loaded by the process, else user space; kernel: loaded, else user space; agent: lent, \
         else user space; user: never the kernel's; off: barriers by messages, on all ranks or \
         none; auto where unset",
    ),
    (
        "OMNES_MULTICAST",
        "auto: multicast if it works; on: or do not start; off: never; auto where unset",
    ),
    (
        "OMNES_MULTISEND",
        "where multicast does not work: auto; off: messages down trees; or the tree of multi-sends \
         and who copies: postal=6, flat, binomial:nic, flat:host, flat:loop; the same \
         tree on all ranks; auto where unset",
    ),
    (
        "OMNES_MULTICAST_GROUP",
        "the job's group, address or address:port; follows from the job's number where unset",
    ),
    ("OMNES_MULTICAST_TTL", "routers that multicast may cross, plus one; 1 where unset"),
    ("OMNES_SHM", "shared memory between the ranks of a node: on, off; on where unset"),
    (
        "OMNES_ENCRYPT",
        "user data encrypted on the network: on, off; on all ranks, with a key; off where unset",
    ),
    (
        "OMNES_COMPARE",
        "collective operations, their roots, lengths, types and operations compared between ranks \
         before each call: on, off; the same on all ranks; off where unset",
    ),
    (
        "OMNES_PEER_TIMEOUT",
        "time within which all know of a rank that has failed, one that is silent for four fifths \
         of it; 10ms at least; 5s where unset, 30s for ranks of an MPI",
    ),
    (
        "OMNES_JOIN_TIMEOUT",
        "wait for all ranks at the start; 60s where unset, 20s for ranks of an MPI",
    ),
    (
        "OMNES_SPIN",
        "time for which a waiting call spins, e.g. 200us; by ranks per core where unset",
    ),
    (
        "OMNES_GIVE_WAY",
        "time for which it then gives its core away between looks, e.g. 1ms; likewise",
    ),
    (
        "OMNES_EAGER_BYTES",
        "bytes up to which a message leaves without asking, such as 64k; 131072 where unset; the \
         same on all ranks",
    ),
    (
        "OMNES_POOL_PACKETS",
        "packets kept per channel for messages that nobody has asked for, from 1 to \
         16777216; 8192 where unset",
    ),
    (
        "OMNES_MTU",
        "longest IP packet to send and be sent, in bytes, from 576 to 65535; what the links of all \
         ranks take where unset; the least of all ranks counts",
    ),
    ("OMNES_OFFLOADS", "offloads to use: both, gso, gro, none; both that work where unset"),
    (
        "OMNES_LIVE",
        "counters for `omnes stat`: on, off, or the directory they lie in; on where unset",
    ),
];
