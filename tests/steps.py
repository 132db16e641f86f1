"""The steps that tests/run.py has: what each runs, with which counts, and how long it may take.

A step has a quick form (`make test`) and a full one (`make test-all`, and in turn CI). Most differ by the environment
only: the suites read their counts from it. COMMIT_SEED is the seed that changes by the commit.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

# The lab that runs User-Mode Linux; its step is skipped without it.
UMLLAB = Path(os.environ.get("UMLLAB", Path(__file__).resolve().parents[2] / "shared/umllab"))
# Every cargo feature that tests want, in one build. A test switches a deliberate bug on.
FEATURES = ",".join(f"perdure-{crate}/deliberate-bugs" for crate in
                    ("alloc", "txn", "wal", "readcache", "descriptors", "fs", "crashlab", "server", "cli"))
# `cargo build` and nextest get the same targets, so nothing is built twice. The server's tests start
# the example `serve`.
TARGETS = "--workspace --lib --bins --tests --example serve --features " + FEATURES
# scripts/install-tools.sh builds this version.
NEXTEST = "cargo-nextest-0.9.151 nextest run --no-fail-fast "


@dataclass(frozen=True)
class Step:
    """One command with a time limit. `cores` is what the scheduler counts: a step of two runs alone, one of a half mostly waits."""
    name: str
    command: str
    limit_s: int
    cores: float = 1
    # Seconds of the full form, for the rotation of CI; 0: the quick form is the full one.
    full_s: int = 0
    full_command: str = ""
    quick: dict = field(default_factory=dict)
    full: dict = field(default_factory=dict)
    # Nothing in `make test`: a quicker proof of the same is in another step.
    is_full_only: bool = False
    # Steps that hold the lock of the build directory run one at a time.
    uses_cargo: bool = False
    # Its mounts get requests over io_uring; other steps' mounts use the classic queue.
    over_uring: bool = False


def suite(name, full_s=0, limit_s=900, cores=1, **counts):
    """A script of tests/suites. `counts`: VARIABLE=(quick, full)."""
    quick = {key: str(value[0]) for key, value in counts.items()}
    full = {key: str(value[1]) for key, value in counts.items()}
    return Step(name, f"bash tests/suites/{name}.sh", limit_s, cores, full_s=full_s, quick=quick, full=full)


def on_disk(step, name="", options="", more=""):
    """The same suite on a pool with a log, on the disk below /var/tmp; `options` of every mount, `more` variables."""
    environment = f"env POOL_CLASS=log MOUNT_OPTIONS='{options}' {more} "
    return replace(step, name=name or "log_" + step.name, command=environment + step.command)


def over_uring(step, **changes):
    """The same with mounts over io_uring."""
    return replace(step, name="uring_" + step.name, over_uring=True, **changes)


# First what everything else needs; then the long ones, so that the two cores end together.
BUILD = Step("build", "cargo build " + TARGETS, 1800, cores=2, uses_cargo=True)
# The build that users get. Full forms of the suites run on it, quick ones on the tests' build.
RELEASE = Step("release", "cargo build --release -p perdure-cli -p perdure-preload", 1800, cores=2, uses_cargo=True)
STEPS = [
    Step("units", NEXTEST + TARGETS, 1800, cores=2, uses_cargo=True, full_s=400,
         quick={"PROPTEST_CASES": "32", "DAMAGE_SECONDS": "5", "CHECK_SECONDS": "5", "COPIES_SECONDS": "2",
                "CORRUPT_POOLS": "300"},
         full={"DAMAGE_SECONDS": "60", "CHECK_SECONDS": "60", "COPIES_SECONDS": "20",
               "CORRUPT_POOLS": "3000"}),
    Step("doctests", "cargo test --workspace --doc --features " + FEATURES, 600, cores=2, uses_cargo=True),
    Step("schedules", NEXTEST + "--workspace --test interleavings --features perdure-alloc/interleavings," + FEATURES, 600, uses_cargo=True),
    Step("clippy", "cargo clippy --workspace --all-targets --features " + FEATURES + " -- -D warnings", 1200, uses_cargo=True),
    # Without the feature `bench` of the command. Everything else is as `clippy` has checked it.
    Step("clippy_bare", "cargo clippy --workspace --no-default-features --all-targets --features " + FEATURES + " -- -D warnings", 1200,
         uses_cargo=True),
    Step("docs", "cargo doc --no-deps --workspace", 600, uses_cargo=True),
    Step("bugs", "tests/crash.sh bugs", 900, cores=2),
    Step("crash", "tests/crash.sh share", 1500, cores=2, full_s=480,
         quick={"CRASH_STATES": "480000", "CRASH_SHARE": "12"}, full={"CRASH_STATES": "2000000", "CRASH_SHARE": "1", "CRASH_SECONDS": "1400"}),
    Step("fuzz", "tests/fuzz.sh 3", 900, cores=2, full_s=150, full_command="tests/fuzz.sh 20"),
    suite("fsx", 180, FSX_OPERATIONS=(20_000, 250_000)),
    suite("kill9", 150, ROUNDS=(8, 60)),
    suite("flips", 160, FLIPS=(30, 200)),
    suite("direct_kill9", 90, CLIENT_KILLS=(100, 600), SERVER_KILLS=(10, 60)),
    suite("direct_fsx", 60, FSX_OPERATIONS=(20_000, 60_000), COHERENCE_ROUNDS=(250, 250), DIRECT_LEAST=(20, 200)),
    suite("direct_in_place", 60, FSX_OPERATIONS=(8_000, 20_000), COHERENCE_ROUNDS=(250, 250), DIRECT_LEAST=(20, 200)),
    suite("direct_mmap", 40, SERVER_KILLS=(3, 8)),
    suite("direct_postgres", 40, PGBENCH_SECONDS=(6, 20)),
    suite("direct_protection", 30, SEEDS=("1", "1 2 3")),
    suite("direct_log", 60, ROUNDS=(3, 10)),
    suite("direct_programs"),
    suite("direct_posix", cores=0.5),
    suite("direct_greedy", cores=0.5),
    suite("direct_heirs", cores=0.5),
    suite("direct_unused", cores=0.5),
    suite("direct_spoilers", cores=0.5),
    on_disk(suite("kill9", 150, 1500, ROUNDS=(4, 50))),
    on_disk(suite("kill9", 150, 1500, ROUNDS=(4, 50)), "log_kill9_call", "--durable call", "POWER_CUTS=1"),
    over_uring(Step("units", NEXTEST + TARGETS + " -E 'package(perdure-fuse) or package(perdure-server) or package(perdure-cli)'", 900,
                    cores=2, uses_cargo=True, quick={"PROPTEST_CASES": "32"})),
    over_uring(suite("kill9", 150, ROUNDS=(8, 60))),
    over_uring(suite("fsx", 180, FSX_OPERATIONS=(20_000, 250_000))),
    over_uring(suite("page_cache", 30, cores=1, STALE_WRITES=(400, 5000))),
    over_uring(suite("direct_kill9", 90, CLIENT_KILLS=(100, 600), SERVER_KILLS=(10, 60))),
    over_uring(suite("direct_fsx", 60, FSX_OPERATIONS=(10_000, 60_000), COHERENCE_ROUNDS=(250, 250), DIRECT_LEAST=(20, 200))),
    over_uring(on_disk(suite("kill9", 150, 1500, ROUNDS=(4, 50)))),
    over_uring(suite("pjdfstest")),
    over_uring(suite("posix", cores=0.5)),
    over_uring(suite("lifecycle", cores=0.5)),
    over_uring(suite("full")),
    over_uring(suite("fio")),
    # Programs are to find all segments loaded when they begin.
    on_disk(suite("direct_mmap", 60, SERVER_KILLS=(2, 5)), options="--load first"),
    on_disk(suite("direct_fsx", 60, FSX_OPERATIONS=(3_000, 20_000), COHERENCE_ROUNDS=(100, 250), DIRECT_READS=("any", "any")), options="--load first"),
    on_disk(suite("fsx", 100, FSX_OPERATIONS=(5_000, 100_000))),
    on_disk(suite("pjdfstest")),
    on_disk(suite("sqlite")),
    on_disk(suite("redis")),
    on_disk(suite("rocksdb")),
    suite("log_postgres", 60, PGBENCH_SECONDS=(4, 20), KILLS=(1, 5), POWER_CUTS=(1, 5)),
    suite("page_cache", 30, cores=1, STALE_WRITES=(400, 5000)),
    suite("pjdfstest"),
    suite("badinput"),
    suite("lifecycle", cores=0.5),
    suite("posix", cores=0.5),
    suite("fio"),
    suite("full"),
    suite("git"),
    suite("cargo"),
    suite("redis"),
    suite("rocksdb"),
    suite("sqlite"),
    suite("tar"),
    suite("cp"),
    Step("format", "cargo fmt --all --check", 60),
    Step("shell", "tests/shell.sh", 60),
    Step("runner", "python3 tests/test_run.py", 120),
    Step("tidy", "python3 tests/tidy", 60),
    Step("picture", "scripts/architecture.py --check", 60),
    Step("deny", "tests/deny.sh", 120),
    # In full with no program given: it builds and installs what it needs, as a newcomer's `make run` does.
    Step("demo", "scripts/demo.sh", 900, cores=2, full_s=100, quick={"DEMO_QUICK": "1"}, full={"PERDURE": ""}),
    # XFSTESTS is a built checkout; without one it says that it is skipped, and has no turn in CI.
    Step("xfstests", "tests/xfstests/run.sh", 2700, full_s=900 if os.environ.get("XFSTESTS") else 0, is_full_only=True),
    # It says that it is skipped without its lab, and has no turn in CI then.
    replace(suite("uml_log_writes", 450 if UMLLAB.is_dir() else 0, 1800), is_full_only=True),
    # In `make test` the smoke test of crates/bench stands for it.
    Step("bench", "tests/bench.sh", 600, cores=2, full_s=60, is_full_only=True),
]
