/* The survivor agreement of src/comm/survive.c: N ranks, of which up to DEATHS die and up to LEAVERS close the comm at
 * any moment, and BALLOTS ballots.
 * Any rank may lead at any time, so several may at once, and a leader may take any rank that has not answered for
 * lost or late. A message is a look at what its sender has said last. It may come late, since a rank looks at any moment,
 * or never: connections are cut.
 *
 * A rank that has its list may go on with it. A rank that closes the comm takes part no more. If it has not gone on with
 * a list, it says so (QUITS), and others take it for dead. Otherwise they know of it as little as of a rank that is
 * silent.
 *
 * With RELAYED (src/comm/survive_tree.c) answers come by ranks that sum them up: a sum is a set of ranks, which grows at any
 * moment as ranks are heard, also after they have died, and the leader hears of it at any moment, or never. One sum for
 * each ballot stands for any number of ranks that pass sums on, since sums are only merged. Broken on purpose:
 *   RELAY_FORGETS the sum has no list, though a rank in it has accepted one
 *   RELAY_OLD     answers to an earlier ballot count
 *   RELAY_MIXES   promises count as acceptances
 *
 * Right is: all ranks that have a list have the same one, except those that have died, and those that have closed the
 * comm and have not gone on. Each rank that is not on the list is one of these, or more than half of all ranks have
 * accepted it.
 *
 * Broken on purpose:
 *   NO_PROMISE   a rank accepts a ballot that is lower than one that it has promised
 *   FORGETS      a leader does not propose the list that ranks have accepted
 *   LOWEST       of several accepted lists a leader takes the one with the lowest ballot
 *   NO_MAJORITY  ranks are left out without a majority
 *   COUNT_LIST   the majority is counted among the ranks of the list, not among those that have accepted it
 *   UNHEARD      a list that was accepted before is proposed when ranks of it have not promised
 *   EARLY        a list is committed when ranks of it have not accepted it
 *   GUESSES      a rank that does not answer is taken for dead
 *   RELAY_FORGETS, RELAY_OLD, RELAY_MIXES: see RELAYED
 *   QUITS_ALWAYS a rank that closes the comm says QUITS, though it has gone on with a list
 *   GOES_ON_LATE a rank goes on with its list after it has closed the comm and said QUITS */
#ifndef N
#define N 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef LEAVERS
#define LEAVERS 0
#endif
#ifndef BALLOTS
#define BALLOTS 2
#endif
#define ALL ((1 << N) - 1)
#define BIT(r) (1 << (r))
#if N == 3
#define COUNT(set) (((set) & 1) + ((set) >> 1 & 1) + ((set) >> 2 & 1))
#else
#define COUNT(set) (((set) & 1) + ((set) >> 1 & 1) + ((set) >> 2 & 1) + ((set) >> 3 & 1))
#endif

byte ended;                   /* sets are bits of ranks */
byte closed;                  /* ranks that have closed the comm */
byte on;                      /* ranks that have gone on with their list */
byte quit;                    /* ranks that have said QUITS */
byte ballots;                 /* that were begun */
byte led_by[BALLOTS + 1];
byte promised[N], accepted[N]; /* ballots */
byte got[N];                  /* the ballot whose list is the rank's result */
byte list[BALLOTS + 1];       /* that was proposed; 0: none */
byte reported[BALLOTS + 1];   /* ranks whose promise the leader has heard of */
byte best[BALLOTS + 1];       /* the ballot of the accepted list that their reports name */
byte took[BALLOTS + 1];       /* ranks of which the leader has heard that they accept */
bit done[BALLOTS + 1];        /* committed */
#ifdef RELAYED
byte sum[BALLOTS + 1];        /* ranks of which the one that sums up has heard that they have promised */
byte sum_best[BALLOTS + 1];   /* the ballot of the accepted list that they name */
byte sum_took[BALLOTS + 1];   /* ranks that have accepted */
#endif

#define dead (ended | quit) /* as ranks know it */
#define AWAY (ended | closed & ~on)
#ifdef QUITS_ALWAYS
#define QUITS(me) true
#else
#define QUITS(me) (!(on & BIT(me)))
#endif
#ifdef GOES_ON_LATE
#define GOES_ON(me) (!(ended & BIT(me)))
#else
#define GOES_ON(me) LIVES(me)
#endif

#ifdef FORGETS
#define CHOICE(b) (reported[b] & ~dead)
#else
#define CHOICE(b) (best[b] -> list[best[b]] : reported[b] & ~dead)
#endif
#ifdef GUESSES
#define GONE(b) (dead | ALL & ~reported[b] | list[b] & ~took[b])
#else
#define GONE(b) dead
#endif
#ifdef NO_MAJORITY
#define ENOUGH(b, set, n) true
#else
#define ENOUGH(b, set, n) (!(ALL & ~(set) & ~GONE(b)) || 2 * (n) > N)
#endif
#ifdef UNHEARD
#define HEARD(b) (ENOUGH(b, CHOICE(b), COUNT(CHOICE(b) & reported[b] & ~dead)))
#else
#define HEARD(b) (!(CHOICE(b) & ~reported[b] & ~dead) && ENOUGH(b, reported[b], COUNT(reported[b] & ~dead)))
#endif
#ifdef COUNT_LIST
#define SUPPORT(b) COUNT(list[b])
#else
#define SUPPORT(b) COUNT(took[b])
#endif
#ifdef EARLY
#define ACCEPTED(b) took[b]
#else
#define ACCEPTED(b) (((took[b] | GONE(b)) & list[b]) == list[b])
#endif
#ifdef LOWEST
#define BETTER(a, b) ((a) && (!best[b] || (a) < best[b]))
#else
#define BETTER(a, b) ((a) > best[b])
#endif
#ifdef NO_PROMISE
#define KEEPS(me, b) true
#else
#define KEEPS(me, b) (b >= promised[me])
#endif
#define LIVES(me) (!((ended | closed) & BIT(me)))

inline check(me, b)
{
    k = 0;
    n = 0;
    do
    :: k < N ->
        assert(!got[k] || AWAY & BIT(k) || list[got[k]] == list[b]);
        n = n + (accepted[k] && list[accepted[k]] == list[b]);
        k++
    :: else -> break
    od;
    assert(!(ALL & ~list[b] & ~AWAY) || 2 * n > N)
}

#ifdef RELAY_OLD
#define HAS_PROMISED(me, b) promised[me]
#else
#define HAS_PROMISED(me, b) (promised[me] == b && accepted[me] != b)
#endif
#ifdef RELAY_MIXES
#define HAS_ACCEPTED(me, b) (sum[b] & BIT(me))
#else
#define HAS_ACCEPTED(me, b) (accepted[me] == b)
#endif

#ifdef RELAYED
/* Rank me is heard about ballot b, or the leader hears the sum. */
inline pass_on(me, b)
{
    if
    :: d_step { b <= ballots && !list[b] && HAS_PROMISED(me, b) && !(sum[b] & BIT(me)) ->
        sum[b] = sum[b] | BIT(me);
#ifndef RELAY_FORGETS
        sum_best[b] = (accepted[me] > sum_best[b] -> accepted[me] : sum_best[b]);
#endif
        skip }
    :: d_step { LIVES(led_by[b]) && b <= ballots && !list[b] && sum[b] & ~reported[b] ->
        reported[b] = reported[b] | sum[b];
        if
        :: BETTER(sum_best[b], b) -> best[b] = sum_best[b]
        :: else
        fi }
    :: d_step { list[b] && !done[b] && HAS_ACCEPTED(me, b) && !(sum_took[b] & BIT(me)) ->
        sum_took[b] = sum_took[b] | BIT(me) }
    :: d_step { LIVES(led_by[b]) && list[b] && !done[b] && sum_took[b] & ~took[b] -> took[b] = took[b] | sum_took[b] }
    fi
}
#endif

/* What a rank does about ballot b. */
inline act(me, b)
{
    if
#ifdef RELAYED
    :: pass_on(me, b)
#endif
    :: d_step { LIVES(me) && !got[me] && ballots + 1 == b -> ballots = b; led_by[b] = me }
#ifndef RELAYED
    :: d_step { LIVES(me) && !got[me] && b <= ballots && b > promised[me] && !list[b] ->
        promised[me] = b;
        reported[b] = reported[b] | BIT(me);
        if
        :: BETTER(accepted[me], b) -> best[b] = accepted[me]
        :: else
        fi }
#endif
    :: d_step { LIVES(me) && !got[me] && b <= ballots && b > promised[me] -> promised[me] = b } /* not heard */
    :: d_step { LIVES(me) && b <= ballots && led_by[b] == me && !list[b] && reported[b] & BIT(me) && CHOICE(b) &&
                HEARD(b) ->
        list[b] = CHOICE(b) }
#ifndef RELAYED
    :: d_step { LIVES(me) && !got[me] && list[b] & BIT(me) && accepted[me] != b && KEEPS(me, b) ->
        promised[me] = (b > promised[me] -> b : promised[me]);
        accepted[me] = b;
        took[b] = took[b] | BIT(me) }
#endif
    :: d_step { LIVES(me) && !got[me] && list[b] & BIT(me) && accepted[me] != b && KEEPS(me, b) -> /* not heard */
        promised[me] = (b > promised[me] -> b : promised[me]);
        accepted[me] = b }
    :: d_step { LIVES(me) && led_by[b] == me && list[b] && !done[b] && ACCEPTED(b) &&
                ENOUGH(b, list[b], SUPPORT(b)) ->
        done[b] = 1 }
    :: d_step { LIVES(me) && !got[me] && done[b] && list[b] & BIT(me) -> got[me] = b; check(me, b) }
    fi
}

active [N] proctype rank()
{
    byte b, k, n;
end:
    do
    :: d_step { LIVES(_pid) && COUNT(ended) < DEATHS -> ended = ended | BIT(_pid) }
    :: d_step { LIVES(_pid) && COUNT(closed) < LEAVERS ->
        closed = closed | BIT(_pid);
        quit = quit | (QUITS(_pid) -> BIT(_pid) : 0) }
    :: d_step { GOES_ON(_pid) && got[_pid] && !(on & BIT(_pid)) -> on = on | BIT(_pid); check(_pid, got[_pid]) }
    :: act(_pid, 1)
    :: act(_pid, 2)
#if BALLOTS > 2
    :: act(_pid, 3)
#endif
#if BALLOTS > 3
    :: act(_pid, 4)
#endif
    od
}
