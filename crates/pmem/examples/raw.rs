//! What the primitives cost, next to the bare instructions, on a file in /dev/shm.
//!
//!     cargo run --release -p perdure-pmem --example raw -- [MEBIBYTES]
//!
//! Each row is the best of seven rounds that alternate between the two sides, in nanoseconds per operation.

use std::arch::asm;
use std::arch::x86_64::{_mm_sfence, _mm512_loadu_si512, _mm512_stream_si512};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use perdure_pmem::{
    Access, DurabilityClass, FlushInstruction, Offset, Part, Region, StreamInstruction,
};

const ROUNDS: usize = 7;
const OPERATIONS: u64 = 100_000;

/// Where reads go: aligned alike for both sides, because that alone can make a difference.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Seeded places, so that both sides go to the same ones.
struct Places(u64);

impl Places {
    fn next(&mut self, units: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(units)) >> 64) as u64
    }
}

fn nanoseconds(mut operation: impl FnMut(u64)) -> f64 {
    let begin = Instant::now();
    (0..OPERATIONS).for_each(&mut operation);
    begin.elapsed().as_nanos() as f64 / OPERATIONS as f64
}

fn row(name: &str, mut ours: impl FnMut(u64), mut bare: impl FnMut(u64)) {
    let (mut best_ours, mut best_bare) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        best_ours = best_ours.min(nanoseconds(&mut ours));
        best_bare = best_bare.min(nanoseconds(&mut bare));
    }
    println!(
        "{name:<44} {best_ours:>8.1} {best_bare:>8.1} {:>7.2}",
        best_ours / best_bare
    );
}

/// The instructions themselves, written as one would in C.
///
/// # Safety
/// `to` is aligned to a line and writable, `from` readable, both for whole lines; the processor has AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn bare_stream(to: *mut u8, from: *const u8, length: usize) {
    for at in (0..length).step_by(64) {
        // SAFETY: by contract.
        unsafe { _mm512_stream_si512(to.add(at).cast(), _mm512_loadu_si512(from.add(at).cast())) };
    }
    _mm_sfence();
}

/// # Safety
/// `to` is aligned and writable; the processor has clwb.
unsafe fn bare_store(to: *mut u64, word: u64) {
    // SAFETY: by contract.
    unsafe {
        to.write_volatile(word);
        asm!("clwb [{}]", in(reg) to, options(nostack, preserves_flags));
        _mm_sfence();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mebibytes: u64 = std::env::args()
        .nth(1)
        .map_or(Ok(1024), |text| text.parse())?;
    let (flush, stream) = (FlushInstruction::chosen(), StreamInstruction::chosen());
    if (flush, stream) != (FlushInstruction::Clwb, StreamInstruction::Avx512) {
        return Err(format!(
            "the bare side needs clwb and avx512; this processor has {flush} and {stream}"
        )
        .into());
    }
    let file = tempfile::tempfile_in("/dev/shm")?;
    file.set_len(mebibytes << 20)?;
    let path = std::path::Path::new("/dev/shm");
    let parts = [Part {
        file: &file,
        path,
        file_offset: 0,
        length: mebibytes << 20,
    }];
    let region = Region::map(&parts, DurabilityClass::Volatile, Access::ReadWrite)?;
    region.fence(region.zero_streaming(Offset::new(0), region.length()));
    println!("{mebibytes} MiB on /dev/shm, {flush}, {stream}\n");
    println!(
        "{:<44} {:>8} {:>8} {:>7}",
        "ns per operation", "pmem", "bare", "ratio"
    );
    writes(&region);
    reads(&region);
    Ok(())
}

fn writes(region: &Region) {
    let base = region.as_ptr(Offset::new(0), 0).cast_mut();
    let at = |place: u64| base.wrapping_add(place as usize);
    let block = vec![0x5a_u8; 4096 + 128];
    let (blocks, lines) = (region.length() / 4096, region.length() / 64);
    for (name, misaligned) in [("aligned source", 0), ("source at + 8", 8)] {
        let source = &block[block.as_ptr().align_offset(64) + misaligned..][..4096];
        let (mut ours, mut bare) = (Places(1), Places(1));
        row(
            &format!("4 KiB streaming + fence, random, {name}"),
            |_| {
                let place = Offset::new(ours.next(blocks) * 4096);
                black_box(region.fence(region.write_streaming(place, source)));
            },
            // SAFETY: inside the mapping; `main` has asked for AVX-512.
            |_| unsafe { bare_stream(at(bare.next(blocks) * 4096), source.as_ptr(), source.len()) },
        );
    }
    for (name, places) in [("random", lines), ("hot", 1)] {
        let (mut ours, mut bare) = (Places(2), Places(2));
        row(
            &format!("8 B store + flush + fence, {name}"),
            |round| {
                let place = Offset::new(ours.next(places) * 64);
                black_box(region.fence(region.store_u64(place, round).flush()));
            },
            // SAFETY: inside the mapping; `main` has asked for clwb.
            |round| unsafe { bare_store(at(bare.next(places) * 64).cast(), round) },
        );
    }
    let line = &block[block.as_ptr().align_offset(64)..][..64];
    row(
        "64 B streaming + fence, sequential",
        |round| {
            black_box(region.fence(region.write_streaming(Offset::new(round % lines * 64), line)));
        },
        // SAFETY: inside the mapping; `main` has asked for AVX-512.
        |round| unsafe { bare_stream(at(round % lines * 64), line.as_ptr(), 64) },
    );
    row(
        "128 B streaming + fence, sequential",
        |round| {
            black_box(region.fence(
                region.write_streaming(Offset::new(round % (lines / 2) * 128), &block[..128]),
            ));
        },
        // SAFETY: inside the mapping; `main` has asked for AVX-512.
        |round| unsafe { bare_stream(at(round % (lines / 2) * 128), block.as_ptr(), 128) },
    );
    let mut inode = [0_u8; 40];
    row(
        "40 B store in place, hot, no flush",
        |round| {
            inode[0] = round as u8;
            region
                .store(Offset::new(round % 64 * 256), &inode)
                .leave_to_checkpoint();
        },
        // SAFETY: inside the mapping.
        |round| unsafe {
            at(round % 64 * 256)
                .cast::<[u8; 40]>()
                .write_volatile([round as u8; 40])
        },
    );
}

fn reads(region: &Region) {
    let base = region.as_ptr(Offset::new(0), 0);
    let at = |place: u64| base.wrapping_add(place as usize);
    let lines = region.length() / 64;
    let mut into = Box::new(Page([0; 4096]));
    for (name, places) in [("random", region.length() / 4096), ("hot 4 MiB", 1024)] {
        let (mut ours, mut bare) = (Places(3), Places(3));
        let mut copied = Box::new(Page([0; 4096]));
        row(
            &format!("4 KiB read, {name}"),
            |_| {
                region.read(Offset::new(ours.next(places) * 4096), &mut into.0);
                black_box(&into.0);
            },
            |_| {
                // SAFETY: inside the mapping; nobody else has it.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        at(bare.next(places) * 4096),
                        copied.0.as_mut_ptr(),
                        4096,
                    )
                };
                black_box(&copied.0);
            },
        );
    }
    let (mut ours, mut bare) = (Places(4), Places(4));
    row(
        "64 B load, random",
        |_| {
            black_box(region.load::<[u64; 8]>(Offset::new(ours.next(lines) * 64)));
        },
        |_| {
            // SAFETY: inside the mapping; nobody else has it.
            black_box(unsafe { at(bare.next(lines) * 64).cast::<[u64; 8]>().read() });
        },
    );
    row(
        "8 B load, hot",
        |round| {
            black_box(region.load_u64(Offset::new(round % 64 * 8)));
        },
        |round| {
            // SAFETY: inside the mapping.
            black_box(unsafe { at(round % 64 * 8).cast::<u64>().read_volatile() });
        },
    );
}
