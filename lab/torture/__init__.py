"""Fault campaigns on real processes: servers, nodes, launchers and workers are killed, paused, cut off, starved and lied to
about the time, and what they say about it must never contradict itself.

    PYTHONPATH=lab python3 -m torture --muster build/dev/muster --minutes 30 --seed 8123      (as root: it makes network namespaces)

Where to look:
    __main__.py    options, the seed, the verdict
    campaign.py    the loop: episodes, strikes, healing, the wait for one round of all
    fleet.py       one episode's processes, and who starts them again; job_fleet.py: those of a job;
                   etcd_fleet.py: members of etcd, and nodes that meet there
    victims.py     a process that faults strike: Server, Node; launchers.py: Launcher, and its workers (worker.py)
    faults.py      what can be done to victims; process_faults, network_faults, resource_faults, worker_faults,
                   etcd_faults
    network.py     machines (namespaces) on a switch; switch.py: the switch itself, a program
    stranger.py    a program that does to a server's port what should not be done
    events.py      what everybody said, and what was done to them, in one order
    invariants.py  what must never be in there; losses.py: who must have heard of which loss; job_invariants.py: of
                   launchers and workers
    probe.py       how busy this machine is, which is what quick promises are measured against
    promises.py    every bound in time and size, with its reason
"""
