//! A root that waits for all acknowledgements of each message.

use super::*;

#[test]
fn root_completes_only_after_the_last_acknowledgement() {
    // [BC-R4]
    let mut net = Net::new(4, "basic");
    net.lose =
        Box::new(|header, to| to == 0 && header.kind == Kind::CastAck && header.source == Rank(3));
    let message = content(1, 1000);
    net.broadcast(0, &message);
    net.run(2000);
    // All other ranks have received and acknowledged it.
    assert!(net.nodes[1..].iter().all(|node| node.received == [message.clone()]));
    assert_eq!(net.nodes[0].freed, 0);
    net.lose = Box::new(|_, _| false);
    net.run(2000);
    net.assert_received(&[message], 0);
}
