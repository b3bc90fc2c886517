;;; Traced procedures: models in Scheme against the built-in ones, and control flow around them.

(use-modules (ice-9 control) (ice-9 match) (ice-9 threads) (srfi srfi-1) (srfi srfi-4) (srfi srfi-11) (srfi srfi-64)
             (early-exit) (llama)
             (tests common) (unisonic ffi) (unisonic graph) (unisonic model) (unisonic nn) (unisonic tensor))

(define (greedy-tokens path tokens count)
  (completion-tokens (generate (load-model path) tokens #:max-tokens count)))

(define (built-in-logits path tokens)
  (let ((session (make-session (load-model path))))
    (session-append! session tokens)
    (session-logits session)))

(define (test-llama path prompt count)
  "The llama in Scheme gives what the built-in model gives."
  (let* ((weights (open-weights path))
         (llama (make-llama weights))
         (tokenizer (open-tokenizer path))
         (chosen (decode-greedily llama tokenizer prompt count)))
    (test-equal "tokens of the built-in model"
      (remove (lambda (token) (stop-token? tokenizer token)) (greedy-tokens path prompt count))
      chosen)
    (test-equal "one trace" 1 (trace-count llama))
    (test-assert "the bits of the built-in model's logits"
      (tensor=? (built-in-logits path prompt) (llama prompt)))
    ;; A prompt at once and row by row.
    (let ((state (make-state))
          (at-once (llama prompt #:outputs 'all)))
      (test-assert "the same bits row by row"
        (tensor=? at-once
                  (apply tensor-append (map (lambda (token) (llama (list token) #:state state)) prompt))))
      (test-equal (length prompt) (state-length state llama)))
    (test-assert "the same bits on the scalar device"
      (tensor=? (llama prompt) (llama prompt #:device "cpu-scalar")))
    (test-equal "one trace for two devices" 1 (trace-count llama))))

(define (test-gpu-kernels path)
  "The kernels of GPUs, in the interpreter and on a device where there is one."
  (let* ((llama (make-llama (open-weights path) #:context 64))
         (prompt '(1 5 9))
         (right (llama prompt)))
    (test-assert "the same bits in the kernel interpreter" (tensor=? right (llama prompt #:device "interpreter")))
    (match (assoc "vulkan:0" (list-devices))
      ((name _ #f)
       (test-assert "the same bits on vulkan:0" (tensor=? right (llama prompt #:device name))))
      (_ (format (current-error-port) "skipped: a model in Scheme on vulkan:0 (there is no such device)~%")))
    (test-equal 1 (trace-count llama))))

(define (test-text-form path)
  "The text form of what was recorded is a graph again."
  (let ((text (graph->string (traced-graph (make-llama (open-weights path)) 'tokens))))
    (test-equal text (graph->string (string->graph text)))))

(define (sample random-state logits temperature)
  "A token by the probabilities of LOGITS."
  (let* ((numbers (tensor->list logits))
         (largest (apply max numbers))
         (shares (map (lambda (number) (exp (/ (- number largest) temperature))) numbers)))
    (let loop ((shares shares) (left (* (random 1.0 random-state) (apply + shares))) (token 0))
      (match shares
        ((share . rest)
         (if (or (< left share) (null? rest)) token (loop rest (- left share) (+ token 1))))))))

(define (sampled-tokens model prompt count)
  (let ((state (make-state))
        (random-state (seed->random-state 7)))
    (let loop ((rows prompt) (chosen '()))
      (if (= (length chosen) count)
          (reverse chosen)
          (let ((token (sample random-state (model rows #:state state) 1.5)))
            (loop (list token) (cons token chosen)))))))

(define (test-sampling path)
  "A sampling loop in Scheme: 200 tokens, one trace."
  (let* ((llama (make-llama (open-weights path)))
         (tokens (sampled-tokens llama '(1 2 3) 200)))
    (test-equal 200 (length tokens))
    (test-assert "not always the same token" (> (length (delete-duplicates tokens)) 5))
    (test-equal "traces of 200 sampled tokens" 1 (trace-count llama))
    (test-equal "the same on another device" tokens
      (sampled-tokens (make-llama (open-weights path) #:device "cpu-scalar") '(1 2 3) 200))))

(define (test-early-exit path)
  "A decoder that ends early: 200 tokens, one trace a part; and with no early end the built-in model."
  (let ((weights (open-weights path))
        (prompt '(5 6 7 8)))
    (let*-values (((decoder) (make-decoder weights 1))
                  ((tokens early) (decode-early decoder prompt 200 (lambda (guess) (> (margin guess) 0.4)))))
      (test-equal 200 (length tokens))
      (test-assert (format #f "some tokens come early, and not all: ~a" early) (< 0 early 200))
      (test-equal "traces of 200 tokens" '(1 1 1) (map trace-count decoder)))
    (let-values (((tokens early) (decode-early (make-decoder weights 1) prompt 50 (const #f))))
      (test-equal 0 early)
      (test-equal "never early is the whole model" tokens (greedy-tokens path prompt 50)))))

(define weights
  (let ((weights (make-weights)))
    (weights-add! weights "n.weight" (list->tensor '(1 1 1 1) '(4)))
    (weights-add! weights "w.weight" (list->tensor (map (lambda (n) (- n 7.5)) (iota 16)) '(4 4)))
    (weights-add! weights "w.bias" (list->tensor '(1 2 3 4) '(4)))
    (weights-add! weights "half.weight" (list->tensor '(0.5) '(1)))
    (weights-add! weights "wide.weight" (list->tensor (iota 32) '(4 8)))
    weights))

(define-traced (block x)
  #:weights weights
  (add x (linear (rms-norm x "n") "w")))

(define-traced (twice x)
  #:weights weights #:device "cpu"
  (outputs (block (block x))))

(define-traced (by-width x)
  #:weights weights
  (outputs (linear x (if (= (width x) 4) "w" "wide"))))

(define-traced (halved x)
  #:weights weights
  (outputs (scale x "half")))

(define (test-tracing)
  (let ((rows (list->tensor '(1 2 3 4 5 6 7 8) '(2 4))))
    (test-equal '(2 4) (tensor-dims (twice rows #:outputs 'all)))
    (test-equal '(1 4) (tensor-dims (twice rows)))
    (test-equal '(1 4) (tensor-dims (twice rows #:outputs 1)))
    (test-assert "rows do not see each other"
      (tensor=? (tensor-rows (twice rows #:outputs 'all) 0 1) (twice (tensor-rows rows 0 1))))
    (test-equal "a procedure inside another is part of its graph" '(1 0) (map trace-count (list twice block)))
    (by-width rows)
    (by-width rows)
    (by-width (list->tensor (iota 8)))
    (test-equal "one trace for each shape" 2 (trace-count by-width))
    (test-equal '(0.5 1.0 1.5 2.0) (tensor->list (halved (tensor-rows rows 0 1))))
    (test-equal 'graph (status-of (lambda () ((make-traced (lambda (x) (outputs (scale x "n"))) #:weights weights) rows))))
    ;; A procedure that reads no output rows cannot be run by itself; the condition says which value it is.
    (test-assert (string-contains (message-of (lambda () (block rows))) "must be f32 output rows"))
    (test-equal 'graph (status-of (lambda () (linear rows "w"))))
    (test-equal 'graph (status-of (lambda () ((make-traced (lambda (x) (outputs (linear x "absent"))) #:weights weights)
                                              rows))))
    (test-equal 'invalid-argument (status-of (lambda () (twice "text"))))
    (test-error "a keyword that there is not" 'keyword-argument-error (twice rows #:output 'all))
    ;; Abandoned in the middle: the next call records anew.
    (let* ((escape #f)
           (fickle (make-traced (lambda (x) (if escape (escape 'left)) (outputs x)) #:weights weights)))
      (test-equal 'left (call/ec (lambda (k) (set! escape k) (fickle rows))))
      (set! escape #f)
      (test-assert (tensor=? rows (fickle rows #:outputs 'all)))
      (test-equal 2 (trace-count fickle)))))

(define (test-state path)
  (let* ((llama (make-llama (open-weights path) #:context 100))
         (state (make-state))
         (whole (llama '(1 2 3 4 5) #:outputs 'all)))
    (llama '(1 2 3) #:state state)
    (llama '(9 9 9) #:state state)
    (test-equal 6 (state-length state llama))
    (state-truncate! state llama 3)
    (test-assert "what was forgotten leaves no trace"
      (tensor=? (tensor-rows whole 3 2) (llama '(4 5) #:state state #:outputs 'all)))
    (let ((elsewhere (lambda () (llama '(6) #:state state #:device "cpu-scalar"))))
      (test-equal "rows that another device has are not left out in silence" 'invalid-argument (status-of elsewhere))
      (test-assert (string-contains (message-of elsewhere) "rows of `llama` for tokens on cpu and"))
      (test-equal 5 (state-length state llama))
      (state-truncate! state llama 0)
      (test-assert "another device begins anew"
        (tensor=? whole (llama '(1 2 3 4 5) #:state state #:device "cpu-scalar" #:outputs 'all)))
      (state-truncate! state llama 0)
      (llama '(1 2 3 4 5) #:state state))
    (test-equal 'context-full (status-of (lambda () (llama (make-list 96 1) #:state state))))
    (test-equal "a failed call changes nothing" 5 (state-length state llama))
    (test-equal 'invalid-argument (status-of (lambda () (llama '(-1) #:state state))))
    (test-equal 'invalid-argument (status-of (lambda () (llama '(100000) #:state state))))))

(define (test-dropped-states path)
  "States that nothing refers to give their memory back when another one needs it; closed ones at once."
  (let* ((llama (make-llama (open-weights path) #:context 64))
         (rows (make-list 60 1))
         (right (llama rows))
         (closed (make-state)))
    (define (with-new-state)
      (tensor=? right (llama rows #:state (make-state))))
    (test-equal "no state is refused" (make-list 12 #t) (map (lambda (_) (with-new-state)) (iota 12)))
    (do ((round 0 (+ round 1))) ((= round 3))
      (let ((state (make-state)))
        (llama rows #:state state)
        (let ((before (live-handles)))
          (state-close! state)
          (test-assert "closing frees" (< (live-handles) before)))))
    (llama '(1 2) #:state closed)
    (state-close! closed)
    (state-close! closed)
    (test-equal 'invalid-handle (status-of (lambda () (llama '(3) #:state closed))))
    (test-equal 'invalid-handle (status-of (lambda () (state-length closed llama))))
    ;; Those in use stay.
    (let ((states (list (make-state) (make-state) (make-state) (make-state))))
      (test-equal "all in use" 'out-of-memory
        (status-of (lambda () (for-each (lambda (state) (llama rows #:state state)) states))))
      (test-equal 60 (state-length (car states) llama)))))

(define (test-threads path)
  "Threads share traced procedures: one trace and one program, and every handle is counted."
  (define (in-threads thunk)
    (map join-thread (map (lambda (_) (call-with-new-thread thunk)) (iota 4))))
  (let ((llama (make-llama (open-weights path) #:context 64 #:sequences 4)))
    (test-assert "the same bits in all threads"
      (every (lambda (logits) (tensor=? logits (llama '(1 2 3))))
             (in-threads (lambda () (llama '(1 2 3) #:state (make-state)))))))
  (let ((slow (make-traced (lambda (x) (usleep 20000) (outputs x)) #:weights weights))
        (rows (list->tensor '(1 2))))
    (in-threads (lambda () (slow rows)))
    (test-equal "one trace for all threads" 1 (trace-count slow)))
  (collect-all!)
  (let* ((unseen (lambda () (- (library-handles) (live-handles))))
         (before (unseen)))
    (in-threads (lambda ()
                  (do ((round 0 (+ round 1))) ((= round 4000))
                    (close-handle! (make-handle 'nothing round (const #f))))))
    (collect-all!)
    (test-equal "every handle is counted" before (unseen))))

(run-tests "nn"
  (test-tracing)
  (let ((tiny (fixture "llama")))
    (test-llama tiny '(1 5 9 13 200) 40)
    (test-text-form tiny)
    (test-gpu-kernels tiny)
    (test-sampling tiny)
    (test-early-exit tiny)
    (test-state tiny)
    (test-dropped-states tiny)
    (test-threads tiny))
  (let ((path (smollm2)))
    (when path
      (test-llama path (encode (open-tokenizer path) "The capital of France is") 8))))
