//! The shape of what programs read: JSON, manual pages, completions.

use crate::common::{make_pool, place, run, succeed};
use perdure::Pool;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn stat_of_a_closed_pool() {
    let place = place();
    let pool = make_pool(place.path());
    let open = Pool::open(&pool).expect("opened");
    open.write("file", vec![1; 300_000]).expect("written");
    open.close().expect("closed");
    let path = pool.to_str().expect("text");
    let report = json(&succeed(["stat", path, "--json"]).stdout);
    assert_eq!(report["pool"], path);
    assert_eq!(report["state"], "closed");
    assert_eq!(report["class"], "volatile");
    assert_eq!(report["clean"], true);
    assert_eq!(report["format_version"], txn::layout::FORMAT_VERSION);
    assert_eq!(report["segments"]["count"], 16);
    assert_eq!(report["segments"]["bytes"], 1 << 20);
    assert_eq!(report["journals"]["count"], 2);
    assert_eq!(report["journals"]["unretired_records"], 0);
    assert_eq!(report["server"], Value::Null);
    assert_eq!(report["segment_wear"], Value::Null);
    let number = |value: &Value| {
        value
            .as_u64()
            .unwrap_or_else(|| panic!("a number in {report:#}"))
    };
    assert!(number(&report["free_bytes"]) < number(&report["size_bytes"]) - 300_000);
    assert!(number(&report["available_bytes"]) <= number(&report["free_bytes"]));
    assert!(
        number(&report["wear"]["written_blocks"]) >= 74,
        "{report:#}"
    );
    let owners = report["segments"]["owners"].as_array().expect("a list");
    let uid = u64::from(rustix::process::geteuid().as_raw());
    let mine = |owner: &Value| owner["uid"] == uid && owner["access"] == "rwr-r-";
    assert!(
        owners.iter().any(mine) || number(&report["segments"]["mixed"]) > 0,
        "{report:#}"
    );
    let known =
        ["free", "metadata", "mixed", "unreadable"].map(|name| number(&report["segments"][name]));
    let owned: u64 = owners.iter().map(|owner| number(&owner["segments"])).sum();
    assert_eq!(known.iter().sum::<u64>() + owned, 16);

    let wear = json(&succeed(["stat", path, "--json", "--wear"]).stdout);
    assert_eq!(wear["segment_wear"].as_array().map(Vec::len), Some(16));
    let text = succeed(["stat", path]).stdout;
    for word in [
        "class      volatile",
        "closed, clean",
        "journals   2 of",
        "wear ",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn stat_of_a_pool_that_a_program_has_open() {
    let place = place();
    let pool = make_pool(place.path());
    let _open = Pool::open(&pool).expect("opened");
    let report = json(&succeed(["stat", pool.to_str().expect("text"), "--json"]).stdout);
    assert_eq!(report["state"], "in use");
    assert_eq!(report["process"], std::process::id());
    assert_eq!(report["segments"]["count"], 16);
    assert_eq!(report["clean"], Value::Null);
}

#[test]
fn every_command_has_a_page_and_completions() {
    let place = place();
    let directory = place.path().join("man");
    succeed(["man", directory.to_str().expect("text")]);
    let commands = [
        "mkfs",
        "mount",
        "umount",
        "fsck",
        "stat",
        "cp",
        "completions",
        "man",
    ];
    for command in commands {
        let page =
            std::fs::read_to_string(directory.join(format!("perdure-{command}.1"))).expect(command);
        assert!(
            page.contains(".SH SYNOPSIS") && page.contains(&format!("perdure\\-{command}")),
            "{page}"
        );
        assert!(
            succeed([command, "--help"]).stdout.contains("Example"),
            "{command} has examples"
        );
    }
    assert!(
        std::fs::read_to_string(directory.join("perdure.1"))
            .expect("the main page")
            .contains("Exit codes")
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = succeed(["completions", shell]).stdout;
        assert!(
            commands.iter().all(|command| script.contains(command)),
            "{shell}"
        );
    }
    assert_eq!(run(["completions", "cmd"]).code, 2);
}

#[test]
#[cfg(feature = "bench")]
fn bench_and_its_experiments_have_pages_and_completions() {
    let place = place();
    let directory = place.path().join("man");
    succeed(["man", directory.to_str().expect("text")]);
    let page = std::fs::read_to_string(directory.join("perdure-bench.1")).expect("bench");
    assert!(
        page.contains(".SH SYNOPSIS") && page.contains("perdure\\-bench"),
        "{page}"
    );
    for experiment in ["ops", "aging", "wear", "readcache"] {
        let page = directory.join(format!("perdure-bench-{experiment}.1"));
        assert!(page.exists(), "{}", page.display());
        let help = succeed(["bench", experiment, "--help"]).stdout;
        assert!(help.contains("Examples"), "{experiment} has examples");
    }
    assert!(succeed(["bench", "--help"]).stdout.contains("Example"));
    for shell in ["bash", "zsh", "fish"] {
        let script = succeed(["completions", shell]).stdout;
        assert!(script.contains("bench"), "{shell}");
    }
}
