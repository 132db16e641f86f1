//! The walk's source of chance: wyrand, one state per allocation group, seeded and repeatable.

/// A small fast generator; good enough for placement, useless for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self {
            state: seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        random.next();
        random
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0xa076_1d64_78bd_642f);
        let wide = u128::from(self.state) * u128::from(self.state ^ 0xe703_7ed1_a0b4_28db);
        (wide >> 64) as u64 ^ wide as u64
    }

    /// Uniform in `0..bound`. The bias of multiply-and-shift is below bound / 2^32: bounds here are under 2^20.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}
