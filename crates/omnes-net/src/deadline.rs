//! How long others are waited for at the start, in time in which this process ran: while it was
//! stopped, such as in a job that is suspended, they may have been too. What the program does while
//! it waits has its turns.

use crate::driver::SLEEP_MAX;
use crate::while_waiting::WhileWaiting;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The least time that a sleep may be late if it counts as one in which the process was stopped.
const STOPPED_MIN: Duration = SLEEP_MAX.saturating_mul(5);
/// The longest that a call of the kernel waits where something has turns between those.
const CALL_MAX: Duration = Duration::from_secs(1);
/// The shortest that a read waits.
const READ_MIN: Duration = Duration::from_millis(1);

/// See the module header. Its waits end with [`ErrorKind::Interrupted`] where a turn says so.
pub(crate) struct Deadline<'a> {
    at: Instant,
    hook: Option<&'a WhileWaiting>,
    next_turn: Instant,
}

impl<'a> Deadline<'a> {
    /// `limit` from now, with turns for `hook`.
    pub(crate) fn after(limit: Duration, hook: Option<&'a WhileWaiting>) -> Self {
        let now = Instant::now();
        Self { at: now + limit, hook, next_turn: now }
    }

    /// What is left until then.
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Connects, if that takes no longer than what is left, or `least` if that is more.
    pub(crate) fn connect(
        &mut self,
        address: &SocketAddr,
        least: Duration,
    ) -> std::io::Result<TcpStream> {
        loop {
            let left = self.left().max(least);
            let wait = if self.hook.is_some() { left.min(CALL_MAX) } else { left };
            match TcpStream::connect_timeout(address, wait) {
                Err(error) if error.kind() == ErrorKind::TimedOut && !self.left().is_zero() => {
                    self.take_turn()?;
                }
                ended => return ended,
            }
        }
    }

    /// Sleeps for `time`; what the end of the sleep is late by does not count, if it is much.
    pub(crate) fn sleep(&mut self, time: Duration) -> std::io::Result<()> {
        let since = Instant::now();
        std::thread::sleep(time);
        self.on_slept(time, since.elapsed());
        self.take_turn()
    }

    /// Waits until there is something to be read, or the connection's end. Ends with
    /// [`ErrorKind::WouldBlock`] after the stream's own time to read, as reading would.
    pub(crate) fn wait_for(&mut self, stream: &TcpStream) -> std::io::Result<()> {
        let Some(hook) = self.hook else { return Ok(()) };
        let longest = stream.read_timeout()?;
        let since = Instant::now();
        // The kernel knows no time of 0.
        stream.set_read_timeout(Some(hook.interval().max(READ_MIN)))?;
        loop {
            let looked = stream.peek(&mut [0]);
            let nothing = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted];
            match looked {
                Err(error) if nothing.contains(&error.kind()) => self.take_turn()?,
                _ => return stream.set_read_timeout(longest),
            }
            if longest.is_some_and(|longest| since.elapsed() >= longest) {
                return Err(Error::from(ErrorKind::WouldBlock));
            }
        }
    }

    /// Gives the hook its turn, if it is time.
    fn take_turn(&mut self) -> std::io::Result<()> {
        let Some(hook) = self.hook.filter(|_| Instant::now() >= self.next_turn) else {
            return Ok(());
        };
        if hook.call().is_break() {
            return Err(Error::from(ErrorKind::Interrupted));
        }
        self.next_turn = Instant::now() + hook.interval();
        Ok(())
    }

    fn on_slept(&mut self, time: Duration, took: Duration) {
        let late = took.saturating_sub(time);
        if late >= STOPPED_MIN {
            self.at += late;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        let (second, sleep) = (Duration::from_secs(1), Duration::from_millis(1));
        let mut deadline = Deadline::after(60 * second, None);
        deadline.on_slept(sleep, second / 3);
        assert!(deadline.left() <= 60 * second);
        deadline.on_slept(sleep, 3600 * second);
        let left = deadline.left();
        assert!(left > 3600 * second && left < 3660 * second, "{left:?}");
    }
}
