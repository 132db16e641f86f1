"""Tests of tests/run.py: python3 tests/test_run.py"""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import run
from steps import STEPS, Step
from transport import transport


def result(steps, **options):
    """(passed, failed, what was printed, names that ran) of a run of `steps`."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        run.LOGS = Path(folder)
        runner = run.Runner(seed=7)
        ran = runner.run(steps, **options)
    return runner.passed, runner.failed, said.getvalue(), ran


class Runs(unittest.TestCase):
    def test_a_step_that_fails_is_counted_and_shows_its_end(self):
        passed, failed, said, _ = result([Step("good", "echo fine", 10), Step("bad", "sh -c 'echo broken; exit 3'", 10)])
        self.assertEqual((passed, failed), (1, 1))
        self.assertRegex(said, r"ok +good +\d+ s  fine")
        self.assertRegex(said, r"FAILED bad +\d+ s  broken")

    def test_the_reason_is_found_in_a_long_log(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            run.LOGS = Path(folder)
            runner = run.Runner(seed=7)
            runner.run([Step("bad", "sh -c 'echo FAIL process 1; seq 100; exit 1'", 10), Step("mute", "sh -c 'echo a; echo b; echo c; exit 1'", 10)])
        self.assertEqual(sorted(runner.complaints), [("bad", ["FAIL process 1"]), ("mute", ["b", "c"])])

    def test_a_step_over_its_limit_is_stopped_with_its_children(self):
        _, failed, said, _ = result([Step("slow", "sh -c 'sleep 600 & wait'", 1)])
        self.assertEqual(failed, 1)
        self.assertIn("over its limit of 1 s", said)

    def test_two_steps_of_one_core_run_side_by_side_and_one_of_two_alone(self):
        # Each waits for the file that the other makes.
        with tempfile.TemporaryDirectory() as folder:
            meet = "sh -c 'touch {0}/{1}; while [ ! -e {0}/{2} ]; do sleep 0.01; done'"
            passed, _, _, _ = result([Step("a", meet.format(folder, "a", "b"), 10), Step("b", meet.format(folder, "b", "a"), 10)])
            self.assertEqual(passed, 2)
            _, failed, _, _ = result([Step("c", meet.format(folder, "c", "d"), 1, cores=2), Step("d", meet.format(folder, "d", "d"), 10)])
            self.assertEqual(failed, 1)

    def test_counts_reach_the_step(self):
        step = Step("counts", "sh -c 'echo $ROUNDS $COMMIT_SEED'", 10, full_s=1, quick={"ROUNDS": "2"}, full={"ROUNDS": "9"})
        self.assertIn(" 2 7", result([step])[2])
        self.assertIn(" 9 7", result([step], is_full=True)[2])

    def test_what_would_end_too_late_does_not_begin(self):
        steps = [Step("long", "true", 10, full_s=100), Step("short", "true", 10, full_s=1)]
        self.assertEqual(result(steps, until_s=50)[3], ["short"])


class Transports(unittest.TestCase):
    def test_the_switch_is_set_for_steps_and_put_back(self):
        with tempfile.TemporaryDirectory() as folder:
            switch = Path(folder) / "switch"
            switch.write_text("N\n")
            with transport(True, switch) as why_not:
                self.assertEqual((switch.read_text(), why_not), ("Y", None))
            self.assertEqual(switch.read_text(), "N")
            with self.assertRaises(KeyError), transport(True, switch):
                raise KeyError
            self.assertEqual(switch.read_text(), "N", "also after a failure")

    def test_without_a_switch_only_the_classic_queue_is_tested(self):
        missing = Path("/nowhere/switch")
        with transport(True, missing) as why_not:
            self.assertIn("cannot be switched on", why_not)
        with transport(False, missing) as why_not:
            self.assertIsNone(why_not)


class Turns(unittest.TestCase):
    def test_three_commits_meet_every_full_step(self):
        longer = {step.name for step in STEPS if step.full_s}
        for first in range(3):
            met = {step.name for number in range(first, first + 3) for step in run.turns(STEPS, number)[0]}
            self.assertEqual(met, longer)

    def test_a_step_with_full_counts_has_its_turn(self):
        for step in STEPS:
            self.assertEqual(bool(step.full), bool(step.full_s) and not step.is_full_only and not step.full_command, step.name)


if __name__ == "__main__":
    unittest.main()
