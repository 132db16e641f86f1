//! Which blocks are read or written, one after the other.

use crate::error::BenchError;
use crate::measure::Places;

/// The blocks of a file from the first to the last, again and again.
pub(super) fn sequential(blocks: u32, count: usize) -> Vec<u32> {
    (0..blocks).cycle().take(count).collect()
}

/// Any block, one as often as the other.
pub(super) fn uniform(blocks: u32, count: usize, seed: u64) -> Vec<u32> {
    let mut places = Places::new(seed);
    let any = |_| places.below(blocks.into()) as u32;
    (0..count).map(any).collect()
}

/// Every block once.
pub(super) fn shuffled(blocks: u32, seed: u64) -> Vec<u32> {
    let mut places = Places::new(seed);
    let mut order: Vec<u32> = (0..blocks).collect();
    for end in (1..order.len()).rev() {
        order.swap(end, places.below(end as u64 + 1) as usize);
    }
    order
}

/// Blocks of a normal distribution around the middle of the file, whose standard deviation is this part of the file.
pub(super) fn normal(blocks: u32, deviation: f64, count: usize, seed: u64) -> Vec<u32> {
    const STEPS: u64 = 1 << 53;
    let mut places = Places::new(seed);
    let mut between_0_and_1 = || (places.below(STEPS) + 1) as f64 / STEPS as f64;
    let mut order = Vec::with_capacity(count);
    let size = f64::from(blocks);
    while order.len() < count {
        // Box and Muller.
        let radius = (-2.0 * between_0_and_1().ln()).sqrt();
        let angle = std::f64::consts::TAU * between_0_and_1();
        let place = size * (0.5 + deviation * radius * angle.cos());
        // Who falls outside is thrown again.
        if (0.0..size).contains(&place) {
            order.push(place as u32);
        }
    }
    order
}

/// The part of an order that belongs to a round: round after round as the order goes, from its start again at the end.
pub(super) fn part(order: &[u32], round: u64, count: usize) -> &[u32] {
    let count = count.min(order.len());
    let parts = (order.len() / count.max(1)).max(1) as u64;
    let begin = (round % parts) as usize * count;
    &order[begin..begin + count]
}

/// Runs a slice with a round's part, after one with the part before it that does not count: the other side has had the processor's caches.
pub(super) fn steady(
    order: &[u32],
    round: u64,
    count: usize,
    mut slice: impl FnMut(&[u32]) -> Result<f64, BenchError>,
) -> Result<f64, BenchError> {
    slice(part(order, round.wrapping_sub(1), count))?;
    slice(part(order, round, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_stay_in_the_file_and_have_their_shape() {
        assert_eq!(sequential(3, 7), [0, 1, 2, 0, 1, 2, 0]);
        let mut all = shuffled(100, 1);
        assert_ne!(all, sequential(100, 100));
        all.sort_unstable();
        assert_eq!(all, sequential(100, 100));
        let order = normal(1600, 1.0 / 16.0, 100_000, 1);
        let within = |deviations: f64| {
            let near = |block: &&u32| (f64::from(**block) - 800.0).abs() < 100.0 * deviations;
            order.iter().filter(near).count() as f64 / order.len() as f64
        };
        assert!((within(1.0) - 0.683).abs() < 0.01, "{}", within(1.0));
        assert!((within(2.0) - 0.954).abs() < 0.01, "{}", within(2.0));
        let wide = normal(100, 10.0, 10_000, 1);
        assert!(wide.iter().all(|&block| block < 100));
        assert!(uniform(5, 1000, 1).iter().all(|&block| block < 5));
    }

    #[test]
    fn parts_follow_each_other_and_begin_again() {
        let order = [0, 1, 2, 3, 4, 5, 6];
        assert_eq!(part(&order, 0, 3), [0, 1, 2]);
        assert_eq!(part(&order, 1, 3), [3, 4, 5]);
        assert_eq!(part(&order, 2, 3), [0, 1, 2]);
        assert_eq!(part(&order, 9, 100), order);
    }
}
