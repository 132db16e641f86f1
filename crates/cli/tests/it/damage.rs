//! Commands on damaged pools: their messages, and the bytes that stay as they are.

use crate::bad_input::{refuse, refuse_everywhere, text};
use crate::common::{make_pool, place, succeed};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// One copy has another version by damage, and the other one is damaged elsewhere.
#[test]
fn a_damaged_version_is_no_other_version() {
    let place = place();
    let pool = make_pool(place.path());
    let head = File::options()
        .write(true)
        .read(true)
        .open(pool.join("super"))
        .expect("the header");
    let second = head.metadata().expect("its length").len() - 4096;
    let damages: [(u64, u64); 3] = [(8, 40), (40, 8), (8, 0)];
    for (in_first, in_second) in damages {
        let places = [in_first, second + in_second];
        let flip = || {
            for at in places {
                let mut byte = [0];
                head.read_exact_at(&mut byte, at).expect("read");
                head.write_all_at(&[byte[0] ^ 0xff], at).expect("patched");
            }
        };
        flip();
        refuse_everywhere(
            &pool,
            3,
            &[text(&pool), "both superblocks are damaged", "restore"],
        );
        refuse(&["fsck", text(&pool)], 8, &["both superblocks are damaged"]);
        flip();
        succeed(["stat", text(&pool)]);
    }
}
