/* The ledger in Promela, written from the prose of spec/README.md. README.md here defines its three worlds.
 *
 * Build one world: spin -a -DWORLD_A ledger.pml (or WORLD_B, WORLD_C), then compile pan.c with -DSAFETY -DNOREDUCE.
 * Every move is one atomic step, so "stored" counts states, and "transitions" counts moves, plus one.
 * With one letter and one namespace the prefix cache is one chain: cp[i] is the page under the key of i + 1 pages.
 */

#ifdef WORLD_A
#define CHUNKS 1
#else
#define CHUNKS 0
#endif

#define C 4                       /* context_len; a row has two pages of two */
#define S 2                       /* the session, as a holder; 0 and 1 are the requests */
#define FREE 0
#define PRIVATE 1
#define CACHED 2

byte st[2];                       /* 0 not live, 1 waiting, 2 running */
byte nt[2];                       /* tokens, the pending one included */
bit turn[2];
bit opened, closing;              /* the session */
byte row[3], pr[3], cm[3], al[3]; /* the record of a holder */
byte pg[6];                       /* and its pages: pg[2 * holder + ordinal] */
byte clen, cp[2];                 /* the prefix cache */
byte kind[4], lk[4];              /* books of the pages, kept apart from all of the above: laws() compares */
bit held[3];                      /* books of the rows */

byte i, j, d, x, y, n;            /* scratch, zero between moves */

#define UP(v) (((v) + 1) / 2)
#define MIN(v, w) ((v) < (w) -> (v) : (w))
#define MAX(v, w) ((v) > (w) -> (v) : (w))
#define FREES ((kind[1] == FREE) + (kind[2] == FREE) + (kind[3] == FREE))
#define GOES(v, past) ((v) < clen && (v) >= (past) && lk[cp[v]] == 0)
#define ROOM(past) (FREES + GOES(0, past) + GOES(1, past))
#define MATCH(h) (MIN((nt[h] - 1) / 2, clen))
#define GOON(h) (MIN(cm[S], nt[h] - 1))
#define CAUGHT_UP(h) (st[h] == 2 && cm[h] == nt[h] - 1)

/* laws */

inline laws() {
  d_step {
    i = 1;
    do
    :: i <= 3 ->
       x = 0; y = 0; n = 0; j = 0;                /* readers, owners, keys of page i */
       do
       :: j < 6 ->
          if
          :: pg[j] == i && j % 2 < pr[j / 2] / 2 -> x++
          :: pg[j] == i && j % 2 >= pr[j / 2] / 2 -> y++
          :: else
          fi;
          j++
       :: else -> break
       od;
       j = 0;
       do
       :: j < 2 ->
          if :: cp[j] == i -> n++ :: else fi;
          j++
       :: else -> break
       od;
       assert(y + n <= 1);                        /* one owner */
       assert((kind[i] == PRIVATE) == (y == 1));
       assert((kind[i] == CACHED) == (n == 1));
       assert((kind[i] == FREE) == (y + n == 0)); /* no leak */
       assert(x == 0 || kind[i] == CACHED);       /* no live reference to a free page */
       assert(lk[i] == x);                        /* locks are receipts */
       i++
    :: else -> break
    od;
    assert(kind[0] == 0 && lk[0] == 0 && !held[0]);
    j = 0;
    do
    :: j < 3 ->
       assert(pr[j] <= cm[j] && cm[j] <= al[j] && al[j] <= C && pr[j] % 2 == 0);
       assert((row[j] != 0) == (al[j] != 0));
       assert(row[j] == 0 || held[row[j]]);
       assert((pg[2 * j] != 0) == (al[j] > 0) && (pg[2 * j + 1] != 0) == (al[j] > 2));
       assert(pr[j] < 2 || pg[2 * j] == cp[0]);
       assert(pr[j] < 4 || pg[2 * j + 1] == cp[1]);
       j++
    :: else -> break
    od;
    assert((held[1] + held[2]) == ((row[0] != 0) + (row[1] != 0) + (row[2] != 0)));
    assert(row[0] == 0 || (row[0] != row[1] && row[0] != row[2]));
    assert(row[1] == 0 || row[1] != row[2]);
    assert((st[0] == 2) == (row[0] != 0) && (st[1] == 2) == (row[1] != 0));
    assert(!(turn[0] && turn[1]) && (opened || !(turn[0] || turn[1] || closing || row[S])));
    assert(!closing || turn[0] || turn[1]);
    assert((clen > 0) == (cp[0] != 0) && (clen > 1) == (cp[1] != 0));
    i = 0; j = 0; d = 0; x = 0; y = 0; n = 0
  }
}

/* parts of moves; scratch i, j are theirs */

inline drop_leaf() {
  clen--;
  kind[cp[clen]] = FREE;
  cp[clen] = 0
}

/* d pages will be had: evict only as many as are short */
inline make_room() {
  do
  :: FREES < d -> drop_leaf()
  :: else -> break
  od
}

/* slots up to `upto`: any free pages, in any order */
inline grow(h, upto) {
  i = UP(al[h]);
  do
  :: i < UP(upto) ->
     if
     :: kind[1] == FREE -> j = 1
     :: kind[2] == FREE -> j = 2
     :: kind[3] == FREE -> j = 3
     fi;
     kind[j] = PRIVATE;
     pg[2 * (h) + i] = j;
     i++
  :: else -> break
  od;
  al[h] = upto
}

/* [0, keep) stays */
inline trim(h, keep) {
  i = UP(keep);
  do
  :: i < UP(al[h]) ->
     kind[pg[2 * (h) + i]] = FREE;
     pg[2 * (h) + i] = 0;
     i++
  :: else -> break
  od;
  cm[h] = keep;
  al[h] = keep
}

inline release(h) {
  i = 0;
  do
  :: i < UP(al[h]) ->
     if
     :: i < pr[h] / 2 -> lk[pg[2 * (h) + i]]--
     :: else -> kind[pg[2 * (h) + i]] = FREE
     fi;
     pg[2 * (h) + i] = 0;
     i++
  :: else -> break
  od;
  held[row[h]] = 0;
  row[h] = 0; pr[h] = 0; cm[h] = 0; al[h] = 0
}

inline hand(from, to) {
  row[to] = row[from]; pr[to] = pr[from]; cm[to] = cm[from]; al[to] = al[from];
  pg[2 * (to)] = pg[2 * (from)]; pg[2 * (to) + 1] = pg[2 * (from) + 1];
  row[from] = 0; pr[from] = 0; cm[from] = 0; al[from] = 0;
  pg[2 * (from)] = 0; pg[2 * (from) + 1] = 0
}

/* pages [protected, k) go to the cache, or merge with what is there; the row reads them from now on */
inline publish(h, k) {
  i = pr[h] / 2;
  do
  :: i < k ->
     if
     :: i < clen -> kind[pg[2 * (h) + i]] = FREE; pg[2 * (h) + i] = cp[i]
     :: else -> kind[pg[2 * (h) + i]] = CACHED; cp[i] = pg[2 * (h) + i]; clen++
     fi;
     lk[pg[2 * (h) + i]]++;
     i++
  :: else -> break
  od;
  pr[h] = 2 * (k)
}

inline computed(h, upto) {
  cm[h] = upto;
  if :: upto == nt[h] -> nt[h]++ :: else fi
}

inline forget(h) {
  st[h] = 0; nt[h] = 0; turn[h] = 0
}

/* moves */

#define SUBMIT(h, len) \
  :: atomic { st[h] == 0 -> st[h] = 1; nt[h] = len; laws() }

#define SUBMIT_TURN(h, len) \
  :: atomic { st[h] == 0 && !turn[0] && !turn[1] && \
       (row[S] == 0 || (MIN(cm[S], len - 1) >= pr[S] && MIN(cm[S], len - 1) >= 1)) -> \
       st[h] = 1; nt[h] = len; turn[h] = 1; opened = 1; laws() }

#define EXTEND_START(h, upto) \
  :: atomic { st[h] == 1 && !(turn[h] && row[S]) && upto > 2 * MATCH(h) && upto <= nt[h] && \
       (CHUNKS || upto == MIN(nt[h], C)) -> \
       d = UP(upto) - MATCH(h); \
       if \
       :: (held[1] && held[2]) || d > ROOM(MATCH(h)) \
       :: else -> \
          x = MATCH(h); i = 0; \
          do \
          :: i < x -> pg[2 * h + i] = cp[i]; lk[cp[i]]++; i++ \
          :: else -> break \
          od; \
          pr[h] = 2 * x; al[h] = 2 * x; \
          if :: !held[1] -> row[h] = 1 :: !held[2] -> row[h] = 2 fi; \
          held[row[h]] = 1; \
          make_room(); grow(h, upto); computed(h, upto); st[h] = 2 \
       fi; \
       laws() }

#define EXTEND_ON(h, upto) \
  :: atomic { st[h] == 2 && al[h] == cm[h] && upto > cm[h] && upto <= nt[h] -> \
       d = UP(upto) - UP(cm[h]); \
       if \
       :: d > ROOM(0) \
       :: else -> make_room(); grow(h, upto); computed(h, upto) \
       fi; \
       laws() }

#define EXTEND_TURN(h, upto) \
  :: atomic { st[h] == 1 && turn[h] && row[S] && upto > GOON(h) && upto == MIN(nt[h], C) -> \
       x = GOON(h); trim(S, x); d = UP(upto) - UP(x); \
       if \
       :: d > ROOM(0) \
       :: else -> hand(S, h); make_room(); grow(h, upto); computed(h, upto); st[h] = 2 \
       fi; \
       laws() }

#define DECODE(h) \
  :: atomic { CAUGHT_UP(h) && cm[h] < C && al[h] == cm[h] -> \
       d = (cm[h] % 2 == 0); \
       if \
       :: d > ROOM(0) \
       :: else -> make_room(); x = cm[h] + 1; grow(h, x); computed(h, x) \
       fi; \
       laws() }

#define RESERVE(h, more) \
  :: atomic { CAUGHT_UP(h) -> \
       x = MIN(MAX(al[h], cm[h] + more), C); d = UP(x) - UP(al[h]); \
       if \
       :: d > ROOM(0) || cm[h] + more > C \
       :: d <= ROOM(0) -> make_room(); grow(h, x) \
       :: d <= ROOM(0) && x % 2 == 1 -> x++; make_room(); grow(h, x) \
       fi; \
       laws() }

#define COMMIT(h, more) \
  :: atomic { CAUGHT_UP(h) && cm[h] + more <= al[h] -> \
       cm[h] = cm[h] + more; nt[h] = nt[h] + more; laws() }

#define CHECKPOINT(h, k) \
  :: atomic { st[h] == 2 && 2 * k > pr[h] && 2 * k <= cm[h] -> publish(h, k); laws() }

#define FINISH_PUBLISH(h) \
  :: atomic { st[h] == 2 && !turn[h] -> x = cm[h] / 2; publish(h, x); release(h); forget(h); laws() }

#define FINISH_SILENT(h) \
  :: atomic { st[h] == 2 && !turn[h] -> release(h); forget(h); laws() }

#define FINISH_TURN(h, keep, condition) \
  :: atomic { st[h] == 2 && turn[h] && (condition) -> \
       x = keep; \
       if \
       :: closing -> release(h); opened = 0; closing = 0 \
       :: else -> trim(h, x); hand(h, S) \
       fi; \
       forget(h); laws() }

#define RETRACT(h) \
  :: atomic { st[h] == 2 -> \
       if \
       :: turn[h] -> x = cm[h]; trim(h, x); hand(h, S) \
       :: else -> release(h) \
       fi; \
       st[h] = 1; laws() }

#define ABORT(h) \
  :: atomic { st[h] != 0 -> \
       if :: st[h] == 2 -> release(h) :: else fi; \
       if \
       :: turn[h] && closing -> \
          if :: row[S] -> release(S) :: else fi; \
          opened = 0; closing = 0 \
       :: else \
       fi; \
       forget(h); laws() }

#define CLOSE \
  :: atomic { opened && !closing -> \
       if \
       :: turn[0] || turn[1] -> closing = 1 \
       :: else -> \
          if :: row[S] -> release(S) :: else fi; \
          opened = 0 \
       fi; \
       laws() }

#define EVICT_ONE \
  :: atomic { GOES(0, 0) || GOES(1, 0) -> drop_leaf(); laws() }

#define UPTOS(move, h) move(h, 1) move(h, 2) move(h, 3) move(h, 4)

#define MOVES_A(h) \
  SUBMIT(h, 1) SUBMIT(h, 3) UPTOS(EXTEND_START, h) UPTOS(EXTEND_ON, h) DECODE(h) CHECKPOINT(h, 1) CHECKPOINT(h, 2) \
  FINISH_PUBLISH(h) FINISH_SILENT(h) RETRACT(h) ABORT(h)

#define MOVES_B(h) \
  SUBMIT(h, 1) SUBMIT(h, 3) UPTOS(EXTEND_START, h) DECODE(h) RESERVE(h, 1) RESERVE(h, 2) COMMIT(h, 1) COMMIT(h, 2) \
  FINISH_PUBLISH(h) FINISH_SILENT(h) RETRACT(h) ABORT(h)

#define MOVES_C(h) \
  SUBMIT(h, 1) SUBMIT(h, 3) SUBMIT_TURN(h, 1) SUBMIT_TURN(h, 3) UPTOS(EXTEND_START, h) UPTOS(EXTEND_TURN, h) DECODE(h) \
  FINISH_PUBLISH(h) FINISH_TURN(h, cm[h], true) FINISH_TURN(h, MAX(pr[h], 1), MAX(pr[h], 1) < cm[h]) \
  RETRACT(h) ABORT(h)

init {
  do
#ifdef WORLD_A
  MOVES_A(0) MOVES_A(1) EVICT_ONE
#endif
#ifdef WORLD_B
  MOVES_B(0) MOVES_B(1)
#endif
#ifdef WORLD_C
  MOVES_C(0) MOVES_C(1) CLOSE EVICT_ONE
#endif
  od
}
