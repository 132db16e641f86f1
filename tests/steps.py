"""The steps that tests/run.py has for `make test` and `make test-all`, which still call tests/run.sh: what each runs, with which counts, and what it may take.

A step has a quick form (`make test`) and a full one (`make test-all`, and in turn CI). Most differ by the environment
only: the suites read their counts from it. SEED is the seed that changes by the commit.
"""

from dataclasses import dataclass, field

# Every cargo feature that tests want, in one build. A test switches a deliberate bug on.
FEATURES = ",".join(f"perdure-{crate}/deliberate-bugs" for crate in
                    ("alloc", "txn", "readcache", "descriptors", "fs", "crashlab", "server"))
# All targets, so that the features of the tests' dependencies are in it and nothing is built twice.
PROGRAMS = "cargo build --workspace --all-targets --features " + FEATURES
# scripts/install-tools.sh builds this version.
NEXTEST = "cargo-nextest-0.9.151 nextest run"
UNITS = NEXTEST + " --workspace --no-fail-fast --features " + FEATURES


@dataclass(frozen=True)
class Step:
    """One command with a time limit. `cores` is what the scheduler counts; a step of two runs alone."""
    name: str
    command: str
    limit_s: int
    cores: int = 1
    # Seconds of the full form, for the rotation of CI; 0: the quick form is the full one.
    full_s: int = 0
    full_command: str = ""
    quick: dict = field(default_factory=dict)
    full: dict = field(default_factory=dict)
    # Steps that hold the lock of the build directory run one at a time.
    uses_cargo: bool = False


def suite(name, full_s=0, limit_s=900, **counts):
    """A script of tests/suites. `counts`: VARIABLE=(quick, full)."""
    quick = {key: str(value[0]) for key, value in counts.items()}
    full = {key: str(value[1]) for key, value in counts.items()}
    return Step(name, f"bash tests/suites/{name}.sh", limit_s, full_s=full_s, quick=quick, full=full)


# First what everything else needs; then the long ones, so that the two cores end together.
BUILD = Step("build", PROGRAMS, 1800, cores=2, uses_cargo=True)
STEPS = [
    Step("units", UNITS, 1800, cores=2, uses_cargo=True, full_s=400,
         quick={"PROPTEST_CASES": "32"}, full={"DAMAGE_SECONDS": "60", "COPIES_SECONDS": "20"}),
    Step("doctests", "cargo test --workspace --doc --features " + FEATURES, 600, cores=2, uses_cargo=True),
    Step("schedules", NEXTEST + " -p perdure-alloc --features interleavings --test interleavings", 600, uses_cargo=True),
    Step("clippy", "cargo clippy --workspace --all-targets --features " + FEATURES + " -- -D warnings", 1200, uses_cargo=True),
    Step("docs", "cargo doc --no-deps --workspace", 600, uses_cargo=True),
    Step("bugs", "tests/crash.sh bugs", 900, cores=2),
    Step("crash", "tests/crash.sh share", 1500, cores=2, full_s=420,
         quick={"CRASH_STATES": "300000", "CRASH_SHARE": "4"}, full={"CRASH_STATES": "1500000", "CRASH_SHARE": "1"}),
    Step("fuzz", "tests/fuzz.sh 5", 900, cores=2, full_s=150, full_command="tests/fuzz.sh 20"),
    suite("fsx", 180, FSX_OPERATIONS=(30_000, 250_000)),
    suite("kill9", 150, ROUNDS=(10, 60)),
    suite("flips", 160, FLIPS=(40, 200)),
    suite("direct_kill9", 90, CLIENT_KILLS=(100, 600), SERVER_KILLS=(10, 60)),
    suite("direct_fsx", 60, FSX_OPERATIONS=(20_000, 60_000), COHERENCE_ROUNDS=(100, 250)),
    suite("direct_in_place", 60, FSX_OPERATIONS=(8_000, 20_000), COHERENCE_ROUNDS=(100, 250)),
    suite("direct_mmap", 40, SERVER_KILLS=(3, 8)),
    suite("direct_postgres", 40, PGBENCH_SECONDS=(6, 20)),
    suite("direct_protection", 30, SEEDS=("1", "1 2 3")),
    suite("direct_programs"),
    suite("direct_posix"),
    suite("direct_greedy"),
    suite("direct_heirs"),
    suite("direct_unused"),
    suite("pjdfstest"),
    suite("badinput"),
    suite("lifecycle"),
    suite("posix"),
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
    Step("deny", "tests/deny.sh", 120),
    Step("demo", "scripts/demo.sh", 900, cores=2, full_s=240),
    Step("bench", "tests/bench.sh", 600, cores=2),
]
