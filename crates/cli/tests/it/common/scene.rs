//! A real mount, taken away again whatever happens.

use super::{make_pool, place, run, succeed};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A pool and a mount point; what is still mounted at the end of a test is unmounted.
pub(crate) struct Scene {
    pub(crate) place: tempfile::TempDir,
    pub(crate) pool: PathBuf,
    pub(crate) mountpoint: PathBuf,
}

impl Scene {
    /// `None` if nothing can be mounted here.
    pub(crate) fn new() -> Option<Scene> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let place = place();
        let pool = make_pool(place.path());
        let mountpoint = place.path().join("mnt");
        fs::create_dir(&mountpoint).expect("a mount point");
        Some(Scene {
            place,
            pool,
            mountpoint,
        })
    }

    pub(crate) fn mount(&self, arguments: &[&str]) -> String {
        let mut all = vec!["mount", text(&self.pool), text(&self.mountpoint)];
        all.extend(arguments);
        succeed(all).stdout
    }

    pub(crate) fn unmount(&self) {
        let begin = Instant::now();
        let mut ended = run(["umount", text(&self.mountpoint)]);
        // A command that another test starts at this moment holds our open files until it executes.
        while ended.code == 4 && begin.elapsed() < Duration::from_secs(5) {
            ended = run(["umount", text(&self.mountpoint)]);
        }
        assert!(ended.stdout.starts_with("unmounted"), "{ended:?}");
    }

    pub(crate) fn status(&self) -> Value {
        let said = succeed(["stat", text(&self.mountpoint), "--json"]).stdout;
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if server::pool_mounted_at(&self.mountpoint).is_ok_and(|pool| pool.is_some()) {
            run(["umount", text(&self.mountpoint)]);
        }
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
