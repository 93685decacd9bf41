/* Meetings of a group on several hosts (src/comm/relay.c, meeting.c, mail.c): ROUNDS meetings of 3 hosts with one rank
 * each, which is its host's first rank, and host AT has another rank, number 3. First ranks mail the votes of their host
 * and of those below it up the tree, host 0 judges, and the result goes down. In the first meeting rank 3 votes against.
 *
 * At most FAULTS times at any moment a rank dies (what it has mailed comes or is lost), runs out of time and fails the
 * comm, closes its comm instead of coming to a meeting, or closes it when time runs out in a barrier. A rank that is
 * late is one that does nothing for long, which spin tries anyway.
 *
 * Right is: every rank that gets a result gets the same one, which counts the votes of all ranks; no rank waits for
 * ever, though waits have no time limit here; and no rank gets a failure if there was no fault. How the ranks of a host
 * meet in its memory is in tree.pml.
 *
 *   (default)  host 1 is below host 0, and host 2 below host 1
 *   -DFAN      hosts 1 and 2 are below host 0
 *
 * Broken on purpose:
 *   NOT_ALL      a host reports before all hosts below it have
 *   OLD_BALLOT   a ballot of the meeting before counts as one of this meeting
 *   OWN_RESULT   a host whose time runs out judges by itself
 *   SILENT       a rank that finds a failure does not tell other hosts
 *   NO_FORWARD   a rank that is told of a failure does not pass it on
 *   TELLS_UP     failures are told to the host above only
 *   BLIND_ABOVE  a rank does not see that the host above has died
 *   BLIND_LEFT   a rank does not see that others have closed their comms
 *   FAREWELL     a rank sees that another one has closed before it has taken the mail which that one sent before
 *   LATE_DOWN    a first rank ends the meeting on its host before it mails the result down, and may close before it does
 *   NO_RELAY     a rank does not see that the first rank of its host has closed, if that one has entered the meeting */
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef AT
#define AT 1
#endif
#define H 3
#define N 4
#define HOST(r) ((r) == 3 -> AT : (r))
#define FIRST (me < H)
#define RANKS(host) ((host) == AT -> 2 : 1)

#ifdef FAN
#define ABOVE(host) 0
#define IS_BELOW(host, of) ((of) == 0 && (host) > 0)
#else
#define ABOVE(host) ((host) - 1)
#define IS_BELOW(host, of) ((host) == (of) + 1)
#endif
#define NEXT(a, b) (IS_BELOW(a, b) || IS_BELOW(b, a))

bit dead[N], closed[N];
byte entered[N]; /* meetings */
/* The control words of each host. */
byte came[H];   /* entries of its ranks, over all meetings */
byte met[H];    /* meetings that are complete */
bit result[H];  /* of the last one */
bit failed[H];
/* Of each first rank. */
byte up[H];       /* meetings whose ballot has gone up, or was judged */
byte reported[H]; /* of the host: meetings for which its ballot has come to the host above */
bit ballot[H];
/* Mail: what goes from a host to the one above, what comes from that one, and that there is a failure. */
chan rises[H] = [2] of { byte, bit }; /* the meeting, and whether a rank is against */
chan falls[H] = [2] of { byte, bit };
bit news[H];
bit told[N]; /* the rank has told others of the failure */

byte faults;
byte against, against_in;
byte ended;

#define HOME(h) (came[h] / RANKS(h))

#ifdef NOT_ALL
#define ALL_REPORTED true
#else
#ifdef OLD_BALLOT
#define CAME(c) (!IS_BELOW(c, h) || reported[c] > 0)
#else
#define CAME(c) (!IS_BELOW(c, h) || reported[c] > up[h])
#endif
#define ALL_REPORTED (CAME(1) && CAME(2))
#endif

#define LOCAL_AGAINST(m) (against_in == (m) && HOST(against) == h)
#define MERGED(c) (IS_BELOW(c, h) && ballot[c])

#ifdef SILENT
#define TELLS(k) false
#else
#ifdef TELLS_UP
#define TELLS(k) IS_BELOW(h, k)
#else
#define TELLS(k) NEXT(k, h)
#endif
#endif

/* Mails to the first rank of each host next to this one in the tree. If the rank dies meanwhile, some of them get it. */
inline spread()
{
    if
    :: d_step { told[me] }
    :: d_step { !told[me] ->
        told[me] = 1;
        news[0] = news[0] || TELLS(0);
        news[1] = news[1] || TELLS(1);
        news[2] = news[2] || TELLS(2) }
    :: atomic { !told[me] && faults < FAULTS ->
        if
        :: TELLS(0) -> news[0] = 1
        :: TELLS(1) -> news[1] = 1
        :: TELLS(2) -> news[2] = 1
        fi;
        dies();
        goto gone }
    fi
}

/* comm_fail: there must be a reason. */
inline fail()
{
    assert(faults);
    spread();
    failed[h] = 1
}

/* What the rank has mailed comes, or is lost. */
inline dies()
{
    faults++;
    dead[me] = 1;
    if
    :: skip
    :: FIRST ->
        k = 0;
        do
        :: len(rises[h]) -> rises[h]?_, _
        :: k < H && IS_BELOW(k, h) && len(falls[k]) -> falls[k]?_, _
        :: k < H && !(IS_BELOW(k, h) && len(falls[k])) -> k++
        :: k == H && !len(rises[h]) -> break
        od
    fi;
    k = 0
}

/* conclude: the result goes down before a rank of this host goes on, and perhaps leaves. All of it is one step of the
 * rank; or it dies when it has mailed to some of the hosts below. */
inline conclude(m, value)
{
    if
#ifdef LATE_DOWN
    :: m == ROUNDS -> result[h] = value; met[h] = m /* and the rank closes its comm */
#endif
    :: true ->
        if
        :: IS_BELOW(1, h) -> falls[1]!m, value
        :: else
        fi;
        if
        :: IS_BELOW(2, h) -> falls[2]!m, value
        :: else
        fi;
        result[h] = value;
        met[h] = m
    :: faults < FAULTS && IS_BELOW(1, h) && IS_BELOW(2, h) ->
        if
        :: falls[1]!m, value
        :: falls[2]!m, value
        fi;
        dies();
        goto gone
    fi
}

#define CAN_REPORT (FIRST && !failed[h] && HOME(h) > up[h] && ALL_REPORTED)

inline report()
{
    up[h] = up[h] + 1;
    sum = LOCAL_AGAINST(up[h]) || MERGED(1) || MERGED(2);
    if
    :: h -> rises[h]!up[h], sum
    :: else -> conclude(up[h], sum)
    fi;
    sum = 0
}

#define FROM(c) (FIRST && IS_BELOW(c, h) && len(rises[c]))

/* A rank that this one sees, and that has died: of its host, or the first rank of a host next to it in the tree. */
#ifdef BLIND_ABOVE
#define SEES(r) ((r) != me && (HOST(r) == h || FIRST && r < H && IS_BELOW(r, h)))
#else
#define SEES(r) ((r) != me && (HOST(r) == h || FIRST && (r) < H && NEXT(r, h)))
#endif
#define SEES_DEAD(r) (SEES(r) && dead[r])

/* someone_left and will_not_come: a rank of this host has not entered, or is the first one, which relays. Of another
 * host: its ballot or its result lacks. A farewell comes behind what was mailed before it. */
#ifdef NO_RELAY
#define WILL_NOT_RELAY(r) false
#else
#define WILL_NOT_RELAY(r) ((r) < H)
#endif
#ifdef FAREWELL
#define NO_MAIL(c) true
#else
#define NO_MAIL(c) (!len(c))
#endif
#define NOT_TO_COME(r) (SEES(r) && closed[r] && \
    (HOST(r) == h && (entered[r] < round || WILL_NOT_RELAY(r)) || \
     HOST(r) != h && IS_BELOW(h, r) && NO_MAIL(falls[h]) || \
     HOST(r) != h && IS_BELOW(r, h) && NO_MAIL(rises[r]) && reported[r] <= up[h]))
#ifdef BLIND_LEFT
#define SEES_LEFT false
#else
#define SEES_LEFT (NOT_TO_COME(0) || NOT_TO_COME(1) || NOT_TO_COME(2) || NOT_TO_COME(3))
#endif

inline take_ballot(c)
{
    atomic { FROM(c) -> rises[c]?number, sum; reported[c] = number; ballot[c] = sum; number = 0; sum = 0 }
}

/* meeting_agree or weft_comm_barrier, after the rank has entered. */
inline wait()
{
    do
    :: met[h] >= round -> break
    :: met[h] < round && failed[h] ->
#ifdef NO_FORWARD
        told[me] = 1;
#endif
        spread();
        goto gone /* the rank knows; it does not close its comm before all know */
    :: atomic { met[h] < round && CAN_REPORT -> report() }
    :: take_ballot(1)
    :: take_ballot(2)
    :: atomic { FIRST && h && len(falls[h]) ->
        falls[h]?number, sum;
        conclude(number, sum);
        number = 0;
        sum = 0 }
    :: FIRST && news[h] && !failed[h] -> failed[h] = 1
    :: met[h] < round && (SEES_DEAD(0) || SEES_DEAD(1) || SEES_DEAD(2) || SEES_DEAD(3)) && !failed[h] -> fail()
    :: met[h] < round && SEES_LEFT && !failed[h] -> fail()
    :: atomic { met[h] < round && faults < FAULTS && !failed[h] -> faults++ } ->
        if
#ifdef OWN_RESULT
        :: FIRST -> conclude(round, LOCAL_AGAINST(round))
#endif
        :: fail() /* meeting_agree */
        :: goto leaves /* the caller of a barrier closes the comm */
        fi
    :: atomic { faults < FAULTS -> dies(); goto gone }
    od
}

proctype rank(byte me)
{
    byte round = 1, k, number, h = HOST(me);
    bit sum;
    do
    :: round <= ROUNDS ->
        if
        :: true
        :: atomic { faults < FAULTS -> faults++; goto leaves }
        :: atomic { faults < FAULTS -> dies(); goto gone }
        fi;
        d_step { entered[me] = round; came[h] = came[h] + 1 };
        wait();
        skip;
        d_step {
            assert(result[h] == (against_in == round));
            k = 0;
            do
            :: k < N -> assert(entered[k] >= round); k++
            :: else -> break
            od;
            k = 0
        };
        round++
    :: else -> break
    od;
leaves:
    if
    :: atomic { CAN_REPORT -> report(); closed[me] = 1 } /* relay_close */
    :: atomic { else -> closed[me] = 1 }
    fi;
gone:
    ended++
}

init {
    byte r = 0;
    atomic {
        against_in = 1;
        against = N - 1;
        do
        :: r < N -> run rank(r); r++
        :: else -> break
        od
    }
    ended == N
}
