//! Subject of each paper, and how its targets are computed here.

use crate::target::Paper;

/// Introduction above a paper's table.
pub(super) fn introduction(paper: Paper) -> &'static str {
    match paper {
        Paper::MultiSend => {
            "Fast Messages on Myrinet, extended by one call: the host hands a packet to the \
             interface once with a list of destinations, and the slow processor there repeats the \
             transmission with changed headers. Above it a tree chosen by the postal model. \
             Formulas use the three lines that the paper fits to its measurements; measured \
             speedups are simulated packet by packet with those lines as costs."
        }
        Paper::Broadcast => {
            "Broadcast over InfiniBand's multicast, which may lose packets: a sliding window of \
             buffers at the root, acknowledgements that are rare or skewed, and co-roots that \
             collect them. Every design is a policy of one machine here, so structure is counted \
             on the machine that sockets run, and times are simulated with it. The paper gives no \
             times, only ratios; its models are compared by their coefficients."
        }
        Paper::Pm => {
            "Channels between workstations that take turns under a gang scheduler: messages find \
             a buffer or are rejected and repeated in order, and a channel can be stopped, saved \
             and restored. The interface begins to send while the message is still coming from \
             memory, and receives into two buffers in turn."
        }
        Paper::Barrier => {
            "Barriers run by the interfaces themselves: one record per barrier, a static packet, \
             no acknowledgements, and a receiver that asks for what it misses. The same step code \
             runs in the kernel's hook, in user space and here."
        }
        Paper::Itb => {
            "Source routes on irregular networks: up*/down* routes are free of deadlock but not \
             minimal; minimal ones become so when a packet leaves the network at a host on the \
             way and is injected again. Latency was measured on three hosts, throughput taken \
             from earlier simulations."
        }
    }
}
