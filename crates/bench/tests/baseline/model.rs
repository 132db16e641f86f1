//! Random operations against a plain model.

use std::sync::Arc;

use perdure_bench::baseline::{Options, Pmfs, PmfsError};
use pmem::Region;
use proptest::prelude::*;

use crate::tree::{Model, Operation, operations};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Every answer is right, also when the space is used up; no block is lost or used twice after any operation; and a
    /// file system that is opened anew is the same.
    #[test]
    fn random_operations_do_what_they_should(
        operations in operations(1..120, 150_000),
        dentry_cache in any::<bool>(),
    ) {
        let options = Options { dentry_cache };
        let region = Arc::new(Region::anonymous(1 << 20));
        let mut pmfs = Pmfs::format(Arc::clone(&region), options).expect("room");
        let empty = pmfs.statistics();
        let mut model = Model::default();
        for operation in &operations {
            match model.apply(&pmfs, operation) {
                Ok(()) => {}
                Err(PmfsError::NoSpace) => {
                    let now = pmfs.statistics();
                    prop_assert!(now.blocks - now.blocks_in_use < 42, "{:?} is not full", now);
                }
                Err(error) => prop_assert!(false, "{:?}: {}", operation, error),
            }
            if matches!(operation, Operation::Reopen) {
                model.close_all();
                pmfs = Pmfs::recover(Arc::clone(&region), options).expect("sound");
                model.compare(&pmfs);
            }
            prop_assert_eq!(pmfs.verify(), Ok(()), "after {:?}", operation);
        }
        model.compare(&pmfs);
        let before = pmfs.statistics();
        model.close_all();
        pmfs = Pmfs::recover(region, options).expect("sound");
        model.compare(&pmfs);
        prop_assert_eq!(pmfs.verify(), Ok(()));
        prop_assert!(pmfs.statistics().blocks_in_use <= before.blocks_in_use);

        // What is removed comes back: only directories and the inode table keep what they have grown by.
        for (path, content) in model.contents() {
            if content.is_some() {
                pmfs.unlink(&path).expect("there");
            }
        }
        prop_assert_eq!(pmfs.verify(), Ok(()));
        let directories = 1 + model.contents().values().filter(|node| node.is_none()).count() as u64;
        let now = pmfs.statistics();
        prop_assert_eq!(now.inodes_in_use, directories);
        prop_assert!(now.blocks_in_use <= empty.blocks_in_use + 6 * directories + 8, "{:?}", now);
    }
}
