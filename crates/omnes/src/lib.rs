//! Collective communication for clusters on plain Ethernet.
