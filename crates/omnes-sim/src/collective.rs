//! Collectives as scripts over channels; `omnes-topo` supplies the communication pattern.

use crate::rig::script::{Script, Step};
use omnes_topo::barrier::STEPS_MAX;
use omnes_topo::{BarrierAlgorithm, TopoError, Tree};
use omnes_wire::Rank;

/// Lowest tag of barriers, above the tags of messages.
const BARRIER_TAG: u32 = 1 << 20;

/// Broadcast of `content` from `root` along a tree in chunks of `chunk_bytes`, one script per rank;
/// a rank forwards each chunk as soon as it has received it. Buffers from 0 on hold the chunks.
///
/// # Errors
/// [`TopoError`] if root or size is invalid. `chunk_bytes` 0 means the whole message.
pub fn broadcast(
    tree: Tree,
    root: Rank,
    size: u32,
    content: &[u8],
    chunk_bytes: usize,
) -> Result<Vec<Script>, TopoError> {
    let chunk_bytes = if chunk_bytes == 0 { content.len().max(1) } else { chunk_bytes };
    let chunks: Vec<&[u8]> =
        if content.is_empty() { vec![content] } else { content.chunks(chunk_bytes).collect() };
    let script = |rank: u32| {
        let rank = Rank(rank);
        let parent = tree.parent(rank, root, size)?;
        let children = tree.children(rank, root, size)?;
        let mut script = Script::default();
        for (tag, chunk) in (0..).zip(&chunks) {
            let is_root = parent.is_none();
            let buffer = script.buffer(if is_root { chunk.to_vec() } else { vec![0; chunk.len()] });
            if let Some(parent) = parent {
                script.receive(parent, tag, buffer);
            }
        }
        for (tag, buffer) in (0..).zip(0..chunks.len()) {
            script.step(Step::WaitFor { buffer });
            for child in &children {
                script.send(*child, tag, buffer);
            }
        }
        script.wait();
        Ok(script)
    };
    (0..size).map(script).collect()
}

/// `count` consecutive barriers, one script per rank. Marks `2 i` and `2 i + 1` record when a rank
/// reaches barrier `i` and when it leaves it; rank `r` computes for `compute(r, i)` before barrier
/// `i`.
///
/// # Errors
/// [`TopoError`] if the size is 0.
pub fn barriers(
    algorithm: BarrierAlgorithm,
    size: u32,
    count: u32,
    compute: impl Fn(u32, u32) -> std::time::Duration,
) -> Result<Vec<Script>, TopoError> {
    let script = |rank: u32| {
        let steps = algorithm.schedule(Rank(rank), size)?;
        let mut script = Script::default();
        let empty = script.buffer([]);
        for index in 0..count {
            script.step(Step::Compute(compute(rank, index)));
            script.step(Step::Mark(2 * index));
            for (number, step) in (0..).zip(&steps) {
                let tag = BARRIER_TAG + index * STEPS_MAX + number;
                for to in step.send_to.ranks(Rank(rank), size) {
                    script.send(to, tag, empty);
                }
                for from in step.receive_from.ranks(Rank(rank), size) {
                    script.receive(from, tag, empty);
                }
                script.wait();
            }
            script.step(Step::Mark(2 * index + 1));
        }
        Ok(script)
    };
    (0..size).map(script).collect()
}
