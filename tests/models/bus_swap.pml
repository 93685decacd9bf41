/* Swaps of the bus: RANKS ranks of a subscriber change from version to version, in ROUNDS rounds. In each round a rank has
 * staged and checked the new version, or cannot. If it cannot, it decides that all stay. Otherwise it closes the old
 * version (it gives no more pins) and then votes for the change. A rank that sees the votes of all ranks decides that
 * all change. A rank whose deadline is over decides that all stay. A decision is made by a compare: the first one
 * counts, whoever makes it, and all ranks read it. Then a rank serves the new version or the old one, and returns. A rank
 * that cannot read the decision for a while serves nothing in that time. Up to DEATHS ranks die at any moment.
 *
 * Right is: at no time do two ranks serve different versions, and no rank that lives waits for ever.
 *
 * Broken on purpose:
 *   SERVES_ON   a rank serves the old version until it knows the decision
 *   EARLY       a rank decides for the change when it sees the votes of half of the ranks
 *   OVERWRITES  a decision to stay is written without a compare
 *   GUESSES     a rank that cannot read the decision at its deadline takes the old version
 *   OLD_VOTES   votes do not say to which round they belong
 *   ONE_LEADER  rank 0 alone decides
 *   SWAPS_FIRST a rank serves the new version when it has staged it */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
mtype = { none, change, stay };

mtype decision[ROUNDS + 1];
byte voted[RANKS];  /* the round of its last vote */
byte serves[RANKS]; /* a version + 1; 0: nothing */
byte ended, deaths; /* ended: a set of ranks */

#define LIVES(r) (!(ended & (1 << (r))))
#ifdef OLD_VOTES
#define VOTES(r) (voted[r] != 0)
#else
#define VOTES(r) (voted[r] == round)
#endif
#if RANKS == 2
#define ALL_VOTE (VOTES(0) && VOTES(1))
#define HALF_VOTE (VOTES(0) || VOTES(1))
#elif RANKS == 3
#define ALL_VOTE (VOTES(0) && VOTES(1) && VOTES(2))
#define HALF_VOTE (VOTES(0) && VOTES(1) || VOTES(0) && VOTES(2) || VOTES(1) && VOTES(2))
#else
#define ALL_VOTE (VOTES(0) && VOTES(1) && VOTES(2) && VOTES(3))
#define HALF_VOTE (VOTES(0) && VOTES(1))
#endif
#ifdef EARLY
#define ENOUGH HALF_VOTE
#else
#define ENOUGH ALL_VOTE
#endif
#ifdef ONE_LEADER
#define DECIDES (me == 0)
#else
#define DECIDES true
#endif

inline serve(what)
{
    serves[me] = what;
    k = 0;
    do
    :: k < RANKS -> assert(!serves[k] || !LIVES(k) || serves[k] == what); k++
    :: else -> break
    od;
    k = 0
}

proctype rank(byte me)
{
    byte round = 1, version, k;
    do
    :: round <= ROUNDS ->
        if
        :: atomic { LIVES(me) && DECIDES && decision[round] == none -> decision[round] = stay } /* it cannot stage it */
        :: LIVES(me) /* it has staged it, or all is decided already */
        :: !LIVES(me) -> goto out
        fi;
        if
        :: decision[round] == none ->
#ifdef SWAPS_FIRST
            atomic {
                if
                :: LIVES(me) -> serve(round + 1)
                :: else -> goto out
                fi
            }
#endif
#ifndef SERVES_ON
            serves[me] = 0;
#endif
            atomic {
                if
                :: LIVES(me) -> voted[me] = round
                :: else -> goto out
                fi
            }
        :: else
        fi;
        do
        :: atomic { LIVES(me) && decision[round] == none && DECIDES && ENOUGH -> decision[round] = change }
#ifdef OVERWRITES
        :: LIVES(me) && decision[round] == none && DECIDES -> decision[round] = stay
#else
        :: atomic { LIVES(me) && decision[round] == none && DECIDES -> decision[round] = stay } /* its deadline is over */
#endif
#ifdef GUESSES
        :: LIVES(me) && decision[round] == none -> break
#endif
        :: LIVES(me) && decision[round] != none -> break
        :: !LIVES(me) -> goto out
        od;
        atomic {
            if
            :: !LIVES(me) -> goto out
            :: LIVES(me) && decision[round] == change -> version = round; serve(version + 1)
            :: LIVES(me) && decision[round] != change -> serve(version + 1)
            fi;
            round++
        }
    :: else -> break
    od;
out:
    atomic { round = 0; version = 0 }
}

proctype fate()
{
    byte who;
    do
    :: atomic {
           deaths < DEATHS ->
           who = 0;
           do
           :: who < RANKS - 1 -> who++
           :: true -> break
           od;
           if
           :: LIVES(who) -> ended = ended | (1 << who); deaths++
           :: else
           fi;
           who = 0
       }
    :: true -> break
    od
}

init
{
    byte r;
    atomic {
        do
        :: r < ROUNDS + 1 -> decision[r] = none; r++
        :: else -> break
        od;
        r = 0;
        do
        :: r < RANKS -> serves[r] = 1; run rank(r); r++
        :: else -> break
        od;
        r = 0;
        run fate()
    }
}
