//! Real network under the machines: sockets, rendezvous and the progress engine.
