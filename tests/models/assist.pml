/* The pieces of src/engine/ways/assist.c: in each of RUNS runs a message of PIECES pieces, which its sender (1) and its receiver (0)
 * take from one count. Nobody writes the destination but in the run that the receiver is in, each piece is written once, and
 * all of them are there when the receiver goes on.
 *
 * Broken on purpose:
 *   SENDER_FIRST  the sender may take the first piece: the receiver may not have begun
 *   TWO_STEPS     a piece is looked for and taken in two steps
 *   EARLY_DONE    the receiver goes on when no piece is left to take
 *   NO_BASE       the sender counts its pieces of all runs */
#ifndef PIECES
#define PIECES 3
#endif
#ifndef RUNS
#define RUNS 3
#endif
#define NONE 255

byte ready, done; /* runs that the sender has shown and the receiver has read */
byte claimed, packed;
byte begun;       /* the run that the receiver is in; 0: its caller has the destination */
byte got[PIECES]; /* the last run that a piece was written in */

#define BASE(turn) (((turn) - 1) * PIECES)
#define SENT(turn) (packed > BASE(turn) -> packed - BASE(turn) : 0)
#ifdef SENDER_FIRST
#define LEFT(turn, first) (claimed - BASE(turn) < PIECES)
#else
#define LEFT(turn, first) (claimed - BASE(turn) < PIECES && (first || claimed > BASE(turn)))
#endif

inline claim(turn, first)
{
#ifdef TWO_STEPS
    d_step { piece = (LEFT(turn, first) -> claimed - BASE(turn) : NONE) }
    if
    :: piece != NONE -> claimed = BASE(turn) + piece + 1
    :: else
    fi
#else
    d_step {
        piece = (LEFT(turn, first) -> claimed - BASE(turn) : NONE);
        claimed = (piece != NONE -> claimed + 1 : claimed)
    }
#endif
}

/* It takes a while: what is true at its begin must be at its end. */
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
#ifdef NO_BASE
                packed = packed + 1
#else
                packed = BASE(turn) + SENT(turn) + 1
#endif
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
