//! What a live server says of the processes that read and write files directly: here this one.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

use crate::common::direct::{BLOCK, Own, await_no_lease, clients, direct_status, status};
use crate::common::{Mounted, Place};
use direct::Client;
use perdure_server::Mounting;
use perdure_server::control::{DirectStatus, Question, Status, ask};

/// The metrics of this mount, without their names' common beginning and without the mount's label.
fn metrics(mounted: &Mounted) -> Vec<String> {
    let text = ask(&mounted.place.pool(), Question::Metrics).expect("metrics");
    let label = format!("mountpoint=\"{}\"", mounted.place.mountpoint().display());
    let ours = text.lines().filter_map(|line| {
        let line = line.strip_prefix("perdure_direct_")?;
        line.contains(&label).then(|| line.replace(&label, ""))
    });
    ours.collect()
}

#[test]
fn a_live_server_tells_of_this_process() {
    let mounted = Mounted::new();
    assert_eq!(direct_status(&mounted), DirectStatus::default());
    assert_eq!(clients(&mounted), []);
    let client = Client::default();
    let leased = Own::create(&mounted, "leased", &client);
    let looked_at = Own::create(&mounted, "looked at", &client);
    looked_at.file.write_all_at(&[7; BLOCK], 0).expect("write");
    let (read_directly, written_directly) = (looked_at.read(20), leased.write(20));
    assert!(read_directly > 0 && written_directly > 0);

    let [this] = clients(&mounted).try_into().expect("one process");
    assert_eq!(this.process, std::process::id());
    assert_eq!(this.user, rustix::process::geteuid().as_raw());
    assert!(!this.command.is_empty(), "{this:?}");
    assert_eq!(this.files_leased, [leased.inode()]);
    assert_eq!(this.files_read, [looked_at.inode()]);
    assert_eq!((this.reads, this.writes), (read_directly, written_directly));
    assert_eq!(this.written_bytes, written_directly * BLOCK as u64);
    let by_kernel = 40 - read_directly - written_directly;
    assert_eq!(this.kernel_path.operations(), by_kernel, "{this:?}");

    let before = direct_status(&mounted);
    let now = (before.processes, before.leases, before.files_read);
    assert_eq!((now, before.segments), ((1, 1, 1), this.segments));
    assert_eq!((before.attached, before.leases_granted), (2, 1));
    assert_eq!(before.leases_taken_back, 0);

    let found = std::fs::read(mounted.path("leased")).expect("read by somebody else");
    assert_eq!(found.len(), 20 * BLOCK);
    let after = direct_status(&mounted);
    assert_eq!((after.leases, after.leases_taken_back), (0, 1));
    assert_eq!((after.leases_granted, after.leases_forced), (1, 0));
    assert!(after.records_folded >= written_directly, "{after:?}");
}

#[test]
fn what_a_process_gives_back_was_not_taken() {
    let mounted = Mounted::new();
    let client = Client::default();
    let file = Own::create(&mounted, "file", &client);
    file.write(20);
    assert_eq!(direct_status(&mounted).leases, 1);
    file.direct.close();
    await_no_lease(&mounted);
    let after = direct_status(&mounted);
    assert_eq!(after.processes, 1);
    assert_eq!((after.leases_granted, after.leases_taken_back), (1, 0));
}

#[test]
fn a_process_that_stands_still_is_counted_as_forced() {
    let mounted = Mounted::new();
    let client = Client::default();
    let file = Own::create(&mounted, "file", &client);
    file.write(20);
    // In the middle of a write, as far as the server can see, and for ever.
    let says = File::options().write(true).open(process_file(&mounted));
    let slot = direct::layout::slot_at(0) as u64;
    let is_busy = says.expect("the process's file").write_all_at(&[1], slot);
    is_busy.expect("written");
    let found = std::fs::read(mounted.path("file")).expect("read by somebody else");
    assert_eq!(found.len(), 20 * BLOCK);
    let after = direct_status(&mounted);
    assert_eq!((after.leases_taken_back, after.leases_forced), (1, 1));
}

#[test]
fn a_process_that_stands_still_in_many_files_is_waited_for_once() {
    const FILES: usize = 30;
    let mounted = Mounted::new();
    let client = Client::default();
    let files: Vec<Own> = (0..FILES)
        .map(|number| Own::create(&mounted, &number.to_string(), &client))
        .collect();
    assert!(files.iter().all(|file| file.write(20) > 0));
    let says = File::options().write(true).open(process_file(&mounted));
    let says = says.expect("the process's file");
    for slot in 0..FILES {
        let at = direct::layout::slot_at(slot) as u64;
        says.write_all_at(&[1], at).expect("written");
    }
    let begin = std::time::Instant::now();
    for number in 0..FILES {
        let found = std::fs::read(mounted.path(&number.to_string()));
        assert_eq!(found.expect("read by somebody else").len(), 20 * BLOCK);
    }
    // 100 ms each would be 3 s.
    assert!(begin.elapsed().as_millis() < 1500, "{:?}", begin.elapsed());
    assert_eq!(direct_status(&mounted).leases_forced, FILES as u64);
}

/// Where the only process of the mount says what it is busy with.
fn process_file(mounted: &Mounted) -> PathBuf {
    let folder = mounted.place.pool().join(txn::sharing::USERS_FOLDER);
    let files = std::fs::read_dir(folder).expect("the processes' files");
    let mut paths = files.map(|entry| entry.expect("an entry").path());
    let is_process = |path: &PathBuf| path.to_string_lossy().contains("/process-");
    paths.find(is_process).expect("a process")
}

#[test]
fn metrics_have_the_same_counts() {
    let mounted = Mounted::new();
    let client = Client::default();
    let file = Own::create(&mounted, "file", &client);
    let sets_user = Own::create(&mounted, "sets user", &client);
    let permissions = Permissions::from_mode(0o4755);
    sets_user.file.set_permissions(permissions).expect("chmod");
    file.write(20);
    assert_eq!(sets_user.write(20), 0);
    std::fs::read(mounted.path("file")).expect("read by somebody else");

    let counts = direct_status(&mounted);
    assert_eq!(counts.refusals.unsuitable, 1, "{counts:?}");
    let [this] = clients(&mounted).try_into().expect("one process");
    assert!(this.kernel_path.refused > 0, "{this:?}");
    let metrics = metrics(&mounted);
    let mut expected = vec![
        format!("processes{{}} {}", counts.processes),
        format!("leases{{}} {}", counts.leases),
        format!("files_read{{}} {}", counts.files_read),
        "files_mapped{} 0".to_owned(),
        format!("segments{{}} {}", counts.segments),
        format!("attached_total{{}} {}", counts.attached),
        format!("leases_granted_total{{}} {}", counts.leases_granted),
        "leases_taken_back_total{} 1".to_owned(),
        "leases_forced_total{} 0".to_owned(),
        "leases_timed_out_total{} 0".to_owned(),
        "mappings_taken_back_total{} 0".to_owned(),
        "mappings_not_given_back_total{} 0".to_owned(),
        format!("records_folded_total{{}} {}", counts.records_folded),
    ];
    for (reason, count) in counts.refusals.by_reason() {
        expected.push(format!("refusals_total{{,reason=\"{reason}\"}} {count}"));
    }
    for line in &expected {
        assert!(metrics.contains(line), "{line} in {metrics:#?}");
    }
    assert_eq!(metrics.len(), expected.len(), "{metrics:#?}");
}

#[test]
fn a_mount_without_direct_access_says_nothing_of_it() {
    let place = Place::new();
    place.format();
    let mounting = Mounting {
        read_only: true,
        ..place.mounting()
    };
    let running = perdure_server::spawn(place.open(true), &mounting).expect("mount");
    let mounted = Mounted {
        running: Some(running),
        place,
    };
    assert_eq!(status(&mounted).direct, None);
    assert_eq!(clients(&mounted), []);
    assert_eq!(metrics(&mounted), [""; 0]);

    let answer = ask(&mounted.place.pool(), Question::Stat).expect("stat");
    let mut older: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let field = older.as_object_mut().expect("fields").remove("direct");
    assert!(field.is_some(), "there is such a field");
    let older: Status = serde_json::from_value(older).expect("an older server is understood");
    assert_eq!(older.direct, None);
}

#[test]
fn of_removed_journals_one_at_most_waits_to_be_let_go() {
    let mounted = Mounted::new();
    let client = Client::default();
    for number in 0..20 {
        let name = format!("journal {}", number % 2);
        let journal = Own::create(&mounted, &name, &client);
        journal.direct.expect_use();
        assert_eq!(journal.write(3), 3);
        journal.direct.close();
        let path = mounted.path(&name);
        if number % 5 == 0 {
            // Whoever reads it before the server has heard finds all of it, and takes it from nobody.
            let found = std::fs::read(&path).expect("read by somebody else");
            assert_eq!(found.len(), 3 * BLOCK);
        }
        std::fs::remove_file(&path).expect("remove");
    }
    let begin = std::time::Instant::now();
    while direct_status(&mounted).leases > 1 && begin.elapsed().as_secs() < 5 {
        std::thread::yield_now();
    }
    let after = direct_status(&mounted);
    assert_eq!((after.leases_granted, after.leases_taken_back), (20, 0));
    assert_eq!(after.leases, 1);
    // What somebody else read was folded for him. The others' bytes went with their names, unless the kernel had not forgotten the file yet when its lease was dropped.
    let folded = after.records_folded;
    assert!(
        (4 * 3..=19 * 3).contains(&folded) && folded.is_multiple_of(3),
        "{folded}"
    );
}
