//! The experiments' loads, through their interface, on sets that are larger than the cache.

use std::sync::Arc;
use std::time::Duration;

use device::faulty::Faulty;
use pmem::Region;

use super::Design;
use crate::baseline::journaling::{JournalingFs, Options};
use crate::personality::{FileSet, Personality, Stop, run};
use crate::target::Target;

fn bed(design: Design) -> JournalingFs {
    let disk = Arc::new(Faulty::new(4096));
    let region = Arc::new(Region::anonymous(1 << 20));
    design.format(&region, &disk, Options::default())
}

#[test]
fn personalities_find_what_they_wrote() {
    for design in Design::ALL {
        for personality in Personality::ALL {
            let fs = bed(design);
            let set = FileSet::plan(personality, 150, 9000, 7);
            set.populate(&fs).expect("populated");
            run(&fs, &set, 1, Stop::Turns(60), 1).expect("run");
            set.verify(&fs, true).expect("as it should be");
            fs.verify().expect("sound");
            let counts = fs.statistics().cache;
            assert!(counts.evictions > 0, "{}: {counts:?}", fs.label());
        }
    }
}

#[test]
fn threads_share_a_personality() {
    for design in Design::ALL {
        let fs = bed(design);
        let set = FileSet::plan(Personality::Varmail, 100, 9000, 8);
        set.populate(&fs).expect("populated");
        let stop = Stop::After(Duration::from_millis(100));
        let outcome = run(&fs, &set, 4, stop, 1).expect("run");
        assert!(outcome.operations > 0);
        set.verify(&fs, false).expect("as it should be");
        fs.verify().expect("sound");
    }
}
