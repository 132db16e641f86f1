"""python3 tests/posix DIRECTORY [NAME...] - POSIX behaviour that pjdfstest and fsx don't look at."""

import os
import sys
import unittest

here = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, here)

import common  # noqa: E402 (the path above comes first)

if len(sys.argv) < 2:
    sys.exit(__doc__)
common.root = sys.argv[1]
loader = unittest.TestLoader()
if sys.argv[2:]:
    suite = loader.loadTestsFromNames(sys.argv[2:])
else:
    suite = loader.loadTestsFromNames(["data", "names"])
result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
sys.exit(not result.wasSuccessful())
