//! Message contents derived from the message's identity, so that any mix-up is detected.

use crate::engine::random::Random;
use std::rc::Rc;

/// The `bytes` bytes of the message named by `identity`.
pub fn content(identity: u64, bytes: usize) -> Rc<[u8]> {
    let mut content = vec![0; bytes];
    Random::named(identity, "content", 0).fill(&mut content);
    content.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_different_messages_differ() {
        assert_eq!(content(1, 40), content(1, 40));
        assert_ne!(content(1, 40), content(2, 40));
        assert_eq!(content(1, 100)[..40], content(1, 40)[..]);
    }
}
