//! Progress of the copy on rank 0's standard error: a bar on a terminal; elsewhere, such as behind
//! the prefix of `omnes run`, a line from time to time.

use crate::stderr::notice;
use crate::units::format_bytes;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Interval between two lines, and before the first.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Progress display.
pub enum Progress {
    /// Nothing is shown.
    Hidden,
    /// A bar on a terminal.
    Bar(ProgressBar),
    /// Lines elsewhere.
    Lines(Lines),
}

impl Progress {
    /// A bar that is full at `bytes`.
    pub fn bar(bytes: u64) -> Self {
        let style = "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(style).expect("a constant");
        Self::Bar(ProgressBar::new(bytes).with_style(style))
    }

    /// Lines; `bytes` is the total, if known.
    pub fn lines(bytes: Option<u64>) -> Self {
        Self::Lines(Lines::new(Instant::now(), bytes))
    }

    /// Reports that `bytes` more bytes have been sent.
    pub fn advance(&mut self, bytes: usize) {
        match self {
            Self::Hidden => {}
            Self::Bar(bar) => bar.inc(bytes as u64),
            Self::Lines(lines) => {
                if let Some(line) = lines.advance(Instant::now(), bytes as u64) {
                    notice(format_args!("{line}"));
                }
            }
        }
    }

    /// Ends the display: all data have been sent, or no more will be.
    pub fn end(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Lines, each about the data since the previous line.
pub struct Lines {
    bytes_all: Option<u64>,
    bytes: u64,
    /// Time of the previous line, and number of bytes sent then.
    told: (Instant, u64),
}

impl Lines {
    fn new(now: Instant, bytes_all: Option<u64>) -> Self {
        Self { bytes_all, bytes: 0, told: (now, 0) }
    }

    fn advance(&mut self, now: Instant, bytes: u64) -> Option<String> {
        self.bytes += bytes;
        let (last, bytes_before) = self.told;
        let time = now.saturating_duration_since(last);
        if time < LINE_INTERVAL {
            return None;
        }
        self.told = (now, self.bytes);
        let rate = (self.bytes - bytes_before) as f64 / time.as_secs_f64();
        let all = self.bytes_all.filter(|all| *all > 0).map_or(String::new(), |all| {
            // The number of sent bytes includes headers.
            let percent = (self.bytes.min(all) as f64 / all as f64 * 100.0).floor();
            format!(" of {} ({percent}%)", format_bytes(all))
        });
        Some(format!("sent {}{all}, {}/s", format_bytes(self.bytes), format_bytes(rate as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_every_ten_seconds_has_the_rate_since_the_last_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lines = Lines::new(start, Some(400 << 20));
        assert_eq!(lines.advance(at(9), 50 << 20), None);
        let line = lines.advance(at(10), 50 << 20);
        assert_eq!(line.as_deref(), Some("sent 100 MiB of 400 MiB (25%), 10 MiB/s"));
        assert_eq!(lines.advance(at(19), 100 << 20), None);
        let line = lines.advance(at(20), 300 << 20);
        assert_eq!(line.as_deref(), Some("sent 500 MiB of 400 MiB (100%), 40 MiB/s"));
    }

    #[test]
    fn progress_has_no_percentage_if_the_total_is_unknown() {
        let start = Instant::now();
        for bytes_all in [None, Some(0)] {
            let mut lines = Lines::new(start, bytes_all);
            let line = lines.advance(start + 2 * LINE_INTERVAL, 20 << 10);
            assert_eq!(line.as_deref(), Some("sent 20 KiB, 1 KiB/s"));
        }
    }
}
