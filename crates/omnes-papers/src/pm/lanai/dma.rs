//! The DMA engine between memory and SRAM: one engine for both directions, which transfers burst by
//! burst on the bus that it shares with the host.

use super::{What, World};
use omnes_sim::engine::Span;
use std::collections::VecDeque;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// From memory to SRAM.
    Down,
    /// From SRAM to memory.
    Up,
}

/// A transfer of the DMA engine.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    way: Way,
    left: u64,
    /// Bytes currently on the bus.
    burst: u64,
    has_begun: bool,
}

/// The engine with its queue of transfers.
#[derive(Default)]
pub(super) struct Dma {
    transfers: VecDeque<Transfer>,
}

impl World {
    /// Requests a transfer, which begins when all earlier ones are done.
    pub(super) fn start_dma(&mut self, node: usize, way: Way, bytes: u64) {
        let transfer = Transfer { way, left: bytes, burst: 0, has_begun: false };
        self.nodes[node].dma.transfers.push_back(transfer);
        if self.nodes[node].dma.transfers.len() == 1 {
            self.next_burst(node);
        }
    }

    fn next_burst(&mut self, node: usize) {
        let bus = &self.constants.bus;
        let Some(transfer) = self.nodes[node].dma.transfers.front_mut() else { return };
        transfer.burst = transfer.left.min(bus.burst_bytes);
        let start = if transfer.has_begun { Span::ZERO } else { bus.dma_start };
        transfer.has_begun = true;
        let byte = match transfer.way {
            Way::Down => bus.dma_down_byte,
            Way::Up => bus.dma_up_byte,
        };
        let span = start + byte * transfer.burst;
        let end = self.nodes[node].bus.serve(self.now, span);
        self.at(end, node, What::Burst);
    }

    pub(super) fn on_burst(&mut self, node: usize) {
        let transfers = &mut self.nodes[node].dma.transfers;
        let transfer = transfers.front_mut().expect("a burst belongs to a transfer");
        transfer.left -= transfer.burst;
        let (way, burst, is_done) = (transfer.way, transfer.burst, transfer.left == 0);
        if is_done {
            transfers.pop_front();
        }
        // The engine requests the bus again before anything reacts to this burst.
        self.next_burst(node);
        match way {
            Way::Down => self.on_brought(node, burst, is_done),
            Way::Up if is_done => self.on_raised(node),
            Way::Up => {}
        }
    }
}
