/* The pieces of src/engine/ways/assist.c: in each of RUNS runs a message of PIECES pieces, which its sender and its receiver
 * claim by one word. The destination is written only in the run that the receiver is in, each piece is written once, and
 * all of them are there when the receiver goes on.
 *
 * Broken on purpose:
 *   SENDER_FIRST  the sender may claim the first piece: the receiver may not have begun
 *   TWO_STEPS     a piece is looked for and claimed in two steps
 *   EARLY_DONE    the receiver goes on when no piece is left to claim
 *   NO_RUN        what the sender has copied is a count without the run */
#ifndef PIECES
#define PIECES 3
#endif
#ifndef RUNS
#define RUNS 3
#endif
#define NONE 255

byte ready, done; /* runs that the sender has shown and the receiver has read */
byte claimed, copied;
byte begun;       /* the run that the receiver is in; 0: its caller has the destination */
byte got[PIECES]; /* the last run that a piece was written in */

#define WORD(turn, count) ((turn) * 16 + (count))
#ifdef NO_RUN
#define SENT(turn) (copied % 16)
#else
#define SENT(turn) (copied / 16 == (turn) -> copied % 16 : 0)
#endif
#define CLAIMED(turn) (claimed / 16 == (turn) -> claimed % 16 : 0)
#ifdef SENDER_FIRST
#define LEFT(turn, first) (CLAIMED(turn) < PIECES)
#else
#define LEFT(turn, first) (CLAIMED(turn) < PIECES && (first || CLAIMED(turn) > 0))
#endif

inline claim(turn, first)
{
#ifdef TWO_STEPS
    d_step { piece = (LEFT(turn, first) -> CLAIMED(turn) : NONE) }
    if
    :: piece != NONE -> claimed = WORD(turn, piece + 1)
    :: else
    fi
#else
    d_step {
        piece = (LEFT(turn, first) -> CLAIMED(turn) : NONE);
        claimed = (piece != NONE -> WORD(turn, piece + 1) : claimed)
    }
#endif
}

/* A copy takes a while: what is true when it begins must be true when it ends. */
inline copy(turn)
{
    assert(begun == turn && got[piece] == turn - 1);
    d_step {
        assert(begun == turn && got[piece] == turn - 1);
        got[piece] = turn
    }
}

active proctype sender()
{
    byte turn = 1, piece;
    do
    :: turn <= RUNS ->
        ready = turn;
        do
        :: done == turn -> break
        :: LEFT(turn, false) ->
            claim(turn, false);
            if
            :: piece != NONE ->
                copy(turn);
copied = WORD(turn, SENT(turn) + 1)
            :: else
            fi
        od;
        turn++
    :: else -> break
    od
}

active proctype receiver()
{
    byte turn = 1, piece, at, i;
    do
    :: turn <= RUNS ->
        begun = turn;
        ready == turn;
        at = 0;
        do
        :: claim(turn, true);
            if
            :: piece == NONE -> break
            :: else ->
                copy(turn);
                at++
            fi
        od;
#ifdef EARLY_DONE
        true;
#else
        SENT(turn) + at == PIECES;
#endif
        d_step {
            for (i : 0 .. PIECES - 1) {
                assert(got[i] == turn)
            }
            begun = 0
        }
        done = turn;
        turn++
    :: else -> break
    od
}
