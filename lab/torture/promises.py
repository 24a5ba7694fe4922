"""The promised bounds, in seconds and bytes, with their reasons.

Bounds must hold on a machine that does other work at the same time. Each is what docs/guide/elastic-jobs.md states,
plus LOAD_S. Bounds on short times add the delay that was measured on this machine at that moment instead (probe.py).
"""

# The delay that a busy machine may add: processes that wait for a core or a disk, this harness itself.
LOAD_S = 15

# --- What nodes are notified of. A node that is silent for the window is declared lost. The window is shorter than the
# default of 3 s, because the campaign waits for it many times, and long enough for a node that waits for a core.
INTERVAL_S, ATTEMPTS = 0.5, 4
WINDOW_S = INTERVAL_S * ATTEMPTS
GRACE_S = 0.3  # how long a broken connection has to come back
LAST_CALL_S = 1  # the shortest possible
REJOIN_S = 1  # how long nodes that come soon after a round has re-formed are held back; 10 by default
C10D_INTERVAL_S, C10D_ATTEMPTS = 1, 3  # in whole seconds
C10D_READ_S = 10  # limit of an operation of the store, and of the wait for rank 0's address

# In etcd a node must renew its lease in time. These are the defaults; etcd grants at least two seconds.
ETCD_INTERVAL_S, ETCD_ATTEMPTS = 1, 3
ETCD_LEASE_S = ETCD_INTERVAL_S * ETCD_ATTEMPTS
ETCD_CLOSE_S = 10  # how long leaving may take

HANDSHAKE_S = 5  # how long the server waits for a client's first message

# --- Faults. Some are certain to be noticed, some are too short.
FAULT_S_MIN, FAULT_S_MAX = 0.2, 8
# A node that is silent for so long is certainly lost. This includes a tenth of the window for checking, and the time
# that a delayed server forgives.
SURELY_LOST_S = 2 * WINDOW_S

# --- From a loss until every other member of the round is notified, if no fault strikes it or the server. The server
# notices a dead process after GRACE_S if its kernel closes the connection, and a silent machine after SILENT_S.
SILENT_S = 1.1 * WINDOW_S  # a tenth for checking
# Then it notifies at most ten times a second; nodes print that, and this harness reads it. With the grace: under a
# second.
NOTICE_S = 0.7
# Each of these may be as late as the probe at that time: the server that receives, its timer, the node's loop, its
# caller, the reader here.
WAKE_UPS = 5

# --- The same in etcd. It checks for expired leases twice a second, and restarts all leases when its leader changes. If
# the node that leads the rendezvous is gone, too, its lease has to end before another one looks.
ETCD_SURELY_LOST_S = 2 * ETCD_LEASE_S
ETCD_NOTICED_S = 2 * (ETCD_LEASE_S + 1)
# After a fault of members of etcd, until they have a leader and all nodes have reached them again.
ETCD_AFTERMATH_S = 10

# --- After a fault, until server and node have reached each other again.
CONNECT_S = 5  # until a connection attempt that began in a cut fails
PAUSE_S = 1.5  # the longest pause between two attempts

# --- From the end of all faults until one round has all nodes:
#   FAULT_S_MAX  what was sent into a cut is retransmitted as late after the cut as the cut was long;
#   CONNECT_S, PAUSE_S   see above;
#   WINDOW_S     a connection whose other end is gone is closed;
#   2 rounds     nodes that are back first do not wait for the others, which then cost a round.
RECOVERY_S = FAULT_S_MAX + CONNECT_S + PAUSE_S + WINDOW_S + 2 * LAST_CALL_S + LOAD_S
# On c10d there are no notices. First an operation that hangs times out; then, in another round, the wait for the
# address of a dead rank 0. The dead nodes are removed when their window has passed.
C10D_RECOVERY_S = RECOVERY_S + 2 * C10D_READ_S + C10D_INTERVAL_S * C10D_ATTEMPTS

# A run in etcd is closed for the nodes that are registered then (docs/guide/etcd.md). A node that is cut off from etcd
# looks unchanged until its lease ends by its own clock. If it still does after this time, it has renewed its lease
# since.
ETCD_SETTLED_S = ETCD_LEASE_S + 1

# In etcd: members reach each other again, nodes reach them, and dead nodes are removed when their leases have ended.
ETCD_RECOVERY_S = RECOVERY_S + ETCD_AFTERMATH_S + ETCD_NOTICED_S

# --- Launchers. Between SIGTERM and SIGKILL for their workers:
SHUTDOWN_S = 2
# How long launchers continue without a server: longer than it takes to reach it again.
JOB_CONTACT_S = 60
# Until the last process of a dead launcher is gone. The kernel kills its workers with it, and its guardian the rest at
# once; a busy machine adds the rest of this time.
ORPHAN_S = 5
# As RECOVERY_S, and in addition: the workers of the earlier round are stopped; a node that failed with them learns
# which node failed first (5 s); a round that included a node just lost is formed again.
JOB_RECOVERY_S = RECOVERY_S + SHUTDOWN_S + 5 + LAST_CALL_S + WINDOW_S

# --- From SIGTERM to the end. Leaving sends a request to the server, which may just have gone.
END_S = 5 + LOAD_S
JOB_END_S = SHUTDOWN_S + END_S  # from the success of all workers to the end of all launchers
# --- From closing until every member is notified: one message. (c10d checks every second.)
CLOSED_S = 1 + LOAD_S

# --- Memory and descriptors at rest, compared with the first rest: steady growth exceeds these, a cache that fills up
# does not.
NODE_GROWTH_BYTES = 8 << 20
SERVER_GROWTH_BYTES = 32 << 20  # buffers for a thousand connections of attackers
NODE_GROWTH_DESCRIPTORS = 16  # a node that becomes rank 0 serves the workers, on loops of its own
ETCD_GROWTH_DESCRIPTORS = 2  # a node that had to use another member of the three keeps its connection to each
# The server waits for the first message of new clients. Their own kernel reports their end, perhaps with a delay.
SEEN_OFF_S = HANDSHAKE_S + 3
# A node's old connections may still end after a cut, when the kernel closes them: two for each node.
SERVER_GROWTH_DESCRIPTORS_PER_NODE = 2
