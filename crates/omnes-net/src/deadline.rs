//! Time limits for waits at the start, counted while this process runs: while it is stopped, for
//! instance because the job is suspended, the other ranks may be stopped, too. The program's
//! callback for waits is called meanwhile.

use crate::driver::SLEEP_MAX;
use crate::while_waiting::WhileWaiting;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Least delay of the end of a sleep that shows that the process was stopped.
const STOPPED_MIN: Duration = SLEEP_MAX.saturating_mul(5);
/// Longest wait of a system call, except for connecting without a callback: a call that takes far
/// longer shows that the process was stopped.
const CALL_MAX: Duration = Duration::from_secs(1);
/// Shortest wait: the kernel does not accept a time of 0.
const CALL_MIN: Duration = Duration::from_millis(1);
/// Longest limit, far beyond any use: the range of clocks is limited.
const LIMIT_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Divisor of the limit for the time that an answer is awaited beyond it.
const GRACE_PART: u32 = 8;

/// See the module header. Its waits end with [`ErrorKind::Interrupted`] if the callback ends them.
pub(crate) struct Deadline<'a> {
    at: Instant,
    grace: Duration,
    callback: Option<&'a WhileWaiting>,
    next_call: Instant,
}

impl<'a> Deadline<'a> {
    /// A deadline `limit` from now, with `callback` called periodically.
    pub(crate) fn after(limit: Duration, callback: Option<&'a WhileWaiting>) -> Self {
        let (now, limit) = (Instant::now(), limit.min(LIMIT_MAX));
        Self { at: now + limit, grace: limit / GRACE_PART, callback, next_call: now }
    }

    /// Remaining time.
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Connects, within at most `limit`.
    pub(crate) fn connect(&mut self, address: &SocketAddr, limit: Duration) -> Result<TcpStream> {
        let since = Instant::now();
        loop {
            let left = limit.saturating_sub(since.elapsed()).max(CALL_MIN);
            let wait = if self.callback.is_some() { left.min(CALL_MAX) } else { left };
            match TcpStream::connect_timeout(address, wait) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    self.run_callback()?;
                    if since.elapsed() >= limit {
                        return Err(error);
                    }
                }
                ended => return ended,
            }
        }
    }

    /// Sleeps for `time`; a large delay of the end of the sleep does not count.
    pub(crate) fn sleep(&mut self, time: Duration) -> Result<()> {
        let since = Instant::now();
        std::thread::sleep(time);
        self.on_slept(time, since.elapsed());
        self.run_callback()
    }

    /// Reads the first data that arrive. Ends with [`ErrorKind::TimedOut`] when the remaining time
    /// and a part of the limit more have passed: rank 0 may then report that its own time has
    /// expired.
    pub(crate) fn read(&mut self, mut stream: &TcpStream, piece: &mut [u8]) -> Result<usize> {
        self.retry(|wait| {
            stream.set_read_timeout(Some(wait))?;
            stream.read(piece)
        })
    }

    /// Writes all bytes, within the time of [`Self::read`].
    pub(crate) fn write(&mut self, mut stream: &TcpStream, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let written = self.retry(|wait| {
                stream.set_write_timeout(Some(wait))?;
                stream.write(bytes)
            })?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Makes a call with a limited wait, and repeats it while it has no result.
    pub(crate) fn retry(
        &mut self,
        mut call: impl FnMut(Duration) -> Result<usize>,
    ) -> Result<usize> {
        loop {
            let left = (self.at + self.grace).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let interval = self.callback.map_or(CALL_MAX, WhileWaiting::interval).min(CALL_MAX);
            let (wait, since) = (left.min(interval).max(CALL_MIN), Instant::now());
            let ended = call(wait);
            self.on_slept(wait, since.elapsed());
            match ended {
                Err(error) if is_nothing(&error) => self.run_callback()?,
                ended => return ended,
            }
        }
    }

    /// Runs the callback, if it is due.
    fn run_callback(&mut self) -> Result<()> {
        let Some(callback) = self.callback.filter(|_| Instant::now() >= self.next_call) else {
            return Ok(());
        };
        if callback.call().is_break() {
            return Err(Error::from(ErrorKind::Interrupted));
        }
        self.next_call = Instant::now() + callback.interval();
        Ok(())
    }

    fn on_slept(&mut self, time: Duration, took: Duration) {
        let late = took.saturating_sub(time);
        if late >= STOPPED_MIN {
            self.at += late;
        }
    }
}

/// True if a call had no result in its time.
fn is_nothing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn longest_possible_duration_does_not_overflow() {
        assert!(Deadline::after(Duration::MAX, None).left() > LIMIT_MAX / 2);
    }

    #[test]
    fn write_to_a_peer_that_reads_nothing_times_out() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_silent, limit) = (listener.accept().unwrap(), Duration::from_millis(100));
        let start = Instant::now();
        let ended = Deadline::after(limit, None).write(&stream, &vec![0; 64 << 20]);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() >= limit);
    }

    #[test]
    fn call_far_over_its_time_limit_counts_as_a_stopped_process() {
        let patient = WhileWaiting::every(CALL_MIN, || std::ops::ControlFlow::Continue(()));
        let mut deadline = Deadline::after(STOPPED_MIN / 2, Some(&patient));
        let mut calls = 0;
        let ended = deadline.retry(|wait| {
            calls += 1;
            if calls == 1 {
                std::thread::sleep(wait + STOPPED_MIN);
                return Err(ErrorKind::Interrupted.into());
            }
            Ok(7)
        });
        assert_eq!((ended.unwrap(), calls), (7, 2));
    }

    #[test]
    fn time_while_the_process_is_stopped_does_not_count() {
        let (second, sleep) = (Duration::from_secs(1), Duration::from_millis(1));
        let mut deadline = Deadline::after(60 * second, None);
        deadline.on_slept(sleep, second / 3);
        assert!(deadline.left() <= 60 * second);
        deadline.on_slept(sleep, 3600 * second);
        let left = deadline.left();
        assert!(left > 3600 * second && left < 3660 * second, "{left:?}");
    }
}
