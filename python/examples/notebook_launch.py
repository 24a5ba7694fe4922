"""A job in a notebook: each # %% is a cell. Paste the cells, or open the file as a notebook.

python notebook_launch.py
"""

# %% [markdown]
# Each worker throws darts at a square; how many of them hit the circle in it is counted in the
# store that the launcher serves to its workers.

# %%
from __future__ import annotations

import muster

darts = 200_000


# %% A function of the notebook is sent to the workers, with everything that it refers to.
def throw(seed: int) -> float:
    import os
    import random

    import muster

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = muster.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    random.seed(seed + rank)
    hits = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(darts))
    print(f"rank {rank} of {world}: {hits} of {darts} hit")
    store.add("hits", hits)
    if store.add("done", 1) == world:
        store.set("all done", b"")
    store.wait(["all done"])
    return 4 * store.add("hits", 0) / (darts * world)


# %% Runs when this file is the program; in a notebook, the line below it is all there is.
if __name__ == "__main__":
    estimates = muster.launch(throw, args=(1,), nproc_per_node=2)
    print("pi, as each rank has it:", estimates)
