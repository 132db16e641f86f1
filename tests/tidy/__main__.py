"""House rules as one test: `python3 tests/tidy`.

A file may be as far from a rule as ratchet.json says, which is 0 for a file that it does not name, and no farther.

  python3 tests/tidy            checks every tracked file
  python3 tests/tidy --lower    takes what has got better into ratchet.json
  python3 tests/tidy --accept   takes everything as it is, for a file that moved; the diff shows what that is
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from links import broken
from rules import README_WORDS_MAX, RULES, readme_words
from selftest import failures
from steps import STEPS

ROOT = Path(__file__).resolve().parents[2]
RATCHET = Path(__file__).parent / "ratchet.json"
SUFFIXES = {".rs", ".c", ".h", ".sh", ".py", ".md"}


def tracked():
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in sorted(filter(None, names.split("\0"))):
        path = ROOT / name
        if (path.suffix in SUFFIXES or path.name == "Makefile") and path.is_file():
            yield name, path


def read(path):
    if path.is_dir():
        return ""
    return path.read_text(errors="replace") if path.is_file() else None


def measure():
    """{rule: {file: (distance, places)}}, and what the documents lack: targets of links, steps."""
    found, dead = {rule: {} for rule in RULES}, []
    for name, path in tracked():
        text = path.read_text(errors="replace")
        lines = text.splitlines()
        for rule, judge in RULES.items():
            distance, places = judge(path, lines)
            if distance:
                found[rule][name] = distance, places
        if path.suffix == ".md":
            dead += [f"{name}: {link}" for link in broken(path, text, read)]
    readme = ROOT / "README.md"
    words = readme_words(readme, readme.read_text().splitlines())
    if words > README_WORDS_MAX:
        dead.append(f"README.md: {words} words, {README_WORDS_MAX} at most; move details to docs/")
    testing = (ROOT / "docs/TESTING.md").read_text()
    dead += [f"docs/TESTING.md: nothing about the step {step.name}" for step in STEPS if f"`{step.name}`" not in testing]
    return found, dead


def write(ratchet):
    RATCHET.write_text(json.dumps({rule: dict(sorted(files.items())) for rule, files in ratchet.items() if files}, indent=1) + "\n")


def main(words):
    bad = list(failures())
    found, dead = measure()
    ratchet = json.loads(RATCHET.read_text()) if RATCHET.exists() else {}
    now = {rule: {name: distance for name, (distance, _) in files.items()} for rule, files in found.items()}
    if words == ["--accept"]:
        write(now)
        return 0
    if words == ["--lower"]:
        write({rule: {name: min(distance, ratchet.get(rule, {}).get(name, 0)) for name, distance in files.items() if name in ratchet.get(rule, {})}
               for rule, files in now.items()})
        return 0
    if words:
        print(__doc__)
        return 2
    worse = 0
    for rule, files in found.items():
        for name, (distance, places) in files.items():
            allowed = ratchet.get(rule, {}).get(name, 0)
            if distance > allowed:
                worse += 1
                print(f"{name}: {rule}: {distance}, {allowed} allowed; {'; '.join(places[:12])}{' ...' if len(places) > 12 else ''}")
    for line in [*bad, *dead]:
        print(line)
    better = sum(now[rule].get(name, 0) < allowed for rule in RULES for name, allowed in ratchet.get(rule, {}).items())
    if better:
        print(f"{better} files are nearer to a rule than ratchet.json says: python3 tests/tidy --lower")
    total = {rule: sum(files.values()) for rule, files in now.items()}
    print(f"{worse} files got worse, {len(dead)} broken links, missing steps or words too many; distances: {', '.join(f'{rule} {number}' for rule, number in total.items())}")
    return 1 if worse or dead or bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
