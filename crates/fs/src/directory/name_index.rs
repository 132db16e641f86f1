//! The index from a name's tag to its dentry: a hash table that fills cache lines and grows in small steps.
//!
//! * A **bucket** is one 64-byte line with five entries of 12 bytes: tag, dentry offset and inode number.
//!   Most lookups end in the first bucket; an entry that found its home full stands in one of the next, and the home
//!   remembers how far the farthest of them is, so a name that does not exist costs no longer walk either.
//! * A **shard** is a row of buckets of any number, 58 to 91 % of whose places are taken. It grows by a quarter, and a
//!   rebuild moves only a few thousand entries.
//! * **Shards** are split in two one after the other (linear hashing), whenever their average passes a limit. The low bits of
//!   the tag choose the shard, the high bits the bucket, so tags alone suffice to rebuild; no name is read again.
//!
//! No operation costs more than a rebuild of one shard, however large the directory is.

use std::mem::size_of;

const ENTRIES_PER_BUCKET: usize = 5;

/// The lowest bits of [`Bucket::state`] count the entries, the others are the reach.
const REACH_SHIFT: u32 = 3;

/// Farthest distance in buckets from an entry's home.
const REACH_MAX: usize = 255;

/// A shard is split when shards have more entries than this on average.
const ENTRIES_PER_SHARD: usize = 2048;

/// A shard grows when more than this many of 64 places are taken.
const FULL_OF_64: usize = 58;

/// A shard grows by one part in so many.
const GROWTH: usize = 4;

/// A shard shrinks when fewer than this many of 64 places are taken.
const SPARSE_OF_64: usize = 38;

/// Entries' places, in 64ths, right after a shard was split or shrunk.
const FRESH_OF_64: usize = 52;

/// What the index knows about a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct IndexEntry {
    pub(super) tag: u32,
    /// The dentry's offset in units.
    pub(super) offset: u32,
    pub(super) inode: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u32; ENTRIES_PER_BUCKET],
    offsets: [u32; ENTRIES_PER_BUCKET],
    inodes: [u32; ENTRIES_PER_BUCKET],
    /// The number of entries, and above [`REACH_SHIFT`] the distance to the farthest bucket that holds an entry whose
    /// home is here.
    state: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);
const _: () = assert!(ENTRIES_PER_BUCKET < 1 << REACH_SHIFT);

impl Bucket {
    const EMPTY: Self = Self {
        tags: [0; ENTRIES_PER_BUCKET],
        offsets: [0; ENTRIES_PER_BUCKET],
        inodes: [0; ENTRIES_PER_BUCKET],
        state: 0,
    };

    /// Places `0..count` are in use.
    #[inline]
    fn count(&self) -> usize {
        (self.state & ((1 << REACH_SHIFT) - 1)) as usize
    }

    #[inline]
    fn reach(&self) -> usize {
        (self.state >> REACH_SHIFT) as usize
    }

    fn set_reach(&mut self, reach: usize) {
        self.state = (reach as u32) << REACH_SHIFT | self.count() as u32;
    }

    #[inline]
    fn entry(&self, place: usize) -> IndexEntry {
        IndexEntry {
            tag: self.tags[place],
            offset: self.offsets[place],
            inode: self.inodes[place],
        }
    }

    #[inline]
    fn set(&mut self, place: usize, entry: &IndexEntry) {
        self.tags[place] = entry.tag;
        self.offsets[place] = entry.offset;
        self.inodes[place] = entry.inode;
    }

    /// Adds an entry to a bucket that is not full.
    #[inline]
    fn push(&mut self, entry: &IndexEntry) {
        self.set(self.count(), entry);
        self.state += 1;
    }

    fn remove(&mut self, place: usize) {
        let last = self.entry(self.count() - 1);
        self.set(place, &last);
        self.state -= 1;
    }

    /// The places with this tag, one bit each. No branch depends on where a tag stands: it could not be predicted.
    #[inline]
    fn places_with(&self, tag: u32) -> u32 {
        let mut places = 0;
        for place in 0..ENTRIES_PER_BUCKET {
            places |= u32::from(self.tags[place] == tag) << place;
        }
        places & ((1 << self.count()) - 1)
    }

    fn place_of(&self, tag: u32, offset: u32) -> Option<usize> {
        (0..self.count()).find(|&place| self.tags[place] == tag && self.offsets[place] == offset)
    }

    fn entries(&self) -> impl Iterator<Item = IndexEntry> + '_ {
        (0..self.count()).map(|place| self.entry(place))
    }
}

#[derive(Clone, Debug, Default)]
struct Shard {
    buckets: Box<[Bucket]>,
    entries: usize,
}

/// The bucket where entries with this tag belong.
#[inline]
fn home_of(tag: u32, buckets: usize) -> usize {
    ((u64::from(tag) * buckets as u64) >> 32) as usize
}

impl Shard {
    fn with_buckets(buckets: usize) -> Self {
        Self {
            buckets: vec![Bucket::EMPTY; buckets].into_boxed_slice(),
            entries: 0,
        }
    }

    fn with_room_for(entries: usize) -> Self {
        Self::with_buckets(
            (entries * 64)
                .div_ceil(ENTRIES_PER_BUCKET * FRESH_OF_64)
                .max(1),
        )
    }

    /// The index of the bucket at this distance from `home`; the row is a ring.
    #[inline]
    fn at(&self, home: usize, distance: usize) -> usize {
        let index = home + distance;
        if index < self.buckets.len() {
            index
        } else {
            index - self.buckets.len()
        }
    }

    /// Puts an entry into the first bucket with room; `false` if all within reach are full.
    #[inline(always)]
    fn place(&mut self, entry: &IndexEntry) -> bool {
        let home = home_of(entry.tag, self.buckets.len());
        let bucket = &mut self.buckets[home];
        if bucket.count() < ENTRIES_PER_BUCKET {
            bucket.push(entry);
            self.entries += 1;
            return true;
        }
        self.place_beyond(home, entry)
    }

    /// The rest of [`Shard::place`], for an entry whose home is full.
    #[inline(never)]
    fn place_beyond(&mut self, home: usize, entry: &IndexEntry) -> bool {
        for distance in 1..self.buckets.len().min(REACH_MAX + 1) {
            let index = self.at(home, distance);
            if self.buckets[index].count() < ENTRIES_PER_BUCKET {
                self.buckets[index].push(entry);
                if distance > self.buckets[home].reach() {
                    self.buckets[home].set_reach(distance);
                }
                self.entries += 1;
                return true;
            }
        }
        false
    }

    /// Bucket and place of an entry.
    fn locate(&self, tag: u32, offset: u32) -> Option<(usize, usize)> {
        if self.buckets.is_empty() {
            return None;
        }
        let home = home_of(tag, self.buckets.len());
        (0..=self.buckets[home].reach()).find_map(|distance| {
            let index = self.at(home, distance);
            Some((index, self.buckets[index].place_of(tag, offset)?))
        })
    }

    fn remove(&mut self, tag: u32, offset: u32) -> bool {
        let Some((index, place)) = self.locate(tag, offset) else {
            return false;
        };
        self.buckets[index].remove(place);
        self.entries -= 1;
        let home = home_of(tag, self.buckets.len());
        if index == self.at(home, self.buckets[home].reach()) && index != home {
            self.shorten_reach(home);
        }
        true
    }

    /// Finds the farthest entry of this home, after one of the farthest has gone.
    fn shorten_reach(&mut self, home: usize) {
        let buckets = self.buckets.len();
        let reach = (1..=self.buckets[home].reach()).rev().find(|&distance| {
            self.buckets[self.at(home, distance)]
                .entries()
                .any(|entry| home_of(entry.tag, buckets) == home)
        });
        self.buckets[home].set_reach(reach.unwrap_or(0));
    }

    fn entries(&self) -> impl Iterator<Item = IndexEntry> + '_ {
        self.buckets.iter().flat_map(Bucket::entries)
    }

    fn is_full(&self) -> bool {
        (self.entries + 1) * 64 > self.buckets.len() * ENTRIES_PER_BUCKET * FULL_OF_64
    }

    fn is_sparse(&self) -> bool {
        self.buckets.len() > 1
            && self.entries * 64 < self.buckets.len() * ENTRIES_PER_BUCKET * SPARSE_OF_64
    }
}

/// The names of one directory.
#[derive(Clone, Debug, Default)]
pub(super) struct NameIndex {
    shards: Vec<Shard>,
    entries: usize,
    /// Entries that found no room within reach of their home. Tags are keyed hashes, so it takes hundreds of names
    /// with one and the same tag to put one here; the list makes even that correct.
    strays: Vec<IndexEntry>,
}

impl NameIndex {
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let buckets: usize = self.shards.iter().map(|shard| shard.buckets.len()).sum();
        buckets * size_of::<Bucket>()
            + self.shards.capacity() * size_of::<Shard>()
            + self.strays.capacity() * size_of::<IndexEntry>()
    }

    /// The shard for a tag. With `n` shards, of which the first `n - 2^k` have been split in two already, it is the low
    /// `k + 1` bits of the tag if there is such a shard, otherwise the low `k` bits.
    #[inline]
    fn shard_of(&self, tag: u32) -> usize {
        let shards = self.shards.len();
        let power = shards.next_power_of_two();
        let shard = tag as usize & (power - 1);
        if shard < shards {
            shard
        } else {
            shard - power / 2
        }
    }

    /// Calls `visit` with every entry of this tag until it returns something.
    #[inline]
    pub(super) fn find<T>(
        &self,
        tag: u32,
        mut visit: impl FnMut(IndexEntry) -> Option<T>,
    ) -> Option<T> {
        if self.entries == 0 {
            return None;
        }
        let shard = &self.shards[self.shard_of(tag)];
        if let Some(last) = shard.buckets.len().checked_sub(1) {
            let home = home_of(tag, last + 1);
            let reach = shard.buckets[home].reach();
            for distance in 0..=reach {
                let bucket = &shard.buckets[shard.at(home, distance)];
                let mut places = bucket.places_with(tag);
                while places != 0 {
                    let found = visit(bucket.entry(places.trailing_zeros() as usize));
                    if found.is_some() {
                        return found;
                    }
                    places &= places - 1;
                }
            }
        }
        self.strays
            .iter()
            .filter(|stray| stray.tag == tag)
            .find_map(|stray| visit(*stray))
    }

    pub(super) fn insert(&mut self, entry: &IndexEntry) {
        if self.shards.is_empty() {
            self.shards.push(Shard::default());
        } else if self.entries >= ENTRIES_PER_SHARD * self.shards.len() {
            self.split_next();
        }
        let shard = self.shard_of(entry.tag);
        if self.shards[shard].is_full() {
            let buckets = self.shards[shard].buckets.len();
            self.rebuild(
                shard,
                Shard::with_buckets(buckets + (buckets / GROWTH).max(1)),
            );
        }
        self.place(shard, entry);
        self.entries += 1;
    }

    /// Removes an entry; `false` if there is none.
    pub(super) fn remove(&mut self, tag: u32, offset: u32) -> bool {
        if self.shards.is_empty() {
            return false;
        }
        let shard = self.shard_of(tag);
        if self.shards[shard].remove(tag, offset) {
            if self.shards[shard].is_sparse() {
                let room = Shard::with_room_for(self.shards[shard].entries);
                self.rebuild(shard, room);
            }
        } else if let Some(stray) = self
            .strays
            .iter()
            .position(|stray| stray.tag == tag && stray.offset == offset)
        {
            self.strays.swap_remove(stray);
        } else {
            return false;
        }
        self.entries -= 1;
        if self.entries == 0 {
            *self = Self::default();
        }
        true
    }

    /// Gives an entry another inode; `false` if there is no such entry.
    pub(super) fn set_inode(&mut self, tag: u32, offset: u32, inode: u32) -> bool {
        if self.shards.is_empty() {
            return false;
        }
        let shard = self.shard_of(tag);
        let entry = IndexEntry { tag, offset, inode };
        if let Some((index, place)) = self.shards[shard].locate(tag, offset) {
            self.shards[shard].buckets[index].set(place, &entry);
        } else if let Some(stray) = self
            .strays
            .iter_mut()
            .find(|stray| stray.tag == tag && stray.offset == offset)
        {
            *stray = entry;
        } else {
            return false;
        }
        true
    }

    #[inline]
    fn place(&mut self, shard: usize, entry: &IndexEntry) {
        if !self.shards[shard].place(entry) {
            self.strays.push(*entry);
        }
    }

    fn rebuild(&mut self, shard: usize, room: Shard) {
        let old = std::mem::replace(&mut self.shards[shard], room);
        let new = &mut self.shards[shard];
        for entry in old.entries() {
            if !new.place(&entry) {
                self.strays.push(entry);
            }
        }
    }

    /// Splits the next shard in turn, all entries of which have the same low bits: the next bit decides.
    fn split_next(&mut self) {
        let shards = self.shards.len();
        let split = shards - (1 << shards.ilog2());
        let half = Shard::with_room_for(self.shards[split].entries / 2);
        self.shards.push(half.clone());
        let old = std::mem::replace(&mut self.shards[split], half);
        for entry in old.entries() {
            let shard = self.shard_of(entry.tag);
            self.place(shard, &entry);
        }
    }
}

#[cfg(test)]
impl NameIndex {
    /// Every entry is counted, is where its tag leads, and the reach of every home is exact.
    pub(super) fn assert_consistent(&self) {
        let mut entries = self.strays.len();
        for (number, shard) in self.shards.iter().enumerate() {
            let buckets = shard.buckets.len();
            let mut reach = vec![0; buckets];
            let mut found = 0;
            for (index, bucket) in shard.buckets.iter().enumerate() {
                for entry in bucket.entries() {
                    assert_eq!(self.shard_of(entry.tag), number);
                    let home = home_of(entry.tag, buckets);
                    let distance = (index + buckets - home) % buckets;
                    reach[home] = distance.max(reach[home]);
                    found += 1;
                }
            }
            assert_eq!(found, shard.entries);
            assert!(shard.buckets.iter().map(Bucket::reach).eq(reach));
            entries += found;
        }
        assert_eq!(entries, self.entries);
    }
}
