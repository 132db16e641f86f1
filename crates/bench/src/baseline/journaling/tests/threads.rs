//! Several threads at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmem::Region;

use super::model::{Contents, contents};
use super::{Chance, Design, disk};
use crate::baseline::journaling::{Handle, JournalingFs, Options};

/// The work of one thread: files of its own, in a directory that all share.
fn work(fs: &JournalingFs, thread: u64, steps: u64) -> Contents {
    let mut chance = Chance(thread);
    let mut files: BTreeMap<String, (Handle, Vec<u8>)> = BTreeMap::new();
    for step in 0..steps {
        let path = format!("/shared/{thread}-{}", chance.below(5));
        match chance.below(9) {
            0 if files.contains_key(&path) => {
                fs.unlink(&path).expect("there");
                files.remove(&path);
            }
            0 | 1 if !files.contains_key(&path) => {
                let handle = fs.create(&path).expect("room");
                files.insert(path, (handle, Vec::new()));
            }
            1..=4 => {
                let Some((handle, content)) = files.get_mut(&path) else {
                    continue;
                };
                let data = vec![step as u8 | 1; chance.below(30_000) as usize];
                let offset = chance.below(content.len() as u64 + 1).min(30_000);
                fs.write_at(handle, offset, &data).expect("room");
                let end = offset as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&data);
            }
            _ => {
                let Some((_, content)) = files.get(&path) else {
                    continue;
                };
                let handle = fs.open(&path).expect("there");
                let mut read = vec![0; content.len() + 1];
                let length = fs.read_at(&handle, 0, &mut read).expect("readable");
                assert!(read[..length] == *content, "{path}");
            }
        }
    }
    let own = files.into_iter();
    own.map(|(path, (_, content))| (path, Some(content)))
        .collect()
}

#[test]
fn threads_do_not_disturb_each_other() {
    for (design, operations_per_commit) in Design::ALL.into_iter().zip([1, 3, 1]) {
        let options = Options {
            operations_per_commit,
            access_times: true,
        };
        let (region, disk) = (Arc::new(Region::anonymous(design.least_bytes())), disk());
        let fs = design.format(&region, &disk, options);
        fs.create_dir("/shared").expect("room");
        let mut expected = Contents::from([("/shared".to_owned(), None)]);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|thread| {
                    scope.spawn({
                        let fs = &fs;
                        move || work(fs, thread, 500)
                    })
                })
                .collect();
            for worker in workers {
                expected.extend(worker.join().expect("no panic"));
            }
        });
        let counts = fs.statistics().cache;
        assert!(counts.evictions > 20, "{design:?}: {counts:?}");
        fs.verify().expect("sound");
        assert!(contents(&fs).expect("readable") == expected);
        drop(fs);
        let fs = design.recover(&region, &disk, options).expect("sound");
        fs.verify().expect("sound");
        assert!(contents(&fs).expect("readable") == expected);
    }
}
