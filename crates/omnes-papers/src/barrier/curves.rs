//! The slides' figures: latency over the number of nodes, and the gain of the NIC.

use super::bed::{Bed, By, ELAN3, LANAI_XP, LANAI9, Switches};
use crate::{Figure, Mark, Scale, Series};
use omnes_topo::BarrierAlgorithm::{self, Dissemination, GatherBroadcast, PairwiseExchange};

type Points = Vec<(f64, f64)>;

pub(super) fn figures() -> Result<Vec<Figure>, String> {
    let myrinet = [
        (By::Nic, Dissemination, "NIC, dissemination"),
        (By::Nic, PairwiseExchange, "NIC, pairwise exchange"),
        (By::Host, Dissemination, "host, dissemination"),
        (By::Host, GatherBroadcast, "host, gather-broadcast"),
    ];
    let quadrics = [myrinet[0], myrinet[1], (By::Host, GatherBroadcast, "host, tree barrier")];
    Ok(vec![
        latency("Barriers on Myrinet, LANai 9.1", LANAI9, &myrinet, Vec::new())?,
        latency(
            "Barriers on Myrinet, LANai-XP",
            LANAI_XP,
            &myrinet,
            vec![Mark::of("CB-X01", 8.0), Mark::of("CB-F13", 8.0)],
        )?,
        latency("Barriers on Quadrics", ELAN3, &quadrics, vec![Mark::of("CB-X02", 8.0)])?,
        scaling()?,
        gains()?,
    ])
}

/// Latencies in groups of these sizes.
fn points(
    bed: Bed,
    (by, algorithm): (By, BarrierAlgorithm),
    sizes: impl Iterator<Item = u32>,
) -> Result<Points, String> {
    let point = |nodes| Ok((f64::from(nodes), bed.latency_us(by, algorithm, nodes)?));
    sizes.map(point).collect()
}

fn latency(
    title: &str,
    bed: Bed,
    curves: &[(By, BarrierAlgorithm, &str)],
    stated: Vec<Mark>,
) -> Result<Figure, String> {
    let curve = |(by, algorithm, name): &(By, BarrierAlgorithm, &str)| {
        let points = points(bed, (*by, *algorithm), 2..=bed.nodes)?;
        Ok(match by {
            By::Nic => Series::solid(name, points),
            By::Host => Series::dashed(name, points),
        })
    };
    Ok(Figure {
        title: title.to_owned(),
        x: ("nodes".to_owned(), Scale::Linear),
        y: ("latency of a barrier, us".to_owned(), Scale::Linear),
        series: curves.iter().map(curve).collect::<Result<_, String>>()?,
        stated,
    })
}

/// Powers of two up to the 1024 nodes of the slides' model.
fn scaling() -> Result<Figure, String> {
    let sizes = || (1..=10).map(|power| 1 << power);
    let nic = (By::Nic, Dissemination);
    let tree = Switches::Tree { ports: 16, nodes: 16 };
    let series = vec![
        Series::solid("Myrinet, LANai-XP", points(LANAI_XP, nic, sizes())?),
        Series::solid("Quadrics, Elan3", points(ELAN3.on(Switches::One), nic, sizes())?),
        Series::dashed(
            "Quadrics on a tree of 16-port switches",
            points(ELAN3.on(tree), (By::Nic, PairwiseExchange), sizes())?,
        ),
    ];
    Ok(Figure {
        title: "Barriers in the NIC up to 1024 nodes".to_owned(),
        x: ("nodes".to_owned(), Scale::Logarithmic),
        y: ("latency of a barrier, us".to_owned(), Scale::Linear),
        series,
        stated: vec![
            Mark::of("CB-F01", 1024.0),
            Mark::of("CB-F02", 1024.0),
            Mark::of("CB-X03", 1024.0),
        ],
    })
}

/// Ratio of the latency of a host's barrier to that of the NIC's.
fn gains() -> Result<Figure, String> {
    let ratio = |bed: Bed, host: BarrierAlgorithm, nic: BarrierAlgorithm| {
        let sizes = || 2..=bed.nodes;
        let above = points(bed, (By::Host, host), sizes())?;
        let below = points(bed, (By::Nic, nic), sizes())?;
        let ratio = |((nodes, above), (_, below)): ((f64, f64), (f64, f64))| (nodes, above / below);
        Ok::<Points, String>(above.into_iter().zip(below).map(ratio).collect())
    };
    let names = ["Myrinet, LANai 9.1", "Myrinet, LANai-XP"];
    let mut series = Vec::new();
    for (name, bed) in names.into_iter().zip([LANAI9, LANAI_XP]) {
        let by_tree = ratio(bed, GatherBroadcast, Dissemination)?;
        series.push(Series::solid(&format!("{name}, hosts by gather-broadcast"), by_tree));
        let as_in_nic = ratio(bed, Dissemination, Dissemination)?;
        series.push(Series::dashed(&format!("{name}, hosts by dissemination"), as_in_nic));
    }
    let quadrics = ratio(ELAN3, GatherBroadcast, PairwiseExchange)?;
    series.push(Series::solid("Quadrics, hosts by gather-broadcast", quadrics));
    Ok(Figure {
        title: "Host over NIC".to_owned(),
        x: ("nodes".to_owned(), Scale::Linear),
        y: ("latency by host over latency by NIC".to_owned(), Scale::Linear),
        series,
        stated: vec![Mark::of("CB-M01", 16.0), Mark::of("CB-M02", 8.0), Mark::of("CB-M03", 8.0)],
    })
}
