/* The channels of src/exec/engine.c: N ranks that each send MESSAGES a run to each other, in RUNS runs. A message waits
 * in a slot of the sender's pool until the receiver has read it; `ready` and `done` count messages over all runs.
 * No slot is filled again before its message was read, none is read before it is filled, and all runs end, though a pool
 * has only SLOTS for all channels and a channel at most LIMIT at once.
 *
 *   (default)  staged: through slots
 *   -DSTAR     only rank 0 sends: channels that share a pool
 *   -DDIRECT   receivers read the sender's memory, which it writes again in its next run
 *
 * Broken on purpose, besides what bell.pml has:
 *   EARLY_DONE    the receiver says that it has read a message before it does
 *   EARLY_READY   the sender says that a message is there before it is
 *   NO_RECEIVE    a rank sends a peer all that it has for it before it receives */
#ifndef N
#define N 2
#endif
#ifndef RUNS
#define RUNS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef LIMIT
#define LIMIT 2
#endif
#include "bell.pml"

#define EMPTY 255
#ifdef STAR
#define SENDS(from, to) ((from) == 0 && (to) != 0)
#define OF_ONE_RUN (me == 0 -> (N - 1) * MESSAGES : MESSAGES)
#else
#define SENDS(from, to) ((from) != (to))
#define OF_ONE_RUN (2 * (N - 1) * MESSAGES)
#endif
#define CHANNEL(from, to) ((from) * N + (to))
#define AHEAD (LIMIT + 1)

byte ready[N * N], done[N * N];
byte slot_of[N * N * AHEAD]; /* of the messages of a channel that are under way */
byte pool[N * SLOTS];        /* what is in a slot: the number of the message, from 1 on */
byte memory[N];              /* DIRECT: what all of a rank's messages show: the number of the run */
byte ended;

/* Messages that have been read give their slots back. */
inline retire()
{
    seen = done[CHANNEL(me, peer)];
    d_step {
        do
        :: retired[peer] < seen ->
#ifndef DIRECT
            taken_slot[slot_of[CHANNEL(me, peer) * AHEAD + retired[peer] % AHEAD]] = 0;
#endif
            retired[peer]++;
            left--;
            moved = 1
        :: else -> break
        od
    }
}

inline post()
{
    posted[peer]++;
    signal(peer, ready[CHANNEL(me, peer)], posted[peer]);
    moved = 1
}

inline launch()
{
    if
#ifdef DIRECT
    :: posted[peer] < turn * MESSAGES -> post()
#else
    :: posted[peer] < turn * MESSAGES && posted[peer] - retired[peer] < LIMIT ->
        d_step {
            s = 0;
            do
            :: s < SLOTS && taken_slot[s] -> s++
            :: else -> break
            od
        }
        if
        :: s < SLOTS ->
            taken_slot[s] = 1;
            slot_of[CHANNEL(me, peer) * AHEAD + posted[peer] % AHEAD] = s;
#ifdef EARLY_READY
            post();
            pool[me * SLOTS + s] = posted[peer]
#else
            pool[me * SLOTS + s] = EMPTY; /* half written */
            pool[me * SLOTS + s] = posted[peer] + 1;
            post()
#endif
        :: else
        fi
#endif
    :: else
    fi
}

/* Reads twice: what it reads must not change while it does. */
inline read_message()
{
#ifdef DIRECT
    assert(memory[peer] == turn);
    assert(memory[peer] == turn)
#else
    s = slot_of[CHANNEL(peer, me) * AHEAD + taken[peer] % AHEAD];
    assert(pool[peer * SLOTS + s] == taken[peer] + 1);
    assert(pool[peer * SLOTS + s] == taken[peer] + 1)
#endif
}

inline receive()
{
    if
    :: taken[peer] < turn * MESSAGES && ready[CHANNEL(peer, me)] > taken[peer] ->
#ifdef EARLY_DONE
        signal(peer, done[CHANNEL(peer, me)], taken[peer] + 1);
        read_message();
#else
        read_message();
        signal(peer, done[CHANNEL(peer, me)], taken[peer] + 1);
#endif
        taken[peer]++;
        left--;
        moved = 1
    :: else
    fi
}

/* engine_pass: does what can be done for each peer. */
inline pass()
{
    moved = 0;
    peer = 0;
    do
    :: peer < N ->
        if
        :: SENDS(me, peer) ->
            retire();
            launch()
        :: else
        fi;
        if
        :: SENDS(peer, me) ->
#ifdef NO_RECEIVE
            if
            :: posted[peer] == turn * MESSAGES -> receive()
            :: else
            fi
#else
            receive()
#endif
        :: else
        fi;
        peer++
    :: else -> break
    od
}

proctype rank(byte me)
{
    byte s, peer, seen, turn, left;
    byte posted[N], retired[N], taken[N];
    bit taken_slot[SLOTS], moved;
    do
    :: turn < RUNS ->
        turn++;
        left = OF_ONE_RUN; /* messages to send and to receive */
        memory[me] = EMPTY;
        memory[me] = turn;
        do
        :: left == 0 -> break
        :: else ->
            pass(); /* awake */
            if
            :: moved || left == 0
            :: else ->
                arm();
#ifndef NO_LOOK
                pass();
#endif
                if
                :: moved -> disarm()
                :: else -> doze()
                fi
            fi
        od
    :: else -> break
    od;
    ended++
}

init {
    byte r = 0;
    atomic {
        do
        :: r < N -> run rank(r); r++
        :: else -> break
        od
    }
    ended == N
}
