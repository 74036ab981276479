//! Congestion window in bytes of truesize: grows while little is lost, halves when more than an
//! eighth is lost.

/// See the module header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossWindow {
    bytes: u32,
    answered: u32,
    lost: u32,
}

/// Number of answered packets after which the loss is evaluated.
pub(crate) const LOSS_ROUND_PACKETS: u32 = 64;
const LOSS_WINDOW_MIN_BYTES: u32 = 16 * 2304;

impl LossWindow {
    pub(crate) fn new(bytes: u32) -> Self {
        Self { bytes: bytes.max(LOSS_WINDOW_MIN_BYTES), answered: 0, lost: 0 }
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(crate) fn on_lost(&mut self, packets: u32) {
        self.lost += packets;
    }

    pub(crate) fn on_answered(&mut self, packets: u32, bytes_max: u32) {
        self.answered += packets;
        if self.answered < LOSS_ROUND_PACKETS {
            return;
        }
        if self.lost * 8 > self.answered {
            self.bytes = (self.bytes / 2).max(LOSS_WINDOW_MIN_BYTES);
        } else {
            self.bytes = self.bytes.saturating_add(self.bytes / 8).min(bytes_max);
        }
        self.answered = 0;
        self.lost = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_halves_on_heavy_loss_and_grows_back() {
        let mut window = LossWindow::new(1 << 20);
        window.on_lost(9);
        window.on_answered(64, 1 << 20);
        assert_eq!(window.bytes(), 1 << 19);
        window.on_lost(8);
        window.on_answered(64, 1 << 20);
        assert_eq!(window.bytes(), (1 << 19) + (1 << 16));
        (0..20).for_each(|_| window.on_answered(64, 1 << 20));
        assert_eq!(window.bytes(), 1 << 20);
    }
}
