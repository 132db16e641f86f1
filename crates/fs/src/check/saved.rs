//! The volatile state that a clean unmount saved, against what the inodes say.

use super::context::{Findings, Inodes, Scan, State};
use super::kind::FaultKind;
use super::report::Place;
use crate::pool::saved::Saved;
use pmem::{BlockNumber, Offset};
use txn::layout::{CLEAN_AT, SAVED_AT, STATE_BLOCK, SavedHeader};

/// Checks the saved state of a pool that was unmounted cleanly.
pub(super) fn check(scan: &Scan<'_>, inodes: &Inodes, findings: &mut Findings) {
    if inodes.is_incomplete() {
        return;
    }
    let fault = match read(scan, inodes) {
        None => Some((FaultKind::SavedStateDamaged, String::new())),
        Some(saved) => {
            contradiction(scan, inodes, &saved).map(|detail| (FaultKind::SavedStateWrong, detail))
        }
    };
    if let Some((kind, detail)) = fault {
        findings.fault(Place::SavedState, kind, detail);
        findings.plan.word(clean_mark(), 0);
    }
}

/// Where the mark of a clean unmount is.
pub(super) fn clean_mark() -> Offset {
    STATE_BLOCK.offset() + CLEAN_AT
}

fn read(scan: &Scan<'_>, inodes: &Inodes) -> Option<Saved> {
    let header: SavedHeader = scan.region.load(STATE_BLOCK.offset() + SAVED_AT);
    // Reading goes by the header's extents, so all of them have to be there.
    if header.length > scan.claims.blocks() * pmem::BLOCK_BYTES as u64
        || scan.region.length() < scan.geometry.total_bytes()
    {
        return None;
    }
    let blob = txn::saved::load(scan.region, &scan.geometry)?;
    let blocks: Vec<BlockNumber> = inodes.table.iter().copied().flatten().collect();
    Saved::parse(&blob, &blocks, scan.claims.device_words().count())
}

fn contradiction(scan: &Scan<'_>, inodes: &Inodes, saved: &Saved) -> Option<String> {
    let header: SavedHeader = scan.region.load(STATE_BLOCK.offset() + SAVED_AT);
    let extents = &header.extents[..(header.extent_count as usize).min(header.extents.len())];
    let taken = extents
        .iter()
        .flat_map(|[start, blocks]| (0..*blocks).map(move |index| BlockNumber::new(start + index)));
    if let Some(block) = taken
        .filter(|&block| scan.claims.contains(block))
        .find(|&block| scan.claims.is_claimed(block))
    {
        return Some(format!("it lies in block {block}, which is in use"));
    }
    let computed =
        (0..scan.geometry.segments).flat_map(|segment| scan.claims.segment_words(segment));
    if let Some(word) = computed
        .enumerate()
        .find(|(index, word)| saved.bitmap.get(*index) != Some(word))
    {
        return Some(format!("word {} of the bitmap differs", word.0));
    }
    if !scan
        .claims
        .device_words()
        .eq(saved.device_bitmap.iter().copied())
    {
        return Some("the bitmap of the device differs".into());
    }
    let mut free: Vec<u32> = saved.free_numbers.clone();
    free.sort_unstable();
    let is_free = |number: &u32| inodes.summaries[*number as usize].state == State::Free;
    let expected = (2..inodes.summaries.len() as u32).filter(is_free);
    (!expected.eq(free)).then(|| "the free inodes differ".into())
}
