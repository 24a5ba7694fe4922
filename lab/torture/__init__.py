"""Fault campaigns on real processes. Servers, nodes, launchers and workers are killed, paused, cut off and starved, and
get wrong clocks. Their reports must never contradict each other.

    PYTHONPATH=lab python3 -m torture --muster build/dev/muster --minutes 30 --seed 8123  # as root

Where to look:
    __main__.py    options, the seed, the verdict
    campaign.py    the loop: episodes, strikes, healing, the wait for one round of all nodes
    fleet.py       the processes of one episode, and their restarts; job_fleet.py: those of a job;
                   etcd_fleet.py: members of etcd, and nodes that meet there
    victims.py     a process that faults strike: Server, Node; launchers.py: Launcher, and its workers (worker.py)
    faults.py      the base of all faults; process_faults, network_faults, resource_faults, worker_faults, etcd_faults
    network.py     machines (namespaces) on a switch; switch.py: the switch itself, a program
    stranger.py    a program that attacks a server's port
    events.py      what all processes reported, and what was done to them, in one order
    invariants.py  what must never be in there; losses.py: which node must be notified of which loss;
                   job_invariants.py: of launchers and workers
    probe.py       how busy this machine is; short time limits are relative to that
    promises.py    every bound in time and size, with its reason
"""
