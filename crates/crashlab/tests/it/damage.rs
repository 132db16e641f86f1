//! Damaged pools: no panic, no hang, nothing written through a read-only open. The same code as the fuzz targets, with
//! chance instead of coverage, for as long as a test may take.

use perdure_crashlab::mutation::{MUTATION_BYTES, POOL_BYTES, Sample, examine};
use perdure_crashlab::random::Random;
use perdure_crashlab::recovery::caught;
use pmem::Region;
use std::time::{Duration, Instant};
use txn::{Mode, PmemStore};

/// One to eight mutations.
fn input(random: &mut Random) -> Vec<u8> {
    let mutations = 1 + random.below(8) as usize;
    (0..mutations * MUTATION_BYTES)
        .map(|_| random.next_number() as u8)
        .collect()
}

fn hex(input: &[u8]) -> String {
    input.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn damaged_pools_are_refused_or_served() {
    let sample = Sample::new();
    assert!(examine(sample.image()), "the sound pool mounts");
    let seconds = std::env::var("DAMAGE_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let (begin, mut random) = (Instant::now(), Random::new(1));
    let (mut tried, mut mounted) = (0u64, 0u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let input = input(&mut random);
        let one = Instant::now();
        let image = sample.mutate(&input);
        let result = caught(|| Ok(examine(&image)));
        assert!(result.is_ok(), "{}: {result:?}", hex(&input));
        assert!(
            one.elapsed() < Duration::from_secs(5),
            "{}: took {:?}",
            hex(&input),
            one.elapsed()
        );
        tried += 1;
        mounted += u64::from(result == Ok(true));
    }
    println!("{tried} damaged pools, {mounted} of them could be mounted");
    assert!(
        mounted > 0 && mounted < tried,
        "{mounted} of {tried} mounted"
    );
}

#[test]
fn every_flipped_bit_of_the_header_is_survived() {
    let sample = Sample::new();
    for bit in 0..80 * 8 {
        let mut image = sample.image().to_vec();
        image[bit / 8] ^= 1 << (bit % 8);
        // The second superblock stands in.
        let store = PmemStore::open_region(Region::from_image(&image), Mode::ReadOnly);
        assert!(store.is_ok(), "bit {bit}: {:?}", store.err());
    }
}

#[test]
fn truncated_regions_are_refused() {
    let sample = Sample::new();
    for length in [64, 4096, 8192, POOL_BYTES / 2, POOL_BYTES - 8192] {
        let region = Region::from_image(&sample.image()[..length as usize]);
        assert!(
            PmemStore::open_region(region, Mode::ReadOnly).is_err(),
            "{length} bytes"
        );
    }
}

/// What lies in the files of a pool is the same before and after it was opened read-only, whatever is wrong with it.
#[test]
fn a_read_only_open_writes_nothing() {
    let sample = Sample::new();
    let directory = tempfile::tempdir().expect("temporary directory");
    let pool = directory.path().join("pool");
    let mut random = Random::new(2);
    for _ in 0..100 {
        let image = sample.mutate(&input(&mut random));
        let files = write_pool(&pool, &image, sample.geometry());
        if let Ok(store) = PmemStore::open(&pool, Mode::ReadOnly, true)
            && let Ok(files) = fs::FileSystem::mount(store, fs::MountOptions::default())
        {
            let root = files.root();
            assert_eq!(
                files.create(&root, b"x", &fs::NewInode::file(0)).err(),
                Some(fs::FsError::ReadOnly)
            );
            let _ = perdure_crashlab::snapshot::Summary::of(&files);
        }
        for (path, bytes) in files {
            assert!(
                std::fs::read(&path).expect("read") == bytes,
                "{} changed",
                path.display()
            );
        }
    }
}

/// Cuts an image into the files of a pool.
fn write_pool(
    pool: &std::path::Path,
    image: &[u8],
    geometry: txn::Geometry,
) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let _ = std::fs::remove_dir_all(pool);
    std::fs::create_dir(pool).expect("pool directory");
    let (header, segments) = image.split_at(geometry.first_block().offset().get() as usize);
    let mut files = vec![(pool.join(txn::pool::SUPER_FILE), header.to_vec())];
    for (index, segment) in segments
        .chunks_exact(geometry.segment_bytes() as usize)
        .enumerate()
    {
        files.push((
            pool.join(txn::pool::segment_file(index as u32)),
            segment.to_vec(),
        ));
    }
    for (path, bytes) in &files {
        std::fs::write(path, bytes).expect("write");
    }
    files
}
