//! Broadcast over multicast: what is simulated.

use super::runs::*;
use crate::{Figure, Finding, Target};

/// The finding of a target that is simulated.
pub(super) fn find(_target: &Target) -> Option<Finding> {
    None
}

/// Curves of the simulations, with the points that the paper states.
pub(super) fn figures() -> Vec<Figure> {
    for b in [4, 64, 512, 1024, 2048, 8192, 32768] {
        println!("pp {b}: {:.2} us", point_to_point(b));
    }
    for b in [1, 4, 16, 64, 256, 512, 1024, 1800, 2048, 4096, 8192, 16384, 32768, 65536] {
        let l: Vec<f64> = Design::ALL.iter().map(|d| latency(*d, 8, b)).collect();
        println!("{b}: {l:.2?} gain {:.1} %", 100.0 * (l[0] / l[2] - 1.0));
    }
    for n in [2, 4, 8] {
        println!("{n}: orig {:.2}", latency(Design::Original, n, 4));
    }
    for n in 1..8 {
        println!("raw {n}: {:.2}", raw_multicast(n, 4));
    }
    for b in [1, 4, 64, 512, 1024] {
        let l: Vec<f64> = Design::ALL.iter().map(|d| throughput(*d, b)).collect();
        println!("thr {b}: {l:.0?} gain {:.1} %", 100.0 * (l[4] / l[0] - 1.0));
    }
    for w in [0, 50, 100, 200, 400, 800] {
        println!(
            "skew {w}: {:.2} {:.2}",
            time_in_call(Design::Original, w, 4),
            time_in_call(Design::Window, w, 4)
        );
    }
    let t = std::time::Instant::now();
    println!(
        "1024: {:.2} {:.2}",
        alone(Design::Original.algorithm(), 1024, 4),
        alone(Design::Window.algorithm(), 1024, 4)
    );
    println!(
        "8: {:.2} {:.2}",
        alone(Design::Original.algorithm(), 8, 4),
        alone(Design::Window.algorithm(), 8, 4)
    );
    println!("{:?}", t.elapsed());
    for c in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
        println!("collectors {c}: {:.0} {:?}", throughput_of_collectors(1024, c, 4), t.elapsed());
    }
    Vec::new()
}
