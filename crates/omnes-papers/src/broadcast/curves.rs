//! Figures of the paper, redrawn from simulations.

use super::emulated::{
    MODELLED_NODES, PACKET_SIZES, SKEWS_US, SMALL_BYTES, both_alone, by_collectors,
    by_collectors_closed, latency_gain, model_and_simulation, throughput_gain,
};
use super::runs::{
    Design, NODES, latency, point_to_point, raw_multicast, throughput, time_in_call,
};
use crate::{Figure, Mark, Scale, Series};

/// Messages of more than one packet.
const LARGE_SIZES: [u64; 6] = [2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Curves of the simulations, with the points that the paper states.
pub(super) fn figures() -> Vec<Figure> {
    vec![
        small_latency(),
        large_latency(),
        gains(),
        raw(),
        throughputs(),
        throughput_gains(),
        skew(),
        skew_ratio(),
        model(),
        larger_clusters(),
        ratio_by_nodes(),
        collectors(),
    ]
}

fn bytes_axis() -> (String, Scale) {
    ("message, bytes".to_owned(), Scale::Logarithmic)
}

fn axis(label: &str, scale: Scale) -> (String, Scale) {
    (label.to_owned(), scale)
}

fn over(sizes: &[u64], of: impl Fn(u64) -> f64) -> Vec<(f64, f64)> {
    sizes.iter().map(|bytes| (*bytes as f64, of(*bytes))).collect()
}

/// The curve of a design; Original is dashed, as the baseline.
fn line(design: Design, points: Vec<(f64, f64)>) -> Series {
    match design {
        Design::Original => Series::dashed(design.name(), points),
        _ => Series::solid(design.name(), points),
    }
}

fn figure(title: &str, x: (String, Scale), y: (String, Scale), series: Vec<Series>) -> Figure {
    Figure { title: title.to_owned(), x, y, series, stated: Vec::new() }
}

fn small_latency() -> Figure {
    let of = |design| line(design, over(&PACKET_SIZES, |bytes| latency(design, NODES, bytes)));
    figure(
        "Latency of small messages, 8 nodes (Figure 6)",
        bytes_axis(),
        axis("latency, us", Scale::Linear),
        Design::ALL.map(of).to_vec(),
    )
}

fn large_latency() -> Figure {
    let of = |design| line(design, over(&LARGE_SIZES, |bytes| latency(design, NODES, bytes)));
    figure(
        "Latency of large messages, 8 nodes (Figure 7)",
        bytes_axis(),
        axis("latency, us", Scale::Logarithmic),
        [Design::Original, Design::Window].map(of).to_vec(),
    )
}

fn gains() -> Figure {
    let sizes = [&PACKET_SIZES[..], &LARGE_SIZES].concat();
    let points = over(&sizes, latency_gain);
    let mut figure = figure(
        "Gain in latency of Window over Original, 8 nodes (fitted to BC-M01 and M04)",
        bytes_axis(),
        axis("gain, %", Scale::Linear),
        vec![Series::solid("Window over Original", points)],
    );
    figure.stated =
        vec![Mark::of("BC-M01", 4.0), Mark::of("BC-M03", 2048.0), Mark::of("BC-M04", 8192.0)];
    figure
}

fn raw() -> Figure {
    let receivers = 1..NODES;
    let points = receivers.map(|count| (f64::from(count), raw_multicast(count, SMALL_BYTES)));
    figure(
        "Raw multicast over receivers (Figure 1)",
        axis("receivers", Scale::Linear),
        axis("latency, us", Scale::Linear),
        vec![Series::solid("multicast", points.collect())],
    )
}

fn throughputs() -> Figure {
    let of = |design| line(design, over(&PACKET_SIZES, |bytes| throughput(design, bytes)));
    figure(
        "Broadcasts per second, 8 nodes (Figure 8)",
        bytes_axis(),
        axis("broadcasts/s", Scale::Linear),
        Design::ALL.map(of).to_vec(),
    )
}

fn throughput_gains() -> Figure {
    let points = over(&PACKET_SIZES, throughput_gain);
    let mut figure = figure(
        "Gain in throughput of Aggregate10 over Original, 8 nodes (fitted to BC-M02)",
        bytes_axis(),
        axis("gain, %", Scale::Linear),
        vec![Series::solid("Aggregate10 over Original", points)],
    );
    figure.stated = vec![Mark::of("BC-M02", SMALL_BYTES as f64)];
    figure
}

fn skew() -> Figure {
    let of = |design| line(design, over(&SKEWS_US, |most| time_in_call(design, most, SMALL_BYTES)));
    figure(
        "Mean time in the call where receivers come late, 8 nodes (Figure 9)",
        axis("latest arrival, us", Scale::Linear),
        axis("time in the call, us", Scale::Linear),
        [Design::Original, Design::Window].map(of).to_vec(),
    )
}

fn skew_ratio() -> Figure {
    let ratio = |most| {
        time_in_call(Design::Original, most, SMALL_BYTES)
            / time_in_call(Design::Window, most, SMALL_BYTES)
    };
    let mut figure = figure(
        "Time in the call, Original over Window, 8 nodes",
        axis("latest arrival, us", Scale::Linear),
        axis("ratio", Scale::Linear),
        vec![Series::solid("Original over Window", over(&SKEWS_US, ratio))],
    );
    figure.stated = vec![Mark::of("BC-M06", 400.0)];
    figure
}

fn model() -> Figure {
    let all: Vec<(f64, [(f64, f64); 2])> =
        PACKET_SIZES.iter().map(|bytes| (*bytes as f64, model_and_simulation(*bytes))).collect();
    let of = |design: usize, is_model: bool| {
        let value = |pair: (f64, f64)| if is_model { pair.0 } else { pair.1 };
        all.iter().map(|(bytes, pairs)| (*bytes, value(pairs[design]))).collect()
    };
    let messages = over(&PACKET_SIZES, point_to_point);
    figure(
        "The paper's model beside the simulation, 8 nodes (Figure 10)",
        bytes_axis(),
        axis("latency, us", Scale::Linear),
        vec![
            Series::dashed("Original, model", of(0, true)),
            Series::solid("Original, simulated", of(0, false)),
            Series::dashed("Window, model", of(1, true)),
            Series::solid("Window, simulated", of(1, false)),
            Series::dashed("one message", messages),
        ],
    )
}

/// Original and Window, single broadcasts, on 2 to 1,024 nodes.
fn by_nodes() -> Vec<(f64, [f64; 2])> {
    let powers = 1..=MODELLED_NODES.ilog2();
    powers.map(|power| (f64::from(1 << power), both_alone(1 << power))).collect()
}

fn larger_clusters() -> Figure {
    let all = by_nodes();
    let of = |design: usize| all.iter().map(|(nodes, times)| (*nodes, times[design])).collect();
    figure(
        "Latency at 4 bytes over nodes, without skew (Figure 11 at 1,024)",
        axis("nodes", Scale::Logarithmic),
        axis("latency, us", Scale::Linear),
        vec![Series::dashed("Original", of(0)), Series::solid("Window", of(1))],
    )
}

fn ratio_by_nodes() -> Figure {
    let points = by_nodes().into_iter().map(|(nodes, times)| (nodes, times[0] / times[1]));
    let mut figure = figure(
        "Latency at 4 bytes, Original over Window, over nodes",
        axis("nodes", Scale::Logarithmic),
        axis("ratio", Scale::Linear),
        vec![Series::solid("Original over Window", points.collect())],
    );
    figure.stated = vec![Mark::of("BC-F10", f64::from(MODELLED_NODES))];
    figure
}

fn collectors() -> Figure {
    let points =
        |all: &[(u32, f64)]| all.iter().map(|(at, rate)| (f64::from(*at), *rate)).collect();
    figure(
        "Broadcasts per second over collectors, 1,024 nodes (Figure 12)",
        axis("collectors, the root with its co-roots", Scale::Logarithmic),
        axis("broadcasts/s", Scale::Linear),
        vec![
            Series::solid("simulated", points(by_collectors())),
            Series::dashed("formula of section 7.2", points(&by_collectors_closed())),
        ],
    )
}
