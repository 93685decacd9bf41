/* The ring of src/exec/flow.c: in each of RUNS runs a message of PIECES pieces, which one sender packs and READERS
 * unpack behind it. A piece goes round in the first RING places of the slot, or, when the sender waits no longer, to a
 * place of its own from there on. When that is depends on nothing here: the model tries all of it. Nothing is
 * overwritten before all have read it, nothing is read before it is there, and all runs end.
 *
 * Broken on purpose:
 *   EARLY_PACKED    a piece is told before it is packed
 *   EARLY_UNPACKED  a piece is told to be read before it was
 *   LATE_STRAIGHT   where a piece is is said after it was told
 *   ONE_ASKED       the sender asks only one of the readers how far it is
 *   NO_BASE         the sender takes what was unpacked in the run before for this one's
 *   PATIENT         the sender waits for ever, and readers may begin when the whole message is there */
#ifndef PIECES
#define PIECES 4
#endif
#ifndef RING
#define RING 2
#endif
#ifndef RUNS
#define RUNS 2
#endif
#ifndef READERS
#define READERS 2
#endif
#define NONE 255
#define BASE(turn) (((turn) - 1) * PIECES)
#define PLACE(piece) ((piece) < straight -> (piece) % RING : (piece))
#ifdef ONE_ASKED
#define ASKED 1
#else
#define ASKED READERS
#endif
#ifdef NO_BASE
#define ENOUGH(piece) ((piece) + 1 - RING)
#else
#define ENOUGH(piece) (BASE(turn) + (piece) + 1 - RING)
#endif
#define READ_BY(reader, count) ((reader) >= ASKED || unpacked[reader] >= (count))
#define ALL_READ(count) (READ_BY(0, count) && (READERS == 1 || READ_BY(READERS - 1, count)))

byte slot[PIECES]; /* in each place the number of the piece, from 1 on over all runs */
byte ready, straight, packed, unpacked[READERS], done[READERS];

inline pack()
{
#ifdef EARLY_PACKED
    packed = BASE(turn) + piece + 1;
    slot[PLACE(piece)] = BASE(turn) + piece + 1
#else
    slot[PLACE(piece)] = NONE; /* half written */
    slot[PLACE(piece)] = BASE(turn) + piece + 1;
    packed = BASE(turn) + piece + 1
#endif
}

/* As LATE_STRAIGHT has it: the piece is at its own place already. */
inline pack_and_say()
{
    slot[piece] = NONE;
    slot[piece] = BASE(turn) + piece + 1;
    packed = BASE(turn) + piece + 1;
    straight = piece
}

active proctype sender()
{
    byte turn = 1, piece;
    do
    :: turn <= RUNS ->
        straight = NONE;
        ready = turn;
        piece = 0;
        do
        :: piece == PIECES -> break
        :: piece < PIECES && (piece < RING || straight <= piece || ALL_READ(ENOUGH(piece))) -> pack(); piece++
#ifndef PATIENT
        :: piece < PIECES && piece >= RING && straight > piece ->
#ifdef LATE_STRAIGHT
            pack_and_say();
#else
            straight = piece;
            pack();
#endif
            piece++
#endif
        od;
        done[0] == turn && done[READERS - 1] == turn;
        turn++
    :: else -> break
    od
}

/* Reads twice: what it reads must not change while it does. */
active [READERS] proctype reader()
{
    byte turn = 1, piece, place, me = _pid - 1;
    do
    :: turn <= RUNS ->
#ifdef PATIENT
        packed >= BASE(turn) + PIECES;
#else
        ready >= turn;
#endif
        piece = 0;
        do
        :: piece == PIECES -> break
        :: piece < PIECES && packed > BASE(turn) + piece ->
            place = PLACE(piece);
#ifdef EARLY_UNPACKED
            unpacked[me] = BASE(turn) + piece + 1;
#endif
            assert(slot[place] == BASE(turn) + piece + 1);
            assert(slot[place] == BASE(turn) + piece + 1);
#ifndef EARLY_UNPACKED
            unpacked[me] = BASE(turn) + piece + 1;
#endif
            piece++
        od;
        done[me] = turn;
        turn++
    :: else -> break
    od
}
