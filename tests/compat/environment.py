"""A worker that writes its environment as a line of JSON to a file, so that tests can compare launchers."""

import json
import os
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
reported = folder / f"{os.environ['MUSTER_TEST_AGENT']}-{os.environ['LOCAL_RANK']}.json"
reported.write_text(json.dumps(dict(os.environ)))
