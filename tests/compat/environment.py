"""A worker that tells its environment, for who compares launchers: a line of JSON in a file."""

import json
import os
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
told = folder / f"{os.environ['MUSTER_TEST_AGENT']}-{os.environ['LOCAL_RANK']}.json"
told.write_text(json.dumps(dict(os.environ)))
