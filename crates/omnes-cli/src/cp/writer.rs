//! The thread that writes a copy, so that stalls of a disk do not stop the network.
//!
//! After an error it still accepts chunks and returns their buffers, because the rank has to take
//! part in all broadcasts until rank 0 gives up.

use super::sink::Sink;
use anyhow::Result;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Passes chunks to a [`Sink`]. When dropped, it waits for the thread, and the copy is lost.
pub struct Writer {
    /// `None` once the thread has been told to end.
    chunks: Option<Sender<Vec<u8>>>,
    failure: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<Sink>>,
}

impl Writer {
    /// Starts the thread; buffers are returned through `free`.
    pub fn start(sink: Sink, free: Sender<Vec<u8>>) -> Result<Self> {
        let (chunks, coming) = mpsc::channel();
        let failure = Arc::new(OnceLock::new());
        let told = Arc::clone(&failure);
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || write(sink, &coming, &free, &told))?;
        Ok(Self { chunks: Some(chunks), failure, thread: Some(thread) })
    }

    /// Passes a chunk to the thread. The queue is bounded by the number of buffers.
    pub fn take(&self, chunk: Vec<u8>) {
        if let Some(chunks) = &self.chunks {
            // A thread that has panicked accepts nothing; `finish` reports it.
            let _ = chunks.send(chunk);
        }
    }

    /// Reason why the copy is lost, if it is.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// Waits until everything is written.
    pub fn finish(mut self) -> Result<Sink, String> {
        self.chunks = None;
        let sink = self.thread.take().map(JoinHandle::join);
        match (self.failure(), sink) {
            (Some(failure), _) => Err(failure),
            (None, Some(Ok(sink))) => Ok(sink),
            (None, _) => Err("the writer ended early".to_owned()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.chunks = None;
        // When the thread has ended, its hidden files are gone.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn write(
    mut sink: Sink,
    coming: &Receiver<Vec<u8>>,
    free: &Sender<Vec<u8>>,
    told: &OnceLock<String>,
) -> Sink {
    for chunk in coming {
        if told.get().is_none()
            && let Err(error) = sink.apply(&chunk)
        {
            let _ = told.set(error.to_string());
        }
        // After the last chunk no more buffers are needed.
        let _ = free.send(chunk);
    }
    sink
}
