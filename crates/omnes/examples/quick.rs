//! Quick look at speed.
#![allow(clippy::unwrap_used, missing_docs)]
use std::time::Instant;
fn main() {
    let world = omnes::Communicator::from_env().unwrap();
    let me = world.rank();
    let n = world.size();
    if n == 2 {
        let peer = 1 - me;
        let mut b = [0u8; 8];
        let mut best = f64::MAX;
        let only_bw = std::env::var("BW").is_ok();
        for _ in 0..(if only_bw { 0 } else { 10 }) {
            world.barrier().unwrap();
            let t = Instant::now();
            let k = 2000;
            for _ in 0..k {
                if me == 0 {
                    world.send(peer, 1, &b).unwrap();
                    world.recv(peer, 1, &mut b).unwrap();
                } else {
                    world.recv(peer, 1, &mut b).unwrap();
                    world.send(peer, 1, &b).unwrap();
                }
            }
            best = best.min(t.elapsed().as_secs_f64() / k as f64 / 2.0 * 1e6);
        }
        if me == 0 {
            println!("latency 8 B: best {best:.2} us");
        }
        for bytes in if only_bw {
            vec![4 << 20]
        } else if std::env::var("LAT").is_ok() {
            vec![]
        } else {
            vec![65536usize, 4 << 20]
        } {
            let mut big = vec![1u8; bytes];
            let mut best = f64::MAX;
            let before = world.stats();
            for _ in 0..(if only_bw { 60 } else { 10 }) {
                world.barrier().unwrap();
                let t = Instant::now();
                let k = (64 << 20) / bytes;
                for _ in 0..k {
                    if me == 0 {
                        world.send(peer, 1, &big).unwrap();
                    } else {
                        world.recv(peer, 1, &mut big).unwrap();
                    }
                }
                if me == 0 {
                    world.recv(peer, 2, &mut b).unwrap();
                } else {
                    world.send(peer, 2, &b).unwrap();
                }
                best = best.min(t.elapsed().as_secs_f64() / k as f64);
            }
            println!("r{me} bandwidth {bytes}: best {:.0} MB/s", bytes as f64 / best / 1e6);
            let s = world.stats();
            println!("r{me} {s:?}");
            let _ = before;
        }
    } else {
        let mut best = f64::MAX;
        let mut all = vec![];
        for _ in 0..20 {
            let t = Instant::now();
            for _ in 0..200 {
                world.barrier().unwrap();
            }
            let x = t.elapsed().as_secs_f64() / 200.0 * 1e6;
            best = best.min(x);
            all.push(x);
        }
        all.sort_by(f64::total_cmp);
        if me == 0 {
            println!("barrier best {best:.1} median {:.1} us", all[10]);
        }
        for bytes in [8usize, 65536, 4 << 20] {
            for alg in ["binomial", "chain", "binomial:pipelined"] {
                let mut big = vec![1u8; bytes];
                let mut all = vec![];
                for _ in 0..20 {
                    world.barrier().unwrap();
                    let t = Instant::now();
                    world.bcast_with(0, &mut big, alg.parse().unwrap()).unwrap();
                    world.barrier().unwrap();
                    all.push(t.elapsed().as_secs_f64() * 1e6);
                }
                all.sort_by(f64::total_cmp);
                if me == 0 {
                    println!(
                        "bcast+barrier {alg} {bytes}: best {:.1} median {:.1} us",
                        all[0], all[10]
                    );
                }
            }
        }
        if me == 0 {
            println!("{:?}", world.stats());
        }
    }
    world.finalize().unwrap();
}
