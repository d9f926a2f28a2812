; What one call of the token ledger may change: the rules from which theorems.smt2 proves the bounds of docs/design/bounds.md.
; crates/core/src/ledger/tests/replay reads this file and checks each rule after each call of the real ledger. An argument of a rule is a
; field of the test's record with the same name, so neither side can change alone.
;
; Names ending in 2 are values after the call, the others before it. Virtual times are ns x 10^6 / weight, weights and rates are parts per
; million of the GPU (10^6 is all of it), debts are ns x 10^6, other times are ns. `clock` is the virtual time of the GPU, `start` the one at
; which the client's next grant begins. `least` and `most` are the lower and the upper value where a call changes the weights of clients.
; A client competes while it is ready for a grant, or holds one and is not being disabled. `plain`: the assumptions of the exact bounds hold: capacity 1, no grant
; beside the holder's, no gang.

(define-fun max2 ((a Int) (b Int)) Int (ite (< a b) b a))
(define-fun min2 ((a Int) (b Int)) Int (ite (< a b) a b))
; Virtual time by which a client is ahead of the GPU.
(define-fun lead ((clock Int) (start Int)) Int (max2 0 (- start clock)))

; ---- One client in one call

; The virtual time of the GPU never goes back.
(define-fun client-clock ((clock Int) (clock2 Int)) Bool (<= clock clock2))

; It passes no client that competes.
(define-fun client-not-passed ((plain Bool) (competes Bool) (competes2 Bool) (clock Int) (clock2 Int) (start2 Int)) Bool
  (=> (and plain competes competes2) (<= clock2 (max2 clock start2))))

; A granted client is not ahead, and not behind by more than the lag bound. `first_waiting2` is the least start of the clients that were ready before the call and still are.
(define-fun client-granted ((plain Bool) (held_before Bool) (granted Bool) (clock2 Int) (start2 Int) (bound_most Int)) Bool
  (=> granted (and (<= start2 clock2) (=> (and plain (not held_before)) (<= (- clock2 bound_most) start2)))))
(define-fun client-granted-in-order
    ((plain Bool) (granted Bool) (clock Int) (clock2 Int) (start Int) (start2 Int) (bound_least Int) (first_waiting2 Int)) Bool
  (=> (and plain granted) (and (= clock2 (max2 clock start2)) (<= (min2 start (+ clock bound_least)) first_waiting2))))

; A client gets ahead, and owes, by no more GPU time in all than it took in this call: `took_most` is the time held. Time repays a debt at
; `repayment` ppm.
(define-fun client-lead
    ((clock Int) (clock2 Int) (start Int) (start2 Int) (weight_least Int) (weight_most Int) (debt Int) (debt2 Int) (took_most Int)
     (elapsed Int) (repayment Int)) Bool
  (<= (+ (* weight_least (lead clock2 start2)) debt2)
      (+ (* weight_most (lead clock start)) (max2 0 (- debt (* elapsed repayment))) (* 1000000 took_most))))

; No client is moved beyond the lag bound.
(define-fun client-lead-bounded ((clock2 Int) (start Int) (start2 Int) (bound_most Int)) Bool
  (<= start2 (max2 start (+ clock2 bound_most))))

; What it took counts: its virtual time advances by the GPU time charged, up to the lag bound, or it owes. Each of at most 4 charges of a
; call is rounded down.
(define-fun client-charged
    ((clock Int) (start Int) (start2 Int) (owes2 Bool) (bound_least Int) (weight_most Int) (took_least Int)) Bool
  (or owes2 (<= (+ clock bound_least) start2) (<= (* 1000000 took_least) (* weight_most (+ (- start2 start) 4)))))

; Without grants beside it, at least a tenth of the time held counts, whatever latency-critical clients report.
(define-fun client-charged-a-tenth
    ((plain Bool) (clock Int) (start Int) (start2 Int) (owes2 Bool) (bound_least Int) (weight_most Int) (held Int)) Bool
  (or (not plain) owes2 (<= (+ clock bound_least) start2) (<= (* 1000000 (- held 10)) (* 10 weight_most (+ (- start2 start) 4)))))

; The virtual time of a client is lowered to the lag bound and no further. One that owes pays by its debt.
(define-fun client-not-lowered ((clock Int) (start Int) (start2 Int) (owes2 Bool) (bound_least Int)) Bool
  (<= (min2 start (+ clock (ite owes2 0 bound_least))) start2))

; A client that requests after a pause is behind by the lag bound at most, and not at all if the pause is not short.
(define-fun client-returns ((returns Bool) (paused Bool) (clock2 Int) (start2 Int) (bound_most Int)) Bool
  (=> returns (<= (- clock2 (ite paused 0 bound_most)) start2)))

; A client with a debt is not granted. It owes what it took from the others, and the time by which it was ahead, up to rounding. Its debt ends
; early only if no other client is left.
(define-fun client-owes-not-granted ((granted Bool) (owes2 Bool) (debt2 Int)) Bool
  (and (not (and granted owes2)) (<= 0 debt2) (=> (< 0 debt2) owes2)))
(define-fun client-debt-least
    ((clock Int) (clock2 Int) (start Int) (owes Bool) (owes2 Bool) (debt2 Int) (weight_most Int) (weight_least Int) (bound_least Int)
     (took_least Int)) Bool
  (=> (and (not owes) owes2 (= clock clock2))
      (<= (- (+ (* weight_least (- (min2 start (+ clock bound_least)) clock)) (* (- 1000000 weight_most) took_least)) 4000000) debt2)))
(define-fun client-debt-repaid ((debt Int) (debt2 Int) (elapsed Int) (repayment Int) (alone2 Bool)) Bool
  (or alone2 (<= (- debt (* elapsed repayment)) debt2)))

; A client is charged no more than its limit, and what it had saved up, and one grant with what it reported late.
(define-fun client-limit ((limit Int) (age2 Int) (charged2 Int) (saved Int) (longest_taken2 Int)) Bool
  (<= (* 1000000 charged2) (+ (* limit age2) (* 1000000 (+ saved longest_taken2)))))

; A new client is not behind.
(define-fun added-not-behind ((clock2 Int) (start2 Int)) Bool (<= clock2 start2))

; ---- One grant after a decision (`advance`)

; It ends soon: at most `longest` from now, and at most the return timeout after its deadline.
(define-fun grant-ends ((now2 Int) (deadline2 Int) (longest Int) (return_timeout Int) (goes_on Bool)) Bool
  (and (<= deadline2 (+ now2 longest))
       (or goes_on (< now2 (+ deadline2 return_timeout)))))
; Its deadline moves only while no other client waits, and then its client is not ahead.
(define-fun grant-extended
    ((plain Bool) (extended Bool) (others_wait2 Bool) (clock2 Int) (start2 Int)) Bool
  (=> (and plain extended) (and (not others_wait2) (<= start2 clock2))))
; When its deadline moves, all GPU time that it has had at its disposal counts. Otherwise its client would be charged for it at some later call.
(define-fun grant-extension-counted ((extended Bool) (uncounted2 Int)) Bool (=> extended (<= uncounted2 0)))
; GPU time charged is not above the time held.
(define-fun ended-charged ((held Int) (charged Int)) Bool (and (<= 0 charged) (<= charged held)))
; A gang's grant ends with its slot; every other one, and a gang's outside of its slot, when the next slot begins. While no other client
; waits, it lasts for `extension` from now at most instead.
(define-fun grant-ends-for-slots
    ((granted Bool) (in_slot Bool) (now2 Int) (deadline2 Int) (slot_end Int) (next_slot Int) (others_wait2 Bool) (extension Int)) Bool
  (=> granted (or (<= deadline2 (ite in_slot slot_end next_slot))
                  (and (not others_wait2) (<= deadline2 (+ now2 extension))))))
; A gang whose slot is open comes before every client that is not neglected.
(define-fun grant-in-slot-first ((granted Bool) (in_slot Bool) (neglected Bool) (slotted_waits2 Bool)) Bool
  (=> (and granted (not in_slot) (not neglected)) (not slotted_waits2)))

; ---- The ledger after a decision

; No more grants exclude others than the capacity. The token grant of a gang excludes nobody from 40 ms after its deadline on, nor does one beside the
; holder's. (A gang's grant that goes on in its next slot may meet another one that is not returned yet.)
(define-fun ledger-capacity ((gangs Bool) (excluding2 Int) (capacity Int)) Bool (or gangs (<= excluding2 capacity)))
; No client is ready while the GPU has room, unless the ledger waits some microseconds for the next request of another.
(define-fun ledger-works ((ready2 Int) (excluding2 Int) (capacity Int) (lingering2 Int)) Bool
  (or (= ready2 0) (<= capacity excluding2) (< 0 lingering2)))
; The weights of the active clients add up to at most the whole GPU, if their requests (at least 0.01 each) do.
(define-fun ledger-weights ((guaranteed2 Int) (weights2 Int)) Bool
  (<= weights2 (max2 1000000 guaranteed2)))

; ---- One latency-critical client after a decision. `left` are what its buckets hold, at least 0.

; It waits for a grant only while it is delayed.
(define-fun critical-granted ((delayed2 Bool) (waiting2 Int)) Bool (or delayed2 (= waiting2 0)))
; A delay begins only beyond the limit, or beyond the request while another client is behind its own.
(define-fun critical-delayed
    ((delayed Bool) (delayed2 Bool) (limit_overdrawn2 Bool) (request_overdrawn2 Bool) (another_lags2 Bool)) Bool
  (=> (and (not delayed) delayed2) (or limit_overdrawn2 (and request_overdrawn2 another_lags2))))
; Its limit lasts as long as its request.
(define-fun critical-request-first ((limit_overdrawn2 Bool) (request_overdrawn2 Bool)) Bool (=> limit_overdrawn2 request_overdrawn2))
; A delay ends when 10 ms are earned. It is checked at once for the limit, and each 5 ms for the request.
(define-fun critical-resumes
    ((in_gang Bool) (delayed2 Bool) (by_limit2 Bool) (limit_left2 Int) (request_left2 Int) (request Int)) Bool
  (=> (and delayed2 (not in_gang))
      (ite by_limit2 (< limit_left2 10000000) (<= (* 1000000 (- request_left2 10000000)) (* request 5000000)))))
