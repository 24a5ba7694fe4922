"""What is promised, in seconds and bytes, and why just that.

Bounds hold on a machine that does other work at the same time: each is what docs/guide/elastic-jobs.md says, plus LOAD_S; or,
where a promise is about being quick, plus as much as this machine was seen to be late just then (probe.py).
"""

# What a busy machine may add to anything: processes that wait for a core, a disk, this harness itself.
LOAD_S = 15

# --- What nodes are notified of. A node that is silent for the window is declared lost. Shorter than the default of 3 s, for the
# campaign waits for it to pass many times; long enough for a node that waits for a core.
INTERVAL_S, ATTEMPTS = 0.5, 4
WINDOW_S = INTERVAL_S * ATTEMPTS
GRACE_S = 0.3  # for a broken connection to come back
LAST_CALL_S = 1  # the shortest there is
REJOIN_S = 1  # for which nodes that are back soon after a round has re-formed are held back; by default 10
C10D_INTERVAL_S, C10D_ATTEMPTS = 1, 3  # in whole seconds
C10D_READ_S = 10  # that an operation of the store may take, and the wait for rank 0's address

# In etcd: a lease, which is what a node has to be heard within. The default; two seconds are the least that etcd grants.
ETCD_INTERVAL_S, ETCD_ATTEMPTS = 1, 3
ETCD_LEASE_S = ETCD_INTERVAL_S * ETCD_ATTEMPTS
ETCD_CLOSE_S = 10  # that leaving may take

HANDSHAKE_S = 5  # what the server gives a stranger for its first word

# --- Faults. Long enough to be noticed for sure, or too short to be.
FAULT_S_MIN, FAULT_S_MAX = 0.2, 8
# A node that is silent for so long is lost without doubt: a tenth of the window for looking, and what a server that was itself
# kept waiting forgives.
SURELY_LOST_S = 2 * WINDOW_S

# --- From a loss until every other member of the round is notified, if no fault hits it or the server. The server
# knows after GRACE_S that a process has died whose kernel says so, and after SILENT_S that a machine says nothing.
SILENT_S = 1.1 * WINDOW_S  # a tenth for looking
# Then it tells, ten times a second at most; nodes print it, and this harness reads that. With the grace: under a second.
TOLD_S = 0.7
# What may be late on the way, each as much as the probe at that time: the server that receives, and that finds the time
# over; the node's loop, and its caller; the reader here.
WAKE_UPS = 5

# --- The same in etcd. It looks for leases that are over twice a second, and another leader of its own lets all leases
# begin anew. If the node that leads the rendezvous is gone, too, its lease has to end before another one looks.
ETCD_SURELY_LOST_S = 2 * ETCD_LEASE_S
ETCD_NOTICED_S = 2 * (ETCD_LEASE_S + 1)
# After a fault upon members of etcd, until they have a leader and all nodes have found them again.
ETCD_AFTERMATH_S = 10

# --- After a fault, until server and node have found each other again.
CONNECT_S = 5  # a try to connect that began in a cut is given up
PAUSE_S = 1.5  # the longest pause between two tries

# --- From the end of all faults until one round has all nodes:
#   FAULT_S_MAX  what was sent into a cut is sent again later and later, as late after the cut as the cut was long;
#   CONNECT_S, PAUSE_S   see above;
#   WINDOW_S     a connection is given up whose other end has gone;
#   2 rounds     nodes that are back first do not wait for the others, which then cost a round.
RECOVERY_S = FAULT_S_MAX + CONNECT_S + PAUSE_S + WINDOW_S + 2 * LAST_CALL_S + LOAD_S
# On c10d there are no notices: an operation that hangs is given up; then, in another round, the wait for the address of a
# rank 0 that has died; the dead are forgotten when their window has passed.
C10D_RECOVERY_S = RECOVERY_S + 2 * C10D_READ_S + C10D_INTERVAL_S * C10D_ATTEMPTS

# A run in etcd is closed for the nodes that are registered then (docs/guide/etcd.md). One that a fault has cut off from etcd
# looks as before until its lease ends by its own clock; if it still does after this, it has renewed its lease since.
ETCD_SETTLED_S = ETCD_LEASE_S + 1

# In etcd: members find each other again, nodes find them, and the dead are forgotten when their leases have ended.
ETCD_RECOVERY_S = RECOVERY_S + ETCD_AFTERMATH_S + ETCD_NOTICED_S

# --- Launchers. Between SIGTERM and SIGKILL for their workers:
SHUTDOWN_S = 2
# For how long they do without a server before they give the job up: longer than it takes to find it again.
JOB_CONTACT_S = 60
# Until the last process that a launcher has left behind is gone: the kernel kills its workers with it, its guardian the
# rest, at once; what a busy machine adds.
ORPHAN_S = 5
# As RECOVERY_S, and then: the workers of the round before are stopped; a node that failed with them learns whose fault it
# was (5 s); a round that was formed with a node that was just lost is formed again.
JOB_RECOVERY_S = RECOVERY_S + SHUTDOWN_S + 5 + LAST_CALL_S + WINDOW_S

# --- From SIGTERM to the end. Leaving asks the server, which may just have gone.
END_S = 5 + LOAD_S
JOB_END_S = SHUTDOWN_S + END_S  # from the success of all workers to the end of all launchers
# --- From closing until every member has heard of it: one message. (c10d: looks every second.)
CLOSED_S = 1 + LOAD_S

# --- Memory and descriptors, at rest and compared with the first rest: "ever more" shows, a cache that fills up not.
NODE_GROWTH_BYTES = 8 << 20
SERVER_GROWTH_BYTES = 32 << 20  # buffers of a thousand strangers at a time
NODE_GROWTH_DESCRIPTORS = 16  # a node that becomes rank 0 serves the workers, on loops of its own
ETCD_GROWTH_DESCRIPTORS = 2  # a node that had to turn to another member of the three keeps its connection to each
# The server waits for a word of those that came; their own kernel tells of their end, maybe not at once.
SEEN_OFF_S = HANDSHAKE_S + 3
# A node's old connections may still end after a cut, in the kernel's own time: two for each.
SERVER_GROWTH_DESCRIPTORS_PER_NODE = 2
