//! Ages a file system: fills it with the files of a real tree, then replaces them at random until its capacity has been written several times.

use crate::error::BenchError;
use crate::personality::{Random, TreeSizes};
use crate::target::Target;

const BLOCK_BYTES: u64 = 4096;
/// Writes of programs that copy files.
const WRITE_BYTES: usize = 1 << 20;
/// Directories that the files are spread over.
const DIRECTORIES: u64 = 128;
/// No file is larger than this share of the capacity.
const LARGEST_SHARE: u64 = 32;

/// A file of the tree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct TreeFile {
    pub(super) path: String,
    pub(super) size_bytes: u64,
}

impl TreeFile {
    /// What it takes from the free space, without its inode.
    fn space_bytes(&self) -> u64 {
        self.size_bytes.next_multiple_of(BLOCK_BYTES)
    }
}

/// A tree in the making: the same seed and capacity make the same one on every file system.
pub(super) struct Generator {
    random: Random,
    sizes: TreeSizes,
    fill_bytes: u64,
    files: Vec<TreeFile>,
    next: u64,
    used_bytes: u64,
    written_bytes: u64,
    content: Vec<u8>,
}

impl Generator {
    /// For a file system of that capacity, to be filled to 75 %.
    pub(super) fn new(capacity_bytes: u64, seed: u64) -> Generator {
        let mut random = Random::new(seed);
        let content = (0..WRITE_BYTES / 8).flat_map(|_| random.next().to_le_bytes());
        let content = content.collect();
        Generator {
            random,
            sizes: TreeSizes {
                bytes_max: capacity_bytes / LARGEST_SHARE,
            },
            fill_bytes: capacity_bytes / 4 * 3,
            files: Vec::new(),
            next: 0,
            used_bytes: 0,
            written_bytes: 0,
            content,
        }
    }

    /// Makes the directories and fills.
    pub(super) fn fill<T: Target>(&mut self, target: &T) -> Result<(), BenchError> {
        make_directories(target)?;
        loop {
            let file = self.plan();
            if self.used_bytes + file.space_bytes() > self.fill_bytes {
                return Ok(());
            }
            self.make(target, file)?;
        }
    }

    /// Removes files at random and makes new ones until `bytes` were written.
    pub(super) fn turn_over<T: Target>(
        &mut self,
        target: &T,
        bytes: u64,
    ) -> Result<(), BenchError> {
        let end = self.written_bytes + bytes;
        while self.written_bytes < end {
            let file = self.plan();
            while self.used_bytes + file.space_bytes() > self.fill_bytes {
                let victim = self.random.below(self.files.len() as u64) as usize;
                let victim = self.files.swap_remove(victim);
                self.used_bytes -= victim.space_bytes();
                target.remove(&victim.path)?;
            }
            self.make(target, file)?;
        }
        Ok(())
    }

    /// The files that are there now, oldest first as far as that is known.
    pub(super) fn files(&self) -> &[TreeFile] {
        &self.files
    }

    /// Makes the same files as `aged` has, on a fresh file system.
    pub(super) fn repeat<T: Target>(&self, target: &T) -> Result<(), BenchError> {
        make_directories(target)?;
        let mut order: Vec<&TreeFile> = self.files.iter().collect();
        order.sort_by_key(|file| file.path.rsplit('/').next().map(str::to_owned));
        order
            .into_iter()
            .try_for_each(|file| self.write(target, file))
    }

    fn plan(&mut self) -> TreeFile {
        let size_bytes = self.sizes.draw(&mut self.random);
        let directory = self.random.below(DIRECTORIES);
        self.next += 1;
        TreeFile {
            path: format!("tree/{directory:03}/{:09}", self.next),
            size_bytes,
        }
    }

    fn make<T: Target>(&mut self, target: &T, file: TreeFile) -> Result<(), BenchError> {
        self.write(target, &file)?;
        self.used_bytes += file.space_bytes();
        self.written_bytes += file.space_bytes();
        self.files.push(file);
        Ok(())
    }

    fn write<T: Target>(&self, target: &T, file: &TreeFile) -> Result<(), BenchError> {
        let open = target.create(&file.path)?;
        let mut left = file.size_bytes;
        while left > 0 {
            let bytes = left.min(WRITE_BYTES as u64);
            target.append(&open, &self.content[..bytes as usize])?;
            left -= bytes;
        }
        Ok(())
    }
}

fn make_directories<T: Target>(target: &T) -> Result<(), BenchError> {
    target.create_dir("tree")?;
    (0..DIRECTORIES).try_for_each(|number| target.create_dir(&format!("tree/{number:03}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Directory;

    const CAPACITY: u64 = 16 << 20;

    fn aged(seed: u64) -> (tempfile::TempDir, Generator) {
        let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let target = Directory::new(place.path(), "tmpfs");
        let mut generator = Generator::new(CAPACITY, seed);
        generator.fill(&target).expect("filled");
        generator.turn_over(&target, 3 * CAPACITY).expect("aged");
        (place, generator)
    }

    #[test]
    fn the_tree_is_full_to_three_quarters_and_what_the_generator_says() {
        let (place, generator) = aged(1);
        let target = Directory::new(place.path(), "tmpfs");
        let used: u64 = generator.files().iter().map(TreeFile::space_bytes).sum();
        assert!(used <= CAPACITY / 4 * 3);
        assert!(used > CAPACITY / 8 * 5, "{used}");
        assert!(generator.written_bytes >= 3 * CAPACITY);
        let mut found = 0;
        for directory in target.names("tree").expect("listed") {
            found += target
                .names(&format!("tree/{directory}"))
                .expect("listed")
                .len();
        }
        assert_eq!(found, generator.files().len());
        for file in generator.files() {
            assert_eq!(target.status(&file.path).expect("there"), file.size_bytes);
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_tree() {
        let (_first, one) = aged(2);
        let (_second, two) = aged(2);
        let (_third, other) = aged(3);
        assert_eq!(one.files(), two.files());
        assert_ne!(one.files(), other.files());
    }
}
