/* The channels of src/engine/drivers/pipeline.c, without eager messages: N ranks that each send MESSAGES a run to each other, in RUNS
 * runs. `ready` and `done` count messages over all runs. Nothing is overwritten before it was read, nothing is read
 * before it is written, and all runs end.
 *
 *   (default)  staged: a message waits in a slot of the sender's pool until the receiver has read it. A pool has only
 *              SLOTS for all channels, and a channel at most LIMIT at once.
 *   -DSTAR     only rank 0 sends: channels that share a pool
 *   -DSHARE    with STAR: the k-th message is the same for all; it is packed once, and all read it in one slot
 *   -DAWAKE    with STAR, N=3: ranks see at once what they wait for, without the bell, so that all else can be larger
 *   -DPULL     receivers read the sender's memory, which it writes again in its next run
 *   -DPUSH     senders write the receiver's memory, which that opens in each run and looks at when the run is over
 *
 * Broken on purpose, besides what bell.pml has:
 *   EARLY_DONE    the receiver says that it has read a message before it does
 *   EARLY_READY   the sender says that a message is there before it is
 *   NO_RECEIVE    a rank sends a peer all that it has for it before it receives
 *   FIRST_FREES   SHARE: the slot is free when the first has read it
 *   EARLY_OPEN    PUSH: the receiver opens its memory before it is done with it
 *   NOT_ASKED     PUSH: the sender does not wait until it is open */
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
#define CAN_GO (me == 0 -> (done[1] > retired[1] || done[2] > retired[2]) : ready[me] > taken[0])
#define PEERS (me == 0 -> N : 1) /* those of a higher number are none of its */
#else
#define SENDS(from, to) ((from) != (to))
#define OF_ONE_RUN (2 * (N - 1) * MESSAGES)
#define PEERS N
#endif
#define CHANNEL(from, to) ((from) * N + (to))
#define AHEAD (LIMIT + 1)
#ifndef PULL
#ifndef PUSH
#define STAGED
#endif
#endif
#ifdef FIRST_FREES
#define FREED_BY_FIRST 1
#else
#define FREED_BY_FIRST 0
#endif
#ifdef EARLY_OPEN
#define OPEN_MORE 1
#else
#define OPEN_MORE 0
#endif
#ifdef NOT_ASKED
#define IS_OPEN(peer) 1
#else
#define IS_OPEN(peer) (done[CHANNEL(me, peer)] > posted[peer])
#endif
#ifdef PUSH
#define OUT_WAITS(peer) (SENDS(me, peer) && posted[peer] < turn * MESSAGES && done[CHANNEL(me, peer)] <= posted[peer])
#else
#define OUT_WAITS(peer) (SENDS(me, peer) && retired[peer] < posted[peer] && done[CHANNEL(me, peer)] <= retired[peer])
#endif

byte ready[N * N], done[N * N];
byte slot_of[N * N * AHEAD]; /* of the messages of a channel that are under way */
byte pool[N * SLOTS];        /* what is in a slot: the number of the message, from 1 on */
byte readers[MESSAGES];      /* SHARE: of message k of a run, that have yet to read it */
byte memory[N];              /* PULL: what all of a rank's messages show: the number of the run */
byte target[N * N];          /* PUSH: [at * N + from] the last message that was written there */
byte ended;

#ifdef SHARE
#define K(message) ((message) % MESSAGES)
#endif

/* Messages that have been read give their slots back. */
inline retire()
{
    seen = done[CHANNEL(me, peer)];
    d_step {
        do
        :: retired[peer] < seen && retired[peer] < posted[peer] ->
#ifdef SHARE
            readers[K(retired[peer])]--;
            if
            :: readers[K(retired[peer])] == 0 || FREED_BY_FIRST ->
                taken_slot[slot_of[CHANNEL(me, peer) * AHEAD + retired[peer] % AHEAD]] = 0
            :: else
            fi;
#else
#ifdef STAGED
            taken_slot[slot_of[CHANNEL(me, peer) * AHEAD + retired[peer] % AHEAD]] = 0;
#endif
#endif
            retired[peer]++;
            left--;
            moved = 1
        :: else -> break
        od;
        seen = 0
    }
}

inline post()
{
    posted[peer]++;
    signal(peer, ready[CHANNEL(me, peer)], posted[peer]);
    moved = 1
}

/* Takes a slot, in s; SLOTS if there is none. */
inline take_slot()
{
    s = 0;
    do
    :: s < SLOTS && taken_slot[s] -> s++
    :: else -> break
    od
}

/* The message in a slot: its number from 1 on, over all runs. */
inline pack()
{
    pool[me * SLOTS + s] = EMPTY; /* half written */
    pool[me * SLOTS + s] = posted[peer] + 1
}

#ifdef SHARE

/* all_at, and stage: packed when all are at it with room in flight, posted to each in turn. */
inline launch()
{
    d_step {
        q = 1;
        do
        :: q < N && posted[q] == posted[peer] && posted[q] - retired[q] < LIMIT -> q++
        :: else -> break
        od;
        s = SLOTS;
        if
        :: posted[peer] < turn * MESSAGES && packed == posted[peer] && q == N -> take_slot()
        :: else
        fi
        q = 0
    }
    if
    :: s < SLOTS ->
        taken_slot[s] = 1;
        shared_slot = s;
        pack();
        packed++;
        readers[K(posted[peer])] = N - 1
    :: else
    fi;
    s = 0;
    if
    :: posted[peer] < packed ->
        slot_of[CHANNEL(me, peer) * AHEAD + posted[peer] % AHEAD] = shared_slot;
        post()
    :: else
    fi
}

#else

inline launch()
{
    if
#ifdef PULL
    :: posted[peer] < turn * MESSAGES -> post()
#else
#ifdef PUSH
    :: posted[peer] < turn * MESSAGES && IS_OPEN(peer) ->
#ifdef EARLY_READY
        post();
        target[peer * N + me] = posted[peer];
#else
        target[peer * N + me] = EMPTY; /* half written */
        target[peer * N + me] = posted[peer] + 1;
        post();
#endif
        retired[peer]++;
        left--
#else
    :: posted[peer] < turn * MESSAGES && posted[peer] - retired[peer] < LIMIT ->
        d_step { take_slot() };
        if
        :: s < SLOTS ->
            taken_slot[s] = 1;
            slot_of[CHANNEL(me, peer) * AHEAD + posted[peer] % AHEAD] = s;
#ifdef EARLY_READY
            post();
            pool[me * SLOTS + s] = posted[peer]
#else
            pack();
            post()
#endif
        :: else
        fi;
        s = 0
#endif
#endif
    :: else
    fi
}

#endif

/* Reads twice: what it reads must not change while it does. */
inline read_message()
{
#ifdef PUSH
    skip /* the sender has put it where it belongs */
#endif
#ifdef PULL
    assert(memory[peer] == turn);
    assert(memory[peer] == turn)
#endif
#ifdef STAGED
    s = slot_of[CHANNEL(peer, me) * AHEAD + taken[peer] % AHEAD];
    assert(pool[peer * SLOTS + s] == taken[peer] + 1);
    assert(pool[peer * SLOTS + s] == taken[peer] + 1);
    s = 0
#endif
}

/* welcome */
inline open_all()
{
    peer = 0;
    do
    :: peer < PEERS ->
        if
        :: SENDS(peer, me) ->
            target[me * N + peer] = 0; /* the owner's until here */
            signal(peer, done[CHANNEL(peer, me)], (turn + OPEN_MORE) * MESSAGES)
        :: else
        fi;
        peer++
    :: else -> peer = 0; break
    od
}

/* The run is over: what was pushed is the owner's. */
inline look_at_target()
{
    peer = 0;
    do
    :: peer < PEERS ->
        assert(!SENDS(peer, me) || target[me * N + peer] == turn * MESSAGES);
        peer++
    :: else -> peer = 0; break
    od
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
#ifndef PUSH
        signal(peer, done[CHANNEL(peer, me)], taken[peer] + 1);
#endif
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
    :: peer < PEERS ->
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
    :: else -> peer = 0; break
    od
}

/* lack_signals: of the peers that must let it send, else of the messages that are due, else of those to be read. */
inline count()
{
    peer = 0;
    do
    :: atomic {
        peer < PEERS ->
        if
        :: SENDS(peer, me) -> ins = ins + (taken[peer] < turn * MESSAGES && ready[CHANNEL(peer, me)] <= taken[peer])
        :: else
        fi;
        if
        :: OUT_WAITS(peer) ->
            outs++;
            opens = opens + (posted[peer] < turn * MESSAGES)
        :: else
        fi;
        peer++
    }
    :: else -> break
    od;
    atomic {
        lacks = (opens -> opens : (ins -> ins : (outs -> outs : 1)));
        peer = 0;
        ins = 0;
        outs = 0;
        opens = 0
    }
}

/* Does what can be done; ok if something was, or nothing is left. */
inline look()
{
    pass();
    ok = moved || left == 0;
    moved = 0;
    if
    :: ok
    :: else -> count()
    fi
}

proctype rank(byte me)
{
    byte s, peer, seen, turn, left, lacks, ins, outs, opens;
    byte posted[N], retired[N], taken[N];
    bit taken_slot[SLOTS], moved, ok;
#ifdef SHARE
    byte q, packed, shared_slot;
#endif
    do
    :: turn < RUNS ->
        turn++;
        left = OF_ONE_RUN; /* messages to send and to receive */
#ifdef PULL
        memory[me] = EMPTY;
        memory[me] = turn;
#endif
#ifdef PUSH
        open_all();
#endif
        do
        :: left == 0 -> break
        :: else ->
#ifdef AWAKE
            look();
            if
            :: ok -> ok = 0
            :: else -> CAN_GO
            fi
#else
            await()
#endif
        od;
#ifdef PUSH
        look_at_target()
#endif
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
