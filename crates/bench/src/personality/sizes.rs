//! Seeded randomness and the distributions of file sizes.

/// A seeded generator (xorshift with a final multiplication): the same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // One step of splitmix, so that neighbouring seeds are far apart, and no state is 0.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random((mixed ^ (mixed >> 31)) | 1)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    #[inline]
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A number above 0 and below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// A normal deviate (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.fraction().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }

    /// A gamma deviate of shape 1.5 and the given mean: Filebench's distribution of file sizes and directory widths.
    ///
    /// The sum of a gamma deviate of shape 1 (exponential) and one of shape 1/2 (half a squared normal deviate).
    pub(crate) fn gamma(&mut self, mean: f64) -> f64 {
        const SHAPE: f64 = 1.5;
        let normal = self.normal();
        (-self.fraction().ln() + normal * normal / 2.0) * mean / SHAPE
    }

    /// A random order of `0..count`.
    pub(crate) fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}

/// File sizes of a real tree: lognormal body (μ = 9.48, σ = 2.46) for all but 6 of 100,000 files, and for these a Pareto tail (k = 0.91,
/// from 512 MiB on), as N. Agrawal, A. and R. Arpaci-Dusseau fitted it ("Generating Realistic Impressions for File-System Images", FAST 2009, table 2)
/// to the data of N. Agrawal, Bolosky, Douceur, Lorch ("A Five-Year Study of File-System Metadata", FAST 2007).
///
/// What is larger than a bound is drawn again, because a pool much smaller than those disks cannot hold the tail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeSizes {
    pub(crate) bytes_max: u64,
}

impl TreeSizes {
    const BODY: f64 = 0.99994;
    const MU: f64 = 9.48;
    const SIGMA: f64 = 2.46;
    const TAIL_SHAPE: f64 = 0.91;
    const TAIL_BYTES_MIN: f64 = 512.0 * 1024.0 * 1024.0;

    /// Size of the next file; 0 is possible.
    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        loop {
            let bytes = if random.fraction() < TreeSizes::BODY {
                (TreeSizes::MU + TreeSizes::SIGMA * random.normal()).exp()
            } else {
                TreeSizes::TAIL_BYTES_MIN / random.fraction().powf(1.0 / TreeSizes::TAIL_SHAPE)
            };
            if bytes <= self.bytes_max as f64 {
                return bytes as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_has_its_mean_and_variance() {
        let mut random = Random::new(1);
        let drawn: Vec<f64> = (0..200_000).map(|_| random.gamma(65536.0)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let square = |value: &f64| (value - mean) * (value - mean);
        let variance = drawn.iter().map(square).sum::<f64>() / drawn.len() as f64;
        assert!((mean / 65536.0 - 1.0).abs() < 0.01, "{mean}");
        // Shape 1.5: the variance is the squared mean over the shape.
        let expected = 65536.0 * 65536.0 / 1.5;
        assert!((variance / expected - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn sizes_of_a_tree_have_the_published_median_and_keep_the_bound() {
        let mut random = Random::new(2);
        let sizes = TreeSizes {
            bytes_max: 128 << 20,
        };
        let mut drawn: Vec<u64> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
        drawn.sort_unstable();
        let median = drawn[drawn.len() / 2] as f64;
        // e^9.48; the bound takes next to nothing away.
        assert!((median / 13_095.0 - 1.0).abs() < 0.05, "{median}");
        assert!(drawn[drawn.len() - 1] <= 128 << 20);
        assert!(drawn[drawn.len() - 1] > 32 << 20);
    }

    #[test]
    fn an_order_has_every_number_once_and_depends_on_the_seed() {
        let order = Random::new(3).order(1000);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        assert_ne!(order, sorted);
        assert_eq!(order, Random::new(3).order(1000));
        assert_ne!(order, Random::new(4).order(1000));
    }
}
