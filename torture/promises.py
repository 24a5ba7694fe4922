"""What is promised, in seconds and bytes, and why just that.

Bounds hold on a machine that does other work at the same time: each is what docs/rendezvous.md says, plus LOAD_S.
"""

# What a busy machine may add to anything: processes that wait for a core, a disk, this harness itself.
LOAD_S = 15

# --- What nodes are told. A node that is silent for the window is given up. Shorter than the default of 3 s, for the
# campaign waits for it to pass many times; long enough for a node that waits for a core.
INTERVAL_S, ATTEMPTS = 0.5, 4
WINDOW_S = INTERVAL_S * ATTEMPTS
GRACE_S = 0.3  # for a broken connection to come back
LAST_CALL_S = 1  # the shortest there is
C10D_INTERVAL_S, C10D_ATTEMPTS = 1, 3  # in whole seconds
C10D_READ_S = 10  # that an operation of the store may take, and the wait for rank 0's address

HANDSHAKE_S = 5  # what the server gives a stranger for its first word

# --- Faults. Long enough to be noticed for sure, or too short to be.
FAULT_S_MIN, FAULT_S_MAX = 0.2, 8
# Who is silent for so long is lost without doubt: a tenth of the window for looking, and what a server that was itself
# kept waiting forgives.
SURELY_LOST_S = 2 * WINDOW_S

# --- From a loss until every member that nobody touches has heard of it.
HEARD_S = 1.1 * WINDOW_S + GRACE_S + LOAD_S

# --- From the end of all faults until one round has all nodes:
#   FAULT_S_MAX  what was sent into a cut is sent again later and later, as late after the cut as the cut was long;
#   5            a try to connect that began in the cut is given up;
#   1.5          the longest pause between two tries;
#   WINDOW_S     a connection is given up whose other end has gone;
#   2 rounds     those who are back first do not wait for the others, who then cost a round.
RECOVERY_S = FAULT_S_MAX + 5 + 1.5 + WINDOW_S + 2 * LAST_CALL_S + LOAD_S
# On c10d nobody is told: an operation that hangs is given up; then, in another round, the wait for the address of a
# rank 0 that has died; the dead are forgotten when their window has passed.
C10D_RECOVERY_S = RECOVERY_S + 2 * C10D_READ_S + C10D_INTERVAL_S * C10D_ATTEMPTS

# --- From SIGTERM to the end. Leaving asks the server, which may just have gone.
END_S = 5 + LOAD_S
# --- From closing until every member has heard of it: one message. (c10d: looks every second.)
CLOSED_S = 1 + LOAD_S

# --- Memory and descriptors, at rest and compared with the first rest: "ever more" shows, a cache that fills up not.
NODE_GROWTH_BYTES = 8 << 20
SERVER_GROWTH_BYTES = 32 << 20  # buffers of a thousand strangers at a time
NODE_GROWTH_DESCRIPTORS = 16  # who becomes rank 0 serves the workers, on loops of its own
# The server waits for a word of those that came; their own kernel tells of their end, maybe not at once.
SEEN_OFF_S = HANDSHAKE_S + 3
# A node's old connections may still end after a cut, in the kernel's own time: two for each.
SERVER_GROWTH_DESCRIPTORS_PER_NODE = 2
