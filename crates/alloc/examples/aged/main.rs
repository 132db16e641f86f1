//! What the policies do to a pool of 4 GiB that is used for long: how evenly it is written, and what free runs are left.
//!
//! `cargo run --release -p perdure-alloc --example aged [-- --json] [-- MiB per segment …]`

mod pool;
mod tree;
mod wear;

use perdure_alloc::Policy;
use pool::Pool;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let only = |name: &str| arguments.iter().any(|argument| argument == name);
    let mut segments: Vec<u64> = arguments
        .iter()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    if segments.is_empty() {
        segments.push(4);
    }
    for &mebibytes in &segments {
        if !only("--wear") {
            aging(mebibytes, json);
        }
        if !only("--aging") {
            wear(mebibytes, json, only("--steered"));
        }
    }
}

fn aging(mebibytes: u64, json: bool) {
    for (policy, metadata) in tree::POLICIES
        .into_iter()
        .flat_map(|policy| [(policy, 0.0), (policy, 0.1)])
    {
        let mut pool = Pool::new(policy, mebibytes * 256, 2);
        let aged = tree::age(&mut pool, 75, 10, metadata);
        pool.allocator.verify().expect("books are right");
        let spread = pool.spread_of_all();
        let segments = pool.spread_of_segments();
        if json {
            println!(
                r#"{{"load":"real_tree_75_percent","metadata_per_data":{metadata},"policy":"{policy:?}","segment_mib":{mebibytes},"wear_peak_over_mean":{:.4},"wear_least_over_mean":{:.4},"run_blocks_fresh":{:.1},"run_blocks_aged":{:.1},"free_in_2m":{:.4},"request_ns_aged":{:.0}}}"#,
                spread.peak,
                spread.least,
                aged.fresh_run,
                aged.aged_run,
                pool.free_in_2m(),
                aged.aged_nanoseconds
            );
        } else {
            println!(
                "{mebibytes:>3} MiB {:<10} metadata x{metadata:<3} peak {:.3} least {:.3} segment peak {:.3}  blocks per extent {:.1} fresh {:.1} aged, free in 2 MiB units {:.1} %, {:.0} -> {:.0} ns a request",
                format!("{policy:?}"),
                spread.peak,
                spread.least,
                segments.peak,
                aged.fresh_run,
                aged.aged_run,
                100.0 * pool.free_in_2m(),
                aged.fresh_nanoseconds,
                aged.aged_nanoseconds
            );
        }
    }
}

fn wear(mebibytes: u64, json: bool, only_steered: bool) {
    for load in wear::LOADS {
        for (factor, threads) in [(0.0, 1), (0.0, 2), (0.5, 2), (2.0, 2)] {
            for policy in tree::POLICIES {
                if only_steered && policy != Policy::Steered {
                    continue;
                }
                let mut pool = Pool::new(policy, mebibytes * 256, threads);
                let start = std::time::Instant::now();
                wear::run(&mut pool, load, factor, 5);
                let time = start.elapsed().as_nanos() as f64 / pool.written() as f64;
                pool.allocator.verify().expect("books are right");
                let (data, all) = (pool.spread_of_data(), pool.spread_of_all());
                let segments = pool.spread_of_segments();
                if json {
                    println!(
                        r#"{{"load":"{load:?}","metadata_per_data":{factor},"threads":{threads},"policy":"{policy:?}","segment_mib":{mebibytes},"wear_data_peak_over_mean":{:.4},"wear_all_peak_over_mean":{:.4},"segment_peak_over_mean":{:.4},"free_in_2m":{:.4}}}"#,
                        data.peak,
                        all.peak,
                        segments.peak,
                        pool.free_in_2m()
                    );
                } else {
                    println!(
                        "{mebibytes:>3} MiB {:<10} {:<14} metadata x{factor:<3} {threads} threads: data {:.3} ({:.3}) all {:.3} ({:.3}) segments {:.3}, free in 2 MiB units {:.1} %, {time:.0} ns a block",
                        format!("{policy:?}"),
                        format!("{load:?}"),
                        data.peak,
                        data.least,
                        all.peak,
                        all.least,
                        segments.peak,
                        100.0 * pool.free_in_2m()
                    );
                }
            }
        }
    }
}
