#!/usr/bin/env python3
"""Runs the steps of `make test`, two at a time where each takes one core; one line a step, logs under target/suites/.

  tests/run.py              every step with the counts of `make test`
  tests/run.py --all        with the counts of `make test-all`
  tests/run.py --ci         `make test`, then full steps in an order that rotates by the commit, 40 minutes in all
  tests/run.py [--all] STEP...    these steps alone (and what they need)
  tests/run.py --list       the steps
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from steps import BUILD, RELEASE, STEPS
from transport import transport

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LOGS = TARGET / "suites"
CORES = 2
# Such lines of a log say what failed.
COMPLAINT = re.compile(r"\bFAIL(ED)?\b|panicked at|\[ERROR\]|^error")
# CI takes this in all. On a slow machine the third whose turn it is may go on up to the second limit.
CI_SECONDS = 40 * 60
CI_SECONDS_MAX = 55 * 60


def commit():
    """(number of commits, a seed that changes by the commit)."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    seed = int(git("rev-parse", "HEAD")[:7] or "0", 16)
    # A shallow clone cannot count; by the seed its turns still change.
    is_shallow = git("rev-parse", "--is-shallow-repository") == "true"
    return seed if is_shallow else int(git("rev-list", "--count", "HEAD") or 0), seed


def environment(step, is_full, seed):
    cargo_bin = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    tools = os.environ.get("PERDURE_TOOLS", os.path.join(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "perdure/tools"))
    fixed = {
        "CARGO_TARGET_DIR": str(TARGET), "CARGO_TERM_COLOR": "never", "CARGO_INCREMENTAL": "0", "RUSTDOCFLAGS": "-D warnings",
        "PATH": f"{os.environ['PATH']}:{cargo_bin}:{tools}/bin", "NEXTEST_PROFILE": "default",
        "PERDURE_LIBRARIES_BUILT": "1",
        "PERDURE": str(TARGET / ("release" if is_full else "debug") / "perdure"), "COMMIT_SEED": str(seed), "PROPTEST_RNG_SEED": str(seed),
    }
    counts = step.full if is_full else step.quick
    return {**os.environ, **fixed, **{key: os.environ.get(key, value) for key, value in counts.items()}}


class Running:
    """One step under way, in a process group of its own."""

    def __init__(self, step, is_full, seed):
        self.step, self.is_full = step, is_full
        self.begin = time.monotonic()
        self.name = step.name + (" (full)" if is_full and step.full_s else "")
        self.log = LOGS / f"{step.name}{'.full' if is_full else ''}.log"
        self.output = open(self.log, "wb")
        command = (is_full and step.full_command) or step.command
        self.process = subprocess.Popen(shlex.split(command), cwd=ROOT, env=environment(step, is_full, seed), stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True)
        self.is_late = False

    def seconds(self):
        return time.monotonic() - self.begin

    def poll(self):
        """The exit status, or None. Past its limit a step is asked to end, ten seconds later it is killed."""
        status = self.process.poll()
        if status is None and self.seconds() > self.step.limit_s:
            self.end(signal.SIGKILL if self.seconds() > self.step.limit_s + 10 else signal.SIGTERM)
            self.is_late = True
        return status

    def end(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def report(self, status):
        self.output.close()
        lines = self.log.read_text(errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        print(f"{'ok' if status == 0 else 'FAILED':6} {self.name:24} {self.seconds():5.0f} s  {last[:90]}", flush=True)
        if status != 0:
            if self.is_late:
                print(f"       stopped: over its limit of {self.step.limit_s} s")
            print("\n".join("       " + line for line in lines[-40:]))
            print(f"       all of it: {self.log}", flush=True)

    def complaints(self):
        """The lines of the log that say what went wrong, for the end of a long output: at most six of them."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = [line.strip()[:300] for line in lines if COMPLAINT.search(line)]
        return [f"stopped: over its limit of {self.step.limit_s} s"] * self.is_late + (found or lines[-2:])[:6]


class Runner:
    """Starts steps in their order as cores get free."""

    def __init__(self, seed, seconds_before=0.0):
        self.seed, self.running, self.passed, self.failed = seed, [], 0, 0
        self.begin = time.monotonic() - seconds_before
        self.complaints = []

    def fits(self, step):
        busy = sum(running.step.cores for running in self.running)
        if step.uses_cargo and any(running.step.uses_cargo for running in self.running):
            return False
        return busy + step.cores <= CORES

    def collect(self):
        for running in list(self.running):
            status = running.poll()
            if status is not None:
                self.running.remove(running)
                running.report(status)
                if status != 0:
                    self.complaints.append((running.name, running.complaints()))
                self.passed, self.failed = self.passed + (status == 0), self.failed + (status != 0)

    def run(self, steps, is_full=False, until_s=None):
        """All of `steps`; with `until_s` those that are expected to end before. Returns the names of those that ran."""
        ran = []
        for over_uring in (False, True):
            mine = [step for step in steps if step.over_uring == over_uring]
            with transport(over_uring if mine else None) as why_not:
                if mine and why_not:
                    print(f"SKIPPED: {', '.join(step.name for step in mine)}: {why_not}", flush=True)
                else:
                    ran += self.run_alike(mine, is_full, until_s)
        return ran

    def run_alike(self, steps, is_full, until_s):
        """`run` for steps whose mounts all get their requests in one way."""
        waiting, ran = list(steps), []
        while waiting or self.running:
            if until_s is not None:
                left = until_s - (time.monotonic() - self.begin)
                waiting = [step for step in waiting if step.full_s < left]
            step = next((step for step in waiting if self.fits(step)), None)
            if step is not None:
                waiting.remove(step)
                ran.append(step.name)
                self.running.append(Running(step, is_full, self.seed))
                continue
            self.collect()
            time.sleep(0.05)
        return ran

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            for running in self.running:
                running.end(number)
            for _ in range(100):
                self.running = [running for running in self.running if running.process.poll() is None]
                if self.running:
                    time.sleep(0.1)


def turns(steps, number):
    """The steps with a full form: the third whose turn it is at this commit, and the others in the order of their turns."""
    longer = [step for step in steps if step.full_s]
    third = [longer[turn::3] for turn in range(3)]
    return third[number % 3], third[(number + 1) % 3] + third[(number + 2) % 3]


def rotate(runner, number):
    """Full forms: a third of them, and of the others as many as fit."""
    mine, others = turns(STEPS, number)
    runner.run([RELEASE])
    ran = runner.run(mine, is_full=True, until_s=CI_SECONDS_MAX)
    ran += runner.run(others, is_full=True, until_s=CI_SECONDS)
    missed = [step.name for step in mine if step.name not in ran]
    print(f"in full: {', '.join(ran)} (turn {number % 3} of 0 to 2){'; NO TIME for ' + ', '.join(missed) if missed else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--begin", type=float, metavar="SECONDS", help="when CI began, in seconds since 1970")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("step", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        for step in STEPS:
            counts = " ".join(f"{key}={value!r}" for key, value in (step.full if arguments.all else step.quick).items())
            print(f"{step.name:18} {step.command}  {counts}".rstrip())
        return 0
    names = {step.name for step in STEPS}
    unknown = [name for name in arguments.step if name not in names | {BUILD.name, RELEASE.name}]
    if unknown:
        print(f"no step is named {' '.join(unknown)}; tests/run.py --list has the names")
        return 2
    wanted = [step for step in STEPS if (step.name in arguments.step if arguments.step else arguments.all or not step.is_full_only)]
    LOGS.mkdir(parents=True, exist_ok=True)
    number, seed = commit()
    print(f"seed of this commit: {seed} (COMMIT_SEED)", flush=True)
    runner = Runner(seed, time.time() - arguments.begin if arguments.begin else 0.0)
    try:
        runner.run([BUILD, RELEASE] if arguments.all else [BUILD])
        if runner.failed:
            print("nothing else can run without the build")
        else:
            runner.run(wanted, is_full=arguments.all)
        if arguments.ci and runner.failed == 0:
            rotate(runner, number)
    except BaseException:
        runner.stop()
        raise
    print(f"all took {time.monotonic() - runner.begin:.0f} s")
    for name, lines in runner.complaints:
        print("\n".join([f"FAILED {name}:", *(f"  {line}" for line in lines)]))
    print(f"{runner.passed} passed, {runner.failed} failed")
    return 0 if runner.failed == 0 else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
