//! scratch
use omnes_sim::*;
use omnes_wire::Kind;
#[test]
fn debug() {
    let config = ClusterConfig { ranks: 4, seed: 7, trace: Printing::All, ..ClusterConfig::default() };
    let mut cluster = Builder::from_config(config).build();
    let _loss = cluster.rule(drop().kind(Kind::Data).seq(3).to(2).times(1));
    cluster.receive(2, 0, 1, 14000);
    cluster.send(0, 2, 1, 14_000);
    cluster.run_until_quiescent();
}
