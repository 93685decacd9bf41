/* Eager messages, src/engine/ways/eager.c and drivers/onepass.c: ranks write a message of WORDS words in each of RUNS runs into the
 * slot of that run, of SLOTS in all. That the number of the run stands there is the signal. Readers say that they are
 * done with all runs before every TELLS runs only, and who writes may be SLOTS runs ahead of them. No slot is written
 * before all have read it, none is read before it is written, and all runs end.
 *
 *   (default)  rank 0 writes to all others
 *   -DMUTUAL   all write, and all read all others
 *   -DMIXED    with N=2: the channel has a message that is pulled, too, after the message. That it was read is told at
 *              once, and says the same of the message, which is read later: nobody minds, as nobody is two runs ahead.
 *              Needs SLOTS of 2 at least.
 *   -DANSWERED with MUTUAL: nobody says that it is done, nor asks; SLOTS is 2. Who has a message of all others in a run knows
 *              that they have read its own of the run before
 *   -DTINY     each word has its part of the message and the number of the run, and stores have no order among them;
 *              else one number stands in front and is stored last, which its order (release) says
 *
 * Stores are relaxed: they wait in the writer's core and come out one by one, in any order that release and fences
 * leave.
 *
 * Broken on purpose, besides what bell.pml has:
 *   NO_FENCE      the writer looks for sleepers while its message may still be in its core
 *   NO_RELEASE    the number can come out before the message
 *   NO_ACQUIRE    the reader may have read the message before it saw the number
 *   ONE_NUMBER    TINY: only the first word has a number
 *   SHORT_NUMBER  the number is that of the slot, which the message before had, too
 *   ONE_ASKED     the writer of a message for several asks one of them whether the slot is free
 *   TELLS         > SLOTS: readers say too rarely that they are done
 *   AHEAD         > SLOTS: the writer may be that many runs ahead
 *   EARLY_DONE    a reader says that it is done before it is
 *   LATE_READ     ANSWERED: a message is read after the next one of the reader has come out, for want of release
 *   ANSWERED without MUTUAL, or with SLOTS of 1 */
#ifndef N
#define N 2
#endif
#ifndef SLOTS
#ifdef ANSWERED
#define SLOTS 2
#else
#define SLOTS 4
#endif
#endif
#ifndef TELLS
#define TELLS (SLOTS / 2)
#endif
#ifndef AHEAD
#define AHEAD SLOTS
#endif
#ifndef RUNS
#define RUNS (2 * SLOTS)
#endif
#define WORDS 2
#include "bell.pml"

#ifdef MUTUAL
#define WRITES(r) 1
#else
#define WRITES(r) ((r) == 0)
#endif
#define READS(r, from) ((r) != (from) && WRITES(from))

#ifdef SHORT_NUMBER
#define NUMBER(turn) (1 + (turn) % SLOTS)
#else
#define NUMBER(turn) (turn)
#endif

#define WORD(from, turn, w) (((from) * SLOTS + (turn) % SLOTS) * WORDS + (w))
byte part[N * SLOTS * WORDS];   /* of the message: the number of the run that wrote it */
byte number[N * SLOTS * WORDS]; /* in words if TINY, else the first stands for the slot */
bit stored[N * WORDS], sealed[N]; /* by the program, not out yet */
byte writes[N];                   /* the run of these */
byte done[N * N];                 /* [from * N + by] */
byte ready;                       /* MIXED */
byte ended;

#define NONE_STORED(r) (!stored[(r) * WORDS] && !stored[(r) * WORDS + 1])

/* What lets a rank's stores out. */
inline let_out(w)
{
    d_step {
        stored[me * WORDS + w] ->
        part[WORD(me, writes[me], w)] = writes[me];
#ifdef TINY
        number[WORD(me, writes[me], w)] = NUMBER(writes[me]);
#endif
        stored[me * WORDS + w] = 0
    }
}

#ifdef NO_RELEASE
#define MAY_SEAL(r) sealed[r]
#else
#define MAY_SEAL(r) (sealed[r] && NONE_STORED(r))
#endif

proctype core(byte me)
{
end:
    do
    :: let_out(0)
    :: let_out(1)
#ifndef TINY
    :: d_step { MAY_SEAL(me) -> number[WORD(me, writes[me], 0)] = NUMBER(writes[me]); sealed[me] = 0 }
#endif
    od
}

/* there, in ok; and what the rank awaits. All looks are relaxed, each a step of its own. */
inline look_at(from)
{
    ok = number[WORD(from, turn, 0)] == NUMBER(turn);
#ifndef ONE_NUMBER
#ifdef TINY
    if
    :: ok -> ok = number[WORD(from, turn, 1)] == NUMBER(turn)
    :: else
    fi
#endif
#endif
}

#ifdef ANSWERED
#define ASKS(q) 0
#else
#ifdef ONE_ASKED
#define ASKS(q) ((q) == N - 1)
#else
#define ASKS(q) READS(q, me)
#endif
#endif

/* Before its message is written a rank awaits those who have not let go of its slot, then the messages that are due. */
inline look()
{
    lacks = 0;
    q = 0;
    do
#ifdef MIXED
    :: pulls -> lacks = (me == 0 -> done[1] < turn : ready < turn); break
    :: !pulls && q < N ->
#else
    :: q < N ->
#endif
        if
        :: !written && ASKS(q) ->
            if
            :: done[me * N + q] + AHEAD < turn -> lacks++
            :: else
            fi
        :: written && READS(me, q) ->
            look_at(q);
            lacks = lacks + !ok
        :: else
        fi;
        q++
    :: else -> q = 0; break
    od;
    ok = lacks == 0
}

inline read_message(from)
{
    assert(part[WORD(from, turn, 0)] == turn);
    assert(part[WORD(from, turn, 1)] == turn)
}

/* Without the fence a part of the message may have been read before the look that found it there. */
inline read_early(from)
{
    d_step { early = part[WORD(from, turn, 1)]; ok = 0 };
    look_at(from);
    if
    :: ok -> assert(early == turn)
    :: else
    fi;
    ok = 0
}

inline tell(from)
{
#ifndef ANSWERED
    if
    :: turn % TELLS == 0 -> signal(from, done[from * N + me], turn)
    :: else
    fi
#else
    skip
#endif
}

inline call_readers()
{
    q = 0;
    do
    :: q < N ->
        if
        :: READS(q, me) -> call(q)
        :: else
        fi;
        q++
    :: else -> q = 0; break
    od
}

inline write_message()
{
    written = 0;
    await(); /* slots_free */
    NONE_STORED(me) && !sealed[me]; /* of the run before, if there was no fence */
    d_step {
        writes[me] = turn;
        stored[me * WORDS] = 1;
        stored[me * WORDS + 1] = 1;
#ifndef TINY
        sealed[me] = 1;
#endif
        written = 1
    }
#ifndef NO_FENCE
    NONE_STORED(me) && !sealed[me];
#endif
    call_readers()
}

inline read_messages()
{
    q = 0;
    do
    :: q < N ->
        if
        :: READS(me, q) ->
#ifdef EARLY_DONE
            tell(q);
            read_message(q)
#else
            read_message(q);
            tell(q)
#endif
        :: else
        fi;
        q++
    :: else -> q = 0; break
    od
}

#ifdef LATE_READ
/* What was seen in this run is read when the message of the next one is on its way, or when there is none. */
inline read_late()
{
    turn++;
    if
    :: turn <= RUNS -> write_message(); early_written = 1
    :: else
    fi;
    turn--;
    read_messages();
}
#endif

#ifdef MIXED
inline pull()
{
    if
    :: me == 0 -> signal(1, ready, turn)
    :: else
    fi;
    pulls = 1;
    await();
    pulls = 0;
    if
    :: me == 1 -> signal(0, done[1], turn)
    :: else
    fi
}
#endif

proctype rank(byte me)
{
    byte q, turn = 1, lacks;
    bit ok, written = 1;
#ifdef MIXED
    bit pulls;
#endif
#ifdef LATE_READ
    bit early_written;
#endif
#ifdef NO_ACQUIRE
    byte early;
#endif
    do
    :: turn <= RUNS ->
        if
#ifdef LATE_READ
        :: early_written -> early_written = 0
        :: !early_written && WRITES(me) -> write_message()
#else
        :: WRITES(me) -> write_message()
#endif
        :: else
        fi;
#ifdef NO_ACQUIRE
        if
        :: READS(me, 0) -> read_early(0)
        :: else
        fi;
#endif
#ifdef MIXED
        pull();
#endif
        await();
#ifdef LATE_READ
        read_late();
#else
        read_messages();
#endif
        turn++
    :: else -> break
    od;
    ended++
}

init {
    byte r = 0;
    atomic {
        do
        :: r < N ->
            run rank(r);
            if
            :: WRITES(r) -> run core(r)
            :: else
            fi;
            r++
        :: else -> break
        od
    }
    ended == N
}
