; The bounds of docs/design/bounds.md, proved from the rules in rules.smt2. Run: tests/bounds/prove
;
; A theorem between push and pop assumes a state and one call that keeps the rules, and asserts the contrary of what it states: `unsat` is the
; proof. The clients i and j are arbitrary, nothing is known of them but the rules. So what holds for them holds for each client, or for each
; two, of any number. What holds before the first call and is kept by each call holds always (induction over calls). Sums over all clients
; are proved by induction over the clients: for none, and for one more.
;
; After each theorem the same without one of its rules is `sat`: the rules do not contradict each other, and this one is needed.


; ---- One call, and the clients i and j in it
(declare-const plain Bool)
(declare-const clock Int) (declare-const clock2 Int)
(declare-const now Int) (declare-const now2 Int)
(declare-const longest Int)         ; the longest that a grant may last from a decision on
(declare-const return_timeout Int)

(declare-const i-start Int) (declare-const i-start2 Int) (declare-const i-bound Int) (declare-const i-weight Int)
(declare-const i-competes Bool) (declare-const i-competes2 Bool) (declare-const i-owes2 Bool)
(declare-const j-start Int) (declare-const j-start2 Int) (declare-const j-bound Int) (declare-const j-weight Int)
(declare-const j-took Int)          ; GPU time, or time held if that is more, that j is charged in this call
(define-fun sane () Bool
  (and (<= 0 clock) (<= now now2) (< 0 longest) (< 0 return_timeout) (<= 0 i-start) (<= 0 j-start) (<= 0 j-took)
       (< 0 i-weight) (<= i-weight 1000000) (< 0 i-bound) (< 0 j-weight) (<= j-weight 1000000) (< 0 j-bound)))

; ---- Theorem 1, not behind. A client that competes, and was not behind when it began, is never behind the GPU's virtual time.
(define-fun not-behind ((competes Bool) (clock Int) (start Int)) Bool (=> competes (<= clock start)))
(push)
  (assert (and sane plain i-competes i-competes2 (not-behind i-competes clock i-start)))
  (assert (client-not-passed plain i-competes i-competes2 clock clock2 i-start2))
  (assert (client-not-lowered clock i-start i-start2 i-owes2 i-bound))
  (assert (not (not-behind i-competes2 clock2 i-start2)))
  (set-info :status unsat) (echo "1 not behind") (check-sat)
(pop)
(push)
  (assert (and sane plain i-competes i-competes2 (not-behind i-competes clock i-start)))
  (assert (client-not-lowered clock i-start i-start2 i-owes2 i-bound))
  (assert (not (not-behind i-competes2 clock2 i-start2)))
  (set-info :status sat) (echo "1 without client-not-passed") (check-sat)
(pop)

; A client that is behind by the lag bound at most, as after each request and each grant, stays so as long as it competes.
(declare-const i-granted Bool) (declare-const i-returns Bool) (declare-const i-holds Bool)
(push)
  (assert (and sane plain i-competes2 (or i-returns (and i-granted (not i-holds)) (and i-competes (<= (- clock i-bound) i-start)))))
  (assert (client-not-passed plain i-competes i-competes2 clock clock2 i-start2))
  (assert (client-not-lowered clock i-start i-start2 i-owes2 i-bound))
  (assert (client-returns i-returns false clock2 i-start2 i-bound))
  (assert (client-granted plain i-holds i-granted clock2 i-start2 i-bound))
  (assert (< i-start2 (- clock2 i-bound)))
  (set-info :status unsat) (echo "1 behind by the lag bound at most") (check-sat)
(pop)

; ---- Theorem 2, ahead. `taken` is what client j took since it was last neither ahead of the GPU nor in debt: of one grant.
(declare-const j-taken Int) (declare-const j-taken2 Int) (declare-const j-debt Int) (declare-const j-debt2 Int)
(declare-const elapsed Int) (declare-const repayment Int)
(define-fun ahead-by ((weight Int) (clock Int) (start Int) (debt Int) (taken Int)) Bool
  (<= (+ (* weight (lead clock start)) debt) (* 1000000 taken)))
(define-fun j-takes () Bool
  (and (<= 0 j-debt) (<= 0 j-debt2) (<= 0 elapsed) (<= 0 repayment)
       (= j-taken2 (ite (and (= (lead clock2 j-start2) 0) (= j-debt2 0)) 0 (+ j-taken j-took)))))
(push)
  (assert (and sane j-takes (<= 0 j-taken) (ahead-by j-weight clock j-start j-debt j-taken)))
  (assert (client-lead clock clock2 j-start j-start2 j-weight j-weight j-debt j-debt2 j-took elapsed repayment))
  (assert (not (and (<= 0 j-taken2) (ahead-by j-weight clock2 j-start2 j-debt2 j-taken2))))
  (set-info :status unsat) (echo "2 ahead by what was taken") (check-sat)
(pop)
(push)
  (assert (and sane j-takes (<= 0 j-taken) (ahead-by j-weight clock j-start j-debt j-taken)))
  (assert (not (ahead-by j-weight clock2 j-start2 j-debt2 j-taken2)))
  (set-info :status sat) (echo "2 without client-lead") (check-sat)
(pop)

; What one grant takes. `counted` is when j was last granted, or its grant extended and all time so far counted: it is not ahead then, and owes
; nothing. `uncounted` is the GPU time of the grant that does not count yet. `drain` is how long its work runs on after the deadline. No GPU time is
; longer than the time in which it was used: took <= now2 - counted.
(declare-const j-holds Bool) (declare-const j-holds2 Bool) (declare-const j-granted Bool) (declare-const j-extended Bool)
(declare-const j-counted Int) (declare-const j-counted2 Int) (declare-const j-deadline Int) (declare-const j-deadline2 Int)
(declare-const j-uncounted2 Int)
(declare-const j-drain Int) (declare-const others-wait Bool) (declare-const j-owes2 Bool)
(define-fun within-a-grant ((holds Bool) (counted Int) (deadline Int) (taken Int)) Bool
  (ite holds (and (= taken 0) (<= deadline (+ counted longest))) (<= taken (+ longest j-drain))))
(define-fun j-extension-counts () Bool (and j-extended (<= j-uncounted2 0)))
(define-fun j-call () Bool
  (and (=> j-granted (and (not j-holds) j-holds2))
       ; Only a client that holds no grant owes.
       (=> j-extended (= j-debt2 0))
       (=> j-extended (and j-holds j-holds2))
       (= j-counted2 (ite (or j-granted j-extension-counts) now2 j-counted))
       (=> (and j-holds2 (not j-granted) (not j-extended)) (and j-holds (= j-deadline2 j-deadline)))
       ; It is charged when its grant ends or is extended. (Reports that come later: docs/design/bounds.md.)
       (= j-took (ite (and j-holds (or (not j-holds2) j-extension-counts)) (- now2 j-counted) 0))
       (=> (and j-holds (not j-holds2)) (<= now2 (+ j-deadline j-drain)))
       (<= 0 j-drain) (<= j-counted now)))
(push)
  (assert (and sane plain j-call j-takes (within-a-grant j-holds j-counted j-deadline j-taken)))
  (assert (=> j-holds2 (grant-ends now2 j-deadline2 longest return_timeout false)))
  (assert (and (client-granted plain j-holds j-granted clock2 j-start2 j-bound) (client-owes-not-granted j-granted j-owes2 j-debt2)))
  (assert (grant-extended plain j-extended others-wait clock2 j-start2))
  (assert (grant-extension-counted j-extended j-uncounted2))
  (assert (not (within-a-grant j-holds2 j-counted2 j-deadline2 j-taken2)))
  (set-info :status unsat) (echo "2 one quantum and one drain") (check-sat)
(pop)
(push)
  (assert (and sane plain j-call j-takes (within-a-grant j-holds j-counted j-deadline j-taken)))
  (assert (=> j-holds2 (grant-ends now2 j-deadline2 longest return_timeout false)))
  (assert (and (client-granted plain j-holds j-granted clock2 j-start2 j-bound) (client-owes-not-granted j-granted j-owes2 j-debt2)))
  (assert (grant-extension-counted j-extended j-uncounted2))
  (assert (not (within-a-grant j-holds2 j-counted2 j-deadline2 j-taken2)))
  (set-info :status sat) (echo "2 without grant-extended") (check-sat)
(pop)
(push)
  (assert (and sane plain j-call j-takes (within-a-grant j-holds j-counted j-deadline j-taken)))
  (assert (=> j-holds2 (grant-ends now2 j-deadline2 longest return_timeout false)))
  (assert (and (client-granted plain j-holds j-granted clock2 j-start2 j-bound) (client-owes-not-granted j-granted j-owes2 j-debt2)))
  (assert (grant-extended plain j-extended others-wait clock2 j-start2))
  (assert (not (within-a-grant j-holds2 j-counted2 j-deadline2 j-taken2)))
  (set-info :status sat) (echo "2 without grant-extension-counted") (check-sat)
(pop)

; ---- Theorem 3, lag between clients. Of two clients, j is ahead of a competing i, and owes, by
; at most one quantum and one drain of its GPU time in all.
(push)
  (assert (and sane i-competes (not-behind i-competes clock i-start) (ahead-by j-weight clock j-start j-debt j-taken)
               (<= 0 j-debt) (<= 0 j-taken) (<= j-taken (+ longest j-drain)) (<= 0 j-drain)))
  (assert (not (<= (+ (* j-weight (- j-start i-start)) j-debt) (* 1000000 (+ longest j-drain)))))
  (set-info :status unsat) (echo "3 lag between two clients") (check-sat)
(pop)

; The lag of a client against its share of the time that all competing clients had. For a set of clients: `weights` is the sum of their
; weights, `aheads` that of the GPU time by which each is ahead of the clock, `units` that of one quantum and drain of each.
(define-fun of-clients ((weights Real) (aheads Real) (units Real)) Bool (and (<= 0.0 weights) (<= 0.0 aheads) (<= aheads units)))
(define-fun of-client ((weight Real) (ahead Real) (unit Real)) Bool (and (< 0.0 weight) (<= 0.0 ahead) (<= ahead unit)))
(declare-const weights Real) (declare-const aheads Real) (declare-const units Real)
(declare-const weight Real) (declare-const ahead Real) (declare-const unit Real)
(push)
  (assert (not (of-clients 0.0 0.0 0.0)))
  (set-info :status unsat) (echo "3 sums: no client") (check-sat)
(pop)
(push)
  (assert (and (of-clients weights aheads units) (of-client weight ahead unit)))
  (assert (not (of-clients (+ weights weight) (+ aheads ahead) (+ units unit))))
  (set-info :status unsat) (echo "3 sums: one more client") (check-sat)
(pop)
; `mean` is the virtual time, above the clock, that all would have if each had had its share: mean x weights = aheads. A client with `weight`
; has had mean x weight - ahead too little. These lags add up to 0.
(declare-const mean Real) (declare-const lags Real)
(push)
  (assert (= lags (- (* mean weights) aheads)))
  (assert (not (= (+ lags (- (* mean weight) ahead)) (- (* mean (+ weights weight)) (+ aheads ahead)))))
  (set-info :status unsat) (echo "3 sum of lags: one more client") (check-sat)
(pop)
(push)
  (assert (and (= lags (- (* mean weights) aheads)) (= (* mean weights) aheads) (not (= lags 0.0))))
  (set-info :status unsat) (echo "3 sum of lags: all clients") (check-sat)
(pop)
; Weights as parts of the sum of all: the other clients have 1 - weight.
(define-fun lag () Real (- (* weight (+ aheads ahead)) ahead))
(define-fun one-and-others () Bool (and (of-client weight ahead unit) (of-clients (- 1.0 weight) aheads units) (<= weight 1.0)))
(push)
  (assert (and one-and-others (not (<= (- unit) lag))))
  (set-info :status unsat) (echo "3 ahead of its share by one unit at most") (check-sat)
(pop)
(push)
  (assert (and one-and-others (not (<= lag (* weight units)))))
  (set-info :status unsat) (echo "3 behind its share by its part of the others' units at most") (check-sat)
(pop)
; Not by one unit: with two others, a client with more than half of the weight can be behind by more.
(push)
  (assert (and one-and-others (= unit 1.0) (= units 2.0) (< 1.0 lag)))
  (set-info :status sat) (echo "3 behind its share by more than one unit") (check-sat)
(pop)

; ---- Theorem 4, debts end. A client that is granted nothing has repaid after debt / weight.
(declare-const debt Int) (declare-const debt2 Int)
(push)
  (assert (and sane (<= 0 elapsed) (<= 0 debt) (<= i-weight repayment) (<= i-start clock) (<= debt (* elapsed i-weight))))
  (assert (client-lead clock clock2 i-start i-start2 i-weight i-weight debt debt2 0 elapsed repayment))
  (assert (< 0 debt2))
  (set-info :status unsat) (echo "4 debts end") (check-sat)
(pop)

; ---- Theorem 5, no starvation. Client i waits, and its virtual time is `level`. While it waits, the others hold the GPU for `waited` in all,
; client j for j-had of it. A call after the time `e` ends a grant that took `h` of it: in the rest latency-critical clients used the GPU.
; Weights do not change.
(declare-const level Int) (declare-const j-start0 Int)
(declare-const waited Int) (declare-const waited2 Int) (declare-const j-had Int) (declare-const j-had2 Int) (declare-const h Int)
(declare-const e Int)
(declare-const j-owes Bool)
; j had its share of the time, and what its virtual time advanced, and what it owes; and 4 virtual ns for each of its `grants`.
(declare-const grants Int) (declare-const grants2 Int) (declare-const raised Int)
(define-fun had-no-more ((had Int) (waited Int) (start Int) (debt Int) (grants Int)) Bool
  (<= (* 1000000 had)
      (+ (* j-weight waited) (* j-weight (- start j-start0)) debt (* 4 (+ 1000000 j-weight) grants))))
(define-fun waits-for-j () Bool
  (and sane (<= 0 h) (<= h e) (= clock clock2) (<= j-start clock) (= j-owes2 (< 0 j-debt2)) (not j-owes) (= j-debt 0)
       (= waited2 (+ waited e)) (= j-had2 (+ j-had h)) (= grants2 (+ grants 1))))
(push)
  (assert (and waits-for-j (had-no-more j-had waited j-start j-debt grants)))
  (assert (client-charged clock j-start j-start2 j-owes2 j-bound j-weight h))
  (assert (=> j-owes2 (<= clock j-start2)))
  (assert (client-debt-least clock clock2 j-start j-owes j-owes2 j-debt2 j-weight j-weight j-bound h))
  ; A client that took more than the lag bound owes.
  (assert (=> (not j-owes2) (and (= j-debt2 0) (<= (* 1000000 h) (* j-weight j-bound)))))
  (assert (not (had-no-more j-had2 waited2 j-start2 j-debt2 grants2)))
  (set-info :status unsat) (echo "5 a grant of j") (check-sat)
(pop)
(push)
  (assert (and sane (<= 0 e) (<= 0 j-debt) (= j-had2 j-had) (= waited2 (+ waited e)) (= grants2 grants)
               (= j-start2 (+ j-start raised)) (<= 0 raised)))
  (assert (had-no-more j-had waited j-start j-debt grants))
  (assert (and (<= 0 j-debt2) (client-debt-repaid j-debt j-debt2 e j-weight false)))
  (assert (not (had-no-more j-had2 waited2 j-start2 j-debt2 grants2)))
  (set-info :status unsat) (echo "5 a grant of another client") (check-sat)
(pop)
(push)
  (assert (and sane (<= 0 e) (<= 0 j-debt) (= j-had2 j-had) (= waited2 (+ waited e)) (= grants2 grants)
               (= j-start2 (+ j-start raised)) (<= 0 raised)))
  (assert (had-no-more j-had waited j-start j-debt grants))
  (assert (<= 0 j-debt2))
  (assert (not (had-no-more j-had2 waited2 j-start2 j-debt2 grants2)))
  (set-info :status sat) (echo "5 without client-debt-repaid") (check-sat)
(pop)
; What its virtual time advanced and what it owes is bounded: when j is granted it is not behind i in the order, and then it has one grant.
(define-fun one-grant-more ((start Int) (debt Int) (unit Int)) Bool
  (<= (+ (* j-weight (- start j-start0)) debt) (+ (* j-weight (max2 0 (- level j-start0))) (* 1000000 unit))))
(push)
  (assert (and sane (<= 0 j-debt2) (<= clock level) (<= j-start clock) (= j-debt 0) (<= 0 elapsed) (<= 0 repayment)))
  (assert (client-lead clock clock j-start j-start2 j-weight j-weight j-debt j-debt2 h elapsed repayment))
  (assert (not (one-grant-more j-start2 j-debt2 h)))
  (set-info :status unsat) (echo "5 j gets one grant beyond i") (check-sat)
(pop)
; All others: `parts` is the sum of their weights, `had` of what they had, `most` of the rest. Latency-critical clients use at most what their
; requests (`requests` in all) and their buckets (`saved`) allow. Weights and requests are the whole GPU at most.
(declare-const parts Real) (declare-const had Real) (declare-const most Real) (declare-const time Real)
(declare-const j-part Real) (declare-const j-has Real) (declare-const j-most Real) (declare-const i-part Real)
(declare-const critical Real) (declare-const requests Real) (declare-const saved Real)
(push)
  (assert (and (<= had (+ (* parts time) most)) (<= j-has (+ (* j-part time) j-most))))
  (assert (not (<= (+ had j-has) (+ (* (+ parts j-part) time) (+ most j-most)))))
  (set-info :status unsat) (echo "5 sums: one more client") (check-sat)
(pop)
(push)
  (assert (and (<= had (+ (* parts time) most)) (= (+ had critical) time) (<= critical (+ (* requests time) saved))
               (<= 0.0 time) (< 0.0 i-part) (<= (+ parts i-part requests) 1.0)))
  (assert (not (<= (* i-part time) (+ most saved))))
  (set-info :status unsat) (echo "5 the wait ends") (check-sat)
(pop)

; ---- Theorem 6, latency-critical clients.
(declare-const c-delayed Bool) (declare-const c-delayed2 Bool) (declare-const c-lagging Bool)
(declare-const c-limit-overdrawn Bool) (declare-const c-request-overdrawn Bool)
; Within its request it is never delayed.
(push)
  (assert (and (not c-delayed) (not c-request-overdrawn)))
  (assert (critical-delayed c-delayed c-delayed2 c-limit-overdrawn c-request-overdrawn c-lagging))
  (assert (critical-request-first c-limit-overdrawn c-request-overdrawn))
  (assert c-delayed2)
  (set-info :status unsat) (echo "6 never delayed within the request") (check-sat)
(pop)
(push)
  (assert (and (not c-delayed) (not c-request-overdrawn)))
  (assert (critical-delayed c-delayed c-delayed2 c-limit-overdrawn c-request-overdrawn c-lagging))
  (assert c-delayed2)
  (set-info :status sat) (echo "6 without critical-request-first") (check-sat)
(pop)
; What "within the request" means: if in every span it uses at most request x span + `depth`, its bucket is never overdrawn. `excess` is the
; largest of (used - request x span) over all spans that end now; the call comes after `earned` = request x time, and uses `used`.
(declare-const bucket Real) (declare-const bucket2 Real) (declare-const depth Real) (declare-const earned Real) (declare-const used Real)
(declare-const excess Real) (declare-const excess2 Real)
(define-fun maxr ((a Real) (b Real)) Real (ite (< a b) b a))
(define-fun minr ((a Real) (b Real)) Real (ite (< a b) a b))
(push)
  (assert (and (<= 0.0 earned) (<= 0.0 used) (<= (- depth excess) bucket) (<= 0.0 excess)))
  (assert (= bucket2 (- (minr (+ bucket earned) depth) used)))
  (assert (= excess2 (+ (maxr (- excess earned) 0.0) used)))
  (assert (not (and (<= 0.0 excess2) (<= (- depth excess2) bucket2) (=> (<= excess2 depth) (<= 0.0 bucket2)))))
  (set-info :status unsat) (echo "6 request and depth") (check-sat)
(pop)
; A delay ends: what it used beyond is at most `beyond` when its last work has ended, `rest` earlier. Levels are ns x 10^6.
(declare-const c-left Int) (declare-const c-request Int) (declare-const beyond Int) (declare-const rest Int) (declare-const c-limit-left Int)
(push)
  (assert (and (< 0 c-request) (<= c-request 1000000) (<= 0 beyond) (<= 0 rest) c-delayed2))
  ; It has earned request x rest since, up to its depth of 80 ms; `left` is rounded down.
  (assert (or (<= (- (* c-request rest) (* 1000000 beyond)) (* 1000000 (+ c-left 1))) (<= 80000000 c-left)))
  (assert (critical-resumes false c-delayed2 false c-limit-left c-left c-request))
  (assert (not (<= (* c-request (- rest 5000000)) (* 1000000 (+ beyond 10000001)))))
  (set-info :status unsat) (echo "6 a delay beyond the request ends") (check-sat)
(pop)
(push)
  (assert (and (< 0 c-request) (<= c-request 1000000) (<= 0 beyond) (<= 0 rest) c-delayed2))
  (assert (or (<= (- (* c-request rest) (* 1000000 beyond)) (* 1000000 (+ c-limit-left 1))) (<= 80000000 c-limit-left)))
  (assert (critical-resumes false c-delayed2 true c-limit-left c-left c-request))
  (assert (not (<= (* c-request rest) (* 1000000 (+ beyond 10000001)))))
  (set-info :status unsat) (echo "6 a delay beyond the limit ends") (check-sat)
(pop)

; ---- Theorem 7, gangs do not wait for each other. Slots are the same on all GPUs of a gang; the GPU below is any of them.
; First gap: the slots of other gangs on common GPUs in order of their starts, `from` the earliest start so far, `length` that of the gang.
(declare-const from Int) (declare-const from2 Int) (declare-const length Int)
(declare-const s-start Int) (declare-const s-end Int)         ; the next slot of the list
(declare-const earlier-end Int) (declare-const later-start Int) ; any slot before it in the list, any one after it
(push)
  (assert (and (< 0 length) (< s-start s-end) (<= earlier-end from) (<= s-start later-start)))
  (assert (= from2 (ite (<= (+ from length) s-start) from (max2 from s-end))))
  ; If the gap before s fits, it is taken: it ends before s and all later ones. Otherwise s is one of those before it.
  (assert (not (and (<= earlier-end from2) (ite (<= (+ from length) s-start) (<= (+ from2 length) later-start) (<= s-end from2)))))
  (set-info :status unsat) (echo "7 slots of gangs with a common GPU do not overlap") (check-sat)
(pop)
; Slots that do not fit are shortened by cycle / end, rounded down: what did not overlap does not.
(declare-const cycle Int) (declare-const end Int) (declare-const a Int) (declare-const b Int) (declare-const a2 Int) (declare-const b2 Int)
(define-fun shortened ((from Int) (to Int)) Bool (and (<= (* end to) (* cycle from)) (< (* cycle from) (* end (+ to 1)))))
(push)
  (assert (and (< 0 cycle) (<= cycle end) (<= 0 a) (<= a b) (shortened a a2) (shortened b b2) (< b2 a2)))
  (set-info :status unsat) (echo "7 shortened slots do not overlap") (check-sat)
(pop)
; When the slot of gang g opens at g-start, no grant of another gang f excludes it that was given before, while g waited: it ends by then, and a gang's grant that
; was not returned excludes nobody from 40 ms after its deadline on (ledger-capacity). `began` is when it was granted, plus the least time for which a process joins a grant.
(declare-const g-start Int) (declare-const g-end Int) (declare-const f-start Int) (declare-const f-end Int)
(declare-const began Int) (declare-const f-deadline Int) (declare-const in-slot Bool) (declare-const next-slot Int)
(define-fun f-grant () Bool
  (and (< g-start g-end) (< f-start f-end) (or (<= f-end g-start) (<= g-end f-start))
       (= in-slot (and (<= f-start began) (< began f-end)))
       (=> (< began g-start) (<= next-slot g-start))))
(push)
  (assert (and f-grant (< began g-start)))
  (assert (grant-ends-for-slots true in-slot now2 f-deadline f-end next-slot true longest))
  (assert (< g-start f-deadline))
  (set-info :status unsat) (echo "7 no gang's grant lasts into another's slot") (check-sat)
(pop)
(push)
  (assert (and f-grant (< began g-start) (< g-start f-deadline)))
  (set-info :status sat) (echo "7 without grant-ends-for-slots") (check-sat)
(pop)
; In the slot of g no other gang is granted while g waits, unless the other is far behind its share; then g waits for `longest` at most.
(declare-const f-neglected Bool)
(push)
  (assert (and f-grant (<= g-start began) (< began g-end)))
  (assert (grant-in-slot-first true in-slot f-neglected true))
  (assert (grant-ends now2 f-deadline longest return_timeout true))
  (assert (not (and f-neglected (<= f-deadline (+ now2 longest)))))
  (set-info :status unsat) (echo "7 a gang waits in its slot for one grant at most") (check-sat)
(pop)
